"""The routes of processes: start, watch, feed, signal, forget."""

from __future__ import annotations

import re
import signal

from . import answers, commands, documents, processes, queries, readers, terminals, wire
from .errors import RequestError, bad_argument

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .loop import Loop
    from .routes import Routes
    from .running import Process
    from .server import Request

_ONE = wire.PROCESSES_PATH + "/{id}"
_RETAIN_MODES = (wire.RETAIN_BLOCK, wire.RETAIN_DROP)
_REALTIME = re.compile(r"RTMIN\+([0-9]{1,2})")


class ProcessApi:
    """Serves the processes of an agent.

    Args:
        known: Its processes.
        builder: Builds what is to be started.
        loop: Watches connections.
    """

    def __init__(self, known: processes.Processes, *, builder: commands.Commands, loop: Loop) -> None:
        self._known = known
        self._builder = builder
        self._loop = loop

    def routes(self) -> Routes:
        """What is served here."""
        return {
            wire.PROCESSES_PATH: {"GET": self._list, "POST": self._start},
            _ONE: {"GET": self._tell, "DELETE": self._delete},
            _ONE + "/output": {"GET": self._output},
            _ONE + "/stdin": {"POST": self._stdin},
            _ONE + "/signal": {"POST": self._signal},
            _ONE + "/resize": {"POST": self._resize},
        }

    def _list(self, request: Request) -> answers.Answer:
        return answers.build_json(200, {"processes": [one.document() for one in self._known.list()]})

    def _start(self, request: Request) -> answers.Answer:
        query = queries.Query(request.head)
        place = None if query.one("wait") is None else _Place(query)
        document = documents.receive(request.body)
        process_id = commands.parse_id("id", document.text("id"))
        process, is_new = self._known.start(process_id, lambda: self._build_order(document))
        if place is None:
            return answers.build_json(201 if is_new else 200, process.document())
        return self._stream(request, process, place=place)

    def _build_order(self, document: documents.Document) -> processes.Order:
        retain = document.text("retain", wire.RETAIN_BLOCK)
        if retain not in _RETAIN_MODES:
            raise bad_argument("retain", f"must be {' or '.join(_RETAIN_MODES)}")
        limit = document.count("output_limit", wire.DEFAULT_RETAINED_BYTES, maximum=wire.MAX_OUTPUT_BYTES)
        return processes.Order(self._builder.build_process(document), output_limit=limit, retain=retain)

    def _tell(self, request: Request) -> answers.Answer:
        return answers.build_json(200, self._find(request).document())

    def _output(self, request: Request) -> answers.Answer:
        return self._stream(request, self._find(request), place=_Place(queries.Query(request.head)))

    def _stream(self, request: Request, process: Process, *, place: _Place) -> answers.Answer:
        reader = readers.Reader(process, place.offset, loop=self._loop, connection=request.connection)
        blocks = reader.blocks(wait=place.wait, limit=place.limit)
        answer = answers.Answer(200, length=None, blocks=blocks, headers=(("Content-Type", wire.FRAMES_TYPE),))
        answer.close = reader.close
        return answer

    def _stdin(self, request: Request) -> answers.Answer:
        query = queries.Query(request.head)
        process = self._find(request)
        name = query.one("writer")
        writer = "" if name is None else commands.parse_id("writer", name.decode("ascii", "replace"))
        body = request.body.read(wire.MAX_STDIN_BYTES)
        if process.input is None:
            raise RequestError(409, wire.NO_STDIN, f"process {process.id} was started without a standard input")
        process.input.feed(
            body,
            offset=query.count("offset"),
            is_last=query.flag("eof"),
            seconds=query.seconds("wait", wire.MAX_WAIT_SECONDS, maximum=wire.MAX_WAIT_SECONDS),
            hangup=request.connection.fileno(),
            writer=writer,
        )
        return answers.build_json(200, {"offset": process.input.taken(writer), "closed": process.input.is_closed})

    def _signal(self, request: Request) -> answers.Answer:
        process = self._find(request)
        number = parse_signal(documents.receive(request.body).raw("signal"))
        return answers.build_json(200, {"delivered": process.send_signal(number)})

    def _resize(self, request: Request) -> answers.Answer:
        process = self._find(request)
        document = documents.receive(request.body)
        process.resize(terminals.parse_size({name: document.raw(name) for name in ("cols", "rows")}, field="size"))
        return answers.build_json(200, {})

    def _delete(self, request: Request) -> answers.Answer:
        process = self._known.forget(request.parameter)
        process.kill()
        return answers.build_json(200, process.document())

    def _find(self, request: Request) -> Process:
        return self._known.find(request.parameter)


class _Place:
    """From which offset on output is wanted, how much of it, and how long a quiet process is waited for."""

    __slots__ = ("limit", "offset", "wait")

    def __init__(self, query: queries.Query) -> None:
        self.offset = query.count("offset")
        self.limit = query.count("limit", wire.MAX_STREAM_BYTES)
        self.wait = query.seconds("wait", 0.0, maximum=wire.MAX_WAIT_SECONDS)


def parse_signal(value: object) -> int:
    """The number of a signal: ``INT``, ``SIGINT``, ``RTMIN+1`` or 2.

    Raises:
        RequestError: there is no such signal.
    """
    if isinstance(value, str):
        name = value.upper()
        name = name[3:] if name.startswith("SIG") else name
        realtime = _REALTIME.fullmatch(name)
        if realtime is not None:
            value = signal.SIGRTMIN + int(realtime[1])
        else:
            value = getattr(signal.Signals, "SIG" + name, None)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= signal.SIGRTMAX:
        raise bad_argument("signal", "must be the name or the number of a signal")
    return int(value)
