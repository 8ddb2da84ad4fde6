"""``ls``."""

from __future__ import annotations

from .. import errors, settings
from ..ops import inventory, views
from ..wire import names
from . import members, output, render, tables, terminal, values, words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from . import verbs

__all__ = ["build_parser", "labels_of", "left_out", "none_of", "not_asked", "place_of", "run"]


class _Options(words.Options):
    all: bool
    label: list[tuple[str, str]] | None
    state: list[str] | None
    image: list[str] | None
    wide: bool


_NOTES = (
    f"States: {', '.join(names.STATES)}; and, no words of the service,\n"
    f"{views.LAUNCHING} (it is being started, or that was cut off), {views.GONE} (the service does not know it)\n"
    f"and {names.UNKNOWN} (the service could not be asked).\n"
    "IDLE/EXPIRES: after how long without a request it is suspended, and in how long it ends. In a narrow window\n"
    "columns are left out, and long values cut; never in a pipe.\n"
    "-q prints names alone, one a line; of what has none, the id. --region leaves out what is not in that region."
)


def build_parser(verb: verbs.Verb) -> words.Parser:
    """The verb's options."""
    parser = words.Parser(verb.title, summary=verb.summary, notes=_NOTES, options=_Options)
    parser.switch("-a", "--all", help="also the MicroVMs that have no name here")
    parser.option(
        "--label",
        metavar="KEY=VALUE",
        kind=values.parse_label,
        repeat=True,
        help="only sandboxes that have this label (repeatable: all of them)",
    )
    parser.option(
        "--state",
        metavar="STATE",
        kind=values.parse_state_of(views.STATES),
        repeat=True,
        help="only sandboxes in this state (repeatable: one of them)",
    )
    parser.option(
        "--image",
        metavar="IMAGE",
        repeat=True,
        help="only sandboxes that were started from this image, an ARN or a name (repeatable: one of them)",
    )
    parser.switch("--wide", help="show all columns, and cut nothing")
    return parser


def labels_of(given: Sequence[tuple[str, str]] | None) -> dict[str, str]:
    """The labels of an option; each key may have one value."""
    labels = dict(given or ())
    if len(labels) < len(set(given or ())):
        raise errors.UsageError("a sandbox has one value of a label", hint="Give each KEY once.")
    return labels


def run(verb: verbs.Verb, options: words.Options) -> int:
    """Do it. 1 if a place whose list was wanted could not be asked."""
    assert isinstance(options, _Options)
    output.remark_unusual_place(options=options)
    labels = labels_of(options.label)
    if _asks_for_names(options):
        from ..ops import removal

        recorded = removal.recorded_names(labels=labels, local=options.local or None, region=options.region)
        terminal.write_text(terminal.STDOUT, _lines(recorded))
        return 0
    with output.progress("asking for the states", options=options):
        data = inventory.list_sandboxes(
            labels=labels,
            states=options.state,
            images=options.image,
            unnamed=options.all,
            local=options.local or None,
            region=options.region,
        )
    listed, failed = members.items(data, "sandboxes"), members.items(data, "failed")
    text = _lines(each["name"] or each["microvm_id"] for each in listed) if options.quiet else _table(listed, options)
    output.result(data, options=options, text=text)
    if not listed and not failed:  # else nobody knows
        limited = bool(options.state or options.image)
        asked_here = bool(data.get("left_out"))
        output.remark(none_of(options, labels=options.label, limited=limited, is_local=asked_here), options=options)
    output.remark_failures([*_failures(listed, failed), *left_out(data)], options=options)
    return 1 if failed else 0


def _asks_for_names(options: _Options) -> bool:
    """Only, and of what is recorded: then no service need be asked."""
    return options.quiet and not (options.json or options.all or options.state or options.image)


def _lines(given: Iterable[object]) -> str:
    return "".join(f"{render.to_printable(each)}\n" for each in given)


def _failures(
    listed: Sequence[Mapping[str, object]], failed: Sequence[Mapping[str, object]]
) -> Iterator[tuple[str, object]]:
    """Why states are not known; what is so for a whole place is told of that."""
    told = {members.reason(each) for each in failed}
    yield from (
        (members.reason(each), each["error"]) for each in listed if "error" in each and members.reason(each) not in told
    )
    yield from map(not_asked, failed)


