"""Answers: lengths that are told before the body is made, base64 in blocks."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guest.agentd import answers
from guest.agentd.errors import RequestError


def body_of(answer: answers.Answer) -> bytes:
    return b"".join(answer.blocks)


def test_a_document_is_compact_ascii_json_of_the_told_length() -> None:
    answer = answers.build_json(200, {"a": "ä\ud800", "b": [1, None]})
    body = body_of(answer)
    assert body == b'{"a":"\\u00e4\\ud800","b":[1,null]}'
    assert answer.length == len(body)
    assert answer.headers == (("Content-Type", "application/json"),)


def test_a_refusal_has_a_detail_and_a_code() -> None:
    answer = answers.build_error(RequestError(404, "file_not_found", "no such file: /x"))
    assert answer.status == 404
    assert json.loads(body_of(answer)) == {"detail": "no such file: /x", "code": "file_not_found"}


@given(st.lists(st.binary(max_size=20), max_size=30))
def test_base64_of_pieces_is_the_base64_of_the_whole(pieces: list[bytes]) -> None:
    assert b"".join(answers.encode_base64(pieces)) == base64.b64encode(b"".join(pieces))


@pytest.mark.parametrize("size", [0, 1, answers.BLOCK_BYTES - 1, answers.BLOCK_BYTES, 3 * answers.BLOCK_BYTES + 2])
def test_large_pieces_are_encoded_block_by_block(size: int) -> None:
    data = bytes(range(256)) * (size // 256 + 1)
    blocks = list(answers.encode_base64([data[:size]]))
    assert b"".join(blocks) == base64.b64encode(data[:size])
    assert max(map(len, blocks), default=0) <= answers.BLOCK_BYTES // 3 * 4


@given(st.binary(max_size=50), st.binary(max_size=50))
def test_long_members_come_last_in_order_and_the_length_is_exact(out: bytes, err: bytes) -> None:
    bulk = [("stdout", len(out), [out]), ("stderr", len(err), [err[:7], err[7:]])]
    answer = answers.build_bulky(200, {"exit_code": 0, "encoding": "base64"}, bulk)
    body = body_of(answer)
    assert len(body) == answer.length
    document = json.loads(body)
    assert list(document) == ["exit_code", "encoding", "stdout", "stderr"]
    assert base64.b64decode(document["stdout"]) == out
    assert base64.b64decode(document["stderr"]) == err


def test_an_answer_that_holds_nothing_can_be_closed() -> None:
    answers.Answer(200).close()
