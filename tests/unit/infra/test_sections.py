"""Values by key, out of the tree of a document. What they may be for a stack, ``test_validation`` holds."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmnest import errors
from vmnest.infra.sections import Entries, Items, Node, Origin, Scalar, Section

KEYS = {"": ("name", "other", "part"), "part": ("size", "names")}
ORIGIN = Origin("f.yaml", "/")


def scalar(text: str, kind: str = "text", *, line: int = 1) -> Scalar:
    return Scalar(text, kind, line)


def section(**members: Node) -> Section:
    node = Entries(members, {name: member.line for name, member in members.items()}, 1)
    return Section(node, name="", keys=KEYS, origin=ORIGIN)


def test_a_document_has_a_label_with_its_number_only_where_there_are_several() -> None:
    assert (ORIGIN.label, Origin("f.yaml", "/", document=2).label) == ("f.yaml", "f.yaml, document 2")


def test_an_absent_text_is_its_default_and_an_empty_one_is_none() -> None:
    assert section().text("name", None, expected="a text") is None
    assert section().text("name", None, expected="a text", default="x") == "x"
    assert section(name=scalar("")).text("name", None, expected="a text") is None
    assert section(name=scalar("", "nothing")).text("name", None, expected="a text") is None
    with pytest.raises(errors.ConfigurationError, match=r"f\.yaml:7: name must be a text, and is empty"):
        section(name=scalar("", line=7)).text("name", None, expected="a text", default="x")


@given(st.text(min_size=1), st.sampled_from(["text", "number"]))
def test_texts_and_numbers_are_taken_as_they_are_written(text: str, kind: str) -> None:
    assert section(name=scalar(text, kind)).text("name", None, expected="a text") == text


def test_a_section_below_is_empty_if_it_is_absent_and_named_in_errors() -> None:
    assert section().section("part").text("size", None, expected="a size") is None
    assert section(part=scalar("~", "nothing")).section("part").mib("size") is None
    below = Entries({"size": scalar("x", line=3)}, {"size": 3}, 2)
    with pytest.raises(errors.ConfigurationError, match=r"f\.yaml:3: part\.size must be a number of MiB"):
        section(part=below).section("part").mib("size")
    with pytest.raises(errors.ConfigurationError, match=r"f\.yaml:4: there is no key part\.name"):
        section(part=Entries({"name": scalar("x")}, {"name": 4}, 2)).section("part")


def test_a_list_names_the_line_of_the_entry_that_is_wrong() -> None:
    entries = Items((scalar("a", line=2), scalar("B", line=3)), 1)
    part = Entries({"names": entries}, {"names": 1}, 1)
    assert section(part=part).section("part").texts("names", None, expected="a name", most=2) == ("a", "B")
    with pytest.raises(errors.ConfigurationError, match=r"f\.yaml:3: part\.names must be a list, each a name: 'B'"):
        section(part=part).section("part").texts("names", re.compile("[a-z]"), expected="a name", most=2)
    with pytest.raises(errors.ConfigurationError, match=r"part\.names has 2 entries; at most 1"):
        section(part=part).section("part").texts("names", None, expected="a name", most=1)


def test_a_table_is_checked_pair_by_pair() -> None:
    table = Entries({"a": scalar("1", "number"), "b": scalar("", "nothing", line=5)}, {"a": 4, "b": 5}, 3)
    seen = []

    def check(name: str, value: str) -> str | None:
        seen.append((name, value))
        return "is wrong" if name == "b" else None

    with pytest.raises(errors.ConfigurationError, match=r"^f\.yaml:5: other\.b is wrong$"):
        section(other=table).table("other", expected="names to texts", check=check)
    assert seen == [("a", "1"), ("b", "")]
