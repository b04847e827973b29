"""One member of a consumer group (Kafka: ConsumerGroupMember)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from barnabas.coordinator.group.assignment import NOTHING_OWNED, Owned
from barnabas.coordinator.group.consumer.members.member_state import MemberState

if TYPE_CHECKING:
    from barnabas.coordinator.group.consumer.members.classic_metadata import ClassicMetadata

# Member epochs with which a client leaves the group, or a static member leaves for a while.
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2
# The member epoch with which a client joins the group.
JOIN_EPOCH = 0


class ConsumerMember(msgspec.Struct, frozen=True):
    """A member. A change creates a new object, and its record replaces the old one."""

    member_id: str
    # Epoch of the target assignment that the member has reached. -2 for a static member that has
    # left for a while.
    member_epoch: int = 0
    # The epoch before that. A client that missed the last response still sends it.
    previous_member_epoch: int = -1
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    # Starts with a slash, as Java prints addresses.
    client_host: str = ""
    # Time in ms for the revocation of partitions. -1 until the client sends it.
    rebalance_timeout_ms: int = -1
    subscribed_topic_names: frozenset[str] = frozenset()
    # A regular expression in RE2 syntax; empty if there is none.
    subscribed_topic_regex: str = ""
    # The assignor that the client prefers, or None.
    server_assignor: str | None = None
    # Partitions that the client may use.
    assigned: Owned = NOTHING_OWNED
    # Partitions that the client must revoke. No other member gets them before that.
    pending_revocation: Owned = NOTHING_OWNED
    # Set if the client uses the classic protocol: JoinGroup, SyncGroup, Heartbeat.
    classic: ClassicMetadata | None = None

    @property
    def uses_classic_protocol(self) -> bool:
        """Whether the client uses the classic protocol."""
        return self.classic is not None

    @property
    def must_revoke(self) -> bool:
        """Whether the client must give up partitions before it gets a new epoch."""
        return self.state is MemberState.UNREVOKED_PARTITIONS

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        """Whether the member has all partitions of that target assignment."""
        return self.state is MemberState.STABLE and self.member_epoch == assignment_epoch
