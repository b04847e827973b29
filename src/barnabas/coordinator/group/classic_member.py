"""A member of a classic group (Kafka's ClassicGroupMember)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from barnabas.coordinator.group.group_memory import member_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.protocol.messages.join_group import JoinGroupResponse
    from barnabas.protocol.messages.sync_group import SyncGroupResponse

NO_ASSIGNMENT = b""


class MemberTimes(msgspec.Struct, frozen=True):
    """What a member may take, in ms."""

    # Between two signs of life.
    session_timeout_ms: int
    # To join again once a rebalance has begun, and to ask for its assignment then.
    rebalance_timeout_ms: int


class MemberIdentity(msgspec.Struct, frozen=True):
    """Who a member is, for as long as it is one."""

    member_id: str
    # Set if it is static (KIP-345).
    group_instance_id: str | None
    client_id: str
    # With a slash in front, as Java prints addresses.
    client_host: str
    protocol_type: str

    @property
    def length(self) -> int:
        """Of all its names together."""
        return (
            len(self.member_id)
            + len(self.group_instance_id or "")
            + len(self.client_id)
            + len(self.client_host)
        )


class ClassicMember:
    """One member, and the answers it waits for."""

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
        # Subscription by name of the assignment protocol, the one it likes best first.
        self.protocols = protocols
        # What it takes in memory; its assignment is bounded by the record that it is written in.
        self.held_bytes = member_bytes(identity.length, protocols)
        # What the leader gave it in this generation.
        self.assignment = assignment
        # It has never been told of a generation: it cannot send heartbeats yet.
        self.is_new = False
        # The JoinGroup or SyncGroup that it waits in; each is called once.
        self.awaiting_join: Callable[[JoinGroupResponse], None] | None = None
        self.awaiting_sync: Callable[[SyncGroupResponse], None] | None = None

    @property
    def id(self) -> str:
        """Its member id."""
        return self.identity.member_id

    @property
    def is_static(self) -> bool:
        """Whether it keeps its place over a restart."""
        return self.identity.group_instance_id is not None

    @property
    def is_awaiting_join(self) -> bool:
        """Whether its JoinGroup waits."""
        return self.awaiting_join is not None

    @property
    def has_satisfied_heartbeat(self) -> bool:
        """Whether silence is no sign of death: it waits for us. New ones may wait for so long only,
        since nobody would tell us if their client had gone."""
        return not self.is_new and (
            self.awaiting_join is not None or self.awaiting_sync is not None
        )

    def matches(self, protocols: dict[str, bytes]) -> bool:
        """Whether it supports just these, in this order."""
        return list(self.protocols.items()) == list(protocols.items())

    def vote(self, candidates: set[str]) -> str:
        """The protocol that it likes best of `candidates`."""
        return next(name for name in self.protocols if name in candidates)
