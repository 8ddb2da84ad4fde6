"""``cost``."""

from __future__ import annotations

from ..ops import cost, estimates
from . import inventory, members, output, render, tables, terminal, values, words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from . import verbs

__all__ = ["build_parser", "render_amount", "run"]


class _Options(words.Options):
    all: bool = False
    memory: int | None
    hours: float | None


_NOTES = (
    "An estimate in US dollars, with published prices; what it takes for granted stands below the table.\n"
    "Without a NAME: of all sandboxes that have one. Sandboxes on this machine cost nothing. --memory tells what one\n"
    "of that size would cost on AWS, without an account."
)


def build_parser(verb: verbs.Verb) -> words.Parser:
    """The verb's options."""
    parser = words.Parser(
        verb.title,
        summary=verb.summary,
        names="[NAME...]",
        notes=_NOTES,
        options=_Options,
    )
    parser.switch("--all", help="also MicroVMs that have no name here, and all images of the account")
    parser.option(
        "--memory",
        metavar="MIB",
        kind=values.parse_memory,
        help="what a sandbox of that memory would cost, instead: 512, 1024, 2048, 4096 or 8192",
    )
    parser.option("--hours", metavar="H", kind=_parse_hours, help="with --memory: running for so long (default: 8)")
    return parser


def _parse_hours(text: str) -> float:
    try:
        hours = values.parse_number(text)
    except ValueError:
        hours = 0.0
    if not 0 < hours <= cost.MOST_HOURS:
        raise ValueError(f"must be a number of hours, up to {cost.MOST_HOURS}: {text!r}")
    return hours


def run(verb: verbs.Verb, options: words.Options) -> int:
    """Do it."""
    assert isinstance(options, _Options)
    if options.memory is not None or options.hours is not None:
        _quote(verb, options)
        return 0
    if options.names and options.all:
        raise build_parser(verb).wrong("a NAME and --all contradict each other", advice="Leave one of them out. ")
    output.remark_unusual_place(options=options)
    with output.progress("asking for states and sizes", options=options):
        data = cost.estimate_cost(
            names=options.names, unnamed=options.all, local=options.local or None, region=options.region
        )
    output.result(data, options=options, text="\n".join(_parts(data)))
    if not data["sandboxes"]:
        output.remark(f"there are no sandboxes{' on this machine' if options.local else ''}", options=options)
    output.remark_failures(_remarks(data), options=options)
    return 0


def _quote(verb: verbs.Verb, options: _Options) -> None:
    """What one would cost."""
    if options.memory is None:
        raise build_parser(verb).wrong("--hours is for --memory alone", advice="Give both. ")
    if options.names or options.all:
        raise build_parser(verb).wrong("--memory is of no sandbox that there is", advice="Leave NAME and --all out. ")
    data = cost.quote_cost(memory=options.memory, hours=cost.LONGEST_HOURS if options.hours is None else options.hours)
    heads = ("MEMORY", "CPUS", "RUNNING, 1 H", "SUSPENDED, 1 H", f"RUNNING, {data['hours']:g} H")
    columns = [tables.Column(head, right=True) for head in heads]
    amounts = (render_amount(data[name]) for name in ("running_hour", "suspended_hour", "running"))
    sheet = output.table(columns, [(f"{data['memory']} MiB", f"{data['cpus']:g}", *amounts)])
    output.result(data, options=options, text=f"{sheet}\n{_told(data)}")


_AFTER_NAME = (
    tables.Column("STATE", rank=2, colours=tables.STATE_COLOURS),
    tables.Column("MEMORY", rank=3, right=True),
    tables.Column("PER HOUR", right=True),
    tables.Column("SO FAR", right=True),
    tables.Column("TO EXPIRY", rank=1, right=True),
)
_IMAGES = (
    tables.Column("IMAGE", shrinks=True),
    tables.Column("VERSION"),
    tables.Column("MEMORY", rank=2, right=True),
    tables.Column("STORED", rank=1, right=True),
    tables.Column("PER MONTH", right=True),
)


