"""Decides by access control entries whether a principal may do an operation on a resource.

An entry that denies wins over all entries that allow. If entries apply to the resource but none to
the principal, its host and the operation, the operation is denied.

The host of an entry is an address, a range of addresses (CIDR), or "*". Addresses are compared in
the form in which Java writes them, because entries of Kafka's clusters have this form: IPv6 without
"::", and IPv4 for IPv4 addresses inside of IPv6.
"""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from barnabas.protocol.resources import (
    WILDCARD,
    WILDCARD_PRINCIPAL,
    AclOperation,
    AclPermission,
    PatternType,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.metadata.acls import Acl, AclsImage, PatternAcls


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


_ALL = int(AclOperation.ALL)
_PREFIXED = int(PatternType.PREFIXED)

# Operations of entries that allow an operation besides the operation itself and ALL. Entries that
# deny imply nothing.
_IMPLIED_BY: dict[int, frozenset[int]] = {
    AclOperation.DESCRIBE: frozenset({
        int(AclOperation.DESCRIBE),
        int(AclOperation.READ),
        int(AclOperation.WRITE),
        int(AclOperation.DELETE),
        int(AclOperation.ALTER),
    }),
    AclOperation.DESCRIBE_CONFIGS: frozenset({
        int(AclOperation.DESCRIBE_CONFIGS),
        int(AclOperation.ALTER_CONFIGS),
    }),
}  # fmt: skip


class Action(msgspec.Struct, frozen=True):
    """A request of a principal: an operation on a resource. The name is not a pattern."""

    # TYPE:NAME.
    principal: str
    # Address of the client, from `canonical_address`.
    host: str
    operation: int
    resource_type: int
    name: str


class Decision(msgspec.Struct, frozen=True):
    """Effect of the entries on an action."""

    # The entry that decides; None if no entry covers the action.
    acl: Acl | None
    # Whether any entry has a pattern that applies to the resource.
    has_acls: bool

    def is_allowed(self, *, by_default: bool) -> bool:
        """Return the decision; `by_default` counts for resources without any entry."""
        if self.acl is not None:
            return self.acl.is_allow
        return by_default and not self.has_acls


def decide(acls: AclsImage, action: Action) -> Decision:
    """Return the decision about an action, with the entry that decides."""
    allowing: Acl | None = None
    has_acls = False
    for pattern_acls in acls.applying_to(action.resource_type, action.name):
        has_acls = True
        for acl in _of_principal(pattern_acls, action.principal):
            if _covers_operation(acl, action.operation) and matches_host(acl.host, action.host):
                if not acl.is_allow:
                    return Decision(acl, has_acls)
                allowing = allowing or acl
    return Decision(allowing, has_acls)


def is_allowed_somewhere(acls: AclsImage, action: Action) -> bool:
    """Return whether entries allow an operation on at least one resource of the type.

    The name of the action is ignored. As in Kafka, this looks at patterns only, not at existing
    resources, and operations are not implied by others.
    """
    denied_literals: set[str] = set()
    denied_prefixes: set[str] = set()
    for acl in _covering(acls, action, AclPermission.DENY):
        if acl.pattern_type == _PREFIXED:
            denied_prefixes.add(acl.resource_name)
        elif acl.resource_name == WILDCARD:
            return False
        else:
            denied_literals.add(acl.resource_name)
    lengths = sorted({len(prefix) for prefix in denied_prefixes})
    for acl in _covering(acls, action, AclPermission.ALLOW):
        name = acl.resource_name
        if acl.pattern_type != _PREFIXED and name == WILDCARD:
            return True
        if acl.pattern_type != _PREFIXED and name in denied_literals:
            continue
        if not any(name[:length] in denied_prefixes for length in lengths if length <= len(name)):
            return True
    return False


def _covering(acls: AclsImage, action: Action, permission: AclPermission) -> Iterator[Acl]:
    """Yield the entries for any resource of the type that cover principal, operation and host."""
    principals = (action.principal, WILDCARD_PRINCIPAL)
    for acl in acls.of_type(action.resource_type, permission, principals):
        if acl.operation in (action.operation, _ALL) and matches_host(acl.host, action.host):
            yield acl


def _of_principal(pattern_acls: PatternAcls, principal: str) -> Iterator[Acl]:
    yield from pattern_acls.get(principal, ())
    if principal != WILDCARD_PRINCIPAL:
        yield from pattern_acls.get(WILDCARD_PRINCIPAL, ())


def _covers_operation(acl: Acl, operation: int) -> bool:
    if acl.operation in (operation, _ALL):
        return True
    return acl.is_allow and acl.operation in _IMPLIED_BY.get(operation, ())
