"""A request to commit offsets, and the member that it claims to come from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from barnabas.coordinator.group.offsets.committed_offset import CommittedOffset
    from barnabas.coordinator.group.offsets.offset_store import PartitionKey

# TxnOffsetCommit has the errors of groups with member epochs since its version 6.
_TRANSACTIONAL_SINCE = 10


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
    # The version of the OffsetCommit request. TxnOffsetCommit has the one with the same topics: 10
    # from its version 6 on, or 9.
    version: int
    # Whether the offsets are committed with a transaction (TxnOffsetCommit).
    is_transactional: bool = False

    @property
    def knows_member_epochs(self) -> bool:
        """Whether the client knows the errors about groups with member epochs (KIP-1319)."""
        return not self.is_transactional or self.version >= _TRANSACTIONAL_SINCE
