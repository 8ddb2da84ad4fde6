"""``exec`` and ``run``: their exit status is that of the command in the sandbox."""

from __future__ import annotations

import contextlib

from .. import errors, settings
from ..ops import commands, processes
from . import attending, creation, output, render, terminal, values, variables, words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from . import verbs

__all__ = [
    "EnvironmentOptions",
    "OutputOptions",
    "add_environment_options",
    "add_output_options",
    "build_front",
    "build_parser",
    "check_limit",
    "finish",
    "naming_options",
    "resolve_environment",
    "run",
]

LARGEST_STATUS = 255  # a larger one, of which the system takes the last 8 bits, could come out as 0


class OutputOptions(words.Options):
    """Where a command's output goes, and where its input comes from."""

    interactive: bool
    stream: bool
    output_limit: int | None


class EnvironmentOptions(words.Options):
    """The variables of a command."""

    env: list[str] | None
    env_file: list[str] | None
    secret: list[str] | None


class _ExecOptions(OutputOptions, EnvironmentOptions):
    workdir: str | None
    timeout: float | None
    shell: bool
    tty: bool
    no_tty: bool
    user: str | None
    ulimit: list[tuple[str, tuple[int, int]]] | None


class _InSandboxOptions(_ExecOptions):
    background: bool
    no_resume: bool


class _RunOptions(_ExecOptions, creation.CreationOptions):
    pass


_EXEC_NOTES = (
    "The command begins after --, or with the first word after NAME; nothing in it is looked at.\n"
    "Ctrl+C is for the command; twice kills it. With -it the keys ~. at the beginning of a line leave it running."
)
_NOT_INPUT = "-i is --image here; standard input is handed on with --interactive, in a terminal with --interactive -t. "
_USER = "It is --user USER here. "
_NO_BACKGROUND = "For a sandbox that stays: vmnest create NAME, then vmnest exec --background NAME -- COMMAND. "
_RUN_HABITS = {
    **creation.HABITS,
    **dict.fromkeys(("-it", "-ti", "-i --"), _NOT_INPUT),
    **dict.fromkeys(("-d", "--detach", "--background"), _NO_BACKGROUND),
    "--rm": "The sandbox of run is always removed: leave it out. ",
    "--name": "The sandbox of run has no name. One that has: vmnest create NAME, then vmnest exec NAME -- COMMAND. ",
    "-u": _USER,
}
_EXEC_HABITS = {
    **dict.fromkeys(("-d", "--detach"), "vmnest exec --background leaves a command running. "),
    **dict.fromkeys(("-v", "--volume", "--mount"), "Files are copied: vmnest cp -r DIR NAME:PATH. "),
    **dict.fromkeys(("-p", "--publish"), "Ports are forwarded: vmnest forward NAME -r PORT. "),
    **dict.fromkeys(("--network", "--net"), "What it may reach is settled when it is made: vmnest create --help. "),
    "--name": "The name of the sandbox needs no option: vmnest exec NAME -- COMMAND. ",
    "--rm": "A sandbox is removed by vmnest rm NAME, and that of vmnest run by itself. ",
    "-u": _USER,
}
_RUN_NOTES = "The sandbox is removed afterwards, whatever happens."


def build_parser(verb: verbs.Verb) -> words.Parser:
    """The verb's options. For ``run``, -e and -i are of the sandbox: they mean egress and image, as for ``create``."""
    if verb.title == "exec":
        parser = words.Parser(
            "exec",
            summary=verb.summary,
            names="NAME",
            command="after names",
            notes=_EXEC_NOTES,
            habits=_EXEC_HABITS,
            options=_InSandboxOptions,
        )
        _add_exec_options(parser, env="-e", interactive="-i")
        parser.switch("--background", help="leave it running, and print the id by which jobs, attach and kill know it")
        words.add_no_resume(parser)
        return parser
    parser = words.Parser(
        "run",
        summary=verb.summary,
        names="[IMAGE]",
        command="after--",
        notes=_RUN_NOTES,
        habits=_RUN_HABITS,
        options=_RunOptions,
    )
    creation.add_options(parser)
    _add_exec_options(parser)
    return parser


