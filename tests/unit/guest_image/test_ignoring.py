"""The last pattern that matches decides, what a build needs is never excluded, and no text breaks the reader."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmnest import errors
from vmnest.guest_image import ignoring


@pytest.mark.parametrize(
    ("pattern", "excluded", "kept"),
    [
        ("node_modules", ["node_modules", "node_modules/a/b.js"], ["a/node_modules", "node_modules2"]),
        ("*.log", ["a.log", ".log"], ["a/b.log", "a.logs"]),
        ("**/*.log", ["a.log", "a/b.log", "a/b/c.log"], ["a.txt"]),
        ("**/cache", ["cache", "a/cache", "a/cache/b"], ["acache", "a/cached"]),
        ("a/**", ["a/b", "a/b/c"], ["a", "b/a"]),
        ("a/**/z", ["a/z", "a/b/z", "a/b/c/z"], ["az", "a/bz/y"]),
        ("/top", ["top", "top/a"], ["a/top"]),
        ("./x/", ["x", "x/y"], ["y/x"]),
        ("a/../b", ["b"], ["a"]),
        ("?.txt", ["a.txt"], ["ab.txt", "/.txt"]),
        ("[a-c].py", ["a.py", "c.py"], ["d.py"]),
        ("[^a-c].py", ["d.py"], ["a.py", "/.py"]),
        ("a\\*b", ["a*b"], ["axb"]),
        ("  spaced  ", ["spaced"], []),
        ("a+b(c)", ["a+b(c)"], ["aab(c)"]),
        ("**", ["a", "a/b"], []),
        ("日本*", ["日本語"], ["本"]),
    ],
)
def test_a_pattern_excludes_what_it_says(pattern, excluded, kept):
    rules = ignoring.parse(pattern)
    assert [path for path in excluded if not rules.excludes(path)] == []
    assert [path for path in kept if rules.excludes(path)] == []


def test_the_last_pattern_that_matches_decides():
    rules = ignoring.parse("# comment\n*.md\n!README*.md\nREADME-secret.md\n")
    assert rules.excludes("a.md")
    assert not rules.excludes("README.md")
    assert rules.excludes("README-secret.md")


def test_what_the_build_itself_reads_is_never_excluded():
    rules = ignoring.parse("*\n**")
    assert not rules.excludes("Dockerfile")
    assert not rules.excludes(".dockerignore")
    assert rules.excludes("a/Dockerfile")


def test_a_directory_is_left_alone_unless_something_in_it_may_be_taken_back():
    assert ignoring.parse("a").excludes_all_below("a")
    assert not ignoring.parse("a\n!a/b").excludes_all_below("a")


def test_comments_empty_lines_and_a_byte_order_mark_are_no_patterns():
    rules = ignoring.parse("\ufeff# comment\n\n   \n.\n/\n")
    assert not rules.excludes("anything")


@pytest.mark.parametrize(("text", "line"), [("a\n[a", 2), ("!", 1), ("a\\", 1), ("x\ny\n[z-a]", 3)])
def test_nonsense_names_its_line(text, line):
    with pytest.raises(errors.GuestImageError, match=rf"\.dockerignore, line {line}: "):
        ignoring.parse(text)


@given(st.text(max_size=40), st.text(max_size=40))
def test_any_text_is_rules_or_a_clear_error(text, path):
    try:
        rules = ignoring.parse(text)
    except errors.GuestImageError:
        return
    rules.excludes(path)
