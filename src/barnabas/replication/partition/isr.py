"""The in-sync replicas of a partition, and proposals to the controller (KIP-497)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.storage.topic_partition import TopicPartition


class IsrState(msgspec.Struct, frozen=True):
    """The ISR that the controller last confirmed, and a change in flight.

    While a change is in flight, the leader does not know whether the controller has applied it. The
    high watermark then depends on the union of both sets, the *maximal* ISR.
    """

    # Confirmed by the controller. Contains the leader.
    isr: tuple[int, ...]
    # Union of the confirmed and the proposed ISR.
    maximal_isr: tuple[int, ...]
    # The proposal in flight, or None.
    proposed_isr: tuple[int, ...] | None = None

    @classmethod
    def committed(cls, isr: tuple[int, ...]) -> IsrState:
        """Return the state without a proposal in flight."""
        return cls(isr, isr)

    @property
    def is_in_flight(self) -> bool:
        """Whether a proposal is in flight."""
        return self.proposed_isr is not None

    def expanded(self, broker_id: int) -> IsrState:
        """Return the state with a proposal to add `broker_id`, which counts at once."""
        assert not self.is_in_flight, f"in flight: {self}"
        assert broker_id not in self.isr, f"broker_id={broker_id} isr={self.isr}"
        isr = (*self.isr, broker_id)
        return IsrState(self.isr, isr, isr)

    def shrunk(self, broker_ids: set[int]) -> IsrState:
        """Return the state with a proposal to remove `broker_ids`, which count until confirmed."""
        assert not self.is_in_flight, f"in flight: {self}"
        # A proper part: the leader stays, see LeaderInIsr.
        assert broker_ids < set(self.isr), f"broker_ids={broker_ids} isr={self.isr}"
        return IsrState(self.isr, self.isr, tuple(i for i in self.isr if i not in broker_ids))

    def withdrawn(self) -> IsrState:
        """Return the state after a rejected proposal: the confirmed ISR."""
        return IsrState.committed(self.isr)


# Errors after which the leader discards the proposal and may send a new one.
REFUSED = frozenset({ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA})
# Errors that announce newer metadata. The leader sends no proposal before it arrives.
OUTDATED = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)


class AlterPartitionProposal(msgspec.Struct, frozen=True):
    """The new ISR that a leader proposes."""

    topic_id: bytes
    topic_partition: TopicPartition
    leader_epoch: int
    # The current partition epoch. The controller rejects any other.
    partition_epoch: int
    # (broker id, broker epoch or -1) of each member, including the leader.
    new_isr: tuple[tuple[int, int], ...]
    leader_recovery_state: int = 0

    @property
    def broker_ids(self) -> tuple[int, ...]:
        """The broker ids of the proposed ISR."""
        return tuple(broker_id for broker_id, _ in self.new_isr)


class AlterPartitionResult(msgspec.Struct, frozen=True):
    """The controller's response to a proposal. With an error, the other fields are undefined."""

    error: ErrorCode
    leader_id: int = -1
    leader_epoch: int = -1
    isr: tuple[int, ...] = ()
    partition_epoch: int = -1
    leader_recovery_state: int = 0


class AlterPartitionSender(Protocol):
    """Sends proposals to the controller. The server provides it."""

    def submit(
        self,
        proposal: AlterPartitionProposal,
        on_done: Callable[[AlterPartitionResult], None],
    ) -> None:
        """Send the proposal. `on_done` is called once, never before this returns."""
        ...
