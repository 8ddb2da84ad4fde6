"""``infra init|preview|up|refresh|destroy|output``."""

from __future__ import annotations

from .. import errors
from ..ops import infra
from . import asking, infra_progress, output, render, tables, terminal, values, words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from . import verbs

__all__ = ["build_parser", "run"]

DEFAULT_FILE = "sandbox.yaml"
_COLOURS = {"create": "32", "update": "33", "delete": "31"}
_MARKS = {"create": "+", "update": "~", "delete": "-", "reuse": "="}


class _InitOptions(words.Options):
    file: str | None
    force: bool


class _StackOptions(words.Options):
    file: list[str] | None
    stack: str | None
    timeout: float | None
    rebuild: bool = False
    parallelism: int = 0
    yes: bool = False
    all: bool = False


_NOTES = {
    "init": "It is written for the region that is configured (--region, AGENT_SANDBOX_REGION, AWS's own settings).",
    "up": "Several stacks at a time are worked on in parallel. Ctrl+C stops; what was made by then is recorded, and\n"
    "the same command goes on from there.",
    "destroy": "It asks first. Without a terminal to ask on it wants --yes.",
    "output": "NAME prints the bare value: image_arn, execution_role_arn, build_bucket, region, ...",
}


def build_parser(verb: verbs.Verb) -> words.Parser:
    """The verb's options."""
    action = verb.words[1]
    parser = words.Parser(
        verb.title,
        summary=verb.summary,
        names="[NAME]" if action == "output" else "",
        notes=_NOTES.get(action, ""),
        options=_InitOptions if action == "init" else _StackOptions,
    )
    if action == "init":
        parser.option("-f", "--file", metavar="FILE", help=f"where to write it (default: {DEFAULT_FILE})")
        parser.switch("--force", help="replace what is there")
        return parser
    parser.option(
        "-f",
        "--file",
        metavar="PATH",
        repeat=True,
        help="configuration file, or directory of them (repeatable; default: AGENT_SANDBOX_SETUP, sandbox.yaml, "
        "setup.yaml)",
    )
    parser.option("-s", "--stack", metavar="NAME", help="stack to choose, or to call the only one of a project")
    _add_own_options(parser, action)
    return parser


def _add_own_options(parser: words.Parser, action: str) -> None:
    if action in ("preview", "up"):
        parser.switch("--rebuild", help="make a new version of the image even if nothing has changed")
    if action in ("up", "destroy"):
        parser.option(
            "-p",
            "--parallelism",
            metavar="N",
            kind=_parse_parallelism,
            help="how many stacks to work on at a time; 0 for all of them (default: 0)",
        )
    if action == "destroy":
        parser.switch("-y", "--yes", help="do not ask")
    if action == "output":
        parser.switch("--all", help="every recorded stack, also without a configuration file")
    else:
        seconds = {"up": infra.UP_SECONDS, "destroy": infra.DESTROY_SECONDS}.get(action, infra.ASK_SECONDS)
        parser.option(
            "--timeout",
            metavar="SECONDS",
            kind=values.parse_seconds,
            help=f"how long all of it may take (default: {seconds:.0f})",
        )


def _parse_parallelism(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 6):
        raise ValueError(f"must be a number of stacks, or 0: {text!r}")
    return int(text)


def run(verb: verbs.Verb, options: words.Options) -> int:
    """Do it."""
    if isinstance(options, _InitOptions):
        _init(options)
        return 0
    assert isinstance(options, _StackOptions)
    actions = {"preview": _preview, "up": _up, "refresh": _refresh, "destroy": _destroy, "output": _output}
    actions[verb.words[1]](options)
    return 0


def _init(options: _InitOptions) -> None:
    data = infra.init_infra(file=options.file or DEFAULT_FILE, force=options.force, region=options.region)
    output.result(data, options=options, text="")
    output.remark(f"wrote {data['file']}; look it over, then: {_command('preview', options)}", options=options)


