"""A request to commit offsets, and the member that it claims to come from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from barnabas.coordinator.group.offsets.committed_offset import CommittedOffset
    from barnabas.coordinator.group.offsets.offset_store import PartitionKey


class MemberClaim(msgspec.Struct, frozen=True):
    """The member that a request claims to come from."""

    group_id: str
    # Empty if the client is not a member.
    member_id: str = ""
    # Generation or member epoch. -1 if the client is not a member.
    generation_id: int = -1
    group_instance_id: str | None = None


class OffsetsToCommit(msgspec.Struct, frozen=True):
    """The offsets of one request for one group. All topics exist and have names."""

    claim: MemberClaim
    # A partition that the request has twice is in the list twice.
    offsets: list[tuple[PartitionKey, CommittedOffset]]
    # The version of the OffsetCommit request.
    version: int
    # Whether the offsets are committed with a transaction (TxnOffsetCommit).
    is_transactional: bool = False
