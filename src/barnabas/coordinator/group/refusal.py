"""An error that refuses a request of a member."""

from __future__ import annotations

from barnabas.protocol.errors import ErrorCode


class RefusalError(Exception):
    """The request is refused, and its records are not written."""

    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error = error
        self.message = message


def fenced_epoch(member_id: str, received: int, known: int) -> RefusalError:
    """Return the error for a heartbeat whose member epoch is not that of the member."""
    return RefusalError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The heartbeat has epoch {received}, but member {member_id} has epoch {known}. Give up "
        "all partitions and tasks, and join again.",
    )
