"""A host has one form, and what could be read as another host is refused."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmnest.wire import hostnames


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("pypi.org", "pypi.org"),
        ("PyPI.ORG.", "pypi.org"),
        ("localhost", "localhost"),
        ("a_b.example", "a_b.example"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("b\u3002example", "b.example"),  # an ideographic full stop parts labels as well
        ("203.0.113.7", "203.0.113.7"),
        ("203.0.113.7.", "203.0.113.7"),
        ("::1", "::1"),
        ("2001:DB8:0::0:1", "2001:db8::1"),
        ("::ffff:127.0.0.1", "::ffff:127.0.0.1"),
    ],
)
def test_a_host_has_one_form(text: str, host: str) -> None:
    expected = str(ipaddress.ip_address(host)) if ":" in host else host
    assert hostnames.parse(text) == expected
    assert hostnames.parse(hostnames.parse(text)) == expected
    assert hostnames.is_address(expected) == (host[0].isdigit() or ":" in host)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "127.1",
            "127.0.1",
            "2130706433",
            "0x7f000001",
            "0x7f.1",
            "0177.0.0.1",
            "127.0.0.01",
            "1.2.3.4.5",
            "256.1.1.1",
        ),
        *("127.0.0.1..", "a.0x1", "a.1", "0x", "\uff11\uff12\uff17.\uff11"),
        *("", ".", "..", "a..b", ".a", "-a.example", "a-.example", "a b", "a/b", "a@b", "a\tb", "a\0", "a%62", "[::1]"),
        *("a" * 64, ".".join(["a" * 60] * 5), "*.example", "straße.example", "a\u200db.example", "ξεσκεπάζω.ς"),
        *("fe80::1%eth0", "::1%25lo", ":", ":::", "1:2", "::g", "::127.1", "::ffff:0x7f.0.0.1"),
    ],
)
def test_what_is_no_host_or_more_than_one_is_refused(text: str) -> None:
    with pytest.raises(hostnames.HostError):
        hostnames.parse(text)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("pypi.org:443", ("pypi.org", 443)),
        ("pypi.org", ("pypi.org", 80)),
        ("[::1]:8080", ("::1", 8080)),
        ("[2001:db8::0]", ("2001:db8::", 80)),
        ("a.:00443", ("a", 443)),
    ],
)
def test_an_authority_is_a_host_and_a_port(text: str, place: tuple[str, int]) -> None:
    assert hostnames.parse_authority(text, default_port=80) == place
    assert hostnames.parse_authority(hostnames.show(*place)) == place


@pytest.mark.parametrize(
    "text",
    ["a:", "a:0", "a:65536", "a:-1", "a:+1", "a: 1", "a:1:2", "::1", "::1:80", "[::1", "::1]", "[::1]a", "[a]:1",
     "[]:1", "[127.0.0.1]:1", "[::1%lo]:1", "u@a:1", "u:p@a:1", "a/:1", "a?:1", "a#:1", "", ":1", "a:٣"],
)  # fmt: skip
def test_what_is_no_authority_is_refused(text: str) -> None:
    with pytest.raises(hostnames.HostError):
        hostnames.parse_authority(text, default_port=80)


def test_without_a_default_a_port_has_to_be_there() -> None:
    with pytest.raises(hostnames.HostError):
        hostnames.parse_authority("pypi.org")


@given(st.text(max_size=40) | st.from_regex(r"[0-9a-fx.:\[\]%]{0,20}", fullmatch=True))
def test_whatever_is_taken_is_in_its_one_form(text: str) -> None:
    try:
        host = hostnames.parse(text)
    except hostnames.HostError:
        return
    assert host.isascii()
    assert hostnames.parse(host) == host
    if hostnames.is_address(host):
        assert str(ipaddress.ip_address(host)) == host
