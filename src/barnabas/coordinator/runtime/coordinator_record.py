"""A record of a state partition (Kafka's CoordinatorRecord)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from barnabas.protocol.record_frame import encode_coordinator_key, encode_coordinator_value

if TYPE_CHECKING:
    from barnabas.protocol.schema import Record


class CoordinatorRecord(msgspec.Struct, frozen=True):
    """One encoded record of a state partition."""

    # The record type, followed by the encoded key.
    key: bytes
    # The version, followed by the encoded value. None for a tombstone.
    value: bytes | None

    @classmethod
    def of(cls, key: Record, value: Record | None, value_version: int = 0) -> CoordinatorRecord:
        """Return the record of a key and a value."""
        return cls(
            encode_coordinator_key(key),
            None if value is None else encode_coordinator_value(value, value_version),
        )