def _parts(data: Mapping[str, object]) -> Iterator[str]:
    """The tables, and below them what they are made on."""
    total = data["total"]
    assert isinstance(total, dict)
    sandboxes, images = members.items(data, "sandboxes"), members.items(data, "images")
    if sandboxes:
        rows = [_row(each) for each in sandboxes]
        if len(rows) > 1:
            rows.append(("TOTAL", "", "", *(render_amount(total[name]) for name in estimates.AMOUNTS)))
        # A name that is cut may still be known; an id is not.
        name = tables.Column("NAME", shrinks=all(each["name"] for each in sandboxes))
        yield output.table((name, *_AFTER_NAME), rows)
    if images:
        rows = [_image_row(each) for each in images]
        if len(rows) > 1:
            rows.append(("TOTAL", "", "", "", render_amount(total["images_per_month"])))
        yield output.table(_IMAGES, rows)
    told = _told(data)
    if told:
        yield told


def _told(data: Mapping[str, object]) -> str:
    """What the amounts take for granted."""
    assumptions = data["assumptions"]
    assert isinstance(assumptions, list)
    if len(assumptions) == 1:
        return _wrapped(assumptions[0])
    return "An estimate:\n" + "".join(_wrapped(line, mark="- ") for line in assumptions) if assumptions else ""


def _wrapped(line: str, *, mark: str = "") -> str:
    """A line, broken between words where a terminal would break it within one."""
    return f"{mark}{render.fold(line, terminal.room(terminal.STDOUT), indent=' ' * len(mark))}\n"


def _row(sandbox: Mapping[str, object]) -> tuple[object, ...]:
    name = sandbox["name"] or f"({sandbox['microvm_id']})"
    return (name, sandbox["state"], _memory(sandbox), *(render_amount(sandbox[amount]) for amount in estimates.AMOUNTS))


def _image_row(image: Mapping[str, object]) -> tuple[object, ...]:
    name = str(image["image_arn"]).rpartition(":")[2]
    stored = image["stored_bytes"]
    return (name, image["image_version"], _memory(image), _sizes(stored), render_amount(image["per_month"]))


def _memory(each: Mapping[str, object]) -> str | None:
    return None if each["memory"] is None else f"{each['memory']} MiB"


def _sizes(stored: object) -> str | None:
    if not isinstance(stored, dict):
        return None
    from .meter import render_size

    low, high = render_size(stored["low"]), render_size(stored["high"])
    return low if low == high else f"{low} to {high}"


def render_amount(amount: object) -> str | None:
    """A range of dollars: ``$0.1261``, ``$0.03 to $1.01``, ``up to $1.01``; None if there is none."""
    if not isinstance(amount, dict):
        return None
    low, high = _dollars(amount["low"]), _dollars(amount["high"])
    if low == high:
        return low
    return f"{low} to {high}" if amount["low"] else f"up to {high}"


def _dollars(amount: float) -> str:
    if not amount:
        return "$0"
    if amount < 0.0001:
        return "<$0.0001"
    return f"${amount:.4f}" if amount < 1 else f"${amount:,.2f}"


def _remarks(data: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """Why something is not known, and the error if it is one."""
    total = data["total"]
    assert isinstance(total, dict)
    left_out = max(total["left_out"].values())
    if left_out and len(members.items(data, "sandboxes")) > 1:
        yield f"the total leaves out what is not known of {left_out} of them", None
    without: dict[str, list[object]] = {}
    for sandbox in members.items(data, "sandboxes"):
        reasons = sandbox["reasons"]
        assert isinstance(reasons, list)
        if any(sandbox[amount] is None for amount in estimates.AMOUNTS):
            without.setdefault("; ".join(map(str, reasons)), []).append(sandbox["name"] or sandbox["microvm_id"])
    for reason, names in without.items():
        yield f"{render.render_names(names)}: {reason}", None
    for image in members.items(data, "images"):
        if image["reason"]:
            title = f"{str(image['image_arn']).rpartition(':')[2]} {image['image_version']}"
            yield f"what keeping {title} costs, and starting from it, is left out: {image['reason']}", None
    for place in members.items(data, "failed"):
        error = place["error"]
        assert isinstance(error, dict)
        yield f"{inventory.place_of(place)} is left out: {error['message']}", error
