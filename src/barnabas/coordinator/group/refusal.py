"""Errors that refuse a request of a member, and the limits of requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Collection


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


# Topic names of a subscription, and topics of which a member owns partitions. A heartbeat with so
# many takes about 15 ms. A regular expression may match more topics.
TOPIC_NAMES_MAX = 10_000
# Total length of the topic names of a subscription: enough for TOPIC_NAMES_MAX valid names.
NAMES_LENGTH_MAX = TOPIC_NAMES_MAX * 249


def check_topic_names(names: Collection[str] | None) -> None:
    """Check the number and length of topic names in a subscription. Raises RefusalError."""
    if names is not None and len(names) > TOPIC_NAMES_MAX:
        message = f"A member may subscribe to at most {TOPIC_NAMES_MAX} topics by name."
        raise RefusalError(ErrorCode.INVALID_REQUEST, message)
    if names is not None and sum(map(len, names)) > NAMES_LENGTH_MAX:
        message = f"Topic names of a member may have {NAMES_LENGTH_MAX} characters in total."
        raise RefusalError(ErrorCode.INVALID_REQUEST, message)
