"""Hosts of access control entries: an address, a range of addresses (CIDR), or "*".

Addresses are compared in the form in which Java writes them, because entries of Kafka's clusters
have this form: IPv6 without "::", and IPv4 for IPv4 addresses inside of IPv6.
"""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache
from typing import TypeAlias

from barnabas.protocol.acls import WILDCARD

_Network: TypeAlias = "ipaddress.IPv4Network | ipaddress.IPv6Network"

_IPV4_RANGE = re.compile(r"\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}/\d{1,2}", re.ASCII)
_IPV6_RANGE = re.compile(r"([^/]*)/\+?(\d{1,9})", re.ASCII)
_IPV6_BITS = 128


class HostRangeError(ValueError):
    """The host of an entry is not a range of addresses."""


@lru_cache(maxsize=4096)
def canonical_address(address: str) -> str:
    """Return an IP address in Java's form. Other text is returned unchanged."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    packed = parsed.packed
    groups = ":".join(f"{int.from_bytes(packed[at : at + 2]):x}" for at in range(0, 16, 2))
    return groups if parsed.scope_id is None else f"{groups}%{parsed.scope_id}"


def is_range(host: str) -> bool:
    """Return whether the host of an entry is meant as a range of addresses."""
    return "/" in host


@lru_cache(maxsize=1024)
def parse_range(host: str) -> _Network:
    """Return the range of addresses that a host in CIDR notation names.

    Bits of the address behind the prefix are ignored, as in Kafka.

    Raises:
        HostRangeError: the text is not in CIDR notation.
    """
    try:
        if ":" not in host:
            if _IPV4_RANGE.fullmatch(host) is None:
                raise HostRangeError(f"could not parse [{host}]")
            address, bits = host.split("/")
            numbers = ".".join(str(int(number)) for number in address.split("."))
            return ipaddress.IPv4Network(f"{numbers}/{int(bits)}", strict=False)
        matched = _IPV6_RANGE.fullmatch(host)
        if matched is None or int(matched[2]) > _IPV6_BITS:
            raise HostRangeError(f"could not parse [{host}]")
        return ipaddress.IPv6Network(f"{matched[1]}/{int(matched[2])}", strict=False)
    except ValueError as error:
        raise HostRangeError(str(error)) from error


def matches_host(pattern: str, address: str) -> bool:
    """Return whether the host of an entry covers a client.

    Args:
        pattern: the host of an entry.
        address: address of the client, from `canonical_address`.
    """
    if pattern in (WILDCARD, address):
        return True
    if is_range(pattern):
        return _is_in_range(pattern, address)
    return ":" in pattern and canonical_address(pattern) == address


def _is_in_range(pattern: str, address: str) -> bool:
    try:
        return ipaddress.ip_address(address) in parse_range(pattern)
    except ValueError:
        # Kafka's tools accept any text, and a log may contain it. Such an entry covers no client.
        return False