def _preview(options: _StackOptions) -> None:
    with output.progress("looking at what there is", options=options):
        data = infra.preview_infra(
            files=options.file,
            stack=options.stack,
            rebuild=options.rebuild,
            local=options.local or None,
            region=options.region,
            timeout=options.timeout or infra.ASK_SECONDS,
        )
    plans = _stacks(data)
    output.result(data, options=options, text="\n".join(_plan_text(plan) for plan in plans))
    for plan in plans:
        for note in _list(plan["notes"]):
            output.remark(str(note), options=options)
    if any(plan["has_changes"] for plan in plans):
        output.remark(f"nothing was changed; this does it: {_command('up', options)}", options=options)


def _up(options: _StackOptions) -> None:
    with _Watched(options) as board:
        data = infra.up_infra(
            files=options.file,
            stack=options.stack,
            rebuild=options.rebuild,
            parallelism=options.parallelism or 0,
            local=options.local or None,
            region=options.region,
            timeout=options.timeout or infra.UP_SECONDS,
            front=board,
        )
    found = _stacks(data)
    # As "infra output" prints them, which programs read.
    shown = found[0] if len(found) == 1 else {"stacks": found, "count": len(found)}
    output.result(data, options=options, text=render.render_json(shown, indented=True))


def _refresh(options: _StackOptions) -> None:
    with output.progress("looking at what there is", options=options):
        data = infra.refresh_infra(
            files=options.file,
            stack=options.stack,
            local=options.local or None,
            region=options.region,
            timeout=options.timeout or infra.ASK_SECONDS,
        )
    text = ""
    for each in _stacks(data):
        changes = _list(each["changes"])
        found = "what is recorded is there" if each["recorded"] else "nothing is recorded"
        text += f"{_label(each)}: {'the record was changed' if changes else found}\n{_steps_text(changes)}"
    output.result(data, options=options, text=text)
    _remark_elsewhere("refresh", [_label_of(each) for each in _stacks(data)], options)


def _destroy(options: _StackOptions) -> None:
    if not options.yes:
        _ask(options)
    with _Watched(options) as board:
        data = infra.destroy_infra(
            files=options.file,
            stack=options.stack,
            parallelism=options.parallelism or 0,
            local=options.local or None,
            region=options.region,
            timeout=options.timeout or infra.DESTROY_SECONDS,
            front=board,
        )
    text = ""
    for each in _stacks(data):
        steps = _list(each["steps"])
        gone = sum(step["action"] == "delete" for step in steps)
        kept = len(steps) - gone
        text += f"{_label(each)}: removed {gone}" + (f", left {kept} that were there before\n" if kept else "\n")
    output.result(data, options=options, text=text)
    _remark_elsewhere("destroy", [_label_of(each) for each in _stacks(data) if not each["steps"]], options)


def _ask(options: _StackOptions) -> None:
    """Say what goes, and have the user agree.

    Raises:
        errors.UsageError: nobody can be asked.
    """
    data = infra.plan_removal(
        files=options.file, stack=options.stack, local=options.local or None, region=options.region
    )
    plans = [plan for plan in _stacks(data) if plan["has_changes"]]
    if not plans:
        return  # nothing of ours: nothing to ask about
    asking.agree(
        "\n".join(_plan_text(plan) for plan in plans) + "\n",
        question="Remove this?",
        refusal=f"this would remove the infrastructure of {', '.join(_label(plan) for plan in plans)}",
        options=options,
    )


def _output(options: _StackOptions) -> None:
    if options.all:
        if options.names:
            raise errors.UsageError("--all lists everything: no NAME goes with it")
        everything = infra.infra_list(local=options.local or None)
        output.result(everything, options=options, text=render.render_json(everything, indented=True))
        return
    data = infra.infra_outputs(files=options.file, stack=options.stack, local=options.local or None)
    if not options.names:
        output.result(data, options=options, text=render.render_json(data, indented=bool(data)))
        if not data:
            output.remark(_nothing_up(options), options=options)
            _remark_elsewhere("output", None, options)
        return
    (name,) = options.names
    if name not in data:
        raise errors.NotFoundError(f"there is no output {name}", hint=_no_output(data, options))
    value = data[name]
    text = value if isinstance(value, str) else render.render_json(value).rstrip("\n")
    output.result({"name": name, "value": value}, options=options, text=f"{render.to_printable(text)}\n")


