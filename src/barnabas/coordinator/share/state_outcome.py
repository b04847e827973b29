"""The result of one operation on the state of a share partition."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.coordinator.share.share_partition_state import SharePartitionState


class StateOutcome(msgspec.Struct, frozen=True):
    """An error with its message, or the state that a read returns."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    # The state that was read; None if there is none, and for other operations.
    state: SharePartitionState | None = None


def refused(error: ErrorCode, message: str | None = None) -> StateOutcome:
    """Return an outcome with an error. Without a message, it has the error's own."""
    return StateOutcome(error, error.message if message is None else message)
