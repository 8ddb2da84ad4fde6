"""A site with what browsers and programs ask of one: pages, events, WebSockets, large bodies, cookies, redirects."""

import asyncio
import hashlib
from collections.abc import AsyncIterator

from fastapi import FastAPI, Request, Response, WebSocket
from fastapi.responses import FileResponse, HTMLResponse, RedirectResponse, StreamingResponse

BLOB = "/work/blob"
PAGE = """<!doctype html>
<html lang="en">
  <title>A site that FastAPI serves</title>
  <link rel="icon" href="data:,">
  <ul id="events"></ul>
  <script>
    const events = new EventSource("/events");
    events.onmessage = (event) => {
      const item = document.createElement("li");
      item.textContent = event.data;
      document.querySelector("#events").append(item);
    };
  </script>
</html>
"""

app = FastAPI()
listeners: "set[asyncio.Queue[str]]" = set()


@app.get("/", response_class=HTMLResponse)
def get_page() -> str:
    return PAGE


@app.get("/request")
def get_request(request: Request) -> dict[str, object]:
    """What arrives of a request."""
    return {
        "url": str(request.url),
        "client": request.client and request.client.host,
        "headers": request.headers.items(),
    }


@app.get("/events")
async def get_events() -> StreamingResponse:
    return StreamingResponse(_events(), media_type="text/event-stream")


async def _events() -> AsyncIterator[str]:
    queue: asyncio.Queue[str] = asyncio.Queue()
    listeners.add(queue)
    try:
        yield "data: first\n\n"
        while True:
            yield f"data: {await queue.get()}\n\n"
    finally:
        listeners.discard(queue)


@app.post("/events")
async def post_event(request: Request) -> int:
    """Tell everybody; to how many."""
    text = (await request.body()).decode()
    for queue in listeners:
        queue.put_nowait(text)
    return len(listeners)


@app.put("/blob")
async def put_blob(request: Request) -> dict[str, object]:
    digest, size = hashlib.sha256(), 0
    with open(BLOB, "wb") as file:
        async for piece in request.stream():
            digest.update(piece)
            size += file.write(piece)
    return {"sha256": digest.hexdigest(), "size": size}


@app.get("/blob")
def get_blob() -> FileResponse:
    return FileResponse(BLOB)


@app.get("/login")
def log_in() -> Response:
    """Two cookies, and on to a page that is named by a whole URL, as many frameworks do."""
    answer = RedirectResponse("http://localhost:8000/request", status_code=303)
    answer.set_cookie("session", "s3", httponly=True, domain="localhost")
    answer.set_cookie("theme", "dark", samesite="strict")
    return answer


@app.websocket("/echo")
async def echo(socket: WebSocket) -> None:
    """Speaks first; ends with a code of its own when it is told to."""
    await socket.accept(subprotocol="echo.v1")
    await socket.send_text("welcome")
    while (text := await socket.receive_text()) != "end":
        await socket.send_text(text)
    await socket.close(code=4001, reason="as you say")
