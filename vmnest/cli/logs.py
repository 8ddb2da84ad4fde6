"""``logs``: what a sandbox has printed, as far as it is kept, and what it prints."""

from __future__ import annotations

import re

from .. import errors
from ..ops import logs
from . import output, render, terminal, values, words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from . import verbs

__all__ = ["build_parser", "run"]

_BESIDE = re.compile(r"(?:\]|microvm-)[^/\]]*/(.+)", re.DOTALL)


_DATED = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3})Z (?=agentd: )", re.ASCII)
_SAME_SECONDS = 2.0  # from when a line is written to when it is logged


class _Options(words.Options):
    log_group: str | None
    follow: bool
    since: float | None
    tail: int | None
    grep: str | None
    timestamps: bool
    build: bool
    timeout: float | None


_NOTES = (
    "NAME may be the id of a MicroVM: the log of a sandbox stays when it has ended, or was removed.\n"
    "Reading wakes nothing, and needs no agent. On AWS it is CloudWatch Logs that has the log, seconds after it was\n"
    "written; a sandbox without an execution role leaves none. With --follow, --json prints an object a line."
)


def build_parser(verb: verbs.Verb) -> words.Parser:
    """The verb's options."""
    parser = words.Parser(
        verb.title,
        summary=verb.summary,
        names="NAME",
        notes=_NOTES,
        without_name=words.WITHOUT_NAME,
        with_more="One sandbox at a time. ",
        options=_Options,
    )
    parser.option(
        "--log-group", metavar="GROUP", help="CloudWatch log group (default: the sandbox's own, else its image's)"
    )
    parser.switch("-f", "--follow", help="go on with what is logged from now on, until the sandbox has ended")
    parser.option("--since", metavar="SECONDS", kind=values.parse_seconds, help="only the last so many seconds")
    parser.option("-n", "--tail", metavar="N", kind=_parse_count, help="only the last N events")
    parser.option("--grep", metavar="REGEX", help="only events in which this regular expression is found")
    parser.switch("-t", "--timestamps", help="show the time of each line")
    parser.switch("--build", help="what was logged while the sandbox's image was built")
    parser.option(
        "--timeout",
        metavar="SECONDS",
        kind=values.parse_seconds,
        help=f"how long reading may take (default: {logs.ASK_SECONDS:.0f}); with --follow: end it after so long",
    )
    return parser


def _parse_count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text[:9]) <= logs.MOST_EVENTS and len(text) <= 9):
        raise ValueError(f"must be a number of events, 0 to {logs.MOST_EVENTS}: {text!r}")
    return int(text)


def run(verb: verbs.Verb, options: words.Options) -> int:
    """Do it."""
    assert isinstance(options, _Options)
    output.remark_unusual_place(options=options)
    if options.follow:
        _check_follow(options)
        _follow(options)
    elif options.json:
        output.result(_read(options), options=options, text="")
    else:
        _print(options)
    return 0


def _check_follow(options: _Options) -> None:
    if options.build:
        raise errors.UsageError("--build and --follow contradict each other", hint="Give one of them.")


def _read(options: _Options, *, cursor: str | None = None) -> dict[str, object]:
    with output.progress(f"reading the log of {options.names[0]}", options=options):
        return logs.sandbox_logs(
            name=options.names[0],
            log_group=options.log_group,
            since=options.since,
            tail=options.tail,
            grep=options.grep,
            build=options.build,
            cursor=cursor,
            local=options.local or None,
            region=options.region,
            timeout=options.timeout or logs.ASK_SECONDS,
        )


def _print(options: _Options) -> None:
    """All of it, one answer after the other: a log may be larger than what one answer, or the memory, holds."""
    data = _read(options)
    count = _write(_events(data), options=options)
    while data["more"]:
        data = _read(options, cursor=str(data["cursor"]))
        count += _write(_events(data), options=options)
    if not count:
        chosen = options.since or options.grep or options.tail is not None
        nothing = "nothing that was asked for" if chosen else "nothing"
        output.remark(f"{nothing} is logged of {options.names[0]}{_reason(data)}", options=options)


def _reason(data: Mapping[str, object]) -> str:
    return f": {data['note']}" if data["note"] else f" in {data['log_group']}"


def _follow(options: _Options) -> None:
    events = logs.follow_logs(
        name=options.names[0],
        log_group=options.log_group,
        since=options.since,
        tail=options.tail,
        grep=options.grep,
        local=options.local or None,
        region=options.region,
        timeout=options.timeout,
        on_remark=lambda text: output.remark(text, options=options),
    )
    for event in events:
        if options.json:
            terminal.write_text(terminal.STDOUT, render.render_json(event))
        else:
            _write([event], options=options)


# -- events as text ----------------------------------------------------------------------------------------------------


def _write(events: Iterable[Mapping[str, object]], *, options: _Options) -> int:
    """Print events; how many there were."""
    lines = [_to_text(event, with_time=options.timestamps) for event in events]
    terminal.write_text(terminal.STDOUT, "".join(lines))
    return len(lines)


def _to_text(event: Mapping[str, object], *, with_time: bool) -> str:
    """The lines of an event, each with what tells where it is from. What it says cannot steer a terminal."""
    label = _label(str(event["stream"]))
    before = f"[{render.to_printable(label)}] " if label else ""
    if with_time:
        before = f"{render.render_moment(event['time'])}  {before}"
    message = str(event["message"])
    if with_time:
        message = _undated(message, event["time"])
    lines = message.rstrip("\r\n").splitlines() or [""]
    return "".join(f"{before}{_printable(line)}\n" for line in lines)


def _undated(message: str, time: object) -> str:
    """What vmnest's agent says, without its own date if that is the moment that is shown beside it."""
    from datetime import datetime

    found = _DATED.match(message)
    if found is None:
        return message
    try:
        said, logged = (datetime.fromisoformat(text) for text in (f"{found[1]}+00:00", str(time)))
        apart = abs((said - logged).total_seconds())
    except (ValueError, TypeError):  # no date, or one without a zone
        return message
    return message[found.end() :] if apart < _SAME_SECONDS else message


def _label(stream: str) -> str:
    """What a stream beside a MicroVM's main one is called: the rest of ``2026/11/30[1.0]microvm-…/egress``."""
    found = _BESIDE.search(stream)
    return found[1] if found else ""


def _printable(line: str) -> str:
    return "\t".join(render.to_printable(part) for part in line.split("\t"))


def _events(data: Mapping[str, object]) -> list[Mapping[str, object]]:
    found = data["events"]
    assert isinstance(found, list)
    return found
