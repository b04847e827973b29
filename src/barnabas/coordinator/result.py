"""A coordinator's result for a request: records for the log, and the held response."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from barnabas.protocol.record_frame import encode_coordinator_key, encode_coordinator_value

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.protocol.errors import ErrorCode
    from barnabas.protocol.schema import Record

R = TypeVar("R")


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


class CoordinatorResult(msgspec.Struct, Generic[R]):
    """A response and its records. The records are appended as one batch, so they are atomic."""

    response: R
    records: list[CoordinatorRecord] = msgspec.field(default_factory=list)
    # False if the operation has already changed the shard. Then the records are replayed only when
    # the log is loaded, not after the append.
    is_replayed: bool = True
    # Called before the response is sent: with NONE after commit, or with an error. After an error,
    # the records may still be committed.
    on_appended: Callable[[ErrorCode], None] | None = None
