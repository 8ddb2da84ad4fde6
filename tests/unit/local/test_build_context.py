"""Which files COPY means."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmnest.local import build_context
from vmnest.local.build_artifact import FILE, FOLDER, LINK, Entry
from vmnest.local.build_context import Context, ContextError


def entry(kind: str, content: str = "", mode: int = 0o644) -> Entry:
    return Entry(kind, mode, content)


TREE = {
    "Dockerfile": entry(FILE, "d"),
    ".env": entry(FILE, "e"),
    "a.py": entry(FILE, "1"),
    "b.py": entry(FILE, "2"),
    "c[1].txt": entry(FILE, "3"),
    "src": entry(FOLDER),
    "src/a.py": entry(FILE, "4"),
    "src/sub": entry(FOLDER),
    "src/sub/z.py": entry(FILE, "5"),
    "to_src": entry(LINK, "src"),
    "to_a": entry(LINK, "/src/../a.py"),
    "out": entry(LINK, "../../etc/passwd"),
    "loop": entry(LINK, "loop"),
    "chain": entry(LINK, "to_src/sub"),
}


@pytest.fixture
def context() -> Context:
    return Context(TREE)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("a.py", ["a.py"]),
        ("./a.py", ["a.py"]),
        ("/a.py", ["a.py"]),
        ("src/", ["src"]),
        ("src/../b.py", ["b.py"]),
        (".", [""]),
        ("/", [""]),
        ("*.py", ["a.py", "b.py"]),
        ("*/*.py", ["src/a.py"]),
        ("?.py", ["a.py", "b.py"]),
        ("[b-z].py", ["b.py"]),
        ("[^a].py", ["b.py"]),
        ("c\\[1].txt", ["c[1].txt"]),
        (".e*", [".env"]),
        ("s*", ["src"]),
        ("to_a", ["a.py"]),
        ("to_src/a.py", ["src/a.py"]),
        ("chain/z.py", ["src/sub/z.py"]),
    ],
)
def test_patterns_mean_places(context: Context, pattern: str, expected: list[str]) -> None:
    assert [place for _, place in context.match([pattern])] == expected


def test_a_pattern_of_many_stars_is_looked_at_for_a_moment() -> None:
    # Not by the clock: with a plain ".*" for each this would not end within years.
    context = Context({"a" * 250: entry(FILE), "a" * 249 + "b": entry(FILE)})
    assert [name for name, _ in context.match(["*a" * 40 + "*b"])] == ["a" * 249 + "b"]


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("**", ["ab", "aXbXc", "abab"]),
        ("a*b", ["ab", "abab"]),
        ("a*b*b", ["abab"]),
        ("*b*c", ["aXbXc"]),
        ("a*[a-z]?*b", ["abab"]),
        ("*ab*ab*", ["abab"]),
        ("*X*X*", ["aXbXc"]),
    ],
)
def test_stars_mean_any_text(pattern: str, names: list[str]) -> None:
    context = Context(dict.fromkeys(("ab", "aXbXc", "abab"), entry(FILE)))
    assert sorted(name for name, _ in context.match([pattern])) == sorted(names)


@pytest.mark.parametrize("pattern", ["*" + "a" * 5000, "*" + "?" * 5000])
def test_a_pattern_longer_than_any_name_is_refused(context: Context, pattern: str) -> None:
    with pytest.raises(ContextError, match="longer"):
        context.match([pattern])


def test_more_sources_than_there_can_be_files_are_refused(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_context, "_MAX_SOURCES", 3)
    with pytest.raises(ContextError, match="more than 3"):
        context.match(["*.py", "*.py"])


def test_a_link_gives_its_own_name(context: Context) -> None:
    assert context.match(["to_a"]) == [("to_a", "a.py")]


@pytest.mark.parametrize("pattern", ["missing", "x*", "../x", "a/../../x", "a.py/x", "out", "loop", "[a", "[z-a]"])
def test_what_is_not_there_is_refused(context: Context, pattern: str) -> None:
    with pytest.raises(ContextError):
        context.match([pattern])


def test_directories_are_known(context: Context) -> None:
    assert context.is_folder("src")
    assert context.is_folder("")
    assert not context.is_folder("a.py")
    assert not context.is_folder("missing")


@pytest.mark.parametrize(
    ("path", "changed"),
    [
        ("src/a.py", entry(FILE, "other")),
        ("src/a.py", entry(FILE, "4", 0o755)),
        ("src/a.py", entry(LINK, "4")),
        ("src/new", entry(FILE, "")),
        ("src/sub/z.py", entry(FILE, "6")),
        ("src", entry(FOLDER, "", 0o700)),
    ],
)
def test_a_digest_changes_with_whatever_is_copied(context: Context, path: str, changed: Entry) -> None:
    other = Context({**TREE, path: changed})
    assert other.digest(["src"]) != context.digest(["src"])
    assert other.digest(["b.py"]) == context.digest(["b.py"])


def test_a_digest_depends_on_names_and_order_not_on_where_it_lies(context: Context) -> None:
    moved = Context({**TREE, "deep": entry(FOLDER), "deep/a.py": TREE["a.py"]})
    assert moved.digest(["deep/a.py"]) == context.digest(["a.py"])
    assert context.digest(["a.py", "b.py"]) != context.digest(["b.py", "a.py"])


@given(st.text(alphabet="ab*?[]^-!\\/.&|~", max_size=8))
def test_any_pattern_is_understood_or_refused(pattern: str) -> None:
    try:
        found = Context(TREE).match([pattern])
    except ContextError:
        return
    assert all(place in TREE or place == "" for _, place in found)
