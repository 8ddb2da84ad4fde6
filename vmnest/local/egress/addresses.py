"""Which addresses are public: what a name leads to that only a wildcard or ``internet`` allows must be one of them.

Refused is what leads to this machine, to its networks, or to the services of a cloud that hand out credentials, in
every form in which an IPv6 address can stand for one of IPv4. Networks for documentation (203.0.113.0/24 and the like)
are nobody's: where one of them leads somewhere, somebody meant it to.
"""

from __future__ import annotations

import ipaddress

__all__ = ["is_public"]

_PRIVATE_4 = tuple(
    ipaddress.IPv4Network(text)
    for text in (
        "0.0.0.0/8",  # this host on this network, and the unspecified address
        "10.0.0.0/8",  # private (RFC 1918)
        "100.64.0.0/10",  # of carriers (RFC 6598); Alibaba's metadata is here, and what VPNs build on
        "127.0.0.0/8",  # loopback
        "168.63.129.16/32",  # Azure's wire server: public to look at, and inside of every machine there
        "169.254.0.0/16",  # link-local, metadata of most clouds
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # of protocols (RFC 6890); Oracle's metadata is here
        "192.168.0.0/16",  # private
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and broadcast
    )
)
_PRIVATE_6 = tuple(
    ipaddress.IPv6Network(text)
    for text in (
        "::/128",  # unspecified
        "::1/128",  # loopback
        "64:ff9b:1::/48",  # a translator's own networks (RFC 8215): which addresses they stand for is its business
        "100::/64",  # leads nowhere
        "fc00::/7",  # unique local, metadata of AWS and Google
        "fe80::/10",  # link-local
        "fec0::/10",  # site-local, as it once was
        "ff00::/8",  # multicast
    )
)
# IPv6 networks whose addresses stand for one of IPv4, and how far from the right that stands, in bits.
_EMBEDDING = tuple(
    (ipaddress.IPv6Network(text), shift)
    for text, shift in (
        ("::/96", 0),  # compatible, as it once was
        ("::ffff:0:0/96", 0),  # mapped
        ("::ffff:0:0:0/96", 0),  # translated (RFC 2765)
        ("64:ff9b::/96", 0),  # NAT64
        ("2001::/32", 64),  # Teredo: its server
        ("2002::/16", 80),  # 6to4
    )
)
_TEREDO = ipaddress.IPv6Network("2001::/32")
_LAST_32_BITS = 0xFFFFFFFF
_ISATAP = frozenset({0x00005EFE, 0x02005EFE})


def is_public(text: str) -> bool:
    """Whether an address, as the resolver gives it, is neither private nor stands for one that is."""
    address = ipaddress.ip_address(text)
    if isinstance(address, ipaddress.IPv4Address):
        return not any(address in network for network in _PRIVATE_4)
    if address.scope_id is not None or any(address in network for network in _PRIVATE_6):
        return False
    return all(is_public(str(inner)) for inner in _embedded(address))


def _embedded(address: ipaddress.IPv6Address) -> list[ipaddress.IPv4Address]:
    """The IPv4 addresses that it may stand for."""
    number = int(address)
    found = [number >> shift for network, shift in _EMBEDDING if address in network]
    if address in _TEREDO:
        found.append(number ^ _LAST_32_BITS)  # its client, with all bits inverted
    if number >> 32 & _LAST_32_BITS in _ISATAP:
        found.append(number)
    return [ipaddress.IPv4Address(each & _LAST_32_BITS) for each in found]
