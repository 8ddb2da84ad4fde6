"""``rm`` and ``prune``."""

from __future__ import annotations

from .. import errors
from ..ops import pruning, removal
from . import asking, inventory, members, output, render, tables, values, words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from . import verbs

__all__ = ["build_parser", "run"]


class _RemoveOptions(words.Options):
    all: bool
    label: list[tuple[str, str]] | None
    force: bool
    yes: bool


class _PruneOptions(words.Options):
    older_than: float | None
    all: bool
    dry_run: bool
    yes: bool


def build_parser(verb: verbs.Verb) -> words.Parser:
    """The verb's options."""
    return _build_remove(verb) if verb.title == "rm" else _build_prune(verb)


def _build_remove(verb: verbs.Verb) -> words.Parser:
    parser = words.Parser(
        verb.title,
        summary=verb.summary,
        names="[NAME...]",
        without_name=words.WITHOUT_NAME,
        options=_RemoveOptions,
    )
    parser.switch("--all", help="all sandboxes that are recorded (with --local: those on this machine); asks first")
    parser.option(
        "--label",
        metavar="KEY=VALUE",
        kind=values.parse_label,
        repeat=True,
        help="of these, only sandboxes that have this label (repeatable: all of them); asks first, as --all does",
    )
    parser.switch("--yes", help="with --all or --label: do not ask")
    parser.switch("--force", help="that a name is not recorded is no error")
    return parser


def _build_prune(verb: verbs.Verb) -> words.Parser:
    parser = words.Parser(verb.title, summary=verb.summary, options=_PruneOptions)
    parser.option(
        "--older-than",
        metavar="AGE",
        kind=values.parse_seconds,
        help="also end the sandboxes that began longer ago than this (seconds, or 90s, 15m, 2h); asks first",
    )
    parser.switch("--all", help="with --older-than: also the MicroVMs that have no name here")
    parser.switch("--dry-run", help="only show what would be done")
    parser.switch("--yes", help="do not ask")
    return parser


def run(verb: verbs.Verb, options: words.Options) -> int:
    """Do it."""
    output.remark_unusual_place(options=options)
    if isinstance(options, _PruneOptions):
        return _prune(options)
    assert isinstance(options, _RemoveOptions)
    _remove(options)
    return 0


# -- rm ----------------------------------------------------------------------------------------------------------------


def _remove(options: _RemoveOptions) -> None:
    is_crowd = options.all or bool(options.label)
    if is_crowd == bool(options.names):
        given = "--all" if options.all else "--label"
        message = f"{given} and names contradict each other" if is_crowd else "the name is missing"
        raise errors.UsageError(message, hint="Usage: vmnest rm NAME..., or vmnest rm --all, or --label KEY=VALUE")
    local, labels = options.local or None, inventory.labels_of(options.label)
    chosen = options.names
    if is_crowd:
        chosen = removal.recorded_names(labels=labels, local=local, region=options.region)
    if is_crowd and chosen and not options.yes:
        asking.agree(
            "".join(f"{render.to_printable(name)}\n" for name in chosen),
            question="End these?",
            refusal=f"this would end {_count(chosen)}",
            options=options,
        )
    doing = f"ending {chosen[0] if len(chosen) == 1 else _count(chosen)}"
    try:
        with output.warnings_as_remarks(options=options), output.progress(doing, options=options):
            # That somebody else has removed one of all meanwhile is fine: nobody asked for it by its name.
            force = options.force or is_crowd
            data = removal.remove_sandboxes(names=chosen, force=force, local=local, region=options.region)
    except errors.VmnestError as error:
        report = members.items(error.details, "report")
        if report and not options.json:
            _show(report, data={}, options=options)
            others = [each for each in report if "error" in each][1:]
            told = [(_of_one(each), each["error"]) for each in others if members.reason(each) != error.message]
            output.remark_failures(told, options=options)
        raise
    _show(members.items(data, "removed"), data=data, options=options)
    if not chosen:
        output.remark(inventory.none_of(options, labels=options.label), options=options)


def _count(chosen: Sequence[object]) -> str:
    return f"{len(chosen)} sandbox{'' if len(chosen) == 1 else 'es'}"


def _show(report: Sequence[Mapping[str, object]], *, data: object, options: words.Options) -> None:
    """What became of each: as a table, or as data."""
    columns = ("NAME", tables.Column("MICROVM", rank=1), "RESULT")
    rows = [(each["name"], each["microvm_id"], _result(each)) for each in report]
    output.result(data, options=options, text=output.table(columns, rows) if rows else "")
    for each in report:
        suspects = each.get("may_still_run")
        if isinstance(suspects, list):
            found = " or ".join(map(str, suspects))
            output.remark(
                f"the launch of {each['name']} was cut off; {found} may be its MicroVM, and was not ended",
                options=options,
            )


