"""A committed offset and its record in `__consumer_offsets` (Kafka's OffsetAndMetadata)."""

from __future__ import annotations

import msgspec

from barnabas.coordinator.result import CoordinatorRecord
from barnabas.protocol.record_frame import decode_coordinator_value
from barnabas.protocol.records.offset_commit import OffsetCommitKey, OffsetCommitValue
from barnabas.protocol.schema import ZERO_UUID

# The version with an expiry of its own, which old clients ask for with a retention time.
_VERSION_WITH_EXPIRY = 1
# Kafka 4.4: with the topic's id as a tagged field.
_VERSION = 4


class CommittedOffset(msgspec.Struct, frozen=True):
    """What a group has committed for one partition."""

    offset: int
    # Epoch of the last consumed record, -1 if the client did not say.
    leader_epoch: int
    metadata: str
    # Wall clock.
    commit_timestamp: int
    # When it is to be forgotten; -1: by the broker's retention.
    expire_timestamp: int = -1
    # Zero if it was committed before topics had ids.
    topic_id: bytes = ZERO_UUID

    @classmethod
    def decode(cls, value: bytes) -> CommittedOffset:
        """Read the value of a record. Raises ProtocolError."""
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
        """The record that commits it."""
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
    """The record that removes a committed offset."""
    key = OffsetCommitKey(group=group_id, topic=topic, partition=partition)
    return CoordinatorRecord.of(key, None)
