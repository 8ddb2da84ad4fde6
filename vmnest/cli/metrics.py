"""``metrics``: what sandboxes use."""

from __future__ import annotations

from .. import errors, settings
from ..ops import gauges, metrics, views
from ..wire import names
from . import meter, output, panel, render, tables, terminal, values, words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from . import verbs

__all__ = ["build_parser", "run"]


# Of a sandbox in one of these nobody expects that its agent tells anything.
_TELLING_STATES = (*names.SUSPENDED_STATES, *names.ENDED_STATES, views.GONE, views.LAUNCHING)


class _MetricsOptions(words.Options):
    all: bool
    watch: bool
    interval: float | None
    timeout: float | None


_NOTES = (
    "A suspended sandbox is not resumed for it; the agent in it must be vmnest's. On AWS, CloudWatch's figures are\n"
    "shown too where there are any. To be asked counts as use: a sandbox that is watched is not suspended for\n"
    "being idle. Where lines cannot be drawn anew (a pipe, TERM=dumb) --watch prints a line each time."
)


def build_parser(verb: verbs.Verb) -> words.Parser:
    """The verb's options."""
    parser = words.Parser("metrics", summary=verb.summary, names="[NAME]", notes=_NOTES, options=_MetricsOptions)
    parser.switch("-a", "--all", help="all sandboxes, a line each")
    parser.switch("-w", "--watch", help="go on showing it, until Ctrl+C or its end; with --json a line each time")
    parser.option(
        "--interval",
        metavar="SECONDS",
        kind=values.parse_seconds,
        help=f"with --watch: from one look to the next (default: {metrics.INTERVAL_SECONDS:g})",
    )
    parser.option(
        "--timeout",
        metavar="SECONDS",
        kind=values.parse_seconds,
        help=f"how long asking may take (default: {metrics.ASK_SECONDS:.0f})",
    )
    return parser


def run(verb: verbs.Verb, options: words.Options) -> int:
    """Do it."""
    assert isinstance(options, _MetricsOptions)
    _check(options)
    output.remark_unusual_place(options=options)
    with output.warnings_as_remarks(options=options):
        if options.watch:
            _watch(options)
        elif options.all:
            _show_all(options)
        else:
            _show(options)
    return 0


def _check(options: _MetricsOptions) -> None:
    if bool(options.names) == options.all:
        raise errors.UsageError(
            "a name or --all, not both" if options.names else "the name is missing",
            hint="Name a sandbox, or give --all for all of them. vmnest ls lists them.",
        )
    if options.interval is not None and not options.watch:
        raise errors.UsageError("--interval is for --watch alone", hint="Give --watch too, or leave it out.")
    if options.timeout is not None and options.watch:
        raise errors.UsageError("--timeout is not for --watch", hint="How often to look, --interval says.")


# -- once --------------------------------------------------------------------------------------------------------------


def _show(options: _MetricsOptions) -> None:
    (name,) = options.names
    with output.progress(f"asking {name}", options=options):
        data = metrics.sandbox_metrics(
            name=name,
            local=options.local or None,
            region=options.region,
            timeout=options.timeout or metrics.ASK_SECONDS,
        )
    rows = [*_live_rows(data), *_cloudwatch_rows(data)]
    output.result(data, options=options, text=output.table(_FIGURES, rows) if rows else "")
    for reason in _reasons([data], closely=True):
        output.remark(reason, options=options)


def _show_all(options: _MetricsOptions) -> None:
    with output.progress("asking the sandboxes", options=options):
        data = metrics.all_metrics(
            local=options.local or None, region=options.region, timeout=options.timeout or metrics.ASK_SECONDS
        )
    listed = _listed(data)
    rows = [_row(each) for each in listed]
    output.result(data, options=options, text=_table(_COLUMNS, rows, seen=set()) if rows else "")
    if not rows:
        output.remark(_none(options), options=options)
    for reason in _reasons(listed):
        output.remark(reason, options=options)


def _none(options: _MetricsOptions) -> str:
    return f"there are no sandboxes{' on this machine' if options.local else ''}"


# -- again and again ---------------------------------------------------------------------------------------------------


def _watch(options: _MetricsOptions) -> None:
    interval, local = options.interval or metrics.INTERVAL_SECONDS, options.local or None
    if options.all:
        samples = metrics.watch_all(interval=interval, local=local, region=options.region)
    else:
        (name,) = options.names
        samples = metrics.watch_sandbox(name=name, interval=interval, local=local, region=options.region)
    show = _Redrawn() if panel.can_redraw() and not options.json else _Lines(options)
    listed: list[dict[str, object]] | None = None
    for sample in samples:
        if listed is None:
            output.remark("a sandbox that is watched stays awake: to be asked counts as use", options=options)
        listed = _listed(sample) if options.all else [sample]
        show.take(sample, listed)
    if listed:
        output.remark(f"{options.names[0]} has ended ({listed[0]['state']})", options=options)
    else:
        output.remark(_none(options), options=options)


