"""State of a member of a classic group: state, generation, and whether it must rejoin."""

from __future__ import annotations

import enum

__all__ = ["MemberState", "MemberStatus"]

_NO_GENERATION = -1
_NO_MEMBER = ""


class MemberState(enum.Enum):
    """States with Kafka's names. Heartbeats are sent in the last two."""

    UNJOINED = "unjoined"
    PREPARING_REBALANCE = "preparing rebalance"
    COMPLETING_REBALANCE = "completing rebalance"
    STABLE = "stable"


class MemberStatus:
    """The state and the fields that change with it; one method per transition.

    Attributes:
        state: See `MemberState`.
        generation_id: The generation; -1 without one.
        member_id: The id that the broker assigned; empty before the first join and after the group
            removed the member. It outlives the generation if the broker may still know the member.
        protocol_name: The assignor that the group chose; None without a generation.
        rejoin_needed: Whether the next poll rejoins.
        rejoin_reason: The latest reason for a rejoin, for the broker's log (KIP-800).
        needs_prepare: Whether partitions must be given up before the next JoinGroup: once per
            rebalance, and again after the generation was lost.
    """

    __slots__ = (
        "generation_id",
        "member_id",
        "needs_prepare",
        "protocol_name",
        "rejoin_needed",
        "rejoin_reason",
        "state",
    )

    def __init__(self) -> None:
        self.state = MemberState.UNJOINED
        self.generation_id = _NO_GENERATION
        self.member_id = _NO_MEMBER
        self.protocol_name: str | None = None
        self.rejoin_needed = True
        self.rejoin_reason = ""
        self.needs_prepare = True

    @property
    def is_reset(self) -> bool:
        """Whether the member has no generation; then other members may own its partitions."""
        return self.generation_id == _NO_GENERATION or self.member_id == _NO_MEMBER

    @property
    def is_rebalancing(self) -> bool:
        """Whether a JoinGroup or SyncGroup request is in flight."""
        return self.state in (MemberState.PREPARING_REBALANCE, MemberState.COMPLETING_REBALANCE)

    def on_join_sent(self) -> None:
        """Enter PREPARING_REBALANCE: JoinGroup is being sent."""
        assert not self.needs_prepare
        self.state = MemberState.PREPARING_REBALANCE

    def on_joined(self, generation_id: int, member_id: str, protocol_name: str | None) -> None:
        """Enter COMPLETING_REBALANCE: JoinGroup succeeded."""
        assert self.state is MemberState.PREPARING_REBALANCE, self.state
        self.state = MemberState.COMPLETING_REBALANCE
        self.generation_id = generation_id
        self.member_id = member_id
        self.protocol_name = protocol_name

    def on_synced(self) -> None:
        """Enter STABLE: SyncGroup succeeded."""
        assert self.state is MemberState.COMPLETING_REBALANCE, self.state
        self.state = MemberState.STABLE
        self.rejoin_needed = False
        self.rejoin_reason = ""

    def on_member_id(self, member_id: str) -> None:
        """Store the member id that the broker requires in the next JoinGroup (KIP-394)."""
        self.generation_id = _NO_GENERATION
        self.member_id = member_id
        self.protocol_name = None
        self.request_rejoin(f"need to re-join with the given member-id: {member_id}")

    def request_rejoin(self, reason: str) -> None:
        """Rejoin with the next poll."""
        self.rejoin_needed = True
        self.rejoin_reason = reason

    def reset(self, reason: str, *, keep_member_id: bool = False) -> None:
        """Discard the generation; the partitions are lost, and the member rejoins.

        Args:
            reason: The reason, for the broker's log.
            keep_member_id: Whether the broker may still know the member.
        """
        self.state = MemberState.UNJOINED
        self.generation_id = _NO_GENERATION
        self.protocol_name = None
        if not keep_member_id:
            self.member_id = _NO_MEMBER
        self.needs_prepare = True
        self.request_rejoin(reason)
