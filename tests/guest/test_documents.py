"""Request documents: JSON within bounds, members by type."""

from __future__ import annotations

import io
import json
import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guest.agentd import bodies, documents, heads
from guest.agentd.errors import RequestError


def parse(value: object) -> documents.Document:
    return documents.parse(json.dumps(value))


def receive(data: bytes) -> documents.Document:
    head = heads.parse([b"POST / HTTP/1.1", b"Content-Length: %d" % len(data)])
    return documents.receive(bodies.Body(io.BytesIO(data), head, invite=lambda: None))


def test_members_come_out_by_type() -> None:
    document = parse({"t": "x", "l": ["a", "b"], "m": {"k": "v"}, "n": 1.5, "i": 2, "z": None})
    assert document.text("t") == "x"
    assert document.text("z", "default") == "default"
    assert document.optional_text("z") is None
    assert document.optional_text("t") == "x"
    assert document.texts("l") == ["a", "b"]
    assert document.texts("z") == []
    assert document.text_map("m") == {"k": "v"}
    assert document.text_map("absent") == {}
    assert document.seconds("n") == 1.5
    assert document.seconds("i") == 2.0
    assert document.seconds("z") is None


@pytest.mark.parametrize(
    ("method", "value", "field"),
    [
        ("text", 1, "x"),
        ("text", None, "x"),
        ("optional_text", [], "x"),
        ("texts", "ls -l", "x"),
        ("texts", {"0": "a"}, "x"),
        ("texts", ["a", 1], "x[1]"),
        ("text_map", [], "x"),
        ("text_map", {"A": 1}, "x['A']"),
        ("seconds", "5", "x"),
        ("seconds", True, "x"),
        ("seconds", 0, "x"),
        ("seconds", -1, "x"),
        ("seconds", [1], "x"),
    ],
)
def test_a_member_of_another_type_is_refused_by_name(method: str, value: object, field: str) -> None:
    with pytest.raises(RequestError) as caught:
        getattr(parse({"x": value}), method)("x")
    assert (caught.value.status, caught.value.code) == (400, "bad_argument")
    assert caught.value.detail.startswith(f"{field}: ")


@pytest.mark.parametrize("body", [b'{"x": 1e999}', b'{"x": -1e999}'])
def test_a_number_beyond_floats_is_no_timeout(body: bytes) -> None:
    assert math.isinf(float("1e999"))
    with pytest.raises(RequestError):
        receive(body).seconds("x")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{bad",
        b"[]",
        b"null",
        b'"text"',
        b"\xff\xfe{}",
        b'{"x": NaN}',
        b'{"x": Infinity}',
        b'{"a": 1} trailing',
        b'{"x": ' + b"9" * 100 + b"}",
        b"[" * 200_000,
        b'{"a":' * 200_000,
        "\ufeff{}".encode(),
        "{}".encode("utf-16"),
    ],
    ids=range(14),
)
def test_what_is_not_a_json_object_is_a_400(body: bytes) -> None:
    with pytest.raises(RequestError) as caught:
        receive(body)
    assert (caught.value.status, caught.value.code) == (400, "bad_request")
    assert len(caught.value.detail) < 500


def test_a_long_number_does_not_hold_the_agent() -> None:
    begin = time.monotonic()
    with pytest.raises(RequestError):
        receive(b'{"x": ' + b"9" * 5_000_000 + b"}")
    assert time.monotonic() - begin < 5


@given(st.binary(max_size=60))
def test_no_bytes_raise_anything_else(body: bytes) -> None:
    try:
        document = receive(body)
    except RequestError:
        return
    assert isinstance(document, documents.Document)


@given(st.text())
def test_text_is_utf_8_or_refused_by_field(text: str) -> None:
    try:
        expected = text.encode("utf-8")
    except UnicodeEncodeError:
        expected = None
    if expected is None or "\0" in text:
        with pytest.raises(RequestError, match=r"^args\[0\]: "):
            documents.encode_text("args[0]", text)
    else:
        assert documents.encode_text("args[0]", text) == expected


@pytest.mark.parametrize("text", ["a\0b", "\0", "\ud800", "x\udfff"])
def test_nul_and_lone_surrogates_are_refused(text: str) -> None:
    with pytest.raises(RequestError) as caught:
        documents.encode_text("command", text)
    assert caught.value.code == "bad_argument"


def test_switches_numbers_and_children_come_out_by_type() -> None:
    document = parse({"f": True, "n": 7, "o": {"n": 0}, "z": None, "u": "root"})
    assert document.flag("f", False)
    assert document.flag("z", True)
    assert document.count("n", maximum=7) == 7
    assert document.count("z", 3, maximum=7) == 3
    assert document.optional_count("z", maximum=7) is None
    child = document.child("o")
    assert child is not None
    assert child.count("n", maximum=7) == 0
    assert document.child("z") is None
    assert document.text_or_number("u") == "root"
    assert document.text_or_number("n") == 7
    assert document.text_or_number("z") is None
    assert document.raw("o") == {"n": 0}


@pytest.mark.parametrize("value", ["true", 1, 0, []])
def test_what_is_no_switch_is_refused(value: object) -> None:
    with pytest.raises(RequestError, match="f: must be true or false"):
        parse({"f": value}).flag("f", False)


@pytest.mark.parametrize("value", [-1, 8, True, 1.0, "1", []])
def test_what_is_no_number_in_the_range_is_refused(value: object) -> None:
    with pytest.raises(RequestError, match="n: must be a whole number, 0 to 7"):
        parse({"n": value}).count("n", maximum=7)


def test_a_number_without_a_default_is_required() -> None:
    with pytest.raises(RequestError, match="n: is required"):
        parse({}).count("n", maximum=7)


@pytest.mark.parametrize("value", [True, 1.5, [], {}])
def test_what_is_neither_text_nor_a_number_is_refused(value: object) -> None:
    with pytest.raises(RequestError, match="u: must be a string or a whole number"):
        parse({"u": value}).text_or_number("u")


def test_a_child_that_is_no_object_is_refused() -> None:
    with pytest.raises(RequestError, match="o: must be an object"):
        parse({"o": [1]}).child("o")


@given(st.binary(min_size=1).filter(lambda data: b"\0" not in data))
def test_any_path_comes_back_as_the_same_bytes_also_through_json(path: bytes) -> None:
    text = json.loads(json.dumps(documents.decode_path(path)))
    assert documents.encode_path("path", text) == path


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "must not be empty"),
        ("a\0", "must not contain NUL"),
        (chr(0xD83D), "surrogate"),
        (chr(0xDC7F), "surrogate"),
    ],
)
def test_what_is_no_path_is_refused(text: str, problem: str) -> None:
    with pytest.raises(RequestError, match=problem):
        documents.encode_path("path", text)
