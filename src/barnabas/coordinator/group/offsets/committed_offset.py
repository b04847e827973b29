"""A committed offset and its record in `__consumer_offsets` (Kafka's OffsetAndMetadata)."""

from __future__ import annotations

import msgspec

from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord
from barnabas.protocol.record_frame import decode_coordinator_value
from barnabas.protocol.records.offset_commit import OffsetCommitKey, OffsetCommitValue
from barnabas.protocol.schema import ZERO_UUID

# The version with an expiry time, for old clients that set a retention time.
_VERSION_WITH_EXPIRY = 1
# Version of Kafka 4.4, with the topic id as a tagged field.
_VERSION = 4


class CommittedOffset(msgspec.Struct, frozen=True):
    """A group's committed offset for one partition."""

    offset: int
    # Epoch of the last consumed record, or -1 if the client did not send it.
    leader_epoch: int
    metadata: str
    # Wall-clock time in ms.
    commit_timestamp: int
    # Expiry time (wall clock, ms). -1: the broker's retention applies.
    expire_timestamp: int = -1
    # Zero if the offset was committed before topics had ids.
    topic_id: bytes = ZERO_UUID

    @classmethod
    def decode(cls, value: bytes) -> CommittedOffset:
        """Decode the value of a record. Raises ProtocolError."""
        record = decode_coordinator_value(OffsetCommitValue, value)
        return cls(
            record.offset,
            record.leader_epoch,
            record.metadata,
            record.commit_timestamp,
            record.expire_timestamp,
            record.topic_id,
        )

    def to_record(self, group_id: str, topic: str, partition: int) -> CoordinatorRecord:
        """Return the record that commits the offset."""
        has_expiry = self.expire_timestamp >= 0
        value = OffsetCommitValue(
            offset=self.offset,
            leader_epoch=-1 if has_expiry else self.leader_epoch,
            metadata=self.metadata,
            commit_timestamp=self.commit_timestamp,
            expire_timestamp=self.expire_timestamp,
            topic_id=ZERO_UUID if has_expiry else self.topic_id,
        )
        key = OffsetCommitKey(group=group_id, topic=topic, partition=partition)
        return CoordinatorRecord.of(key, value, _VERSION_WITH_EXPIRY if has_expiry else _VERSION)


def offset_tombstone(group_id: str, topic: str, partition: int) -> CoordinatorRecord:
    """Return the record that removes a committed offset."""
    key = OffsetCommitKey(group=group_id, topic=topic, partition=partition)
    return CoordinatorRecord.of(key, None)
