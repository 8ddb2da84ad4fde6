"""Paths in a sandbox."""

from __future__ import annotations

from urllib.parse import unquote_to_bytes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmnest import errors
from vmnest.agent import paths

NAMES = st.binary(min_size=1, max_size=50).filter(lambda name: b"\0" not in name)


@given(NAMES)
def test_any_name_of_linux_is_a_path_and_comes_back(name: bytes) -> None:
    text = name.decode("utf-8", "surrogateescape")
    assert paths.check_path(text) == text
    assert paths.to_bytes(text) == name


@given(NAMES)
def test_a_route_is_plain_ascii_and_holds_every_byte(name: bytes) -> None:
    target = paths.route("/v1/files", ("path", name.decode("utf-8", "surrogateescape")))
    assert target.isascii()
    assert target.isprintable()
    assert not set(target) & set(' +#&\\"')
    assert unquote_to_bytes(target.partition("=")[2]) == name


def test_a_route_has_all_of_its_query() -> None:
    assert paths.route("/v1/tree", ("path", "/a b"), ("exclude", "*.o"), ("exclude", "é&")) == (
        "/v1/tree?path=/a%20b&exclude=%2A.o&exclude=%C3%A9%26"
    )


@pytest.mark.parametrize("wrong", ["", "a\0b", "\ud800", None, b"bytes", 3], ids=repr)
def test_what_can_be_no_path_is_refused_by_its_field(wrong: object) -> None:
    for use in (paths.check_path, paths.to_bytes):
        with pytest.raises(errors.BadArgumentError) as caught:
            use(wrong, field="destination")
        assert caught.value.details["field"] == "destination"


@pytest.mark.parametrize("mode", [0, 0o644, 0o7777])
def test_permission_bits_are_taken(mode: int) -> None:
    assert paths.check_mode(mode) == mode


@pytest.mark.parametrize("mode", [-1, 0o10000, True, "644", 1.0], ids=repr)
def test_what_is_no_permission_bits_is_refused(mode: object) -> None:
    with pytest.raises(errors.UsageError):
        paths.check_mode(mode)  # type: ignore[arg-type]
