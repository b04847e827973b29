"""AlterPartition: valid and invalid proposals of a leader."""

from __future__ import annotations

import pytest

from barnabas.controller.partitions.in_sync_replicas import IsrControl
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.partition_changes import (
    AlterPartitionRequest,
)
from unit.controller.partitions.isr_proposals import proposal, request
from unit.controller.parts import applied, elections_of, view_of
from unit.metadata.clusters import broker, image_of, partition, three_brokers, topic

IMAGE = three_brokers(topic("a", 1), partition(1, 0, (1, 2, 3)))


def test_the_isr_shrinks_and_grows_in_the_order_of_the_proposal() -> None:
    control = IsrControl(elections_of())
    result = control.alter(view_of(IMAGE), request(proposal([3, 1])))
    answer = result.response.topics[0].partitions[0]
    assert (answer.error_code, answer.isr, answer.partition_epoch) == (0, [3, 1], 1)
    image = applied(IMAGE, result.records)
    found = image.topics.partition("a", 0)
    assert found is not None
    assert (found.isr, found.leader_epoch) == ((3, 1), 0)
    result = control.alter(view_of(image), request(proposal([1, 2, 3], partition_epoch=1)))
    assert result.response.topics[0].partitions[0].isr == [1, 2, 3]


def test_an_unchanged_isr_writes_no_record() -> None:
    result = IsrControl(elections_of()).alter(view_of(IMAGE), request(proposal([1, 2, 3])))
    assert result.records == []
    assert result.response.topics[0].partitions[0].partition_epoch == 0


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        (request(proposal([1]), number=9), ErrorCode.UNKNOWN_TOPIC_ID),
        (request(proposal([1], index=9)), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (request(proposal([1], leader_epoch=1)), ErrorCode.NOT_CONTROLLER),
        (request(proposal([1], partition_epoch=1)), ErrorCode.NOT_CONTROLLER),
        (request(proposal([1], leader_epoch=-1)), ErrorCode.FENCED_LEADER_EPOCH),
        (request(proposal([1], partition_epoch=-1)), ErrorCode.INVALID_UPDATE_VERSION),
        (request(proposal([2]), broker_id=2), ErrorCode.INVALID_REQUEST),
        (request(proposal([2, 3])), ErrorCode.INVALID_REQUEST),
        (request(proposal([1, 1])), ErrorCode.INVALID_REQUEST),
        (request(proposal([1, 9])), ErrorCode.INVALID_REQUEST),
        (request(proposal([1], recovery=1)), ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_stale_or_invalid_proposal_is_refused(
    asked: AlterPartitionRequest, error: ErrorCode
) -> None:
    result = IsrControl(elections_of()).alter(view_of(IMAGE), asked)
    assert result.records == []
    assert result.response.topics[0].partitions[0].error_code == error


@pytest.mark.parametrize("changed", [broker(2, fenced=True), broker(2, epoch=6)])
def test_a_fenced_or_restarted_replica_is_not_eligible(changed: object) -> None:
    image = image_of(changed, base=IMAGE)  # type: ignore[arg-type]
    result = IsrControl(elections_of()).alter(view_of(image), request(proposal([1, 2])))
    answer = result.response.topics[0].partitions[0]
    assert answer.error_code == ErrorCode.INELIGIBLE_REPLICA


def test_a_request_with_an_earlier_broker_epoch_is_refused() -> None:
    asked = request(proposal([1]), epoch=4)
    response = IsrControl(elections_of()).alter(view_of(IMAGE), asked).response
    assert (response.error_code, response.topics) == (ErrorCode.STALE_BROKER_EPOCH, [])
