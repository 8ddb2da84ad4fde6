"""A Dockerfile's text: lines, numbers, flags and forms."""

from __future__ import annotations

import contextlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.agent import GUEST
from vmnest.local import dockerfile


def parse(text: str) -> list[tuple[int, str, str]]:
    return [(found.line, found.name, found.text) for found in dockerfile.parse(text).instructions]


def refuse(text: str) -> tuple[int, str]:
    with pytest.raises(dockerfile.DockerfileError) as caught:
        dockerfile.parse(text)
    return caught.value.line, caught.value.message


def test_names_are_written_in_any_case_and_numbers_are_those_of_first_lines() -> None:
    assert parse("\n# a\nfrom x\n\n  Run a \\\n  b\nCMD c\n") == [
        (3, "FROM", "x"),
        (5, "RUN", "a   b"),
        (7, "CMD", "c"),
    ]


def test_comments_and_empty_lines_count_for_nothing_even_in_a_continued_line() -> None:
    assert parse("FROM x\nRUN a \\\n# why\n\n    # and\n  b # no comment\n")[1] == (2, "RUN", "a   b # no comment")


def test_an_escaped_escape_character_continues_nothing() -> None:
    assert parse("FROM x\nRUN a \\\\\nRUN b")[1:] == [(2, "RUN", "a \\\\"), (3, "RUN", "b")]


def test_spaces_behind_the_escape_character_do_not_matter() -> None:
    assert parse("FROM x\nRUN a \\  \n b")[1] == (2, "RUN", "a  b")


def test_a_file_may_end_in_a_continued_line() -> None:
    assert parse("FROM x\nRUN a \\\n")[1] == (2, "RUN", "a")


def test_lines_may_end_as_on_windows_and_begin_with_a_mark() -> None:
    assert parse("\ufeffFROM x\r\nRUN a \\\r\n b\r\n") == [(1, "FROM", "x"), (2, "RUN", "a  b")]


def test_only_line_feeds_end_lines() -> None:
    assert parse("FROM x\nRUN a\u2028b\x0bc")[1] == (2, "RUN", "a\u2028b\x0bc")


@pytest.mark.parametrize("first", ["# escape=`", "# syntax=docker/dockerfile:1\n#Escape = `"])
def test_the_first_lines_choose_the_escape_character(first: str) -> None:
    file = dockerfile.parse(f"{first}\nFROM x\nRUN dir c:\\\nRUN a `\n b")
    assert file.escape == "`"
    assert [found.text for found in file.instructions] == ["x", "dir c:\\", "a  b"]


@pytest.mark.parametrize("first", ["# a comment\n# escape=`", "\n# escape=`", "# unknown=x\n# escape=`"])
def test_later_lines_choose_nothing(first: str) -> None:
    assert dockerfile.parse(f"{first}\nFROM x").escape == "\\"


def test_a_directive_that_makes_no_sense_is_refused() -> None:
    assert refuse("# escape=x\nFROM x") == (1, "the escape character must be \\ or `, not x")
    assert refuse("# syntax=a\n# syntax=b\nFROM x")[0] == 2


def test_a_directive_with_many_spaces_in_it_is_read_in_a_moment() -> None:
    # Not by the clock: a search that goes back and forth would take hours for it.
    value = f"a{' ' * 900_000}b"
    assert refuse(f"# escape={value}\nFROM x") == (1, f"the escape character must be \\ or `, not {value}")


def test_a_json_list_of_many_lists_is_refused() -> None:
    assert refuse("FROM x\nCMD " + "[" * 100_000) == (2, "a list in the JSON form must hold texts only")


def test_flags_stand_before_everything_else() -> None:
    copy = dockerfile.parse("FROM x\nCOPY --from=a --chown=0:0 --link  b --chmod=1 /c").instructions[1]
    assert copy.flags == {"from": "a", "chown": "0:0", "link": "true"}
    assert copy.text == "b --chmod=1 /c"
    assert str(copy) == "COPY --from=a --chown=0:0 --link=true b --chmod=1 /c"


def test_a_json_list_is_a_list_and_anything_like_it_is_text() -> None:
    found = dockerfile.parse('FROM x\nRUN ["a", "b c"]\nRUN [ -e x ] && y\nCMD []\nLABEL ["a"]=b').instructions
    assert [each.listed for each in found] == [None, ("a", "b c"), None, (), None]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("HEALTHCHECK CMD true", "the instruction HEALTHCHECK is not known here"),
        ("ONBUILD RUN x", "the instruction ONBUILD is not known here"),
        ("frm x", "the instruction frm is not known here"),
        ("RUN --mount=type=cache,target=/x y", "RUN --mount is not known here"),
        ("COPY --parents a b", "COPY --parents is not known here"),
        ("COPY --from a b", "COPY --from needs a value"),
        ("COPY --chmod=1 --chmod=2 a b", "COPY --chmod stands there twice"),
        ("RUN", "RUN needs an argument"),
        ("RUN []", "RUN needs an argument"),
        ("ENV", "ENV needs an argument"),
        ("SHELL /bin/sh", 'SHELL takes a JSON list of texts, as ["/bin/bash", "-c"]'),
        ('CMD ["a", 1]', "a list in the JSON form must hold texts only"),
    ],
)
def test_what_is_not_known_is_refused_with_its_line(line: str, message: str) -> None:
    assert refuse(f"FROM x\n\n{line}") == (3, message)


@pytest.mark.parametrize("text", ["cat <<EOF > a", "<<EOF", "<<-'E F'", 'python3 - <<"X"', "cat 3<<E"])
def test_here_documents_are_refused(text: str) -> None:
    line, message = refuse(f"FROM x\nRUN {text}\na\nEOF")
    assert line == 2
    assert message.startswith("here-documents (")


@pytest.mark.parametrize("text", ["echo $((1<<2))", "cat <<< word", "echo 'a <<EOF'", "a << 2", "it's"])
def test_what_only_looks_like_one_is_not(text: str) -> None:
    assert parse(f"FROM x\nRUN {text}")[1] == (2, "RUN", text)


@pytest.mark.parametrize("text", ["", "\n\n", "# nothing\n"])
def test_a_file_without_instructions_is_refused(text: str) -> None:
    assert refuse(text) == (1, "there is no instruction in it")


def test_our_own_file_is_understood() -> None:
    names = {name for _, name, _ in parse((GUEST / "Dockerfile").read_text(encoding="utf-8"))}
    assert names == {"FROM", "RUN", "COPY", "ENV", "WORKDIR", "EXPOSE", "CMD"}


WORD = st.from_regex(re.compile(r"[a-z][a-z0-9=./-]{0,8}", re.ASCII), fullmatch=True)


@given(st.lists(st.lists(WORD, min_size=1, max_size=4), min_size=1, max_size=5), st.data())
def test_however_lines_are_broken_the_instructions_are_the_same(commands: list[list[str]], data: st.DataObject) -> None:
    text, numbers = "FROM x\n", []
    for words in commands:
        numbers.append(text.count("\n") + 1)
        breaks = [data.draw(st.sampled_from([" ", " \\\n", " \\\n# c\n", " \\ \n\n"])) for _ in words]
        text += "RUN" + "".join(f"{each}{word}" for each, word in zip(breaks, words, strict=True)) + "\n"
    found = dockerfile.parse(text).instructions[1:]
    assert [each.line for each in found] == numbers
    assert [each.text.split() for each in found] == commands


@given(st.text())
def test_any_text_is_understood_or_refused(text: str) -> None:
    with contextlib.suppress(dockerfile.DockerfileError):
        assert dockerfile.parse(text).instructions
