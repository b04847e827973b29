"""Proposals of a new ISR to the controller and its answers (AlterPartition, KIP-497, KIP-903)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.storage.topic_partition import TopicPartition


# Answers after which a proposal may be made again from what is confirmed.
REFUSED = frozenset({ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA})
# Answers that say that newer metadata is on its way; until it is here nothing is proposed.
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
    """The ISR that a leader wants."""

    topic_id: bytes
    topic_partition: TopicPartition
    leader_epoch: int
    # The epoch the proposal builds on; the controller refuses any other.
    partition_epoch: int
    # (broker id, broker epoch or -1), the leader among them.
    new_isr: tuple[tuple[int, int], ...]
    leader_recovery_state: int = 0

    @property
    def broker_ids(self) -> tuple[int, ...]:
        """The proposed ISR without epochs."""
        return tuple(broker_id for broker_id, _ in self.new_isr)


class AlterPartitionAnswer(msgspec.Struct, frozen=True):
    """What the controller made of it; with an error the other fields say nothing."""

    error: ErrorCode
    leader_id: int = -1
    leader_epoch: int = -1
    isr: tuple[int, ...] = ()
    partition_epoch: int = -1
    leader_recovery_state: int = 0


class AlterPartitionSender(Protocol):
    """The way to the controller; implemented by whoever has one."""

    def submit(
        self,
        proposal: AlterPartitionProposal,
        on_done: Callable[[AlterPartitionAnswer], None],
    ) -> None:
        """Send it; `on_done` is called once, never before this returns."""
        ...
