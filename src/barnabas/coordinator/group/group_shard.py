"""The groups of one partition of `__consumer_offsets` (Kafka's GroupCoordinatorShard).

So far it knows committed offsets. Records of any other type are kept as they are, so that what a
later version or another broker wrote is not lost to whoever rewrites the log.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.coordinator.group.committed_offset import CommittedOffset
from barnabas.coordinator.group.offset_store import OffsetStore
from barnabas.coordinator.result import CoordinatorResult
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.record_frame import decode_coordinator_key, read_prefix
from barnabas.protocol.records.offset_commit import OffsetCommitKey

if TYPE_CHECKING:
    from barnabas.coordinator.group.offset_store import PartitionKey
    from barnabas.coordinator.result import CoordinatorRecord

# Record types 0 and 1 both commit an offset; 0 is the older layout of the same key.
_OFFSET_COMMIT_TYPES = frozenset({0, 1})


@dataclass(frozen=True, slots=True)
class MemberClaim:
    """Who a request says it comes from."""

    group_id: str
    # Empty if it is no member.
    member_id: str = ""
    # Generation, or member epoch; -1 if it is no member.
    generation_id: int = -1
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class OffsetsToCommit:
    """One request's offsets for one group; topics exist and have names."""

    claim: MemberClaim
    offsets: dict[PartitionKey, CommittedOffset]
    # Of the request: OffsetCommit.
    version: int


class GroupShard:
    """Groups and their offsets."""

    __slots__ = ("_metadata_length_max", "offsets", "unknown_records")

    def __init__(self, metadata_length_max: int) -> None:
        # offset.metadata.max.bytes.
        self._metadata_length_max = metadata_length_max
        self.offsets = OffsetStore()
        # Latest value by key, both as they are in the log.
        self.unknown_records: dict[bytes, bytes] = {}

    # Requests.

    def commit_offsets(
        self, request: OffsetsToCommit
    ) -> CoordinatorResult[dict[PartitionKey, ErrorCode]]:
        """Records for the offsets that can be committed, and an error for each of all."""
        error = self._check_claim(request.claim, request.version)
        if error is not ErrorCode.NONE:
            return CoordinatorResult(dict.fromkeys(request.offsets, error))
        errors: dict[PartitionKey, ErrorCode] = {}
        records: list[CoordinatorRecord] = []
        for key, committed in request.offsets.items():
            if java_length(committed.metadata) > self._metadata_length_max:
                errors[key] = ErrorCode.OFFSET_METADATA_TOO_LARGE
                continue
            errors[key] = ErrorCode.NONE
            records.append(committed.to_record(request.claim.group_id, *key))
        return CoordinatorResult(errors, records)

    def _check_claim(self, claim: MemberClaim, version: int) -> ErrorCode:
        """Without members nobody can be one: only those who do not claim to be may commit."""
        if claim.generation_id < 0:
            return ErrorCode.NONE
        if self.offsets.knows(claim.group_id):
            return ErrorCode.UNKNOWN_MEMBER_ID
        # Before version 9 there was no better word for it.
        return ErrorCode.GROUP_ID_NOT_FOUND if version >= 9 else ErrorCode.ILLEGAL_GENERATION

    # Replay.

    def replay(self, offset: int, key: bytes, value: bytes | None) -> None:
        """Take in one record. Raises ProtocolError."""
        if read_prefix(key) in _OFFSET_COMMIT_TYPES:
            where = decode_coordinator_key(OffsetCommitKey, key)
            committed = None if value is None else CommittedOffset.decode(value)
            self.offsets.put(offset, where.group, (where.topic, where.partition), committed)
        elif value is None:
            self.unknown_records.pop(key, None)
        else:
            self.unknown_records[key] = value

    def commit(self, end_offset: int) -> None:
        """All records below `end_offset` are committed."""
        self.offsets.commit(end_offset)


def java_length(text: str) -> int:
    """Length in UTF-16 code units, as Java counts."""
    if text.isascii():
        return len(text)
    return len(text.encode("utf-16-be", "surrogatepass")) // 2
