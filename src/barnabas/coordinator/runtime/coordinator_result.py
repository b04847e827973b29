"""A coordinator's result for a request: records for the log, and the held response."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord
    from barnabas.protocol.errors import ErrorCode

R = TypeVar("R")


class CoordinatorResult(msgspec.Struct, Generic[R]):
    """A response and its records. The records are appended as one batch, so they are atomic."""

    response: R
    records: list[CoordinatorRecord] = msgspec.field(default_factory=list)
    # False if the operation has already changed the shard. Then the records are replayed only when
    # the log is loaded, not after the append.
    is_replayed: bool = True
    # Changes the shard after the append in place of the replay of many records, if it is set. The
    # result is the same.
    apply: Callable[[], None] | None = None
    # Whether a response without records is held until this broker's leadership is confirmed. The
    # state of a coordinator that is cut off from the cluster may be out of date.
    needs_leadership: bool = False
    # Called before the response is sent: with NONE after commit, or with an error. After an error,
    # the records may still be committed.
    on_appended: Callable[[ErrorCode], None] | None = None
