"""``shell``: a login shell in a sandbox. Its exit status is that of the shell."""

from __future__ import annotations

from .. import errors
from ..ops import shell
from . import attending, commands, console, output, terminal, values, words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from . import verbs

__all__ = ["build_parser", "run"]


class _ShellOptions(commands.EnvironmentOptions):
    native: bool
    user: str | None
    workdir: str | None
    no_resume: bool


_NOTES = """\
On a terminal the keys ~. at the beginning of a line leave the shell, which goes on: vmnest attach -i
comes back to it. While the sandbox is suspended, a key resumes it. Without a terminal the shell reads
its commands from standard input.

--native needs no agent in the image. The service tells no exit status: it is 0 once the shell has
ended. A suspension ends the shell."""


def build_parser(verb: verbs.Verb) -> words.Parser:
    """The verb's options."""
    parser = words.Parser(
        "shell",
        summary=verb.summary,
        names="NAME",
        notes=_NOTES,
        without_name=words.WITHOUT_NAME,
        with_more="vmnest exec -it NAME -- COMMAND runs a command in a terminal. ",
        options=_ShellOptions,
    )
    parser.switch("--native", help="the service's own shell, if the sandbox was made with --ingress SHELL_INGRESS")
    parser.option("--user", metavar="USER", help="user to run it as, a name or a number")
    parser.option("-w", "--workdir", metavar="DIR", help="working directory of the shell")
    commands.add_environment_options(parser, env="-e")
    words.add_no_resume(parser)
    return parser


def run(verb: verbs.Verb, options: words.Options) -> int:
    """Do it, and return the shell's status."""
    assert isinstance(options, _ShellOptions)
    output.remark_unusual_place(options=options)
    if options.json:
        raise errors.UsageError("a shell's output is no JSON", hint="vmnest exec --json runs single commands.")
    with output.warnings_as_remarks(options=options), commands.naming_options():
        return _run_native(options) if options.native else _run(options)


def _run(options: _ShellOptions) -> int:
    values.check_option(options.workdir, what="--workdir")
    values.check_option(options.user, what="--user")
    (name,) = options.names
    front = attending.Front(options, name=name, reads=True)
    data = shell.run_shell(
        name=name,
        front=front,
        terminal=terminal.size() if terminal.is_terminal(terminal.STDIN) else None,
        user=options.user,
        cwd=options.workdir,
        env=commands.resolve_environment(options),
        resume=not options.no_resume,
        local=options.local or None,
        region=options.region,
    )
    return commands.finish(data, options=options, front=front)


def _run_native(options: _ShellOptions) -> int:
    _check_native(options)
    console.check_input()
    with output.progress("opening a shell", options=options) as progress:
        native = shell.open_native_shell(
            name=options.names[0],
            resume=not options.no_resume,
            local=options.local or None,
            region=options.region,
        )
        with native:
            progress.end()
            try:
                return console.interact(native, options=options, escape=True)
            except console.Left:
                output.remark("the shell was hung up", options=options)
                return errors.EXIT_INTERRUPTED


def _check_native(options: _ShellOptions) -> None:
    given = {
        "--user": options.user,
        "--workdir": options.workdir,
        "--env": options.env,
        "--env-file": options.env_file,
        "--secret": options.secret,
    }
    for flag, value in given.items():
        if value:
            raise errors.UsageError(
                f"{flag} does not go with --native", hint="The service's shell is root's, and takes no wishes."
            )
    if not terminal.is_terminal(terminal.STDIN):
        raise errors.UsageError(
            "--native needs a terminal as standard input",
            hint="vmnest shell without it also reads commands from a pipe or a file.",
        )
