"""``exec`` and ``run``: their exit status is that of the command in the sandbox."""

from __future__ import annotations

from .. import errors, settings
from ..ops import commands
from . import creation, output, terminal, values, variables, words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from . import verbs

__all__ = ["build_parser", "finish", "run"]

LARGEST_STATUS = 255  # a larger one, of which the system takes the last 8 bits, could come out as 0


class _ExecOptions(words.Options):
    env: list[str] | None
    env_file: list[str] | None
    secret: list[str] | None
    workdir: str | None
    timeout: float | None
    shell: bool


class _InSandboxOptions(_ExecOptions):
    no_resume: bool


class _RunOptions(_ExecOptions, creation.CreationOptions):
    pass


_EXEC_NOTES = "The command begins after --, or with the first word after NAME; nothing in it is looked at."
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
            options=_InSandboxOptions,
        )
        _add_exec_options(parser, "-e")
        parser.switch("--no-resume", help="fail if the sandbox is suspended, instead of resuming it")
        return parser
    parser = words.Parser(
        "run", summary=verb.summary, names="[IMAGE]", command="after--", notes=_RUN_NOTES, options=_RunOptions
    )
    creation.add_options(parser)
    _add_exec_options(parser)
    return parser


def _add_exec_options(parser: words.Parser, *env_flags: str) -> None:
    parser.option(
        *env_flags,
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
    parser.option("-w", "--workdir", metavar="DIR", help="working directory of the command")
    parser.option(
        "--timeout",
        metavar="SECONDS",
        kind=values.parse_seconds,
        help="end the command, and all that it started, after so long (default: never)",
    )
    parser.switch("--shell", help="join the words by spaces and let a login shell run them (bash, else sh)")


def run(verb: verbs.Verb, options: words.Options) -> int:
    """Do it, and return the command's status."""
    assert isinstance(options, _ExecOptions)
    output.remark_unusual_place(options=options)
    for number, word in enumerate(options.words):
        values.check_text(word, what=f"word {number + 1} of the command")
    values.check_text(options.workdir or "", what="--workdir")
    with output.warnings_as_remarks(options=options):
        data = _run(options) if isinstance(options, _RunOptions) else _exec(options)
    if options.json:
        output.result(data, options=options, text="")
    return finish(data, options=options)


def finish(data: dict[str, object], *, options: _ExecOptions) -> int:
    """The exit status for what a command left, with remarks if output is missing or its timeout ended it."""
    if data["truncated"]:
        output.remark("the output is not whole: it is larger than what is kept of it", options=options)
    if data["timed_out"]:
        # Another agent than ours may have a timeout of its own.
        after = "at a timeout of the agent" if options.timeout is None else f"after {options.timeout:g} s"
        output.remark(f"the command was ended {after}", options=options)
        return errors.EXIT_TIMED_OUT
    status = data["exit_code"]
    assert isinstance(status, int)
    return min(status, LARGEST_STATUS)


def _variables(options: _ExecOptions) -> dict[str, str]:
    return variables.resolve(
        options.env or (),
        secrets=options.secret or (),
        files=options.env_file or (),
        environ=settings.environment(),
    )


def _exec(options: _ExecOptions) -> dict[str, object]:
    assert isinstance(options, _InSandboxOptions)
    return commands.exec_command(
        name=options.names[0],
        words=options.words,
        shell=options.shell,
        cwd=options.workdir,
        env=_variables(options),
        timeout=options.timeout,
        resume=not options.no_resume,
        local=options.local or None,
        region=options.region,
        on_stdout=None if options.json else _to_stdout,
        on_stderr=None if options.json else _to_stderr,
    )


def _run(options: _RunOptions) -> dict[str, object]:
    demand = creation.demand(options)
    demand.image = _one_image(options)

    def begin() -> None:
        progress.end()
        creation.remark_what_is_local(options)

    with output.progress("starting a sandbox", options=options) as progress:
        return commands.run_command(
            words=options.words,
            demand=demand,
            shell=options.shell,
            cwd=options.workdir,
            env=_variables(options),
            timeout=options.timeout,
            local=options.local or None,
            region=options.region,
            on_ready=begin,
            on_stdout=None if options.json else _to_stdout,
            on_stderr=None if options.json else _to_stderr,
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


def _to_stdout(data: bytes) -> None:
    terminal.write_bytes(terminal.STDOUT, data)


def _to_stderr(data: bytes) -> None:
    terminal.write_bytes(terminal.STDERR, data)
