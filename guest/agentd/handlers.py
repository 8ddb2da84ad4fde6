"""The routes of the agent's own API: what the host asks for, and what it gets."""

from __future__ import annotations

import binascii
import contextlib
import string
import time

from . import __version__, answers, commands, documents, files, wire
from .errors import RequestError, bad_argument

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from .process import Outcome, Runner
    from .routes import Routes
    from .server import Request
    from .state import State

_DECODE_CHARACTERS = 4 * 65536
_BASE64_ALPHABET = (string.ascii_letters + string.digits + "+/").encode("ascii")
_TEXT_ENCODINGS = frozenset({wire.ENCODING_TEXT, "utf8", "text"})


class Api:
    """The base contract: health, one-shot commands, whole files.

    Args:
        state: Of this agent.
        runner: Runs the commands.
        builder: Builds them.
    """

    def __init__(self, state: State, *, runner: Runner, builder: commands.Commands) -> None:
        self._state = state
        self._runner = runner
        self._builder = builder
        self._begin = time.monotonic()

    def routes(self) -> Routes:
        """What is served here."""
        return {
            wire.HEALTH_PATH: {"GET": self._health},
            wire.EXEC_PATH: {"POST": self._exec},
            wire.FS_READ_PATH: {"POST": self._read},
            wire.FS_WRITE_PATH: {"POST": self._write},
        }

    def _health(self, request: Request) -> answers.Answer:
        document = {"status": "ok", "version": __version__, "features": list(wire.FEATURES)}
        return answers.build_json(200, {**document, "uptime": round(time.monotonic() - self._begin, 3)})

    def _exec(self, request: Request) -> answers.Answer:
        exec_id = _parse_exec_id(request)
        command = self._builder.build(documents.receive(request.body))
        with contextlib.ExitStack() as stack:
            # In flight until its answer is sent: a suspend cuts the connection.
            stack.enter_context(self._state.activity)
            # First of all: whatever else is answered then also says that the command was not started before.
            with self._once(exec_id):
                if self._state.suspension.is_near:
                    raise RequestError(
                        503, wire.SUSPENDING, "the sandbox is about to be suspended: nothing was started"
                    )
                hangup = request.connection.fileno()
                outcome = stack.enter_context(self._runner.run(command, name=exec_id, hangup=hangup))
            answer = _build_outcome(outcome, timeout=command.timeout)
            answer.close = stack.pop_all().close
            return answer

    @contextlib.contextmanager
    def _once(self, exec_id: str) -> Iterator[None]:
        """Run a command in this block, unless one of that id was started before."""
        if exec_id and not self._state.started.claim(exec_id):
            raise RequestError(409, wire.ALREADY_STARTED, "a command of this id was started before")
        try:
            yield
        except RequestError:
            self._state.started.forget(exec_id)
            raise

    def _read(self, request: Request) -> answers.Answer:
        document = documents.receive(request.body)
        content = files.open_file(self._builder.resolve("path", document.text("path")))
        answer = answers.build_bulky(
            200, {"encoding": wire.ENCODING_BASE64}, [("content", content.size, content.pieces())]
        )
        answer.close = content.close
        return answer

    def _write(self, request: Request) -> answers.Answer:
        document = documents.receive(request.body)
        path = self._builder.resolve("path", document.text("path"))
        content = document.text("content")
        encoding = document.text("encoding", wire.ENCODING_BASE64)
        if encoding == wire.ENCODING_BASE64:
            check_base64(content)
            count = files.write_file(path, decode_base64(content)).count
        elif encoding in _TEXT_ENCODINGS:
            count = files.write_file(path, [_encode_content(content)]).count
        else:
            raise bad_argument("encoding", f"must be {wire.ENCODING_BASE64} or {wire.ENCODING_TEXT}")
        return answers.build_json(200, {"bytes_written": count})


def _parse_exec_id(request: Request) -> str:
    """The caller's id of the command; empty if there is none."""
    exec_id = request.head.value(wire.EXEC_ID_HEADER)
    return commands.parse_id(wire.EXEC_ID_HEADER, exec_id) if exec_id else ""


def check_base64(text: str) -> None:
    """Refuse what is not exactly base64: a lenient decoder would write an empty or truncated file.

    Raises:
        RequestError: of the member ``content``.
    """
    problem = bad_argument("content", "is not valid base64")
    if len(text) % 4 or not text.isascii():
        raise problem
    padding = len(text) - len(text.rstrip("="))
    if padding > 2:
        raise problem
    for start in range(0, len(text) - padding, _DECODE_CHARACTERS):
        piece = text[start : min(start + _DECODE_CHARACTERS, len(text) - padding)]
        if piece.encode("ascii").translate(None, _BASE64_ALPHABET):
            raise problem


def decode_base64(text: str) -> Iterator[bytes]:
    """The bytes of a checked base64 text, in pieces, so that large content stands in memory once."""
    for start in range(0, len(text), _DECODE_CHARACTERS):
        yield binascii.a2b_base64(text[start : start + _DECODE_CHARACTERS])


def _encode_content(text: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        raise bad_argument("content", "must not contain a lone surrogate") from None


def _build_outcome(outcome: Outcome, *, timeout: float | None) -> answers.Answer:
    document: dict[str, object] = {}
    if outcome.timed_out:
        detail = f"command timed out after {timeout:g} s"
        document = {"detail": detail, "code": wire.TIMED_OUT, "timed_out": True}
    # Before the output, so that a client that reads as it comes knows what it is reading.
    document.update(exit_code=outcome.exit_code, signal=outcome.signal, encoding=wire.ENCODING_BASE64)
    if outcome.stdout.truncated or outcome.stderr.truncated:
        document["truncated"] = True
    bulk = [
        ("stdout", outcome.stdout.size, outcome.stdout.pieces()),
        ("stderr", outcome.stderr.size, outcome.stderr.pieces()),
    ]
    return answers.build_bulky(504 if outcome.timed_out else 200, document, bulk)
