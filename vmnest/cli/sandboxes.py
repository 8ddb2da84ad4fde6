"""``ls``, ``ps``, ``inspect``, ``rm``."""

from __future__ import annotations

from .. import errors, settings
from ..ops import sandboxes
from . import batch, output, render, values, words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from . import verbs

__all__ = ["build_parser", "run"]


class _ListOptions(words.Options):
    label: list[tuple[str, str]] | None


_NAMES = {"ls": "", "ps": "NAME", "inspect": "NAME", "rm": "NAME..."}
_NOTES = {"inspect": "Always JSON, with or without --json."}


def build_parser(verb: verbs.Verb) -> words.Parser:
    """The verb's options."""
    title = verb.title
    kind = _ListOptions if title == "ls" else words.Options
    parser = words.Parser(
        title,
        summary=verb.summary,
        names=_NAMES[title],
        notes=_NOTES.get(title, ""),
        without_name="vmnest ls lists all sandboxes. ",
        options=kind,
    )
    if title == "ls":
        parser.option(
            "--label",
            metavar="KEY=VALUE",
            kind=values.parse_label,
            repeat=True,
            help="only sandboxes that have this label (repeatable: all of them)",
        )
    return parser


def run(verb: verbs.Verb, options: words.Options) -> int:
    """Do it."""
    output.remark_unusual_place(options=options)
    {"ls": _list, "ps": _show, "inspect": _inspect, "rm": _remove}[verb.title](options)
    return 0


def _list(options: words.Options) -> None:
    assert isinstance(options, _ListOptions)
    labels = dict(options.label or ())
    if len(labels) < len(set(options.label or ())):
        raise errors.UsageError("a sandbox has one value of a label", hint="Give each KEY once.")
    with output.progress("asking for the states", options=options):
        data = sandboxes.list_sandboxes(labels=labels, local=options.local or None, region=options.region)
    listed = data["sandboxes"]
    assert isinstance(listed, list)
    rows = [_row(each) for each in listed]
    output.result(data, options=options, text=output.table(_HEADS, rows) if rows else "")
    if not rows:
        output.remark(_none(labels, is_local=options.local), options=options)
    for message in dict.fromkeys(str(each["error"]["message"]) for each in listed if "error" in each):
        output.remark(message, options=options)


def _none(labels: dict[str, str], *, is_local: bool) -> str:
    place = " on this machine" if is_local else ""
    if labels:
        return f"no sandbox{place} has {'this label' if len(labels) == 1 else 'all these labels'}"
    return f"there are no sandboxes{place}"


_HEADS = ("NAME", "STATE", "TARGET", "REGION", "AGE", "MICROVM")


def _row(sandbox: dict[str, object]) -> tuple[object, ...]:
    age = render.render_age_since(sandbox["started_at"] or sandbox["created_at"])
    region = None if sandbox["target"] == settings.TARGET_LOCAL else sandbox["region"]
    return (sandbox["name"], sandbox["state"], sandbox["target"], region, age, sandbox["microvm_id"])


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
    if member == "memory":
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


def _remove(options: words.Options) -> None:
    def remove(name: str) -> dict[str, object]:
        answer = sandboxes.remove_sandbox(name=name, local=options.local or None, region=options.region)
        suspects = answer.get("may_still_run")
        if isinstance(suspects, list):
            found = " or ".join(suspects)
            remarks.append(f"the launch of {name} was cut off; {found} may be its MicroVM, and was not ended")
        elif not answer["was_there"]:
            remarks.append(f"the MicroVM of {name} was gone already")
        return answer

    remarks: list[str] = []
    try:
        batch.run(remove, options=options, doing="ending", done="removed")
    finally:
        for remark in remarks:
            output.remark(remark, options=options)
