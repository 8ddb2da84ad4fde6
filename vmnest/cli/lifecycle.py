"""``stop``, ``start``, ``wait``."""

from __future__ import annotations

from ..ops import lifecycle
from ..wire import names
from . import batch, output, render, values, words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from . import verbs

__all__ = ["build_parser", "run"]


class _ChangeOptions(words.Options):
    timeout: float | None


class _WaitOptions(words.Options):
    state: list[str] | None
    timeout: float | None


_STOP_NOTES = (
    "Nothing in it runs on, and connections to it are cut. It goes on with vmnest start, or with its next use;\n"
    "its time goes on too: at the end of its maximum duration it ends, suspended or not."
)
_WAIT_NOTES = f"States: {', '.join(names.STATES)}. Waiting wakes nothing."


def build_parser(verb: verbs.Verb) -> words.Parser:
    """The verb's options."""
    if verb.title != "wait":
        notes = _STOP_NOTES if verb.title == "stop" else ""
        parser = words.Parser(verb.title, summary=verb.summary, names="NAME...", notes=notes, options=_ChangeOptions)
        parser.option(
            "--timeout",
            metavar="SECONDS",
            kind=values.parse_seconds,
            help=f"how long each may take (default: {lifecycle.STATE_SECONDS:.0f})",
        )
        return parser
    parser = words.Parser("wait", summary=verb.summary, names="NAME", notes=_WAIT_NOTES, options=_WaitOptions)
    parser.option(
        "--state",
        metavar="STATE",
        kind=values.parse_state_of(names.STATES),
        repeat=True,
        help="wait for this state (repeatable: for the first of them; default: TERMINATED)",
    )
    parser.option("--timeout", metavar="SECONDS", kind=values.parse_seconds, help="fail after so long (default: never)")
    return parser


def run(verb: verbs.Verb, options: words.Options) -> int:
    """Do it."""
    output.remark_unusual_place(options=options)
    {"stop": _stop, "start": _start, "wait": _wait}[verb.title](options)
    return 0


def _stop(options: words.Options) -> None:
    assert isinstance(options, _ChangeOptions)
    timeout, local, region = options.timeout or lifecycle.STATE_SECONDS, options.local or None, options.region

    def stop(name: str) -> dict[str, object]:
        return lifecycle.stop_sandbox(name=name, local=local, region=region, timeout=timeout)

    batch.run(stop, options=options, doing="suspending", done="stopped")


def _start(options: words.Options) -> None:
    assert isinstance(options, _ChangeOptions)
    timeout, local, region = options.timeout or lifecycle.STATE_SECONDS, options.local or None, options.region

    def start(name: str) -> dict[str, object]:
        return lifecycle.start_sandbox(name=name, local=local, region=region, timeout=timeout)

    batch.run(start, options=options, doing="resuming", done="started")


def _wait(options: words.Options) -> None:
    assert isinstance(options, _WaitOptions)
    (name,) = options.names
    with output.progress(f"waiting for {name}", options=options):
        data = lifecycle.wait_for_sandbox(
            name=name,
            states=options.state or (names.TERMINATED,),
            timeout=options.timeout,
            local=options.local or None,
            region=options.region,
        )
    output.result(data, options=options, text=f"{render.to_printable(data['state'])}\n")
