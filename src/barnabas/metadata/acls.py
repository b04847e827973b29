"""Access control entries of the metadata log (KIP-11, KIP-801), indexed by resource pattern.

A request needs the entries that apply to one resource name. These are in at most two literal
patterns (the name, and the wildcard) and in the prefixed patterns of the lengths that exist. So a
look-up costs one step for each length of a prefix, however many entries there are.

A second index finds the entries of one principal, for questions about any resource of a type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from barnabas.metadata.persistent_map import PersistentMap
from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.records.security import AccessControlEntryRecord
from barnabas.protocol.resources import (
    WILDCARD,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


_ALLOW = int(AclPermission.ALLOW)


class Acl(msgspec.Struct, frozen=True):
    """An operation that a principal may or may not do with resources that match a pattern.

    Two equal entries are one entry.

    Numbers are those of `protocol/resources`. A log may contain numbers that are not known.
    """

    resource_type: int
    resource_name: str
    pattern_type: int
    # TYPE:NAME, for example "User:app".
    principal: str
    # An IP address, a range of addresses (CIDR), or "*".
    host: str
    operation: int
    permission: int

    @classmethod
    def from_record(cls, record: Any) -> Acl:
        """Return the entry of an AccessControlEntryRecord."""
        return cls(
            record.resource_type,
            record.resource_name,
            record.pattern_type,
            record.principal,
            record.host,
            record.operation,
            record.permission_type,
        )

    def to_record(self, acl_id: bytes) -> AccessControlEntryRecord:
        """Return the record that creates this entry."""
        return AccessControlEntryRecord(
            id=acl_id,
            resource_type=self.resource_type,
            resource_name=self.resource_name,
            pattern_type=self.pattern_type,
            principal=self.principal,
            host=self.host,
            operation=self.operation,
            permission_type=self.permission,
        )

    @property
    def is_allow(self) -> bool:
        """Whether the entry allows its operation; other entries deny it."""
        return self.permission == _ALLOW


# The number that means unknown. Kafka closes the connection of a client that sends it.
UNKNOWN = 0
_ANY = 1


class AclFilter(msgspec.Struct, frozen=True):
    """Selects the entries that match all given fields; None and ANY match everything.

    DescribeAcls and DeleteAcls have such filters (KIP-140, KIP-290).
    """

    resource_type: int
    resource_name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission: int

    @classmethod
    def from_request(cls, data: Any, version: int) -> AclFilter:
        """Return the filter of a DescribeAcls request, or one filter of a DeleteAcls request.

        Raises:
            ProtocolError: a number is 0. Kafka closes the connection then.
        """
        numbers = (
            data.resource_type_filter,
            data.pattern_type_filter,
            data.operation,
            data.permission_type,
        )
        if UNKNOWN in numbers:
            raise ProtocolError("a filter of ACLs with the number 0, which means unknown")
        return cls(
            data.resource_type_filter,
            data.resource_name_filter,
            data.pattern_type_filter if version > 0 else int(PatternType.LITERAL),
            data.principal_filter,
            data.host_filter,
            data.operation,
            data.permission_type,
        )

    @property
    def has_unknown_resource(self) -> bool:
        """Whether the type of resource or of pattern is no known number."""
        return UNKNOWN in (AclResourceType(self.resource_type), PatternType(self.pattern_type))

    @property
    def has_unknown_entry(self) -> bool:
        """Whether the operation or the permission is no known number."""
        return UNKNOWN in (AclOperation(self.operation), AclPermission(self.permission))

    def matches(self, acl: Acl) -> bool:
        """Return whether the filter selects an entry."""
        return (
            self.resource_type in (_ANY, acl.resource_type)
            and self._matches_pattern(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (_ANY, acl.operation)
            and self.permission in (_ANY, acl.permission)
        )

    def _matches_pattern(self, acl: Acl) -> bool:
        name, kind = self.resource_name, self.pattern_type
        if kind != PatternType.MATCH:
            return kind in (_ANY, acl.pattern_type) and name in (None, acl.resource_name)
        if name is None:
            return True
        if acl.pattern_type == PatternType.PREFIXED:
            return name.startswith(acl.resource_name)
        return acl.resource_name in (name, WILDCARD)


# The new entry of each changed id; None for a removed entry.
AclChanges: TypeAlias = "dict[bytes, Acl | None]"
# Entries of one resource pattern, by principal, each with the number of its ids. Callers must not
# change it. No mapping in it is empty.
PatternAcls: TypeAlias = "Mapping[str, Mapping[Acl, int]]"

_LITERAL, _PREFIXED = int(PatternType.LITERAL), int(PatternType.PREFIXED)


class AclsImage:
    """Access control entries by id and by resource pattern."""

    __slots__ = ("_by_id", "_by_pattern", "_patterns_of", "_prefix_lengths")

    def __init__(self) -> None:
        self._by_id: PersistentMap[bytes, Acl] = PersistentMap()
        # Keys are those of `_key_of`.
        self._by_pattern: PersistentMap[str, PatternAcls] = PersistentMap()
        # Keys of the patterns with entries of a principal, by `_holder_of`. None is empty.
        self._patterns_of: PersistentMap[str, PersistentMap[str, bool]] = PersistentMap()
        # Number of prefixed patterns by length, by resource type. Shortest first, never zero.
        self._prefix_lengths: Mapping[int, Mapping[int, int]] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[tuple[bytes, Acl]]:
        return ((each, self._by_id[each]) for each in self._by_id)

    def get(self, acl_id: bytes) -> Acl | None:
        """Return the entry with this id, or None."""
        return self._by_id.get(acl_id)

    def __contains__(self, acl: Acl) -> bool:
        """Return whether there is an entry equal to `acl`."""
        found = self._by_pattern.get(
            _key_of(acl.resource_type, acl.pattern_type, acl.resource_name)
        )
        return found is not None and acl in found.get(acl.principal, ())

    def applying_to(self, resource_type: int, name: str) -> Iterator[PatternAcls]:
        """Yield the entries of each pattern that applies to a resource.

        First come the resource's own literal pattern and the prefixed patterns, then the wildcard.
        """
        patterns = self._by_pattern
        found = patterns.get(_key_of(resource_type, _LITERAL, name))
        if found is not None:
            yield found
        for length in self._prefix_lengths.get(resource_type, ()):
            if length > len(name):
                break
            found = patterns.get(_key_of(resource_type, _PREFIXED, name[:length]))
            if found is not None:
                yield found
        if name != WILDCARD:
            found = patterns.get(_key_of(resource_type, _LITERAL, WILDCARD))
            if found is not None:
                yield found

    def of_type(
        self, resource_type: int, permission: int, principals: Sequence[str]
    ) -> Iterator[Acl]:
        """Yield the entries of some principals that allow, or deny, on all resources of a type."""
        for principal in principals:
            holder = _holder_of(resource_type, permission, principal)
            for key in self._patterns_of.get(holder) or ():
                for acl in self._by_pattern[key][principal]:
                    if acl.permission == permission:
                        yield acl

    def evolve(self, changes: AclChanges) -> AclsImage:
        """Return these entries with `changes` applied; None removes an entry."""
        if not changes:
            return self
        draft = _Draft(self._by_pattern)
        added = {acl_id: acl for acl_id, acl in changes.items() if acl is not None}
        before = [acl for acl in map(self._by_id.get, changes) if acl is not None]
        for acl in before:
            draft.remove(acl)
        for acl in added.values():
            draft.add(acl)
        image = AclsImage()
        image._by_id = self._by_id.with_changes(changes)
        image._by_pattern = draft.finish()
        image._patterns_of = draft.changed_holders(self._patterns_of)
        image._prefix_lengths = self._counted([*before, *added.values()], image)
        return image

    def to_records(self) -> Iterator[tuple[AccessControlEntryRecord, int]]:
        """Yield the records that create these entries, each with its version."""
        for acl_id in sorted(self._by_id):
            yield self._by_id[acl_id].to_record(acl_id), 0

    def _counted(self, touched: list[Acl], after: AclsImage) -> Mapping[int, Mapping[int, int]]:
        """Return the lengths of the prefixed patterns after a change of the `touched` entries."""
        patterns = {
            (acl.resource_type, acl.resource_name)
            for acl in touched
            if acl.pattern_type == _PREFIXED
        }
        lengths = {kind: dict(counts) for kind, counts in self._prefix_lengths.items()}
        for resource_type, name in patterns:
            key = _key_of(resource_type, _PREFIXED, name)
            change = (key in after._by_pattern) - (key in self._by_pattern)
            counts = lengths.setdefault(resource_type, {})
            counts[len(name)] = counts.get(len(name), 0) + change
            assert counts[len(name)] >= 0, (resource_type, name, counts)
        return {
            kind: {length: count for length, count in sorted(counts.items()) if count}
            for kind, counts in lengths.items()
        }


class _Draft:
    """Changes entries by pattern. Copies each part that it changes, once."""

    def __init__(self, before: PersistentMap[str, PatternAcls]) -> None:
        self._before = before
        # The changed patterns.
        self._entries: dict[str, dict[str, Mapping[Acl, int]]] = {}
        # The changed principals of each changed pattern. These mappings belong to the draft.
        self._copied: dict[tuple[str, str], dict[Acl, int]] = {}

    def add(self, acl: Acl) -> None:
        """Add an entry."""
        counts = self._own(acl)
        counts[acl] = counts.get(acl, 0) + 1

    def remove(self, acl: Acl) -> None:
        """Remove an entry that is present."""
        counts = self._own(acl)
        counts[acl] -= 1
        if not counts[acl]:
            del counts[acl]

    def finish(self) -> PersistentMap[str, PatternAcls]:
        """Return the changed entries."""
        for (key, principal), counts in self._copied.items():
            if not counts:
                del self._entries[key][principal]
        return self._before.evolve(
            {key: entries for key, entries in self._entries.items() if entries},
            [key for key, entries in self._entries.items() if not entries],
        )

    def changed_holders(
        self, holders: PersistentMap[str, PersistentMap[str, bool]]
    ) -> PersistentMap[str, PersistentMap[str, bool]]:
        """Return the patterns by principal after the changes."""
        added: dict[str, dict[str, bool]] = {}
        removed: dict[str, list[str]] = {}
        for (key, principal), counts in self._copied.items():
            before = {acl.permission for acl in (self._before.get(key) or {}).get(principal, ())}
            after = {acl.permission for acl in counts}
            resource_type = int(key.partition("/")[0])
            for permission in after - before:
                added.setdefault(_holder_of(resource_type, permission, principal), {})[key] = True
            for permission in before - after:
                removed.setdefault(_holder_of(resource_type, permission, principal), []).append(key)
        nothing: PersistentMap[str, bool] = PersistentMap()
        changed = {
            holder: (holders.get(holder) or nothing).evolve(
                added.get(holder, {}), removed.get(holder, ())
            )
            for holder in dict.fromkeys((*added, *removed))
        }
        return holders.evolve(
            {holder: patterns for holder, patterns in changed.items() if patterns},
            [holder for holder, patterns in changed.items() if not patterns],
        )

    def _own(self, acl: Acl) -> dict[Acl, int]:
        key = _key_of(acl.resource_type, acl.pattern_type, acl.resource_name)
        counts = self._copied.get((key, acl.principal))
        if counts is None:
            entries = self._entries.get(key)
            if entries is None:
                entries = self._entries[key] = dict(self._before.get(key) or {})
            counts = dict(entries.get(acl.principal, {}))
            entries[acl.principal] = self._copied[key, acl.principal] = counts
        return counts


def _holder_of(resource_type: int, permission: int, principal: str) -> str:
    return f"{resource_type}/{permission}/{principal}"


def _key_of(resource_type: int, pattern_type: int, name: str) -> str:
    return f"{resource_type}/{pattern_type}/{name}"
