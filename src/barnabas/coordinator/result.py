"""What a coordinator makes of a request: records for its log, and the answer to hold until then."""

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
    """One record of a state partition, ready for its log."""

    # The record type, then the key's content.
    key: bytes
    # The version, then the value's content; None for a tombstone.
    value: bytes | None

    @classmethod
    def of(cls, key: Record, value: Record | None, value_version: int = 0) -> CoordinatorRecord:
        """The record of a key and a value."""
        return cls(
            encode_coordinator_key(key),
            None if value is None else encode_coordinator_value(value, value_version),
        )


class CoordinatorResult(msgspec.Struct, Generic[R]):
    """Appended as one batch: all of the records take effect, or none."""

    response: R
    records: list[CoordinatorRecord] = msgspec.field(default_factory=list)
    # False when the operation has changed the shard itself, so that the records only make it
    # last: they are replayed when the log is loaded, and not when they are written.
    is_replayed: bool = True
    # Told NONE once the records are committed, else why they may not be; before the response is.
    on_appended: Callable[[ErrorCode], None] | None = None
