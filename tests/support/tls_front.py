"""TLS in front of a port, as on the way into a MicroVM: bytes pass as they come, the end of one direction does not."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress

BLOCK_BYTES = 65536


@contextmanager
def tls_front(port: int, *, context: ssl.SSLContext) -> Iterator[str]:
    """The URL by which the port is reached over TLS, until the block ends."""
    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(asyncio.start_server(_joined_to(port), "127.0.0.1", 0, ssl=context))
    thread = threading.Thread(target=loop.run_forever, name="tls-front")
    thread.start()
    try:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        asyncio.run_coroutine_threadsafe(_end(server), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


def _joined_to(port: int) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[None, None, None]]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            back_reader, back_writer = await asyncio.open_connection("127.0.0.1", port)
            await asyncio.gather(_carry(reader, back_writer), _carry(back_reader, writer))

    return serve


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(BLOCK_BYTES):
            writer.write(data)
            await writer.drain()
    with suppress(OSError):
        writer.close()
        await writer.wait_closed()


async def _end(server: asyncio.Server) -> None:
    server.close()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
