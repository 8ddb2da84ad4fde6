"""The scanner against json.loads, at every split, and against garbage."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from vmnest import errors
from vmnest.agent import scanner

LARGE = frozenset({"stdout", "stderr"})


def scan(pieces: Iterable[str]) -> tuple[dict[str, object], dict[str, str]]:
    """The small members, and the large ones put together again."""
    large: dict[str, list[str]] = {}
    ended: list[str] = []
    reader = scanner.ObjectScanner(
        LARGE, on_piece=lambda name, piece: large.setdefault(name, []).append(piece), on_end=ended.append
    )
    for piece in pieces:
        reader.feed(piece)
    small = reader.finish()
    assert len(ended) == len(set(ended))
    assert set(large) <= set(ended)
    return small, {name: "".join(scanner.unescape(piece) for piece in large.get(name, [])) for name in ended}


def split_at(text: str, cuts: Iterable[int]) -> list[str]:
    places = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    return [text[a:b] for a, b in itertools.pairwise(places)]


def joined(text: str) -> str:
    """Surrogate halves that stand beside each other as json.loads would join them."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
hard_text = st.text(alphabet=st.sampled_from('a"\\/\n\t{}[],:u0 é😀\x7f'), max_size=40)
answers = st.dictionaries(
    st.sampled_from(["exit_code", "stdout", "stderr", "signal", "x"]) | hard_text, values | hard_text, max_size=6
)


@given(answers, st.booleans(), st.sampled_from([None, 1]), st.lists(st.integers(0, 10_000), max_size=8))
@example({"stdout": '\\"'}, True, None, [10, 11, 12, 13, 14])
@example({"stdout": "\\\\\\", "x": '\\"}'}, True, None, list(range(40)))
def test_finds_what_json_finds_whatever_the_split(
    answer: dict[str, object], ascii_only: bool, indent: int | None, cuts: list[int]
) -> None:
    text = json.dumps(answer, ensure_ascii=ascii_only, indent=indent)
    small, large = scan(split_at(text, cuts))
    for name, value in answer.items():
        if name in LARGE and isinstance(value, str):
            assert joined(large.pop(name)) == value
        else:
            assert small.pop(name) == value
    assert (small, large) == ({}, {})


def test_every_single_split_of_an_answer_with_all_escapes_gives_the_same() -> None:
    text = (
        r' { "exit_code" : -9 ,"stdout":"a\"b\\\/\b\f\n\r\t\u0041\ud83d\ude00\\\\\"\\u12",'
        r'"x":{"a":["}\"",1.5e3]}, "stderr":"" } '
    )
    expected = json.loads(text)
    for cut in range(len(text) + 1):
        small, large = scan([text[:cut], text[cut:]])
        assert small == {"exit_code": -9, "x": expected["x"]}
        assert {name: joined(value) for name, value in large.items()} == {"stdout": expected["stdout"], "stderr": ""}


def test_text_that_comes_character_by_character_gives_the_same() -> None:
    text = json.dumps({"exit_code": 0, "stdout": '\\"\\\\' * 5, "stderr": "é\\", "detail": ["\\", '"']})
    small, large = scan(list(text))
    assert small == {"exit_code": 0, "detail": ["\\", '"']}
    assert large == {"stdout": '\\"\\\\' * 5, "stderr": "é\\"}


def test_a_large_member_that_is_no_string_is_a_small_one() -> None:
    assert scan(['{"stdout": null, "stderr": 7}']) == ({"stdout": None, "stderr": 7}, {})


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "{",
        '{"a"',
        '{"a":',
        '{"a":1',
        '{"a":1,',
        '{"stdout":"',
        '{"stdout":"abc\\',
        '{"stdout":"abc"',
        '{"stdout":"abc" "a":1}',
        '{"stdout":"a\\x"}',
        '{"stdout":"a\\u12g4"}',
        "[]",
        "null",
        "<html>502</html>",
        '{"a":1,}',
        '{,"a":1}',
        "{a:1}",
        "{'a':1}",
        '{"a" 1}',
        '{"a":1 2}',
        '{"a":1:2}',
        '{"a":[1}',
        '{"a":1]}',
        '{"a":}',
        '{"a":NaN}',
        '{"a":-Infinity}',
        '{"a":"\n"}',
        '{"a":1}x',
        '{"a":1}{}',
        '{"a":1,"a":2}',
        '{"stdout":"","stdout":""}',
        '{"stdout":"","stdout":1}',
        '{"a":' + "[" * 30_000 + "}",
        '{"a":' + "9" * 70_000 + "}",
    ],
)
def test_anything_but_one_complete_object_is_refused(text: str) -> None:
    with pytest.raises(errors.AgentAnswerError):
        scan([text])
    with pytest.raises(errors.AgentAnswerError):
        scan(split_at(text, range(min(len(text), 50))))


def test_small_members_are_bounded_one_by_one_and_all_together() -> None:
    fits = "x" * (scanner.MAX_SMALL_CHARS - 10)
    assert scan(['{"a":"' + fits + '"}'])[0] == {"a": fits}
    with pytest.raises(errors.AgentAnswerError, match="too large"):
        scan(['{"a":"', fits, "x" * 20])
    with pytest.raises(errors.AgentAnswerError, match="too large"):
        scan(["{", ",".join(f'"{number}":"{"x" * 1000}"' for number in range(70)), "}"])


def test_a_long_run_of_backslashes_is_read_as_pairs() -> None:
    run = "\\" * 99_999
    text = json.dumps({"stdout": run + '"', "x": 1})
    small, large = scan(split_at(text, range(0, len(text), 7919)))
    assert small == {"x": 1}
    assert large == {"stdout": run + '"'}


def test_nothing_of_a_large_string_is_kept() -> None:
    reader = scanner.ObjectScanner(LARGE, on_piece=lambda _name, _piece: None, on_end=lambda _name: None)
    reader.feed('{"stdout":"')
    for _ in range(20):
        reader.feed("A" * 1_000_000)
        assert len(reader._text) - reader._at == 0
    reader.feed('"}')
    assert reader.finish() == {}
