"""A program for the inside of a VM: an HTTP server that shows what reached it. Python 3.9, standard library.

``/stream?N&S`` sends a line every S seconds, N times; ``/silent`` sends a head and then nothing; an upgrade is a
WebSocket that echoes frames, and speaks ``mirror.v1`` if that is offered; everything else answers what was asked.
"""

import base64
import hashlib
import http.server
import json
import socketserver
import sys
import time

PROTOCOL = "mirror.v1"
_CLOSE = 8
_MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self):
        if self.headers.get("Upgrade", "").lower() == "websocket":
            self.echo_frames()
        elif self.path.startswith("/stream"):
            count, pause = self.path.partition("?")[2].split("&")
            self.stream(int(count), float(pause))
        elif self.path == "/silent":
            self.send_response(200)
            self.send_header("Content-Length", "1")
            self.end_headers()
            time.sleep(3600)
        else:
            self.show()

    def do_GET(self):
        self.answer()

    def do_POST(self):
        self.answer()

    def do_PROPFIND(self):
        self.answer()

    def show(self):
        seen = {
            "method": self.command,
            "target": self.path,
            "headers": [[name.lower(), value] for name, value in self.headers.items()],
            "peer": self.client_address[0],
            "body": hashlib.sha256(self.read_body()).hexdigest(),
        }
        body = json.dumps(seen).encode()
        self.send_response(207)
        self.send_header("Set-Cookie", "a=1")
        self.send_header("Set-Cookie", "b=2")
        self.send_header("X-aws-proxy-error", "FORGED")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def read_body(self):
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def stream(self, count, pause):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for number in range(count):
            if number:
                time.sleep(pause)
            line = b"data: %d\n\n" % number
            self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
        self.wfile.write(b"0\r\n\r\n")

    def echo_frames(self):
        offered = [name.strip() for name in self.headers.get("Sec-WebSocket-Protocol", "").split(",")]
        key = self.headers["Sec-WebSocket-Key"].encode()
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key + _MAGIC).digest()).decode())
        self.send_header("X-Offered", json.dumps(offered))
        if PROTOCOL in offered:
            self.send_header("Sec-WebSocket-Protocol", PROTOCOL)
        self.end_headers()
        self.close_connection = True
        while frame := self.read_frame():
            self.wfile.write(frame)
            if frame[0] & 0x0F == _CLOSE:
                return

    def read_frame(self):
        """A client's frame as a server would send it, or nothing at the end."""
        head = self.rfile.read(2)
        if len(head) < 2:
            return b""
        length = head[1] & 0x7F
        more = self.rfile.read({126: 2, 127: 8}.get(length, 0))
        mask = self.rfile.read(4)
        masked = self.rfile.read(int.from_bytes(more, "big") if more else length)
        payload = bytes(byte ^ mask[place % 4] for place, byte in enumerate(masked))
        return head[:1] + bytes([length]) + more + payload

    def log_message(self, *arguments):
        pass


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True


if __name__ == "__main__":
    Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
