"""A record of a state partition (Kafka's CoordinatorRecord)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from barnabas.protocol.record_frame import encode_coordinator_key, encode_coordinator_value
from barnabas.protocol.schema import Record  # noqa: TC001 - field type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class CoordinatorRecord(msgspec.Struct, frozen=True, eq=False):
    """One encoded record of a state partition, with the messages that it was encoded from."""

    # The record type, followed by the encoded key.
    key: bytes
    # The version, followed by the encoded value. None for a tombstone.
    value: bytes | None
    # Key and value before encoding, for a replay without decoding. Decoding gives equal messages.
    key_message: Record
    value_message: Record | None

    @classmethod
    def of(cls, key: Record, value: Record | None, value_version: int = 0) -> CoordinatorRecord:
        """Return the record of a key and a value."""
        return cls(
            encode_coordinator_key(key),
            None if value is None else encode_coordinator_value(value, value_version),
            key,
            value,
        )

    @classmethod
    def tombstones(
        cls, keys: Iterable[Callable[..., Record]], **ids: str
    ) -> list[CoordinatorRecord]:
        """Return the tombstone of each of these types of key. All keys have the fields `ids`."""
        return [cls.of(key(**ids), None) for key in keys]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CoordinatorRecord):
            return NotImplemented
        return self.key == other.key and self.value == other.value

    def __hash__(self) -> int:
        return hash((self.key, self.value))
