"""Where a member of a classic group stands: state, generation, whether it must join anew."""

from __future__ import annotations

import enum

__all__ = ["MemberState", "MemberStatus"]

_NO_GENERATION = -1
_NO_MEMBER = ""


class MemberState(enum.Enum):
    """Kafka's names. Heartbeats are sent in the last two."""

    UNJOINED = "unjoined"
    PREPARING_REBALANCE = "preparing rebalance"
    COMPLETING_REBALANCE = "completing rebalance"
    STABLE = "stable"


class MemberStatus:
    """The state and all that changes with it; one method per transition.

    Attributes:
        state: see `MemberState`.
        generation_id: -1 while the member is of none.
        member_id: the broker's name for it, empty before the first join and after it was thrown
            out; outlives the generation where the broker may still know it.
        protocol_name: the assignor that the group settled on, None with generation -1.
        rejoin_needed: whether the next poll joins anew.
        rejoin_reason: of the last thing that made it needed, for the broker's log (KIP-800).
        needs_prepare: whether partitions must be given up before the next JoinGroup: once per
            rebalance, and again when the generation was lost since.
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
        """Whether the member is of no generation: others may own its partitions."""
        return self.generation_id == _NO_GENERATION or self.member_id == _NO_MEMBER

    @property
    def is_rebalancing(self) -> bool:
        """Whether a JoinGroup or SyncGroup is under way."""
        return self.state in (MemberState.PREPARING_REBALANCE, MemberState.COMPLETING_REBALANCE)

    def on_join_sent(self) -> None:
        """A JoinGroup goes out."""
        assert not self.needs_prepare
        self.state = MemberState.PREPARING_REBALANCE

    def on_joined(self, generation_id: int, member_id: str, protocol_name: str | None) -> None:
        """JoinGroup was answered well."""
        assert self.state is MemberState.PREPARING_REBALANCE, self.state
        self.state = MemberState.COMPLETING_REBALANCE
        self.generation_id = generation_id
        self.member_id = member_id
        self.protocol_name = protocol_name

    def on_synced(self) -> None:
        """SyncGroup was answered well."""
        assert self.state is MemberState.COMPLETING_REBALANCE, self.state
        self.state = MemberState.STABLE
        self.rejoin_needed = False
        self.rejoin_reason = ""

    def on_member_id(self, member_id: str) -> None:
        """The broker named the member and wants the name with the next JoinGroup (KIP-394)."""
        self.generation_id = _NO_GENERATION
        self.member_id = member_id
        self.protocol_name = None
        self.request_rejoin(f"need to re-join with the given member-id: {member_id}")

    def request_rejoin(self, reason: str) -> None:
        """Join anew with the next poll."""
        self.rejoin_needed = True
        self.rejoin_reason = reason

    def reset(self, reason: str, *, keep_member_id: bool = False) -> None:
        """The generation is lost, and the partitions with it: join anew.

        Args:
            reason: for the broker's log.
            keep_member_id: the broker may still know the member, only not the generation.
        """
        self.state = MemberState.UNJOINED
        self.generation_id = _NO_GENERATION
        self.protocol_name = None
        if not keep_member_id:
            self.member_id = _NO_MEMBER
        self.needs_prepare = True
        self.request_rejoin(reason)
