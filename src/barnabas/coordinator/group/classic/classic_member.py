"""A member of a classic group (Kafka's ClassicGroupMember)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from barnabas.coordinator.group.group_memory import member_bytes

if TYPE_CHECKING:
    from barnabas.coordinator.runtime.responses.pending_response import PendingResponse
    from barnabas.protocol.messages.join_group import JoinGroupResponse
    from barnabas.protocol.messages.sync_group import SyncGroupResponse

NO_ASSIGNMENT = b""


class MemberTimes(msgspec.Struct, frozen=True):
    """A member's timeouts, in ms."""

    # Maximum time between two heartbeats.
    session_timeout_ms: int
    # Maximum time to rejoin during a rebalance, and then to send SyncGroup.
    rebalance_timeout_ms: int


class MemberIdentity(msgspec.Struct, frozen=True):
    """The identity of a member, constant while it is a member."""

    member_id: str
    # Set if the member is static (KIP-345).
    group_instance_id: str | None
    client_id: str
    # Starts with a slash, as Java prints addresses.
    client_host: str
    protocol_type: str

    @property
    def length(self) -> int:
        """The total length of its names."""
        return (
            len(self.member_id)
            + len(self.group_instance_id or "")
            + len(self.client_id)
            + len(self.client_host)
        )


class ClassicMember:
    """One member, and its pending responses."""

    __slots__ = (
        "assignment",
        "awaiting_join",
        "awaiting_sync",
        "held_bytes",
        "identity",
        "is_new",
        "protocols",
        "times",
    )

    def __init__(
        self,
        identity: MemberIdentity,
        times: MemberTimes,
        protocols: dict[str, bytes],
        assignment: bytes = NO_ASSIGNMENT,
    ) -> None:
        self.identity = identity
        self.times = times
        # Subscription by assignment protocol, in the member's order of preference.
        self.protocols = protocols
        # Memory accounting of this member. Excludes the assignment, which the size of its record
        # limits.
        self.held_bytes = member_bytes(identity.length, protocols)
        # The leader's assignment in this generation.
        self.assignment = assignment
        # Whether the member has not yet received a generation. It then cannot send heartbeats.
        self.is_new = False
        # Responses of the pending JoinGroup and SyncGroup. None if no request is pending. The
        # group sets and completes them.
        self.awaiting_join: PendingResponse[JoinGroupResponse] | None = None
        self.awaiting_sync: PendingResponse[SyncGroupResponse] | None = None

    @property
    def id(self) -> str:
        """The member id."""
        return self.identity.member_id

    @property
    def is_static(self) -> bool:
        """Whether the member is static and keeps its identity over a restart."""
        return self.identity.group_instance_id is not None

    @property
    def is_awaiting_join(self) -> bool:
        """Whether its JoinGroup is pending."""
        return self.awaiting_join is not None

    @property
    def has_satisfied_heartbeat(self) -> bool:
        """Whether a missing heartbeat is no failure, since the member waits for a response.

        New members do not count: their pending JoinGroup has a time limit, since the coordinator
        does not notice if the client has gone.
        """
        return not self.is_new and (
            self.awaiting_join is not None or self.awaiting_sync is not None
        )

    def matches(self, protocols: dict[str, bytes]) -> bool:
        """Whether the member supports exactly these protocols, in this order."""
        return list(self.protocols.items()) == list(protocols.items())

    def vote(self, candidates: set[str]) -> str:
        """Return the member's preferred protocol among `candidates`."""
        return next(name for name in self.protocols if name in candidates)
