"""The share session of one member: the partitions that it fetches (KIP-932)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.storage.topic_partition import TopicIdPartition

# Epoch of the request that begins a session, and of the request that ends it.
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
_EPOCH_MAX = 0x7FFF_FFFF


class ShareSessionKey(NamedTuple):
    """A member of a group. It has one session with each broker."""

    group_id: str
    member_id: str


class SessionPartition(msgspec.Struct):
    """One partition of a session."""

    where: TopicIdPartition
    # Whether the next response includes the partition even without records.
    must_respond: bool


class ShareSession:
    """The partitions of a session, and the epoch of its next request."""

    __slots__ = ("connection", "epoch", "key", "partitions")

    def __init__(
        self, key: ShareSessionKey, partitions: Iterable[TopicIdPartition], connection: object
    ) -> None:
        self.key = key
        # The connection that began the session, which ends with it.
        self.connection = connection
        # Epoch of the next request. Incremented by each accepted request.
        self.epoch = next_epoch(INITIAL_EPOCH)
        # By topic id and number. Partitions whose records were sent move to the end.
        self.partitions = {
            (each.topic_id, each.partition): SessionPartition(each, False) for each in partitions
        }

    def update(
        self, added: Iterable[TopicIdPartition], forgotten: Iterable[tuple[bytes, int]]
    ) -> None:
        """Add and remove partitions."""
        for where in added:
            key = (where.topic_id, where.partition)
            if key not in self.partitions:
                self.partitions[key] = SessionPartition(where, True)
        for key in forgotten:
            self.partitions.pop(key, None)

    def note_sent(self, where: TopicIdPartition, has_error: bool, has_records: bool) -> bool:
        """Record a result that is about to be sent. Return whether the response includes it.

        A partition without records or errors is omitted, except directly after an error.
        """
        key = (where.topic_id, where.partition)
        known = self.partitions.get(key)
        if known is None:
            return True
        is_included = known.must_respond or has_error or has_records
        known.must_respond = has_error
        if has_records:
            self.partitions[key] = self.partitions.pop(key)
        return is_included


def next_epoch(epoch: int) -> int:
    """Return the epoch of the following request. After the largest one comes 1."""
    return 1 if epoch >= _EPOCH_MAX else epoch + 1