def _add_exec_options(parser: words.Parser, **short: str) -> None:
    add_environment_options(parser, env=short.get("env"))
    parser.option("-w", "--workdir", metavar="DIR", help="working directory of the command")
    parser.option("--user", metavar="USER", help="user to run it as, a name or a number")
    parser.option(
        "--ulimit",
        metavar="NAME=SOFT[:HARD]",
        kind=values.parse_ulimit,
        repeat=True,
        help="a resource limit: nofile, nproc, core, ...; -1 is for none (repeatable)",
    )
    parser.option(
        "--timeout",
        metavar="SECONDS",
        kind=values.parse_seconds,
        help="end the command, and all that it started, after so long (default: never)",
    )
    parser.switch("--shell", help="join the words by spaces and let a login shell run them (bash, else sh)")
    _add_stream_options(parser, **short)


def _add_stream_options(parser: words.Parser, **short: str) -> None:
    parser.switch(*filter(None, [short.get("interactive")]), "--interactive", help="hand standard input on")
    parser.switch("-t", "--tty", help="run it in a terminal, of the size of the one here")
    parser.switch("--no-tty", help="run it in none, even with -t")
    add_output_options(parser)


def add_output_options(parser: words.Parser) -> None:
    """The options of ``OutputOptions``."""
    parser.switch("--stream", help="with --json: print output as it comes, one JSON object a line")
    parser.option(
        "--output-limit",
        metavar="BYTES",
        kind=values.parse_bytes,
        help="with --json: how much of each stream is shown, its beginning and end (64k, 1M; default: 64M)",
    )


def add_environment_options(parser: words.Parser, *, env: str | None = None) -> None:
    """The options of ``EnvironmentOptions``; ``env`` is the short one."""
    parser.option(
        *filter(None, [env]),
        "--env",
        metavar="NAME[=VALUE]",
        repeat=True,
        help="set a variable for the command; without a value, to the one here (repeatable)",
    )
    parser.option(
        "--env-file",
        metavar="FILE",
        repeat=True,
        help="set variables from the lines of a file, as docker does: NAME=VALUE or NAME (repeatable)",
    )
    parser.option(
        "--secret",
        metavar="NAME",
        repeat=True,
        help="set a variable to its value here, which is shown nowhere; it must be set (repeatable)",
    )


def run(verb: verbs.Verb, options: words.Options) -> int:
    """Do it, and return the command's status."""
    assert isinstance(options, _ExecOptions)
    output.remark_unusual_place(options=options)
    is_background = isinstance(options, _InSandboxOptions) and options.background
    _check(options, is_background=is_background)
    with creation.leading_to_doctor(), output.warnings_as_remarks(options=options), naming_options():
        if is_background:
            assert isinstance(options, _InSandboxOptions)
            return _start(options)
        front = build_front(options, name=options.names[0] if isinstance(options, _InSandboxOptions) else None)
        data = _run(options, front) if isinstance(options, _RunOptions) else _exec(options, front)
    return finish(data, options=options, front=front)


def _check(options: _ExecOptions, *, is_background: bool) -> None:
    for number, word in enumerate(options.words):
        values.check_text(word, what=f"word {number + 1} of the command")
    values.check_option(options.workdir, what="--workdir")
    values.check_option(options.user, what="--user")
    if _wants_terminal(options) and options.json and not is_background:
        raise errors.UsageError(
            "--tty and --json do not go together",
            hint="A terminal is for a person, --json for a program: leave one of them out.",
        )
    if options.stream and is_background:
        raise errors.UsageError("--background shows no output to --stream", hint="vmnest attach does.")
    if not is_background:
        check_limit(options)


@contextlib.contextmanager
def naming_options() -> Iterator[None]:
    """Have errors name the option by which the user gave what the library and the agent call otherwise."""
    try:
        yield
    except (errors.BadArgumentError, errors.CwdNotFoundError) as error:
        for field, option in (("rlimits.", "--ulimit "), ("cwd", "--workdir")):
            if error.message.startswith(field):
                error.message = option + error.message.removeprefix(field)
        raise


def check_limit(options: OutputOptions) -> None:
    """Refuse a limit of output that nothing keeps."""
    if options.output_limit and (options.stream or not options.json):
        raise errors.UsageError("--output-limit is for --json alone", hint="Otherwise all output arrives as it comes.")


