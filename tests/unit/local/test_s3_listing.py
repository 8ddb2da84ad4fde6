"""Pages of S3's lists."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmnest.local import s3_listing
from vmnest.local.s3_listing import Query

KEYS = sorted(["a", "a/1", "a/2", "a/b/3", "b", "c/1", "c/", "é", "\U0001f600"], key=str.encode)


def page(keys=KEYS, **query):
    return s3_listing.page(keys, Query(**query), key=str)


def test_everything_is_on_one_page():
    assert page() == s3_listing.Page(KEYS, [], False, KEYS[-1])


def test_a_prefix_chooses():
    assert page(prefix="a/").items == ["a/1", "a/2", "a/b/3"]


def test_keys_are_rolled_up_at_the_delimiter():
    found = page(delimiter="/")
    assert (found.items, found.prefixes) == (["a", "b", "é", "\U0001f600"], ["a/", "c/"])
    found = page(prefix="a/", delimiter="/")
    assert (found.items, found.prefixes) == (["a/1", "a/2"], ["a/b/"])


def test_a_delimiter_can_be_longer():
    found = page(["x--1", "x--2", "x-3"], delimiter="--")
    assert (found.items, found.prefixes) == (["x-3"], ["x--"])


def test_a_page_that_ended_with_a_common_prefix_goes_on_behind_it():
    first = page(delimiter="/", limit=2)
    assert (first.items, first.prefixes, first.is_truncated, first.last) == (["a"], ["a/"], True, "a/")
    assert page(delimiter="/", after=first.last).items == ["b", "é", "\U0001f600"]


def test_a_page_that_is_just_full_is_not_truncated():
    assert not page(limit=len(KEYS)).is_truncated
    assert not page(["a/1", "a/2"], delimiter="/", limit=1).is_truncated


def test_none_can_be_asked_for():
    assert page(limit=0) == s3_listing.Page([], [], False, "")


TEXTS = st.text("ab/é", max_size=5)


@given(st.sets(TEXTS.filter(bool)), TEXTS, st.sampled_from(["", "/", "b"]), st.integers(min_value=1, max_value=4))
def test_pages_together_are_the_whole(keys, prefix, delimiter, limit):
    ordered = sorted(keys, key=str.encode)
    whole = page(ordered, prefix=prefix, delimiter=delimiter)
    items, prefixes, after = [], [], ""
    for _ in range(len(keys) + 1):
        part = page(ordered, prefix=prefix, delimiter=delimiter, after=after, limit=limit)
        assert len(part.items) + len(part.prefixes) <= limit
        items += part.items
        prefixes += part.prefixes
        after = part.last
        if not part.is_truncated:
            break
    else:
        pytest.fail("the pages do not end")
    assert (items, prefixes) == (whole.items, whole.prefixes)
    assert len(set(prefixes)) == len(prefixes)
