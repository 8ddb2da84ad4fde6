"""``adopt``."""

from __future__ import annotations

from .. import settings
from ..ops import adoption
from . import inventory, output, render, values, words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from . import verbs

__all__ = ["build_parser", "run"]


class _Options(words.Options):
    label: list[tuple[str, str]] | None
    agent_port: int | None


def build_parser(verb: verbs.Verb) -> words.Parser:
    """The verb's options."""
    parser = words.Parser(
        verb.title,
        summary=verb.summary,
        names="ID NAME",
        without_name="vmnest ls --all shows the ids. ",
        options=_Options,
    )
    parser.option(
        "--label", metavar="KEY=VALUE", kind=values.parse_label, repeat=True, help="a label for it (repeatable)"
    )
    parser.option(
        "--agent-port",
        metavar="PORT",
        kind=settings.parse_port,
        help="port of the agent in it (default: AGENT_SANDBOX_AGENT_PORT, else 8080)",
    )
    return parser


def run(verb: verbs.Verb, options: words.Options) -> int:
    """Do it."""
    assert isinstance(options, _Options)
    output.remark_unusual_place(options=options)
    microvm_id, name = options.names
    with output.progress(f"asking for {microvm_id}", options=options):
        data = adoption.adopt_sandbox(
            microvm_id=microvm_id,
            name=name,
            labels=inventory.labels_of(options.label),
            agent_port=options.agent_port,
            local=options.local or None,
            region=options.region,
        )
    output.result(data, options=options, text=f"{render.to_printable(data['name'])}\n")
    return 0