def _wants_terminal(options: _ExecOptions) -> bool:
    return options.tty and not options.no_tty


def build_front(options: OutputOptions, *, name: str | None, leaves: bool = False) -> attending.Front:
    """What becomes of a command's output; ``name`` is that of a sandbox in which the user may leave the command."""
    if options.json and options.stream:
        return attending.LinesFront(options, name=name, reads=options.interactive, leaves=leaves)
    if options.json:
        limit = options.output_limit
        return attending.CollectingFront(options, name=name, reads=options.interactive, leaves=leaves, limit=limit)
    return attending.Front(options, name=name, reads=options.interactive, leaves=leaves)


def finish(data: dict[str, object], *, options: words.Options, front: attending.Front) -> int:
    """Print what is left to print of a command's end, and return its exit status."""
    if "exit_code" not in data:
        return 0  # the user has left it running
    if isinstance(front, attending.LinesFront):
        front.end(data)
    elif options.json:
        output.result(data, options=options, text="")
    if data["truncated"]:
        output.remark("the output is not whole: it is larger than what is kept of it", options=options)
    if data["timed_out"]:
        seconds = getattr(options, "timeout", None)
        # Another agent than ours may have a timeout of its own, and whom we attach to was started by somebody else.
        after = "at its timeout" if seconds is None else f"after {seconds:g} s"
        output.remark(f"the command was ended {after}", options=options)
        return errors.EXIT_TIMED_OUT
    if front.was_killed:
        return errors.EXIT_INTERRUPTED
    status = data["exit_code"]
    assert isinstance(status, int)
    return min(status, LARGEST_STATUS)


def _command(options: _ExecOptions) -> commands.Command:
    """What to run, as the options say."""
    return commands.Command(
        options.words,
        shell=options.shell,
        cwd=options.workdir,
        env=resolve_environment(options),
        timeout=options.timeout,
        user=options.user,
        rlimits=dict(options.ulimit or ()) or None,
        output_limit=options.output_limit,
        takes_input=options.interactive,
        terminal=terminal.size() if _wants_terminal(options) else None,
    )


def resolve_environment(options: EnvironmentOptions) -> dict[str, str]:
    """The variables that the options name."""
    return variables.resolve(
        options.env or (),
        secrets=options.secret or (),
        files=options.env_file or (),
        environ=settings.environment(),
    )


def _exec(options: _ExecOptions, front: attending.Front) -> dict[str, object]:
    assert isinstance(options, _InSandboxOptions)
    return commands.exec_command(
        name=options.names[0],
        command=_command(options),
        resume=not options.no_resume,
        local=options.local or None,
        region=options.region,
        front=front,
    )


def _start(options: _InSandboxOptions) -> int:
    """Leave it in the background."""
    (name,) = options.names
    data = processes.start_job(
        name=name,
        command=_command(options),
        resume=not options.no_resume,
        local=options.local or None,
        region=options.region,
    )
    output.result(data, options=options, text=f"{render.to_printable(data['job'])}\n")
    output.remark(f"its output is shown by: vmnest attach {name} {data['job']}", options=options)
    output.remark("if nobody attaches, an idle sandbox is suspended, and the job is frozen with it", options=options)
    return 0


def _run(options: _RunOptions, front: attending.Front) -> dict[str, object]:
    demand = creation.demand(options)
    demand.image = _one_image(options)

    def begin() -> None:
        progress.end()
        creation.remark_what_is_local(options)

    with output.progress("starting a sandbox", options=options) as progress:
        return commands.run_command(
            command=_command(options),
            demand=demand,
            local=options.local or None,
            region=options.region,
            on_ready=begin,
            front=front,
        )


def _one_image(options: _RunOptions) -> str | None:
    if options.names and "=" in options.names[0]:
        raise errors.UsageError(
            f"{options.names[0]!r} is taken for the IMAGE, and is none",
            hint="Set a variable with --env NAME=VALUE; -e is --egress here.",
        )
    if options.image and options.names:
        raise errors.UsageError(
            f"two images are given: {options.names[0]} and {options.image}", hint="Give it as IMAGE, or with --image."
        )
    return options.names[0] if options.names else options.image
