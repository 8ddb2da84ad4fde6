"""Which addresses are public."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmnest.local.egress import addresses

PRIVATE = [
    *(
        "0.0.0.0",
        "0.1.2.3",
        "127.0.0.1",
        "127.255.255.255",
        "10.0.0.1",
        "10.255.255.255",
        "172.16.0.1",
        "172.31.255.255",
    ),
    *(
        "192.168.0.1",
        "169.254.169.254",
        "169.254.170.2",
        "100.64.0.1",
        "100.100.100.200",
        "192.0.0.192",
        "168.63.129.16",
    ),
    *("224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255"),
]
PUBLIC = ["203.0.113.7", "198.51.100.1", "192.0.2.1", "1.1.1.1", "172.15.255.255", "172.32.0.1", "100.63.255.255"]
PRIVATE_6 = [
    *("::", "::1", "fe80::1", "febf::1", "fec0::1", "fc00::1", "fd00:ec2::254", "fd20:ce::254", "ff02::1", "100::1"),
    *("64:ff9b:1::1", "fe80::1%eth0", "2600::1%eth0"),
]
PUBLIC_6 = ["2600::1", "2001:db8::1", "2a00:1450::1", "2606:4700::1111"]


def embeddings(text: str) -> list[str]:
    """Every form in which an IPv6 address stands for one of IPv4."""
    number = int(ipaddress.IPv4Address(text))
    high, low = number >> 16, number & 0xFFFF
    return [
        f"::{text}",
        f"::ffff:{text}",
        f"::ffff:0:{text}",
        f"64:ff9b::{text}",
        f"2002:{high:x}:{low:x}::1",
        f"2001:0:{high:x}:{low:x}::fefe",  # Teredo: the server; and the client, inverted
        f"2001:0:0101:0101:0:0:{high ^ 0xFFFF:x}:{low ^ 0xFFFF:x}",
        f"2600::5efe:{text}",
        f"2600::200:5efe:{text}",
    ]


@pytest.mark.parametrize("address", [*PRIVATE, *PRIVATE_6])
def test_what_leads_to_this_machine_its_networks_or_metadata_is_not_public(address: str) -> None:
    assert not addresses.is_public(address)


@pytest.mark.parametrize("address", [*PUBLIC, *PUBLIC_6])
def test_everything_else_is_public_documentation_included(address: str) -> None:
    assert addresses.is_public(address)


@pytest.mark.parametrize("address", PRIVATE)
def test_no_form_of_ipv6_hides_a_private_address(address: str) -> None:
    for form in embeddings(address):
        assert not addresses.is_public(form), form


@pytest.mark.parametrize("address", PUBLIC[:4])
def test_a_public_address_may_be_embedded(address: str) -> None:
    for form in embeddings(address)[1:5]:
        assert addresses.is_public(form), form


@given(st.ip_addresses())
def test_what_python_knows_to_be_global_is_public_but_for_a_few(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    if addresses.is_public(str(address)):
        assert not any((address.is_loopback, address.is_link_local, address.is_multicast, address.is_unspecified))