def not_asked(each: Mapping[str, object]) -> tuple[str, object]:
    """That a place could not be asked, and why."""
    return f"{place_of(each)} could not be asked: {members.reason(each)}", each["error"]


def left_out(data: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """That places were not asked that nobody has set up or chosen; that is no failure."""
    for each in members.items(data, "left_out"):
        yield f"{place_of(each)} is not set up here, and was left out: {members.reason(each)}", None


def place_of(each: Mapping[str, object]) -> str:
    """Where it is, or was to be: the subject of a sentence."""
    if each["target"] == settings.TARGET_LOCAL:
        return "the local cloud"
    if each["target"] != settings.TARGET_AWS:
        return str(each["target"])
    return f"AWS, {each['region']}," if each["region"] else "AWS"


def none_of(
    options: words.Options,
    *,
    labels: Sequence[tuple[str, str]] | None,
    limited: bool = False,
    is_local: bool = False,
) -> str:
    """That there are none, in the place and with the labels that were asked for, or ``limited`` otherwise."""
    place = " on this machine" if options.local or is_local else f" in {options.region}" if options.region else ""
    if limited:
        return f"there are no such sandboxes{place}"
    if labels:
        return f"no sandbox{place} has {'this label' if len(set(labels)) == 1 else 'all these labels'}"
    return f"there are no sandboxes{place}"


# -- the table ---------------------------------------------------------------------------------------------------------


def _table(listed: Sequence[Mapping[str, object]], options: _Options) -> str:
    """What has no name is called by its id where there is no room for a column of ids."""
    if not listed:
        return ""
    text = _render(listed, wide=options.wide)
    if _ID.head in text.partition("\n")[0].split():
        return text
    return _render([{**each, "name": each["name"] or f"({each['microvm_id']})"} for each in listed], wide=options.wide)


_ID = tables.Column("ID", rank=5)


def _render(listed: Sequence[Mapping[str, object]], *, wide: bool) -> str:
    """Target and region are told where they differ."""
    tells_target = wide or len({each["target"] for each in listed}) > 1
    regions = {each["region"] for each in listed if each["target"] != settings.TARGET_LOCAL}
    tells_region = wide or len(regions) > 1
    columns = [
        "NAME",
        tables.Column("STATE", colours=tables.STATE_COLOURS),
        *([tables.Column("TARGET", rank=2)] if tells_target else ()),
        *([tables.Column("REGION", rank=3)] if tells_region else ()),
        tables.Column("AGE", rank=1, right=True),
        tables.Column("IMAGE", rank=4, shrinks=True),
        *([tables.Column("VERSION", rank=4)] if wide else ()),
        tables.Column("IDLE/EXPIRES", rank=3, right=True),
        _ID,
        tables.Column("ENDPOINT", rank=6),
        *([tables.Column("LABELS", rank=6)] if wide else ()),
    ]
    rows = [_row(each, tells_target=tells_target, tells_region=tells_region, wide=wide) for each in listed]
    return output.table(columns, rows, wide=wide)


def _row(each: Mapping[str, object], *, tells_target: bool, tells_region: bool, wide: bool) -> tuple[object, ...]:
    labels = each["labels"]
    assert isinstance(labels, dict)
    return (
        each["name"],
        each["state"],
        *([each["target"]] if tells_target else ()),
        *([None if each["target"] == settings.TARGET_LOCAL else each["region"]] if tells_region else ()),
        render.render_age_since(each["started_at"] or each["created_at"]),
        inventory.image_name(each["image_arn"]),
        *([each["image_version"]] if wide else ()),
        _limits(each),
        each["microvm_id"],
        each["endpoint"],
        *([", ".join(f"{key}={value}" for key, value in labels.items()) or None] if wide else ()),
    )


def _limits(each: Mapping[str, object]) -> str | None:
    """``15m/7h59m``: what is not known, or nothing any more, is a dash."""
    if each["state"] in (*names.ENDED_STATES, views.GONE):
        return None
    policy, left = each["idle_policy"], render.render_time_until(each["expires_at"])
    idle = policy.get("max_idle_duration_seconds") if isinstance(policy, dict) else None
    shown = render.render_duration(idle) if isinstance(idle, int) else None
    return None if shown is None and left is None else f"{render.to_printable(shown)}/{render.to_printable(left)}"
