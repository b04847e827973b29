"""One member of a streams group (Kafka: StreamsGroupMember)."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

import msgspec

from barnabas.coordinator.group.streams.members.owned_tasks import NO_OWNED_TASKS, OwnedTasks
from barnabas.coordinator.group.streams.members.streams_member_state import StreamsMemberState

if TYPE_CHECKING:
    from collections.abc import Mapping

# Member epochs with which a client leaves the group, or a static member leaves for a while.
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2
# The member epoch with which a client joins the group.
JOIN_EPOCH = 0

NO_TAGS: Mapping[str, str] = MappingProxyType({})


class UserEndpoint(msgspec.Struct, frozen=True):
    """The address at which a client answers interactive queries."""

    host: str
    port: int


class StreamsMember(msgspec.Struct, frozen=True):
    """A member. A change creates a new object, and its record replaces the old one."""

    member_id: str
    # Epoch of the target assignment that the member has reached. -2 for a static member that has
    # left for a while.
    member_epoch: int = 0
    # The epoch before that. A client that missed the last response still sends it.
    previous_member_epoch: int = 0
    state: StreamsMemberState = StreamsMemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    # Starts with a slash, as Java prints addresses.
    client_host: str = ""
    # Time in ms for the release of tasks. -1 until the client sends it.
    rebalance_timeout_ms: int = -1
    # Epoch of the client's topology.
    topology_epoch: int = -1
    # The process of the client. Threads of one process share state directories.
    process_id: str = ""
    user_endpoint: UserEndpoint | None = None
    client_tags: Mapping[str, str] = NO_TAGS
    # Tasks that the client may run.
    assigned: OwnedTasks = NO_OWNED_TASKS
    # Tasks that the client must release. No other process gets them before that.
    pending_revocation: OwnedTasks = NO_OWNED_TASKS

    @property
    def must_revoke(self) -> bool:
        """Whether the client must release tasks before it gets a new epoch."""
        return self.state is StreamsMemberState.UNREVOKED_TASKS

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        """Whether the member has all tasks of that target assignment."""
        return self.state is StreamsMemberState.STABLE and self.member_epoch == assignment_epoch
