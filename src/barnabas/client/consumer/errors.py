"""Errors that only the consumer raises, in addition to the errors of all clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.client.errors import BrokerError, ClientError
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.client.topic_partition import TopicPartition

__all__ = [
    "CommitFailedError",
    "ConcurrentUseError",
    "InvalidGroupIdError",
    "LogTruncationError",
    "NoOffsetError",
    "SubscriptionError",
    "WakeupError",
]


_REMOVED = (
    "the group removed this member, and other members may own its partitions. Either the "
    "coordinator received no heartbeat for session.timeout.ms (the process or the network "
    "stalled), or two polls were more than max.poll.interval.ms apart: then poll more often, with "
    "a smaller max.poll.records or a longer max.poll.interval.ms"
)


class SubscriptionError(ClientError, ValueError):
    """Topics, patterns or partitions are mixed, blank or missing, or a partition is unassigned."""


class InvalidGroupIdError(ClientError, ValueError):
    """`group.id` is missing or blank, and the call needs a group."""

    error_code = ErrorCode.INVALID_GROUP_ID


class ConcurrentUseError(ClientError, RuntimeError):
    """Two threads used one consumer at the same time, or two asyncio tasks polled it."""


class WakeupError(ClientError):
    """`wakeup` was called; the call that it interrupted had no effect."""


class NoOffsetError(ClientError):
    """Partitions have neither a position nor a committed offset, and auto.offset.reset=none."""

    def __init__(
        self,
        partitions: Iterable[TopicPartition],
        reason: str = "the group has not committed an offset",
    ) -> None:
        self.partitions = tuple(partitions)
        names = ", ".join(map(str, self.partitions))
        super().__init__(
            f"no offset to start at for {names}: {reason}, and "
            f"auto.offset.reset=none. Seek, commit an offset, or set auto.offset.reset to earliest "
            f"or latest"
        )


class LogTruncationError(BrokerError):
    """The partition's log no longer contains the records that were read (KIP-320)."""

    def __init__(self, partition: TopicPartition, position: int, divergent_offset: int) -> None:
        self.partition = partition
        self.position = position
        # First offset at which the leader's log differs; -1 if the broker does not know it.
        self.divergent_offset = divergent_offset
        where = f" from offset {divergent_offset}" if divergent_offset >= 0 else ""
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            str(partition),
            f"the log of the new leader differs{where}, and records up to offset {position} were "
            f"read (unclean election, or acks less than all): seek to continue",
        )


class CommitFailedError(BrokerError):
    """The group coordinator refused the commit; the offsets are not stored.

    Args:
        error_code: The error code of the response, or the equivalent if no request was sent.
        subject: The commit that failed.
        cause: The reason and what to do; None if the group has removed this member.
    """

    def __init__(self, error_code: ErrorCode, subject: str, cause: str | None = None) -> None:
        super().__init__(error_code, subject, cause or _REMOVED)
