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