def _no_output(data: Mapping[str, object], options: _StackOptions) -> str:
    return f"There are {', '.join(data)}." if data else _nothing_up(options).replace("nothing", "Nothing", 1)


def _nothing_up(options: _StackOptions) -> str:
    where = "on this machine" if output.is_local(options=options) else "on AWS (--local: on this machine)"
    return f"nothing is up {where}. This makes it: {_command('up', options)}"


def _command(verb: str, options: words.Options, *, is_local: bool | None = None) -> str:
    """The command as it is to be typed for the target in use, or the other one, and for the same files and stack."""
    import shlex

    typed = ["vmnest", *(["--local"] if (options.local if is_local is None else is_local) else []), "infra", verb]
    if isinstance(options, _InitOptions):
        typed += ["-f", options.file] if options.file is not None else []
    elif isinstance(options, _StackOptions):
        typed += [each for file in options.file or () for each in ("-f", file)]
        typed += ["-s", options.stack] if options.stack is not None else []
        typed += ["--rebuild"] if options.rebuild and verb == "up" else []
    return render.to_printable(shlex.join(typed))


def _label_of(stack: Mapping[str, object]) -> str:
    return f"{stack['project']}/{stack['stack']}"


def _remark_elsewhere(verb: str, labels: Sequence[str] | None, options: _StackOptions) -> None:
    """Say of stacks that are not recorded here, but on the other target, where they are; None: of any."""
    is_local = output.is_local(options=options)
    here = {_label_of(each) for each in _stacks(infra.infra_list(local=is_local))}
    there = {_label_of(each) for each in _stacks(infra.infra_list(local=not is_local))}
    found = sorted(there - here if labels is None else (there - here) & set(labels))
    if found:
        place = "AWS" if is_local else "this machine"
        command = _command(verb, options, is_local=not is_local)
        output.remark(f"{', '.join(found)} is on {place}: {command}", options=options)


# -- texts -------------------------------------------------------------------------------------------------------------


class _Watched:
    """The board, and what is said if the work is stopped."""

    def __init__(self, options: words.Options) -> None:
        self._options = options
        self._board = infra_progress.Board(shown=not options.quiet and not options.json)

    def __enter__(self) -> infra_progress.Board:
        return self._board.__enter__()

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: object) -> None:
        self._board.__exit__(None, None, None)
        if kind is not None and not issubclass(kind, Exception):
            output.remark(
                "stopped; what was done by then is recorded. The same command goes on from there; this removes it: "
                f"{_command('destroy', self._options)}",
                options=self._options,
            )


def _stacks(data: Mapping[str, object]) -> list[dict[str, object]]:
    stacks = data["stacks"]
    assert isinstance(stacks, list)
    return stacks


def _list(value: object) -> Sequence[dict[str, object]]:
    assert isinstance(value, list)
    return value


def _label(each: Mapping[str, object]) -> str:
    return render.to_printable(f"{each['project']}/{each['stack']}")


def _plan_text(plan: Mapping[str, object]) -> str:
    where = "this machine" if plan["target"] == "local" else f"AWS, {render.to_printable(plan['region'])}"
    steps = _list(plan["steps"])
    counts = infra_progress.render_counts([str(step["action"]) for step in steps])
    return f"{_label(plan)} on {where}: {counts}\n{_steps_text(steps)}"


def _steps_text(steps: Sequence[Mapping[str, object]]) -> str:
    rows = [
        (f"{_MARKS.get(str(step['action']), ' ')} {step['action']}", step["resource"], step["reason"], step["id"])
        for step in steps
    ]
    if not rows:
        return ""
    _, *lines = tables.render_table(("", "", "", ""), rows).splitlines()
    text = ""
    for step, line in zip(steps, lines, strict=True):
        text += f"  {_coloured(line, str(step['action']))}\n"
        for change in _list(step["changes"]):
            old, new = (render.to_printable(change[side]) for side in ("old", "new"))
            text += f"        {render.to_printable(change['field'])}: {old} -> {new}\n"
    return text


def _coloured(line: str, action: str) -> str:
    colour = _COLOURS.get(action)
    return tables.paint(line, colour) if colour and terminal.want_colour(terminal.STDOUT) else line
