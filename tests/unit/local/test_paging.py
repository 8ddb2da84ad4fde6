"""Pages of lists."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmnest.local import faults, paging


def page(items, **params):
    return paging.page(items, params, key=lambda item: item)


@given(count=st.integers(0, 60), size=st.integers(1, 50))
def test_all_pages_together_are_the_list(count, size):
    items, token, seen = list(range(1, count + 1)), None, []
    while True:
        chosen, token = page(items, maxResults=size, nextToken=token)
        assert len(chosen) <= size
        seen += chosen
        if token is None:
            break
    assert seen == items


def test_an_item_does_not_come_twice_when_the_list_changes():
    first, token = page([1, 2, 3], maxResults=2)
    second, _ = page([2, 3, 4], maxResults=2, nextToken=token)
    assert (first, second) == ([1, 2], [3, 4])


def test_a_token_is_as_long_as_the_services():
    _, token = page([1, 2], maxResults=1)
    assert token is not None
    assert 680 <= len(token) <= 800


@pytest.mark.parametrize("token", ["", "x", "ä", "e30=", base64.urlsafe_b64encode(b"[1]").decode()], ids=repr)
def test_another_token_is_refused(token):
    with pytest.raises(faults.Fault, match="Invalid nextToken"):
        page([1], nextToken=token)


@given(st.text())
def test_a_marker_carries_any_text(last):
    assert paging.parse_marker(paging.build_marker(last)) == last


@pytest.mark.parametrize("marker", ["", "MQ", "Mg==", "\u00e9", "/w==", base64.b64encode(b"1\xff").decode()])
def test_a_marker_that_is_not_ours_has_nothing_in_it(marker):
    assert paging.parse_marker(marker) is None
