"""``fs``: the files of a sandbox, looked at and changed where they are."""

from __future__ import annotations

from .. import errors
from ..ops import copies, files
from . import batch, copying, listing, output, permissions, render, terminal, words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ..agent.entries import Entry
    from ..sandbox.files import Files
    from . import verbs

__all__ = ["build_parser", "run"]


class _FsOptions(words.Options):
    no_resume: bool


class _ListOptions(_FsOptions):
    all: bool
    long: bool
    depth: int
    null: bool


class _StatOptions(_FsOptions):
    follow: bool
    sha256: bool


class _MakeOptions(_FsOptions):
    parents: bool
    mode: int | None


class _RemoveOptions(_FsOptions):
    recursive: bool
    force: bool


class _ModeOptions(_FsOptions):
    recursive: bool


class _WriteOptions(_FsOptions):
    mode: int | None


def build_parser(verb: verbs.Verb) -> words.Parser:
    """The verb's options."""
    kind = verb.words[1]
    names, notes, options, add = _PARSERS[kind]
    parser = words.Parser(
        verb.title,
        summary=verb.summary,
        names=names,
        notes="\n".join(filter(None, (notes, _PATHS))),
        without_name="NAME and PATH are words of their own here. ",
        options=options,
    )
    add(parser)
    if kind != "cp":
        words.add_no_resume(parser)
    return parser


def _add_list_options(parser: words.Parser) -> None:
    parser.switch("-l", "--long", help="show type, permissions, owner, group, size and time, too")
    parser.switch("-a", "--all", help="for those who are used to it: hidden files are always shown")
    parser.option("--depth", metavar="N", kind=_parse_depth, help="how many levels to list (default: 1)")
    parser.switch("-0", "--null", help="end each name with a NUL, and escape nothing: for xargs -0")


def _parse_depth(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text[:9]) <= files.DEEPEST or len(text) > 9:
        raise ValueError(f"must be a number of levels, 1 to {files.DEEPEST}: {text!r}")
    return int(text)


def _add_stat_options(parser: words.Parser) -> None:
    parser.switch("-L", "--follow", help="of a symbolic link, show what it leads to")
    parser.switch("--sha256", help="show the digest of a file's content, too")


def _add_make_options(parser: words.Parser) -> None:
    parser.switch("-p", "--parents", help="make those above it too, and take one that is there for done")
    _add_mode(parser)


def _add_mode(parser: words.Parser) -> None:
    parser.option("-m", "--mode", metavar="MODE", kind=permissions.parse_mode, help="its permission bits, such as 640")


def _add_remove_options(parser: words.Parser) -> None:
    parser.switch("-r", "-R", "--recursive", help="remove directories with all that is in them")
    parser.switch("-f", "--force", help="what is not there is no error")


def _add_mode_options(parser: words.Parser) -> None:
    parser.switch("-R", "--recursive", help="change directories and all that is in them, but no symbolic links")


def _add_nothing(parser: words.Parser) -> None:
    """This verb has no options of its own."""


_INTO = "Into a directory that is there goes what has the source's name."
_EMPTY = "A directory that is empty needs no -r."
_PATHS = "A relative path begins at the sandbox's working directory."
_PARSERS: dict[str, tuple[str, str, type[words.Options], Callable[[words.Parser], None]]] = {
    "ls": ("NAME [PATH...]", "", _ListOptions, _add_list_options),
    "cat": ("NAME PATH...", "", _FsOptions, _add_nothing),
    "stat": ("NAME PATH...", "", _StatOptions, _add_stat_options),
    "mkdir": ("NAME PATH...", "", _MakeOptions, _add_make_options),
    "rm": ("NAME PATH...", _EMPTY, _RemoveOptions, _add_remove_options),
    "mv": ("NAME SRC... DST", _INTO, _FsOptions, _add_nothing),
    "cp": ("NAME SRC... DST", _INTO, copying.CopyOptions, copying.add_options),
    "chmod": ("NAME MODE PATH...", "MODE is octal (755), or a change (u+x,go-w).", _ModeOptions, _add_mode_options),
    "write": ("NAME PATH", "The content is standard input, to its end.", _WriteOptions, _add_mode),
}


def run(verb: verbs.Verb, options: words.Options) -> int:
    """Do it."""
    _check_name(options.names[0], title=verb.title)
    output.remark_unusual_place(options=options)
    return _VERBS[verb.words[1]](options)


def _check_name(name: str, *, title: str) -> None:
    """Lead users of ``cp`` on, where the two are one word."""
    sandbox, colon, path = name.partition(":")
    if colon:
        raise errors.UsageError(
            f"no sandbox is called {name!r}",
            hint=f"NAME and PATH are words of their own here: vmnest {title} {sandbox} {path}".rstrip(),
        )


def _open(options: words.Options) -> Files:
    assert isinstance(options, (_FsOptions, copying.CopyOptions))
    return files.open_files(
        name=options.names[0], resume=not options.no_resume, local=options.local or None, region=options.region
    )


def _on_each(
    operate: Callable[[str], dict[str, object]],
    paths: Sequence[str],
    *,
    options: words.Options,
    doing: str,
    done: str,
    shown: Callable[[dict[str, object]], str] | None = None,
) -> int:
    """Do it with each path, whatever becomes of the others."""

    def watch(path: str) -> dict[str, object]:
        with output.progress(f"{doing} {options.names[0]}:{path}", options=options):
            return operate(path)

    answers, failed = batch.attempt(watch, paths, options=options)
    text = "" if shown is None else "\n".join(map(shown, answers))
    batch.conclude(answers, failed, options=options, done=done, text=text)
    return 0


# -- looking -----------------------------------------------------------------------------------------------------------


