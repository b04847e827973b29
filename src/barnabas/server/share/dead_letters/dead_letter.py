"""Records that a share group gives up, and the headers of their dead-letter records (KIP-1191)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from barnabas.storage.topic_partition import TopicIdPartition

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
            ("__dlq.errors.offset", None),
            ("__dlq.errors.group", self.group_id.encode()),
            ("__dlq.errors.delivery.count", str(self.delivery_count).encode()),
            ("__dlq.errors.message", _REJECTED if self.is_rejected else _DELIVERED_TOO_OFTEN),
        ]


# Index of the offset in the headers.
OFFSET_INDEX = 2
OFFSET_HEADER = "__dlq.errors.offset"
