"""``local up|down|status|env``."""

from __future__ import annotations

from ..ops import local
from . import output, render, tables, words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from . import verbs


class _DownOptions(words.Options):
    force: bool


def build_parser(verb: verbs.Verb) -> words.Parser:
    """``down`` has ``--force``; the others nothing."""
    if verb.words[1] != "down":
        return words.Parser(verb.title, summary=verb.summary, notes=_NOTES.get(verb.words[1], ""))
    parser = words.Parser(verb.title, summary=verb.summary, notes=_DOWN_NOTES, options=_DownOptions)
    parser.switch("--force", help="end the sandboxes that run in it")
    return parser


_NOTES = {"env": 'Use it so:  eval "$(vmnest local env)"'}
_DOWN_NOTES = "While sandboxes run it is refused (exit status 1), unless --force is given."


def run(verb: verbs.Verb, options: words.Options) -> int:
    """Do it."""
    {"up": _up, "down": _down, "status": _status, "env": _env}[verb.words[1]](options)
    return 0


def _up(options: words.Options) -> None:
    with output.progress("starting the local cloud", options=options):
        data = local.up()
    text = "" if options.quiet else _text(data)
    output.result(data, options=options, text=text)
    _tell_notes(data, options=options)


def _down(options: words.Options) -> None:
    assert isinstance(options, _DownOptions)
    with output.progress("stopping the local cloud", options=options):
        data = local.down(force=options.force)
    ended = data["ended"]
    assert isinstance(ended, list)
    output.result(data, options=options, text="")
    output.remark("the local cloud is stopped" if data["stopped"] else "the local cloud does not run", options=options)
    for each in ended:
        output.remark(f"ended {each['name'] or each['microvm_id']}", options=options)


def _status(options: words.Options) -> None:
    data = local.status()
    output.result(data, options=options, text=_text(data))
    _tell_notes(data, options=options)


def _tell_notes(data: dict[str, object], *, options: words.Options) -> None:
    notes = data["notes"]
    assert isinstance(notes, list)
    for note in notes:
        output.remark(note, options=options)


_COLUMNS = ("NAME", tables.Column("STATE", colours=tables.STATE_COLOURS), "MICROVM")


def _text(data: dict[str, object]) -> str:
    alive = data["microvms"]
    assert isinstance(alive, list)
    heads = [(name, data.get(name)) for name in ("url", "pid", "version", "driver", "isolation", "folder")]
    states = data["states"]
    assert isinstance(states, dict)
    if states:
        heads.append(("microvms", ", ".join(f"{count} {state}" for state, count in states.items())))
    builds = data["builds"]
    assert isinstance(builds, list)
    if builds:
        heads.append(("builds", ", ".join(map(str, builds))))
    text = render.render_members([("local cloud", "running" if data["running"] else "not running"), *heads])
    if alive:
        rows = [(each["name"], each["state"], each["microvm_id"]) for each in alive]
        text += "\n" + output.table(_COLUMNS, rows)
    return text


def _env(options: words.Options) -> None:
    with output.progress("starting the local cloud", options=options):
        data = local.env()
    environment = data["environment"]
    assert isinstance(environment, dict)
    output.result(data, options=options, text="".join(_shell_line(*item) for item in environment.items()))


def _shell_line(name: str, value: str | None) -> str:
    import shlex

    return f"unset {name}\n" if value is None else f"export {name}={shlex.quote(value)}\n"
