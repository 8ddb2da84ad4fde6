"""The forwarder: ports of this machine that lead to ports in a sandbox, for HTTP/1.1 and WebSockets."""
