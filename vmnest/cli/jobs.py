"""``jobs``, ``attach``, ``kill``: commands that run in a sandbox while nobody waits for them."""

from __future__ import annotations

from ..ops import processes
from ..wire import names
from . import commands, output, render, tables, values, words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from . import verbs

__all__ = ["build_parser", "run"]

LONGEST_COMMAND_CHARS = 60


class _JobOptions(words.Options):
    no_resume: bool


class _ListOptions(_JobOptions):
    all: bool


class _AttachOptions(_JobOptions, commands.OutputOptions):
    from_offset: int | None


class _KillOptions(_JobOptions):
    signal: str | int | None


_LIST_NOTES = "Without --all, commands that were waited for are listed only as long as they run."
_ATTACH_NOTES = (
    "Without -i, Ctrl+C ends the looking on, and the job goes on. With -i it is for the job, and in a terminal\n"
    "the keys ~. at the beginning of a line leave."
)


def build_parser(verb: verbs.Verb) -> words.Parser:
    """The verb's options."""
    parser = {"jobs": _list_parser, "attach": _attach_parser, "kill": _kill_parser}[verb.title](verb)
    words.add_no_resume(parser)
    return parser


def _list_parser(verb: verbs.Verb) -> words.Parser:
    parser = words.Parser("jobs", summary=verb.summary, names="NAME", notes=_LIST_NOTES, options=_ListOptions)
    parser.switch("-a", "--all", help="also commands that have ended and were waited for")
    return parser


def _attach_parser(verb: verbs.Verb) -> words.Parser:
    parser = words.Parser("attach", summary=verb.summary, names="NAME JOB", notes=_ATTACH_NOTES, options=_AttachOptions)
    parser.option(
        "--from-offset",
        metavar="N",
        kind=values.parse_offset,
        help="pass over so many bytes of its output (default: 0, all that is kept)",
    )
    parser.switch("-i", "--interactive", help="hand standard input on")
    commands.add_output_options(parser)
    return parser


def _kill_parser(verb: verbs.Verb) -> words.Parser:
    parser = words.Parser(
        "kill",
        summary=verb.summary,
        names="NAME JOB",
        without_name="vmnest jobs NAME lists what runs in a sandbox; vmnest rm NAME ends the sandbox itself. ",
        options=_KillOptions,
    )
    parser.option(
        "-s", "--signal", metavar="SIGNAL", kind=values.parse_signal, help="its name or number (default: TERM)"
    )
    return parser


def run(verb: verbs.Verb, options: words.Options) -> int:
    """Do it; the status of ``attach`` is the job's."""
    output.remark_unusual_place(options=options)
    with output.warnings_as_remarks(options=options):
        return {"jobs": _list, "attach": _attach, "kill": _kill}[verb.title](options)


# -- jobs --------------------------------------------------------------------------------------------------------------


_COLUMNS = (
    "JOB",
    "STATE",
    "AGE",
    tables.Column("OUTPUT", rank=1, right=True),
    tables.Column("COMMAND", shrinks=True),
)


def _list(options: words.Options) -> int:
    assert isinstance(options, _ListOptions)
    (name,) = options.names
    data = processes.list_jobs(
        name=name,
        everything=options.all,
        resume=not options.no_resume,
        local=options.local or None,
        region=options.region,
    )
    listed = data["jobs"]
    assert isinstance(listed, list)
    rows = [_row(each) for each in listed]
    output.result(data, options=options, text=output.table(_COLUMNS, rows) if rows else "")
    if not rows:
        output.remark(f"there are no jobs in {name}", options=options)
    return 0


def _row(job: dict[str, object]) -> list[object]:
    return [job["job"], _state(job), render.render_age_since(job["started_at"]), job["offset"], _command(job)]


def _state(job: dict[str, object]) -> str:
    if job["exit_code"] is None:
        return str(job["state"])
    if job["timed_out"]:
        return "timed out"
    return str(job["signal"] or f"status {job['exit_code']}")


def _command(job: dict[str, object]) -> str:
    import shlex

    command = job["command"]
    assert isinstance(command, list)
    if command == ["sh", "-c", names.LOGIN_SHELL]:
        return "(login shell)"
    line = shlex.join(command)
    return line if len(line) <= LONGEST_COMMAND_CHARS else line[: LONGEST_COMMAND_CHARS - 1] + "…"


# -- attach and kill ---------------------------------------------------------------------------------------------------


def _attach(options: words.Options) -> int:
    assert isinstance(options, _AttachOptions)
    name, job = options.names
    commands.check_limit(options)
    front = commands.build_front(options, name=name, leaves=True)
    data = processes.attach_job(
        name=name,
        job=job,
        front=front,
        offset=options.from_offset or 0,
        resume=not options.no_resume,
        local=options.local or None,
        region=options.region,
    )
    return commands.finish(data, options=options, front=front)


def _kill(options: words.Options) -> int:
    assert isinstance(options, _KillOptions)
    name, job = options.names
    data = processes.kill_job(
        name=name,
        job=job,
        signal=options.signal or "TERM",
        resume=not options.no_resume,
        local=options.local or None,
        region=options.region,
    )
    output.result(data, options=options, text=f"{render.to_printable(data['job'])}\n")
    if not data["delivered"]:
        output.remark(f"{data['job']} has ended already", options=options)
    return 0
