"""ISR changes that leaders propose (AlterPartition API 56; KIP-497, KIP-841, KIP-903)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.controller.partitions.new_partitions import is_live
from barnabas.controller.partitions.partition_change import Candidates, changed_partition
from barnabas.controller.result import (
    ControllerResult,
    Refusal,
    check_broker_epoch,
    refuse_as_a_whole,
)
from barnabas.metadata.metadata_version import partition_change_record_version
from barnabas.metadata.partition_registration import RECOVERED, RECOVERING
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.partition_changes import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    PartitionDataRequest,
    PartitionDataResponse,
    TopicDataResponse,
)
from barnabas.protocol.records.topics import PartitionChangeRecord

if TYPE_CHECKING:
    from barnabas.controller.partitions.elections import Elections
    from barnabas.controller.partitions.partition_change import ElectionRules
    from barnabas.controller.result import ControllerView, VersionedRecord
    from barnabas.metadata.image import ClusterImage
    from barnabas.metadata.partition_registration import PartitionRegistration
    from barnabas.metadata.topics import TopicImage

_ANY_EPOCH = -1


class IsrControl:
    """Handles ISR proposals of leaders, and returns the resulting records."""

    def __init__(self, elections: Elections) -> None:
        self._elections = elections

    def alter(
        self, view: ControllerView, request: AlterPartitionRequest
    ) -> ControllerResult[AlterPartitionResponse]:
        """Change the ISR of partitions that the broker leads."""
        image = view.image
        try:
            check_broker_epoch(image, request.broker_id, request.broker_epoch)
        except Refusal as refusal:
            return ControllerResult([], refuse_as_a_whole(request, refusal))
        candidates = Candidates(image.brokers)
        records: list[VersionedRecord] = []
        topics: list[TopicDataResponse] = []
        for asked in request.topics:
            topic = image.topics.by_id(asked.topic_id)
            results: list[PartitionDataResponse] = []
            for proposal in asked.partitions:
                try:
                    before = _known_partition(topic, proposal)
                    assert topic is not None
                    _check(image, request.broker_id, proposal, before)
                    rules = self._elections.rules(image, topic.name, candidates)
                    change, after = _change(topic.id, proposal, before, rules)
                except Refusal as refusal:
                    results.append(_refused(proposal, refusal.error_code))
                    continue
                records += change
                if after.leader != request.broker_id:
                    # This change completes a reassignment, after which the sender is no longer a
                    # replica.
                    results.append(_refused(proposal, ErrorCode.NEW_LEADER_ELECTED))
                else:
                    results.append(_accepted(proposal.partition_index, after))
            topics.append(TopicDataResponse(topic_id=asked.topic_id, partitions=results))
        response = AlterPartitionResponse(error_code=ErrorCode.NONE, topics=topics)
        return ControllerResult(records, response, atomic=False)


def _change(
    topic_id: bytes,
    proposal: PartitionDataRequest,
    before: PartitionRegistration,
    rules: ElectionRules,
) -> tuple[list[VersionedRecord], PartitionRegistration]:
    partition, recovering = proposal.partition_index, proposal.leader_recovery_state
    change = changed_partition(partition, topic_id, before, tuple(_proposed(proposal)), rules)
    if change is None and recovering == before.leader_recovery_state:
        return [], before
    if change is None:
        record = PartitionChangeRecord(partition_id=partition, topic_id=topic_id)
        change = record, partition_change_record_version(rules.metadata_version)
    if recovering != before.leader_recovery_state:
        change[0].leader_recovery_state = recovering
    return [change], before.merge(change[0])


def _known_partition(
    topic: TopicImage | None, proposal: PartitionDataRequest
) -> PartitionRegistration:
    if topic is None:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_ID)
    before = topic.partitions.get(proposal.partition_index)
    if before is None:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return before


def _check(
    image: ClusterImage,
    broker_id: int,
    proposal: PartitionDataRequest,
    before: PartitionRegistration,
) -> None:
    """Refuse a proposal that is stale, not from the leader, or has ineligible replicas."""
    if proposal.leader_epoch > before.leader_epoch:
        # The leader knows a later state than this controller, which has therefore been replaced.
        raise Refusal(ErrorCode.NOT_CONTROLLER)
    if proposal.partition_epoch > before.partition_epoch:
        raise Refusal(ErrorCode.NOT_CONTROLLER)
    if proposal.leader_epoch < before.leader_epoch:
        raise Refusal(ErrorCode.FENCED_LEADER_EPOCH)
    if before.leader != broker_id:
        raise Refusal(ErrorCode.INVALID_REQUEST)
    if proposal.partition_epoch < before.partition_epoch:
        raise Refusal(ErrorCode.INVALID_UPDATE_VERSION)
    isr = _proposed(proposal)
    if len(set(isr)) != len(isr) or not set(isr) <= set(before.replicas):
        raise Refusal(ErrorCode.INVALID_REQUEST)
    if broker_id not in isr:
        raise Refusal(ErrorCode.INVALID_REQUEST)
    if proposal.leader_recovery_state == RECOVERING and (
        len(isr) > 1 or before.leader_recovery_state == RECOVERED
    ):
        raise Refusal(ErrorCode.INVALID_REQUEST)
    epochs = {each.broker_id: each.broker_epoch for each in proposal.new_isr_with_epochs}
    for replica in isr:
        broker = image.brokers.get(replica)
        epoch = epochs.get(replica, _ANY_EPOCH)
        if not is_live(broker) or (broker is not None and epoch not in (_ANY_EPOCH, broker.epoch)):
            raise Refusal(ErrorCode.INELIGIBLE_REPLICA)
        is_new = replica not in before.isr
        if is_new and broker is not None and not broker.has_online(before.directory_of(replica)):
            # The replica's directory is offline, and the broker has not reported a new one yet.
            raise Refusal(ErrorCode.INELIGIBLE_REPLICA)


def _proposed(proposal: PartitionDataRequest) -> list[int]:
    if proposal.new_isr_with_epochs:
        return [each.broker_id for each in proposal.new_isr_with_epochs]
    return proposal.new_isr


def _accepted(partition: int, after: PartitionRegistration) -> PartitionDataResponse:
    return PartitionDataResponse(
        partition_index=partition,
        error_code=ErrorCode.NONE,
        leader_id=after.leader,
        leader_epoch=after.leader_epoch,
        isr=list(after.isr),
        leader_recovery_state=after.leader_recovery_state,
        partition_epoch=after.partition_epoch,
    )


def _refused(proposal: PartitionDataRequest, error: ErrorCode) -> PartitionDataResponse:
    return PartitionDataResponse(
        partition_index=proposal.partition_index,
        error_code=error,
        leader_id=0,
        leader_epoch=0,
        isr=[],
        partition_epoch=0,
    )