_MISSING = "not found"


def _of_one(each: Mapping[str, object]) -> str:
    """A reason, with the name that it is about."""
    return members.reason(each) if _result(each) == _MISSING else f"{each['name']}: {members.reason(each)}"


def _result(each: Mapping[str, object]) -> str:
    error = each.get("error")
    if isinstance(error, dict):
        return _MISSING if error["code"] == errors.SandboxNotFoundError.code else "failed"
    if not each["removed"]:
        return "not recorded"
    return "ended" if each["was_there"] else "gone already"


# -- prune -------------------------------------------------------------------------------------------------------------


def _prune(options: _PruneOptions) -> int:
    """1 if something could not be asked, or not be done."""
    local = options.local or None
    with output.progress("asking for the states", options=options):
        planned = pruning.plan_prune(
            older_than=options.older_than, unnamed=options.all, local=local, region=options.region
        )
    found = members.items(planned, "sandboxes")
    if options.dry_run or not found:
        data = {**planned, "dry_run": True} if options.dry_run else planned
        output.result(data, options=options, text=_table(found, _TO_DO))
        if found or not planned["failed"]:  # else nobody knows
            output.remark("nothing was changed" if found else "there is nothing to prune", options=options)
        return _tell(planned, options=options)
    ends = [each for each in found if each["action"] == pruning.END]
    if ends and not options.yes:
        asking.agree(
            _table(found, _TO_DO),
            question=f"End {len(ends)} of these?" if len(ends) < len(found) else "End these?",
            refusal=f"this would end {_count(ends)}",
            options=options,
        )
    with output.warnings_as_remarks(options=options), output.progress("pruning", options=options):
        data = pruning.prune_sandboxes(
            older_than=options.older_than, unnamed=options.all, only=found, local=local, region=options.region
        )
    output.result(data, options=options, text=_table(members.items(data, "sandboxes"), _DONE))
    return _tell(data, options=options)


_TO_DO = {pruning.FORGET: "to be forgotten", pruning.END: "to be ended"}
_DONE = {pruning.FORGET: "forgotten", pruning.END: "ended"}


def _table(found: Sequence[Mapping[str, object]], results: Mapping[str, str]) -> str:
    if not found:
        return ""
    columns = (
        "NAME",
        tables.Column("STATE", colours=tables.STATE_COLOURS),
        tables.Column("AGE", rank=1, right=True),
        tables.Column("MICROVM", rank=2),
        "RESULT",
    )
    rows = [
        (
            each["name"],
            each["state"],
            render.render_age_since(each["started_at"] or each["created_at"]),
            each["microvm_id"],
            results[str(each["action"])],
        )
        for each in found
    ]
    return output.table(columns, rows)


def _tell(data: Mapping[str, object], *, options: words.Options) -> int:
    """What was left as it is, and why; many that have one reason are told together."""
    doubtful: dict[str, list[object]] = {}
    for each in members.items(data, "doubtful"):
        doubtful.setdefault(inventory.place_of(each), []).append(each["name"])
    for place, names in doubtful.items():
        its, one = ("its MicroVM", str(names[0])) if len(names) == 1 else ("their MicroVMs", "NAME")
        output.remark(
            f"{_were_kept(names)}: {place} does not know {its}, which may be in another account; "
            f"vmnest rm {one} forgets {'it' if len(names) == 1 else 'one'}",
            options=options,
        )
    failed = members.items(data, "failed")
    output.remark_failures([*_failures(failed), *inventory.left_out(data)], options=options)
    return 1 if failed else 0


def _failures(failed: Sequence[Mapping[str, object]]) -> Iterator[tuple[str, object]]:
    of_places = [each for each in failed if (each.get("name") or each.get("microvm_id")) is None]
    for each in of_places:
        yield inventory.not_asked(each)
    groups: dict[tuple[bool, str], list[Mapping[str, object]]] = {}
    for each in failed:
        if each not in of_places:
            groups.setdefault(("action" in each, members.reason(each)), []).append(each)
    for (was_tried, reason), group in groups.items():
        names = [each["name"] or each["microvm_id"] for each in group]
        yield f"{render.render_names(names) if was_tried else _were_kept(names)}: {reason}", group[0]["error"]


def _were_kept(names: Sequence[object]) -> str:
    return f"{render.render_names(names)} {'was' if len(names) == 1 else 'were'} kept"