class _Redrawn:
    """Samples as a table that stays where it is."""

    def __init__(self) -> None:
        self._panel = panel.Panel()
        self._columns: set[str] = set()

    def take(self, sample: Mapping[str, object], listed: Sequence[Mapping[str, object]]) -> None:
        """Show a sample: it, and the sandboxes in it."""
        if listed:
            text = _table(_STEADY_COLUMNS, [_steady(_row(each)) for each in listed], seen=self._columns)
            self._panel.draw(text + "".join(f"{reason}\n" for reason in _reasons(listed)))


class _Lines:
    """Samples as lines, one for each sandbox; or as JSON, an object for each sample."""

    def __init__(self, options: _MetricsOptions) -> None:
        self._options = options
        self._head = ""  # which changes with the window's width
        self._columns: set[str] = set()
        self._widest_name = 0
        self._told: set[str] = set()

    def take(self, sample: Mapping[str, object], listed: Sequence[Mapping[str, object]]) -> None:
        """Show a sample: it, and the sandboxes in it."""
        if self._options.json:
            terminal.write_text(terminal.STDOUT, render.render_json(sample))
            return
        if listed:
            rows = [[str(_moment(each)), *_steady(_row(each))] for each in listed]
            self._widest_name = max(self._widest_name, *(render.width(row[1]) for row in rows))
            for row in rows:
                row[1] += " " * (self._widest_name - render.width(row[1]))
            text = _table((_TIME, *_STEADY_COLUMNS), rows, seen=self._columns)
            head, _, lines = text.partition("\n")
            terminal.write_text(terminal.STDOUT, lines if head == self._head else text)
            self._head = head
        for reason in _reasons(listed):
            if reason not in self._told:
                self._told.add(reason)
                output.remark(reason, options=self._options)


def _moment(sandbox: Mapping[str, object]) -> str | None:
    """Where there is room, with its date."""
    moment = render.render_moment(sandbox["time"])
    return moment[-8:] if moment and terminal.is_terminal(terminal.STDOUT) else moment


# -- a sandbox as a row ------------------------------------------------------------------------------------------------

_TIME = tables.Column("TIME")
_COLUMNS = (
    tables.Column("NAME", shrinks=True),
    tables.Column("STATE", colours=tables.STATE_COLOURS),
    tables.Column("CPU", right=True),
    tables.Column("MEM", right=True),
    tables.Column("DISK", rank=1, right=True),
    tables.Column("PROCS", rank=2, right=True),
    tables.Column("MEMORY", rank=3, right=True),
    tables.Column("SOURCE", rank=4),
    tables.Column("IN", rank=5, right=True),
    tables.Column("OUT", rank=5, right=True),
    tables.Column("UPTIME", rank=6, right=True),
)
# What cells are as wide as at least, so that columns stay where they are from one sample to the next.
_WIDTHS = (0, 10, 5, 5, 5, 5, 20, 5, 8, 8, 6)
_STEADY_COLUMNS = tuple(
    tables.Column(
        each.head,
        rank=each.rank,
        right=each.right,
        shrinks=each.shrinks,
        colours={cell.ljust(wide): colour for cell, colour in each.colours.items()},
    )
    for each, wide in zip(_COLUMNS, _WIDTHS, strict=True)
)


_OPTIONAL = ("IN", "OUT")  # as ``_RARE``


def _table(columns: Sequence[tables.Column], rows: Sequence[Sequence[object]], *, seen: set[str]) -> str:
    """The sandboxes, without the optional columns in which none of them has, or has had, a figure.

    ``seen`` are the heads of those that are shown, from one sample to the next.
    """
    for at, column in enumerate(columns):
        if column.head not in _OPTIONAL or any(str(row[at] or "").strip(" -") for row in rows):
            seen.add(column.head)
    kept = [at for at, column in enumerate(columns) if column.head in seen]
    return output.table([columns[at] for at in kept], [[row[at] for at in kept] for row in rows])


def _row(sandbox: Mapping[str, object]) -> list[object]:
    figures = _figures(sandbox, gauges.AGENT)
    memory, disk, network = (_members(figures.get(name)) for name in ("memory", "disk", "network"))
    best = _members(sandbox["metrics"])
    return [
        sandbox["name"],
        sandbox["state"],
        _percent(best.get("CPUUtilization")),
        _percent(best.get("MemoryUtilization")),
        _percent(disk.get("percent")),
        figures.get("processes"),
        _used(memory),
        best.get("source"),
        _size(network.get("received")),
        _size(network.get("sent")),
        _age(figures.get("uptime")),
    ]


