"""``ps`` and ``inspect``."""

from __future__ import annotations

from ..ops import sandboxes
from . import output, render, words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from . import verbs

__all__ = ["build_parser", "run"]


_NOTES = {"inspect": "Always JSON, with or without --json."}


def build_parser(verb: verbs.Verb) -> words.Parser:
    """The verb's options."""
    return words.Parser(
        verb.title,
        summary=verb.summary,
        names="NAME",
        notes=_NOTES.get(verb.title, ""),
        without_name=words.WITHOUT_NAME,
    )


def run(verb: verbs.Verb, options: words.Options) -> int:
    """Do it."""
    output.remark_unusual_place(options=options)
    {"ps": _show, "inspect": _inspect}[verb.title](options)
    return 0


def _show(options: words.Options) -> None:
    (name,) = options.names
    with output.progress(f"asking for {name}", options=options):
        data = sandboxes.show_sandbox(name=name, local=options.local or None, region=options.region)
    output.result(data, options=options, text=render.render_members(_members(data)))


_SHOWN_AS = {
    "max_duration_seconds": "max duration",
    "ingress_network_connectors": "ingress",
    "egress_network_connectors": "egress",
}
# Of a local sandbox the connectors are a form: what it really reaches stands in its details.
_SAID_BY_DETAILS = ("ingress_network_connectors", "egress_network_connectors")


def _members(data: dict[str, object]) -> Iterator[tuple[str, object]]:
    """A sandbox's members as a person reads them."""
    hidden = _SAID_BY_DETAILS if "local_details" in data else ()
    for member, value in data.items():
        if member in hidden:
            continue
        name = _SHOWN_AS.get(member, member.replace("_", " "))
        if member == "local_details" and isinstance(value, dict):
            facts = ((fact, _readable(fact, said)) for fact, said in value.items())
            yield from ((fact.replace("_", " "), said) for fact, said in facts if isinstance(said, (str, int, float)))
        else:
            yield name, _readable(member, value)


def _readable(member: str, value: object) -> object:
    if member == "max_duration_seconds" and isinstance(value, int):
        return render.render_duration(value)
    if member in ("memory", "disk"):
        return f"{value} MiB"
    if member == "idle_policy" and isinstance(value, dict):
        return _policy(value)
    if isinstance(value, dict):
        return ", ".join(f"{name}={text}" for name, text in value.items()) or None
    if isinstance(value, list):
        return ", ".join(map(str, value)) or ("none" if member == "egress" else None)
    return value


def _policy(policy: dict[str, object]) -> str:
    idle, suspended = policy["max_idle_duration_seconds"], policy["suspended_duration_seconds"]
    assert isinstance(idle, int)
    assert isinstance(suspended, int)
    after = f"after {render.render_duration(idle)} without a request"
    if not suspended:
        return f"ends {after}"
    woken = "resumed" if policy["auto_resume_enabled"] else "not resumed"
    return f"suspended {after}, for up to {render.render_duration(suspended)}; {woken} by the next request"


def _inspect(options: words.Options) -> None:
    (name,) = options.names
    with output.progress(f"asking for {name}", options=options):
        data = sandboxes.inspect_sandbox(name=name, local=options.local or None, region=options.region)
    output.result(data, options=options, text=render.render_json(data, indented=True))
