"""``forward``: ports of a sandbox on this machine, until Ctrl+C or the sandbox's end."""

from __future__ import annotations

import contextlib

from .. import errors
from ..ops import forward
from . import background, failure, output, values, words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from ..sandbox.forwarding import Forwarding
    from . import verbs

__all__ = ["build_parser", "run"]


class _ForwardOptions(words.Options):
    remote_port: list[str] | None
    local_port: int | None
    bind: str | None
    direct: bool
    allow_host: list[str] | None
    no_verify_tls: bool
    poll_interval: float | None
    background: bool


_NOTES = """\
HTTP/1.1 and WebSockets pass, with bodies of any size; raw TCP (ssh, databases) does not. A server that
checks the request's host sees localhost. The sandbox stays awake while something passes, an open
WebSocket included; one that was suspended because it was idle goes on with the next request. vmnest stop
and vmnest rm end the forwarding (exit status 1); Ctrl+C ends it well (0)."""


def build_parser(verb: verbs.Verb) -> words.Parser:
    """The verb's options."""
    parser = words.Parser(
        "forward",
        summary=verb.summary,
        names="NAME",
        notes=_NOTES,
        without_name=words.WITHOUT_NAME,
        with_more="Name the port with -r. ",
        options=_ForwardOptions,
    )
    parser.option(
        "-r", "--remote-port", metavar="REMOTE[:LOCAL]", repeat=True,
        help="port in the sandbox, with the local one if that differs (repeatable); 3000-3005 is a range",
    )  # fmt: skip
    parser.option(
        "-l", "--local-port", metavar="PORT", kind=_parse_port,
        help="local port, of a single one (default: the remote one's number; 0: any that is free)",
    )  # fmt: skip
    parser.option("--bind", metavar="ADDRESS", help="address to listen on (default: loopback; others let others in)")
    parser.switch("--direct", help="do not go through the agent, by which servers see requests for localhost")
    parser.option(
        "--allow-host", metavar="NAME", repeat=True, help="also answer to this name of this machine (repeatable)"
    )
    parser.switch("--no-verify-tls", help="do not check the endpoint's certificate (debugging only)")
    parser.option(
        "--poll-interval", metavar="SECONDS", kind=values.parse_seconds,
        help="time between two looks at the sandbox's state (default: 5)",
    )  # fmt: skip
    parser.switch("--background", help="return once it listens, and go on in the background")
    return parser


def _parse_port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) <= 65535):
        raise ValueError(f"must be a port, 0 to 65535: {text!r}")
    return int(text)


def run(verb: verbs.Verb, options: words.Options) -> int:
    """Do it, until it is interrupted or the sandbox ends."""
    assert isinstance(options, _ForwardOptions)
    values.check_option(options.bind, what="--bind")
    output.remark_unusual_place(options=options)
    if not options.remote_port:
        raise errors.UsageError("no port to forward", hint="Name the port in the sandbox: vmnest forward NAME -r 8000")
    if options.background:
        return _detach(options)

    def remark(text: str) -> None:
        output.remark(text, options=options)

    with output.warnings_as_remarks(options=options), _open(options, on_remark=remark) as forwarding:
        # To be ended by a signal is how it ends well: there is no other way to say that it is enough.
        with contextlib.suppress(failure.Ended):
            _tell(options, forwarding)
            forwarding.wait()
        remark("no longer forwarding")
    return 0


def _open(options: _ForwardOptions, *, on_remark: Callable[[str], None]) -> Forwarding:
    _raise_limit_of_files()
    return forward.open_forward(
        name=options.names[0],
        ports=options.remote_port or (),
        local_port=options.local_port,
        bind=options.bind,
        direct=options.direct,
        allow_hosts=options.allow_host or (),
        verify_tls=False if options.no_verify_tls else None,
        poll_interval=options.poll_interval,
        local=options.local or None,
        region=options.region,
        on_remark=on_remark,
    )


def _raise_limit_of_files() -> None:
    """As many as the system allows us: each WebSocket takes two, and shells often allow 1,024."""
    try:
        import resource
    except ModuleNotFoundError:  # Windows, which has no such limit
        return
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _tell(options: _ForwardOptions, forwarding: Forwarding) -> None:
    data = forward.describe(forwarding, name=options.names[0])
    output.result(data, options=options, text=_render(data))


def _render(data: dict[str, object]) -> str:
    forwards = data["forwards"]
    assert isinstance(forwards, list)
    return "".join(f"{each['url']} -> {data['name']}:{each['remote']}\n" for each in forwards)


def _detach(options: _ForwardOptions) -> int:
    """Leave it running in a process of its own."""
    name = options.names[0]

    def work(started: Callable[[dict[str, object]], None]) -> None:
        with _open(options, on_remark=background.log) as forwarding:
            started(forward.describe(forwarding, name=name))
            forwarding.wait()

    data = background.start(work, log_name=f"forward-{name}")
    output.result(data, options=options, text=_render(data))
    output.remark(
        f"it runs in the background: kill {data['pid']} ends it, problems go to {data['log']}", options=options
    )
    return 0
