"""``mcp`` with options, which starts the server as a program of its own, and ``mcp config``.

``vmnest mcp`` alone does not come here: ``vmnest.__main__`` starts the server before a command line is loaded.
"""

from __future__ import annotations

import os
import sys

from .. import errors, settings
from . import hosts, output, variables, words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from . import verbs

__all__ = ["build_parser", "run"]

_CONFIG = "config"
_ONE_OF = f"One of: {', '.join(hosts.HOSTS)}"
_NOTES = (
    "Without config it is the server: it speaks the Model Context Protocol on standard input and output until the\n"
    "input ends. --local and --region are what its tools go by where they are not told otherwise.\n"
    "mcp config CLIENT prints what makes a host program start it, with this vmnest's path and the variables of\n"
    f"--local, --region and --env. {_ONE_OF}."
)
# What hosts do not pass on, and the tools may need.
_OF_AWS = (
    *("AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"),
    *("AWS_CA_BUNDLE", "HTTPS_PROXY", "NO_PROXY"),
)


class _Options(words.Options):
    env: list[str] | None


def build_parser(verb: verbs.Verb) -> words.Parser:
    """The verb's options."""
    parser = words.Parser(
        verb.title, summary=verb.summary, names=f"[{_CONFIG} [CLIENT]]", notes=_NOTES, options=_Options
    )
    parser.option(
        "-e",
        "--env",
        metavar="NAME[=VALUE]",
        repeat=True,
        help="config: give the server this variable; NAME alone: with the value it has here (repeatable)",
    )
    return parser


def run(verb: verbs.Verb, options: words.Options) -> int:
    """Start the server, or print the snippet."""
    assert isinstance(options, _Options)
    if not options.names:
        return _start(options)
    action, client = (*options.names, "generic")[:2]
    if action != _CONFIG:
        raise errors.UsageError(f"there is no command 'mcp {action}'", hint="Did you mean vmnest mcp config?")
    if client not in hosts.HOSTS:
        raise errors.UsageError(f"there is no client {client!r}", hint=f"{_ONE_OF}.")
    return _print_config(client, options)


def _start(options: _Options) -> int:
    """Become what ``vmnest mcp`` is: nothing of this program is left that could print."""
    if options.env:
        raise errors.UsageError("--env is for mcp config", hint="Set the variable in the environment of vmnest mcp.")
    environ = {**settings.environment(), **_chosen(options)}
    words_before = sys.orig_argv[: len(sys.orig_argv) - len(sys.argv) + 1]
    if hasattr(os, "fork"):
        os.execve(sys.executable, [*words_before, "mcp"], environ)
    import subprocess  # on Windows, whose exec ends the program that our client waits for

    return subprocess.run([sys.executable, *words_before[1:], "mcp"], env=environ, check=False).returncode


def _chosen(options: _Options) -> dict[str, str]:
    """What the global options say, as variables."""
    chosen = {}
    if options.local:
        chosen[settings.SETTINGS["target"].env] = settings.TARGET_LOCAL
    if options.region:
        chosen[settings.SETTINGS["region"].env] = options.region
    return chosen


def _print_config(client: str, options: _Options) -> int:
    here = settings.environment()
    environ = {**_chosen(options), **variables.resolve(options.env or (), secrets=(), files=(), environ=here)}
    start = hosts.find_start(hosts.Here(here), environ=environ)
    host = hosts.HOSTS[client]
    snippet = host.render(start)
    data = {"client": client, **start.describe(), "env": start.environ, "place": host.place, "snippet": snippet}
    output.remark(f"for {host.title}: {host.place}", options=options)
    left = list(_left_behind(here, given=environ))
    if left:
        output.remark(
            f"set here, and not in it: {', '.join(left)}; hosts do not pass them on, --env NAME does", options=options
        )
    output.result(data, options=options, text=snippet)
    return 0


def _left_behind(here: Mapping[str, str], *, given: Mapping[str, str]) -> Iterator[str]:
    for name in (*(row.env for row in settings.SETTINGS.values()), *_OF_AWS):
        if here.get(name) and name not in given:
            yield name