def _steady(row: Sequence[object]) -> list[str]:
    return [
        render.to_printable(cell).ljust(wide) if not column.right else render.to_printable(cell).rjust(wide)
        for cell, wide, column in zip(row, _WIDTHS, _COLUMNS, strict=True)
    ]


# -- a sandbox as a table ----------------------------------------------------------------------------------------------

_RARE = ("load", "received", "sent")  # left out where nobody tells them: a sandbox on this machine has no such figures
_FIGURES = (
    tables.Column("METRIC", shrinks=True),
    "VALUE",
    tables.Column("SHARE", right=True),
    tables.Column("SOURCE", rank=1),
)


def _live_rows(sandbox: Mapping[str, object]) -> Iterator[Sequence[object]]:
    """What its agent tells, and only that."""
    figures = _figures(sandbox, gauges.AGENT)
    if not figures:
        return
    cpus, load = figures.get("cpus"), figures.get("load")
    memory, disk, network = (_members(figures.get(name)) for name in ("memory", "disk", "network"))
    rows = (
        ("cpu", None if cpus is None else f"{cpus:g} CPU{'s' if cpus != 1 else ''}", figures.get("cpu_percent")),
        ("load", ", ".join(f"{each:.2f}" for each in load) if isinstance(load, list) else None, None),
        ("memory", _used(memory), memory.get("percent")),
        ("disk", _used(disk), disk.get("percent")),
        ("received", _size(network.get("received")), None),
        ("sent", _size(network.get("sent")), None),
        ("processes", None if figures.get("processes") is None else str(figures["processes"]), None),
        ("uptime", _age(figures.get("uptime")), None),
    )
    for title, value, share in rows:
        if value is not None or title not in _RARE:
            yield title, value, _percent(share), gauges.AGENT


def _cloudwatch_rows(sandbox: Mapping[str, object]) -> Iterator[Sequence[object]]:
    for title, each in _figures(sandbox, gauges.CLOUDWATCH).items():
        figure = _members(each)
        value, unit = figure.get("value"), figure.get("unit")
        is_share = unit == "Percent"
        shown = None if value is None or is_share else f"{value:g} {unit or ''}".rstrip()
        at = render.render_moment(figure.get("time"))
        source = gauges.CLOUDWATCH if at is None else f"{gauges.CLOUDWATCH} {at[-8:]}"
        yield title, shown, _percent(value) if is_share else None, source


# -- parts -------------------------------------------------------------------------------------------------------------


def _listed(sample: Mapping[str, object]) -> list[dict[str, object]]:
    listed = sample["sandboxes"]
    assert isinstance(listed, list)
    return listed


def _figures(sandbox: Mapping[str, object], source: str) -> Mapping[str, object]:
    return _members(_members(sandbox[source]).get("figures"))


def _members(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _reasons(listed: Sequence[Mapping[str, object]], *, closely: bool = False) -> list[str]:
    """Why there are no figures, of a table only where the state does not say it; each reason once."""
    found: dict[object, list[object]] = {}
    for sandbox in listed:
        agent, cloudwatch = (_members(sandbox[source]) for source in (gauges.AGENT, gauges.CLOUDWATCH))
        said = [agent["reason"]] if closely or sandbox["state"] not in _TELLING_STATES else []
        if closely or (cloudwatch["code"] and not agent["figures"]):
            said.append(None if sandbox["target"] == settings.TARGET_LOCAL else cloudwatch["reason"])
        for reason in said:
            if reason:
                found.setdefault(reason, []).append(sandbox["name"])
    return [render.to_printable(_attributed(str(reason), names)) for reason, names in found.items()]


def _attributed(reason: str, names: list[object]) -> str:
    """A reason with whose it is, unless it says so itself."""
    itself = f"sandbox {names[0]} "
    return reason if len(names) == 1 and reason.startswith(itself) else f"{render.render_names(names)}: {reason}"


def _percent(share: object) -> str | None:
    """Three characters and a sign, so that nothing that is there looks like nothing."""
    if not isinstance(share, (int, float)):
        return None
    return f"{share:.1f} %" if share < 9.95 else f"{share:.0f} %"


def _size(count: object) -> str | None:
    if not isinstance(count, int):
        return None
    number, unit = meter.render_size(count).split()
    return f"{number} {unit}" if len(number) < 5 else f"{float(number):.0f} {unit}"


def _used(members: Mapping[str, object]) -> str | None:
    used, total = _size(members.get("used")), _size(members.get("total"))
    return None if used is None and total is None else f"{used or '?'} of {total or '?'}"


def _age(seconds: object) -> str | None:
    return render.render_age(seconds) if isinstance(seconds, (int, float)) else None
