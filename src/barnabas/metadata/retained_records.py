"""Records that the image stores without interpreting them: SCRAM credentials.

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
USER_SCRAM_CREDENTIAL = 11
REMOVE_USER_SCRAM_CREDENTIAL = 22


def scram_identity(mechanism: int, name: str) -> str:
    """Return the identity of a SCRAM credential."""
    return f"scram/{mechanism}/{name}"


# The identity of a record. A remove record has the identity of the records that it removes.
_KEY_OF: dict[int, Callable[[Any], str]] = {
    USER_SCRAM_CREDENTIAL: lambda record: scram_identity(record.mechanism, record.name),
    REMOVE_USER_SCRAM_CREDENTIAL: lambda record: scram_identity(record.mechanism, record.name),
}
_REMOVERS = frozenset({REMOVE_USER_SCRAM_CREDENTIAL})


class RetainedRecords:
    """Records by identity, each with the version in which it was written."""

    __slots__ = ("_by_key",)

    def __init__(self) -> None:
        self._by_key: PersistentMap[str, tuple[Record, int]] = PersistentMap()

    def __iter__(self) -> Iterator[tuple[Record, int]]:
        return (self._by_key[key] for key in sorted(self._by_key))

    def __len__(self) -> int:
        return len(self._by_key)

    def get(self, identity: str) -> Record | None:
        """Return the record with this identity; None if there is none."""
        found = self._by_key.get(identity)
        return None if found is None else found[0]

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
