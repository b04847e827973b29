"""Reassignments: start, progress, cancellation and listing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from barnabas.controller.partitions.elections import ElectionType, LeaderElectionControl
from barnabas.controller.partitions.in_sync_replicas import IsrControl
from barnabas.controller.partitions.reassignments import ReassignmentControl
from barnabas.controller.registrations import UnregistrationControl
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.nodes import UnregisterBrokerRequest
from barnabas.protocol.messages.partition_changes import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionRequest,
    BrokerState,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
    PartitionDataRequest,
    ReassignablePartition,
    ReassignableTopic,
    TopicDataRequest,
    TopicPartitions,
)
from barnabas.protocol.records.nodes import FenceBrokerRecord
from barnabas.protocol.records.topics import PartitionChangeRecord
from steps import finish
from unit.controller.parts import applied, elections_of, kinds, view_of
from unit.metadata.clusters import (
    directory,
    image_of,
    partition,
    three_brokers,
    topic,
    topic_id,
)

if TYPE_CHECKING:
    from barnabas.metadata.image import ClusterImage
    from barnabas.metadata.partition_registration import PartitionRegistration

IMAGE = three_brokers(topic("a", 1), partition(1, 0, (1, 2)))


def control() -> ReassignmentControl:
    return ReassignmentControl(elections_of())


def request(
    replicas: list[int] | None, name: str = "a", index: int = 0, *, may_change: bool = True
) -> AlterPartitionReassignmentsRequest:
    wanted = ReassignablePartition(partition_index=index, replicas=replicas)
    return AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name=name, partitions=[wanted])],
        allow_replication_factor_change=may_change,
    )


def alter(image: ClusterImage, wanted: AlterPartitionReassignmentsRequest) -> tuple[int, Any]:
    """Return the error of the only partition, and the image afterwards."""
    result = finish(control().alter(view_of(image), wanted))
    (answers,) = result.response.responses
    return answers.partitions[0].error_code, applied(image, result.records)


def found(image: ClusterImage) -> PartitionRegistration:
    registration = image.topics.partition("a", 0)
    assert registration is not None
    return registration


def with_isr(image: ClusterImage, *isr: int) -> ClusterImage:
    return image_of(
        PartitionChangeRecord(partition_id=0, topic_id=topic_id(1), isr=list(isr)), base=image
    )


def test_the_same_replicas_change_nothing() -> None:
    result = finish(control().alter(view_of(IMAGE), request([1, 2])))
    assert result.records == []
    assert result.response.responses[0].partitions[0].error_code == ErrorCode.NONE


def test_another_order_changes_the_preferred_replica_but_not_the_leader() -> None:
    error, image = alter(IMAGE, request([2, 1]))
    assert (error, found(image).replicas, found(image).leader) == (0, (2, 1), 1)


def test_a_reassignment_adds_replicas_first_and_removes_others_when_in_sync() -> None:
    error, image = alter(IMAGE, request([3, 2]))
    moving = found(image)
    assert (error, moving.replicas) == (ErrorCode.NONE, (3, 2, 1))
    assert (moving.adding_replicas, moving.removing_replicas) == ((3,), (1,))
    assert moving.directory_of(3) == directory(3)
    assert moving.leader == 1
    after = alter_partition(image, 1, [1, 2, 3])
    assert (found(after).replicas, found(after).isr) == ((3, 2), (2, 3))
    assert found(after).leader == 3
    assert found(after).adding_replicas == found(after).removing_replicas == ()


def alter_partition(image: ClusterImage, leader: int, isr: list[int]) -> ClusterImage:
    """Make the leader propose an ISR that completes the reassignment and removes the leader."""
    before = found(image)
    states = [BrokerState(broker_id=each, broker_epoch=-1) for each in isr]
    proposal = PartitionDataRequest(
        partition_index=0,
        leader_epoch=before.leader_epoch,
        new_isr_with_epochs=states,
        leader_recovery_state=0,
        partition_epoch=before.partition_epoch,
    )
    wanted = AlterPartitionRequest(
        broker_id=leader,
        broker_epoch=image.brokers[leader].epoch,
        topics=[TopicDataRequest(topic_id=topic_id(1), partitions=[proposal])],
    )
    result = IsrControl(elections_of()).alter(view_of(image), wanted)
    (answers,) = result.response.topics
    assert answers.partitions[0].error_code == ErrorCode.NEW_LEADER_ELECTED
    return applied(image, result.records)


def test_a_reassignment_that_only_removes_replicas_completes_immediately() -> None:
    error, image = alter(IMAGE, request([1]))
    assert (error, found(image).replicas, found(image).isr) == (0, (1,), (1,))
    assert found(image).leader_epoch == found(IMAGE).leader_epoch + 1


def test_a_reassignment_can_be_canceled() -> None:
    _, image = alter(IMAGE, request([3, 2]))
    error, image = alter(image, request(None))
    assert (error, sorted(found(image).replicas)) == (ErrorCode.NONE, [1, 2])
    assert found(image).adding_replicas == found(image).removing_replicas == ()
    assert alter(image, request(None))[0] == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_a_reassignment_with_only_new_replicas_in_the_isr_cannot_be_canceled() -> None:
    _, image = alter(IMAGE, request([3]))
    moving = with_isr(image, 3)
    assert alter(moving, request(None))[0] == ErrorCode.INVALID_REPLICA_ASSIGNMENT


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        (request([]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (request([1, 1]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (request([1, 9]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (request([-1]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (request([1], index=9), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (request([1], "x"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (request(None, "x"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (request(None), ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        (request([1], may_change=False), ErrorCode.INVALID_REPLICATION_FACTOR),
        (request([3, 1], may_change=False), ErrorCode.NONE),
    ],
)
def test_an_invalid_reassignment_is_refused(
    wanted: AlterPartitionReassignmentsRequest, error: ErrorCode
) -> None:
    assert alter(IMAGE, wanted)[0] == error


def test_running_reassignments_are_listed() -> None:
    _, image = alter(IMAGE, request([3, 2]))

    def listed(*topics: tuple[str, list[int]]) -> list[Any]:
        wanted = ListPartitionReassignmentsRequest(
            topics=[
                ListPartitionReassignmentsTopics(name=name, partition_indexes=indexes)
                for name, indexes in topics
            ]
            if topics
            else None
        )
        return control().list(view_of(image), wanted).response.topics

    (moving,) = listed()
    (only,) = moving.partitions
    assert (moving.name, only.replicas) == ("a", [3, 2, 1])
    assert (only.adding_replicas, only.removing_replicas) == ([3], [1])
    assert listed(("a", [0])) == [moving]
    assert listed(("a", [1]), ("x", [0])) == []


def elect(image: ClusterImage, kind: int, index: int = 0, name: str = "a") -> tuple[int, Any]:
    wanted = ElectLeadersRequest(
        election_type=kind, topic_partitions=[TopicPartitions(topic=name, partitions=[index])]
    )
    result = finish(LeaderElectionControl(elections_of()).elect(view_of(image), wanted))
    (answers,) = result.response.replica_election_results
    return answers.partition_result[0].error_code, applied(image, result.records)


def led_by(image: ClusterImage, leader: int, *isr: int) -> ClusterImage:
    change = PartitionChangeRecord(
        partition_id=0, topic_id=topic_id(1), leader=leader, isr=list(isr)
    )
    return image_of(change, base=image)


def test_the_preferred_leader_is_elected_if_it_is_in_sync() -> None:
    image = led_by(IMAGE, 2, 1, 2)
    error, after = elect(image, ElectionType.PREFERRED)
    assert (error, found(after).leader) == (ErrorCode.NONE, 1)
    out_of_sync = led_by(IMAGE, 2, 2)
    error, after = elect(out_of_sync, ElectionType.PREFERRED)
    assert (error, found(after).leader) == (ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, 2)


def test_an_unclean_election_elects_any_live_replica_without_a_leader() -> None:
    image = led_by(IMAGE, -1, 1)
    image = image_of(FenceBrokerRecord(id=1, epoch=image.brokers[1].epoch), base=image)
    error, after = elect(image, ElectionType.UNCLEAN)
    assert (error, found(after).leader, found(after).isr) == (ErrorCode.NONE, 2, (2,))
    image = image_of(FenceBrokerRecord(id=2, epoch=image.brokers[2].epoch), base=image)
    assert elect(image, ElectionType.UNCLEAN)[0] == ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


def test_unneeded_and_impossible_elections_return_errors() -> None:
    assert elect(IMAGE, ElectionType.PREFERRED)[0] == ErrorCode.ELECTION_NOT_NEEDED
    assert elect(IMAGE, ElectionType.UNCLEAN)[0] == ErrorCode.ELECTION_NOT_NEEDED
    assert elect(IMAGE, ElectionType.PREFERRED, 9)[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert elect(IMAGE, ElectionType.PREFERRED, 0, "x")[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert elect(IMAGE, 7)[0] == ErrorCode.INVALID_REQUEST


def test_an_election_of_all_partitions_returns_only_needed_elections() -> None:
    image = led_by(
        three_brokers(topic("a", 1), partition(1, 0, (1, 2)), partition(1, 1, (1, 2))), 2, 1, 2
    )
    result = finish(
        LeaderElectionControl(elections_of()).elect(
            view_of(image), ElectLeadersRequest(topic_partitions=None)
        )
    )
    (answers,) = result.response.replica_election_results
    assert [each.partition_id for each in answers.partition_result] == [0]


def test_an_unregistered_broker_leads_no_partition() -> None:
    unregistration = UnregistrationControl(elections_of())
    result = unregistration.unregister(view_of(IMAGE), UnregisterBrokerRequest(broker_id=1))
    assert kinds(result.records) == [
        ("PartitionChangeRecord", 2),
        ("UnregisterBrokerRecord", 0),
    ]
    after = applied(IMAGE, result.records)
    assert sorted(after.brokers) == [2, 3]
    assert (found(after).leader, found(after).replicas) == (2, (1, 2))
    again = unregistration.unregister(view_of(after), UnregisterBrokerRequest(broker_id=1))
    assert again.response.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
