"""What may be reached: rules as users write them, and as requests are judged by them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmnest import errors
from vmnest.wire import egress
from vmnest.wire.egress import ANYWHERE, NOWHERE, PUBLIC


def judge(host: str, port: int, *allowed: str) -> str:
    return egress.parse(allowed).judge(host, port)


def test_without_rules_nothing_is_reached() -> None:
    assert judge("pypi.org", 443) == NOWHERE


@pytest.mark.parametrize(
    ("rule", "host", "port", "verdict"),
    [
        ("pypi.org", "pypi.org", 443, ANYWHERE),
        ("pypi.org", "pypi.org", 80, ANYWHERE),
        ("pypi.org", "pypi.org", 8080, NOWHERE),
        ("pypi.org", "www.pypi.org", 443, NOWHERE),
        ("pypi.org", "notpypi.org", 443, NOWHERE),
        ("PYPI.org.:8443", "pypi.org", 8443, ANYWHERE),
        ("pypi.org:8443", "pypi.org", 443, NOWHERE),
        ("pypi.org:80", "pypi.org", 443, NOWHERE),
        ("*.pypi.org", "a.b.pypi.org", 443, PUBLIC),
        ("*.pypi.org", "pypi.org", 443, NOWHERE),
        ("*.pypi.org", "evilpypi.org", 443, NOWHERE),
        ("*.pypi.org:8443", "a.pypi.org", 8443, PUBLIC),
        ("*.pypi.org:8443", "a.pypi.org", 443, NOWHERE),
        ("10.0.0.1:5432", "10.0.0.1", 5432, ANYWHERE),
        ("[::1]:80", "::1", 80, ANYWHERE),
        ("::1", "::1", 443, ANYWHERE),
        ("internet", "anything.example", 443, PUBLIC),
        ("internet", "anything.example", 6667, PUBLIC),
        ("internet", "203.0.113.7", 22, PUBLIC),
        ("Internet", "mail.example", 25, NOWHERE),
    ],
)
def test_a_rule_lets_through_what_it_names(rule: str, host: str, port: int, verdict: str) -> None:
    assert judge(host, port, rule) == verdict


def test_the_most_generous_rule_counts() -> None:
    assert judge("10.0.0.1", 80, "internet", "10.0.0.1", "*.example") == ANYWHERE
    assert judge("mail.example", 25, "internet", "mail.example:25") == ANYWHERE


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("PyPI.org.", "pypi.org"),
        ("pypi.org:080", "pypi.org:80"),
        ("2001:DB8::0:1", "[2001:db8::1]"),
        ("[::1]:8443", "[::1]:8443"),
        ("*.Example:1", "*.example:1"),
        (" INTERNET ", "internet"),
    ],
)
def test_a_rule_is_shown_in_one_form_that_means_the_same(text: str, shown: str) -> None:
    rules = egress.parse([text])
    assert rules.texts == (shown,)
    assert egress.parse(rules.texts) == rules


def test_a_rule_that_is_given_twice_is_one() -> None:
    assert egress.parse(["a.example", "A.example.", "internet", "internet"]).texts == ("a.example", "internet")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("*", "allow internet"),
        ("https://pypi.org", "without scheme and path"),
        ("pypi.org/simple", "without scheme and path"),
        ("pypi.org:", "HOST:PORT"),
        ("pypi.org:0", "HOST:PORT"),
        ("a.*.example", "HOST:PORT"),
        ("**.example", "HOST:PORT"),
        ("*.10.0.0.1", "HOST:PORT"),
        ("10.0.0.0/8", "without scheme and path"),
        ("0x7f.1", "HOST:PORT"),
        ("", "HOST:PORT"),
        ("user@a.example", "HOST:PORT"),
    ],
)
def test_what_is_no_rule_is_refused_and_says_what_is_one(text: str, hint: str) -> None:
    with pytest.raises(errors.UsageError, match="not allowed to a sandbox as egress") as caught:
        egress.parse([text])
    assert hint in str(caught.value.hint)
    assert text == "" or caught.value.message.count(repr(text)) == 1


def test_there_is_an_end_to_rules() -> None:
    names = [f"a{index}.example" for index in range(egress.MAX_RULES)]
    egress.parse(names)
    with pytest.raises(errors.UsageError, match="more than 256"):
        egress.parse([*names, "one.more"])


@given(st.text(max_size=30))
def test_a_rule_is_one_or_is_refused(text: str) -> None:
    try:
        rules = egress.parse([text])
    except errors.UsageError:
        return
    assert egress.parse(rules.texts) == rules


@pytest.mark.parametrize("text", ["none", "None", " NONE "])
def test_none_is_no_host(text):
    with pytest.raises(errors.UsageError, match="none is no host") as caught:
        egress.parse([text])
    assert "leave it out" in str(caught.value.hint)
