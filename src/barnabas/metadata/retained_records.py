"""Records that the image stores without interpreting them: ACLs, SCRAM credentials and tokens.

A snapshot must contain these records too. Each record is stored under its identity. A later record
with the same identity replaces it, and a remove record deletes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.metadata.persistent_map import PersistentMap

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from barnabas.protocol.schema import Record

# Kafka's numbers of metadata record types.
ACCESS_CONTROL_ENTRY = 18
REMOVE_ACCESS_CONTROL_ENTRY = 19
USER_SCRAM_CREDENTIAL = 11
REMOVE_USER_SCRAM_CREDENTIAL = 22
DELEGATION_TOKEN = 10
REMOVE_DELEGATION_TOKEN = 26


# The identity of a record. A remove record has the identity of the records that it removes.
_KEY_OF: dict[int, Callable[[Any], str]] = {
    ACCESS_CONTROL_ENTRY: lambda record: f"acl/{record.id.hex()}",
    REMOVE_ACCESS_CONTROL_ENTRY: lambda record: f"acl/{record.id.hex()}",
    USER_SCRAM_CREDENTIAL: lambda record: f"scram/{record.mechanism}/{record.name}",
    REMOVE_USER_SCRAM_CREDENTIAL: lambda record: f"scram/{record.mechanism}/{record.name}",
    DELEGATION_TOKEN: lambda record: f"token/{record.token_id}",
    REMOVE_DELEGATION_TOKEN: lambda record: f"token/{record.token_id}",
}
_REMOVERS = frozenset(
    {REMOVE_ACCESS_CONTROL_ENTRY, REMOVE_USER_SCRAM_CREDENTIAL, REMOVE_DELEGATION_TOKEN}
)


class RetainedRecords:
    """Records by identity, each with the version in which it was written."""

    __slots__ = ("_by_key",)

    def __init__(self) -> None:
        self._by_key: PersistentMap[str, tuple[Record, int]] = PersistentMap()

    def __iter__(self) -> Iterator[tuple[Record, int]]:
        return (self._by_key[key] for key in sorted(self._by_key))

    def __len__(self) -> int:
        return len(self._by_key)

    def identities(self) -> Iterator[str]:
        """Yield the identity of each record."""
        return iter(self._by_key)

    def evolve(self, changes: Mapping[str, tuple[Record, int] | None]) -> RetainedRecords:
        """Return these records with `changes` applied; None removes a record."""
        made = RetainedRecords()
        made._by_key = self._by_key.evolve(
            {key: value for key, value in changes.items() if value is not None},
            [key for key, value in changes.items() if value is None],
        )
        return made


def is_retained(record: Record) -> bool:
    """Return whether the image stores records of this type here."""
    return record.__record_type__ in _KEY_OF


def retained_change(record: Record, version: int) -> tuple[str, tuple[Record, int] | None]:
    """Return the identity of a record, and the value to store; None for a remove record."""
    number = record.__record_type__
    return _KEY_OF[number](record), None if number in _REMOVERS else (record, version)
