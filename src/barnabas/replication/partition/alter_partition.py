"""Proposals of a new ISR, and the controller's responses (AlterPartition, KIP-497, KIP-903)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.storage.topic_partition import TopicPartition


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