def _list(options: words.Options) -> int:
    assert isinstance(options, _ListOptions)
    opened, paths = _open(options), options.names[1:] or [files.WORKDIR]
    lister = listing.Lister(long=options.long, ends_with_nul=options.null, named=len(paths) > 1)
    found: list[dict[str, object]] = []

    def show(path: str) -> dict[str, object]:
        with output.progress(f"listing {options.names[0]}:{path}", options=options) as progress:
            for entry in _scan(opened, path, depth=options.depth or 1, at_once=options.json):
                progress.end()
                if options.json:
                    found.append(files.describe(entry))
                else:
                    lister.write(entry, below=path)
                output.remark(entry.error and f"cannot look at {entry.path}: {entry.error}", options=options)
        return {}

    _, failed = batch.attempt(show, paths, options=options)
    batch.conclude(found, failed, options=options, done="entries")
    return 0


def _scan(opened: Files, path: str, *, depth: int, at_once: bool) -> Iterator[Entry]:
    """What is in a directory, as it comes or ``at_once``, for who holds it all; of anything else, the thing itself."""
    try:
        yield from opened.list(path, depth=depth, timeout=None) if at_once else opened.scan(path, depth=depth)
    except errors.RemoteNotADirectoryError:
        yield opened.stat(path, follow=False)


def _show_content(options: words.Options) -> int:
    opened = _open(options)

    def show(path: str) -> dict[str, object]:
        with output.progress(f"reading {options.names[0]}:{path}", options=options) as progress:
            if options.json:
                return files.read_file(opened, path=path)
            for data in files.stream_file(opened, path=path):
                progress.end()
                terminal.write_bytes(terminal.STDOUT, data)
        return {}

    answers, failed = batch.attempt(show, options.names[1:], options=options)
    batch.conclude(answers, failed, options=options, done="files")
    return 0


def _stat(options: words.Options) -> int:
    assert isinstance(options, _StatOptions)
    opened = _open(options)

    def show(path: str) -> dict[str, object]:
        return files.describe(opened.stat(path, follow=options.follow, sha256=options.sha256))

    return _on_each(show, options.names[1:], options=options, doing="asking for", done="entries", shown=_members)


def _members(entry: dict[str, object]) -> str:
    texts = ((name.replace("_", " "), _to_safe(value)) for name, value in entry.items() if name != "name")
    return render.render_members(texts)


def _to_safe(value: object) -> object:
    return listing.to_safe(value) if isinstance(value, str) else value


# -- changing ----------------------------------------------------------------------------------------------------------


def _make(options: words.Options) -> int:
    assert isinstance(options, _MakeOptions)
    opened, parents, mode = _open(options), options.parents, options.mode

    def make(path: str) -> dict[str, object]:
        try:
            opened.mkdir(path, parents=parents, exist_ok=parents, mode=mode)
        except errors.RemoteFileNotFoundError as error:
            error.add_hint("With -p the directories above it are made too.")
            raise
        return {"path": path}

    return _on_each(make, options.names[1:], options=options, doing="making", done="made")


def _remove(options: words.Options) -> int:
    assert isinstance(options, _RemoveOptions)
    opened, recursive, force = _open(options), options.recursive, options.force

    def remove(path: str) -> dict[str, object]:
        try:
            opened.remove(path, recursive=recursive, missing_ok=force)
        except errors.DirectoryNotEmptyError as error:
            error.add_hint("With -r it is removed, and all that is in it.")
            raise
        return {"path": path}

    return _on_each(remove, options.names[1:], options=options, doing="removing", done="removed")


def _change_mode(options: words.Options) -> int:
    assert isinstance(options, _ModeOptions)
    text, *paths = options.names[1:]
    try:
        change = permissions.parse_change(text)
    except ValueError as error:
        raise errors.UsageError(f"MODE {error}") from error
    opened, recursive = _open(options), options.recursive

    def apply(entry: Entry) -> int:
        return change.apply(entry.mode, is_directory=entry.is_directory)

    def change_mode(path: str) -> dict[str, object]:
        if change.mode is None:
            files.change_mode(opened, path=path, change=apply, recursive=recursive)
        else:
            opened.chmod(path, change.mode, recursive=recursive)
        return {"path": path}

    return _on_each(change_mode, paths, options=options, doing="changing", done="changed")


def _move(options: words.Options) -> int:
    sources, destination = _sides(options)
    mover = copies.Copier(resume=not options.no_resume, local=options.local or None, region=options.region)
    if len(sources) > 1:
        mover.check_takes_several(destination)

    def move(source: copies.Place) -> dict[str, object]:
        with output.progress(f"moving {source}", options=options):
            return mover.move(source, destination)

    answers, failed = batch.attempt(move, sources, options=options)
    batch.conclude(answers, failed, options=options, done="moved")
    return 0


def _copy(options: words.Options) -> int:
    assert isinstance(options, copying.CopyOptions)
    sources, destination = _sides(options)
    return copying.copy_all(sources, destination, options=options)


def _sides(options: words.Options) -> tuple[list[copies.Place], copies.Place]:
    name, *paths = options.names
    *sources, destination = (copies.Place(name, path) for path in paths)
    return sources, destination


def _write(options: words.Options) -> int:
    assert isinstance(options, _WriteOptions)
    path = options.names[1]
    with output.warnings_as_remarks(options=options), copying.open_input("writing", options=options) as source:
        count = _open(options).write(path, source, mode=options.mode, timeout=None)
    output.result({"path": path, "bytes": count}, options=options, text="")
    return 0


_VERBS: dict[str, Callable[[words.Options], int]] = {
    "ls": _list,
    "cat": _show_content,
    "stat": _stat,
    "mkdir": _make,
    "rm": _remove,
    "mv": _move,
    "cp": _copy,
    "chmod": _change_mode,
    "write": _write,
}
