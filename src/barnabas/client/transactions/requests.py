"""Requests of a transaction and their responses, and the call that sends offsets (KIP-447).

Versions above the bounds are for transactions of version 2 (KIP-890), or for brokers.

To send offsets, the producer first adds the group to the transaction, then commits at the group
coordinator. In transactions of version 2 the group coordinator adds the group itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from barnabas.client.errors import ClientError, broker_error, error_or_none
from barnabas.client.topic_partition import TopicPartition, by_topic, numbers_by_topic
from barnabas.client.transactions.state import most_severe
from barnabas.protocol.errors import ErrorCode, ProtocolError
from barnabas.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from barnabas.client.group.group_offsets import CommittedOffset
    from barnabas.client.group.membership import GroupGeneration
    from barnabas.client.retries import OnDone

__all__ = ["OffsetsToSend", "ProducerIdAndEpoch", "TwoPhases"]

# Later versions are for brokers, which add partitions for several producers at once.
ADD_PARTITIONS_MAX = 3
END_MAX_BEFORE_V2 = 4
OFFSETS_MAX_BEFORE_V2 = 4
# From this version on, a request may name the current id and epoch to raise the epoch.
_BUMP_FROM = 3
# The first version with two-phase commit (KIP-939).
TWO_PHASES_FROM = 6
_NO_TIMEOUT_MS = 0x7FFF_FFFF


class ProducerIdAndEpoch(NamedTuple):
    """Producer id and epoch; (-1, -1) before the first InitProducerId response."""

    producer_id: int = -1
    producer_epoch: int = -1


@dataclass(frozen=True, slots=True)
class TwoPhases:
    """Fields of an InitProducerId request for two-phase commit (KIP-939)."""

    # Whether the producer's transactions never time out.
    is_enabled: bool = False
    # Whether an open transaction of the id is kept instead of aborted.
    keeps_prepared: bool = False

    @property
    def max_version(self) -> int | None:
        """The bound of the request's version; None for the last stable version."""
        return TWO_PHASES_FROM if self.is_enabled or self.keeps_prepared else None


def initialize(
    transactional_id: str,
    timeout_ms: int,
    identity: ProducerIdAndEpoch,
    version: int,
    two_phases: TwoPhases,
) -> InitProducerIdRequest:
    """Build the request that registers the transactional id or raises the epoch.

    Raises:
        ProtocolError: the broker is older than 2.5 and the epoch must be raised; or the broker does
            not serve the version for two-phase commit.
    """
    request = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
    )
    if two_phases.max_version is not None:
        if version < TWO_PHASES_FROM:
            raise ProtocolError(
                "two-phase commit (KIP-939) needs a broker with unstable.api.versions.enable=true"
            )
        request.keep_prepared_txn = two_phases.keeps_prepared
        if two_phases.is_enabled:
            request.enable_2pc = True
            request.transaction_timeout_ms = _NO_TIMEOUT_MS
    if identity.producer_id >= 0:
        if version < _BUMP_FROM:
            raise ProtocolError("a broker before 2.5 cannot raise the epoch after a failed batch")
        request.producer_id, request.producer_epoch = identity
    return request


def add_partitions(
    transactional_id: str, identity: ProducerIdAndEpoch, partitions: Iterable[TopicPartition]
) -> AddPartitionsToTxnRequest:
    """Build the request that adds partitions to the transaction."""
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=identity.producer_id,
        v3_and_below_producer_epoch=identity.producer_epoch,
        v3_and_below_topics=[
            AddPartitionsToTxnTopic(name=name, partitions=found)
            for name, found in numbers_by_topic(partitions).items()
        ],
    )


def read_added_partitions(
    response: AddPartitionsToTxnResponse,
) -> dict[TopicPartition, ClientError | None]:
    """Return the error of each partition, None for an added partition."""
    return {
        TopicPartition(topic.name, each.partition_index): error_or_none(
            each.partition_error_code, f"add {topic.name}-{each.partition_index} to the transaction"
        )
        for topic in response.results_by_topic_v3_and_below
        for each in topic.results_by_partition
    }


def add_offsets(
    transactional_id: str, identity: ProducerIdAndEpoch, group: str
) -> AddOffsetsToTxnRequest:
    """Build the request that adds a group's offsets to the transaction."""
    return AddOffsetsToTxnRequest(
        transactional_id=transactional_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
        group_id=group,
    )


def commit_offsets(
    transactional_id: str,
    identity: ProducerIdAndEpoch,
    group: GroupGeneration,
    offsets: Mapping[TopicPartition, CommittedOffset],
) -> TxnOffsetCommitRequest:
    """Build the request with offsets that take effect when the transaction commits (KIP-447)."""
    topics = by_topic(
        (
            tp,
            TxnOffsetCommitRequestPartition(
                partition_index=tp.partition,
                committed_offset=committed.offset,
                committed_leader_epoch=committed.leader_epoch,
                committed_metadata=committed.metadata,
            ),
        )
        for tp, committed in offsets.items()
    )
    return TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=group.group_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
        generation_id_or_member_epoch=group.generation_id,
        member_id=group.member_id,
        group_instance_id=group.instance_id,
        topics=[TxnOffsetCommitRequestTopic(name=n, partitions=p) for n, p in topics.items()],
    )


def end(transactional_id: str, identity: ProducerIdAndEpoch, *, committed: bool) -> EndTxnRequest:
    """Build the request that commits or aborts the transaction."""
    return EndTxnRequest(
        transactional_id=transactional_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
        committed=committed,
    )


class OffsetsToSend:
    """Offsets of one `send_offsets_to_transaction` call that are not yet accepted."""

    def __init__(
        self,
        offsets: dict[TopicPartition, CommittedOffset],
        group: GroupGeneration,
        on_done: OnDone[bool],
    ) -> None:
        self.group = group
        # Called when all offsets are accepted, or with the error.
        self.on_done = on_done
        # Offsets that the group coordinator has not accepted.
        self.left = offsets
        # Whether the transaction coordinator has added the group; not used in version 2.
        self.is_added = False

    @property
    def is_done(self) -> bool:
        """Whether the group coordinator has accepted all offsets."""
        return not self.left

    def on_added(self, response: AddOffsetsToTxnResponse) -> ClientError | None:
        """Handle the response to `add_offsets`; return its error, or None."""
        error = error_or_none(response.error_code, f"offsets of group {self.group.group_id}")
        self.is_added = error is None
        return error

    def on_committed(self, response: TxnOffsetCommitResponse) -> ClientError | None:
        """Handle the response to `commit_offsets`; return its most severe error, or None."""
        group = self.group.group_id
        errors = {
            (tp := TopicPartition(topic.name, each.partition_index)): error_or_none(
                each.error_code, f"offset of {tp} in group {group}"
            )
            for topic in response.topics
            for each in topic.partitions
        }
        for tp, refused in errors.items():
            if refused is None:
                self.left.pop(tp, None)
        error = most_severe(errors.values())
        if error is None and self.left:
            # Without this error the request would be repeated forever.
            detail = f"{min(self.left)} is missing in the response"
            return broker_error(ErrorCode.UNKNOWN_SERVER_ERROR, f"offsets of group {group}", detail)
        return error
