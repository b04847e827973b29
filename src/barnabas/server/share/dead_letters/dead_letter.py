"""Records that a share group gives up, and the headers of their dead-letter records (KIP-1191)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from barnabas.storage.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.storage.topic_partition import TopicIdPartition

# Index of the offset in the headers.
OFFSET_INDEX = 2
OFFSET_HEADER = "__dlq.errors.offset"
_REJECTED = b"Offset rejected by client."
_DELIVERED_TOO_OFTEN = b"Offset delivery count exceeded the threshold."


class DeadLetter(msgspec.Struct, frozen=True):
    """Consecutive records of a partition that a group gives up for one reason."""

    group_id: str
    # The partition of the records.
    where: TopicIdPartition
    # Offsets of the records, both inclusive.
    first: int
    last: int
    delivery_count: int
    # Whether a member has rejected the records. Otherwise they were delivered too often.
    is_rejected: bool

    def headers(self) -> list[tuple[str, bytes | None]]:
        """Return the headers of a dead-letter record without a value of the offset."""
        return [
            ("__dlq.errors.topic", self.where.topic.encode()),
            ("__dlq.errors.partition", str(self.where.partition).encode()),
            (OFFSET_HEADER, None),
            ("__dlq.errors.group", self.group_id.encode()),
            ("__dlq.errors.delivery.count", str(self.delivery_count).encode()),
            ("__dlq.errors.message", _REJECTED if self.is_rejected else _DELIVERED_TOO_OFTEN),
        ]


class PendingLetter:
    """A dead letter, how much of it is written, and the failed attempts."""

    __slots__ = ("letter", "next_offset", "on_done", "retries", "sent_last", "target")

    def __init__(self, letter: DeadLetter, on_done: Callable[[], None]) -> None:
        self.letter = letter
        # Called once, after the last record is written or the write is given up.
        self.on_done = on_done
        # First offset that is not in the dead-letter topic. Only increases.
        self.next_offset = letter.first
        # Last offset in the request that is built or in flight. Set by each attempt.
        self.sent_last = letter.first
        # Consecutive failed attempts. Reset by a success.
        self.retries = 0
        # Partition of the dead-letter topic. Set by each attempt.
        self.target = TopicPartition("", -1)
