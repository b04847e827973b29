"""Directories of replicas: moves, lost directories, and elections after a loss (KIP-858)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.controller.partitions.directories import DirectoryControl, note_missing_directories
from barnabas.controller.partitions.in_sync_replicas import IsrControl
from barnabas.metadata.partition_registration import (
    DIRECTORY_LOST,
    DIRECTORY_UNASSIGNED,
    PartitionRegistration,
)
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.log_dirs import (
    AssignReplicasToDirsRequest,
    DirectoryDataRequest,
    PartitionDataRequest,
    TopicDataRequest,
)
from unit.controller.partitions.isr_proposals import proposal, request
from unit.controller.parts import applied, elections_of, view_of
from unit.metadata.clusters import (
    broker,
    directory,
    image_of,
    partition,
    three_brokers,
    topic,
    topic_id,
)

if TYPE_CHECKING:
    from barnabas.metadata.image import ClusterImage

FIRST, SECOND, NEW = directory(3), directory(13), directory(23)


def with_directories(image: ClusterImage, *directories: bytes) -> ClusterImage:
    """Register broker 3 with these directories."""
    record = broker(3)
    record.log_dirs = list(directories)
    return image_of(record, base=image)


def leaderless(*last_known: int, isr: tuple[int, ...] = (), elr: tuple[int, ...] = ()) -> object:
    record = partition(1, 0, (1, 2, 3))
    record.leader, record.isr = -1, list(isr)
    record.eligible_leader_replicas, record.last_known_elr = list(elr), list(last_known)
    return record


def assign(image: ClusterImage, to: bytes, number: int = 1) -> PartitionRegistration:
    """Return partition 0 after broker 3 assigned its replica to this directory."""
    topics = [
        TopicDataRequest(
            topic_id=topic_id(number), partitions=[PartitionDataRequest(partition_index=0)]
        )
    ]
    asked = AssignReplicasToDirsRequest(
        broker_id=3, broker_epoch=5, directories=[DirectoryDataRequest(id=to, topics=topics)]
    )
    result = DirectoryControl(elections_of()).assign(view_of(image), asked)
    answer = result.response.directories[0].topics[0].partitions[0]
    assert answer.error_code == ErrorCode.NONE
    after = applied(image, result.records).topics.by_id(topic_id(number))
    assert after is not None
    return after.partitions[0]


def test_a_move_between_directories_keeps_the_replica_in_the_isr() -> None:
    image = three_brokers(topic("a", 1), partition(1, 0, (3, 1)))
    after = assign(with_directories(image, FIRST, SECOND), SECOND)
    assert after.directory_of(3) == SECOND
    assert (after.leader, after.isr, after.leader_epoch) == (3, (3, 1), 0)


@pytest.mark.parametrize("elr", [True, False])
def test_a_replica_that_starts_empty_in_another_directory_leaves_the_isr(elr: bool) -> None:
    image = three_brokers(topic("a", 1), partition(1, 0, (1, 3)), elr=elr)
    after = assign(with_directories(image, NEW), NEW)
    assert after.directory_of(3) == NEW
    assert (after.leader, after.isr, after.elr) == (1, (1,), ())


@pytest.mark.parametrize(
    "before",
    [leaderless(isr=(3,)), leaderless(3, elr=(3,)), leaderless(3)],
    ids=["in sync", "eligible", "last known leader"],
)
def test_a_replica_with_a_lost_directory_does_not_lead_if_another_has_the_data(
    before: object,
) -> None:
    image = three_brokers(topic("a", 1), before)  # type: ignore[arg-type]
    after = assign(with_directories(image, NEW), NEW)
    assert (after.leader, after.isr, after.elr, after.last_known_elr) == (-1, (), (), ())


def test_the_next_last_known_leader_is_elected_immediately() -> None:
    image = three_brokers(topic("a", 1), leaderless(3, 2))  # type: ignore[arg-type]
    after = assign(with_directories(image, NEW), NEW)
    assert (after.leader, after.isr, after.leader_recovery_state) == (2, (2,), 1)


def test_the_only_replica_of_a_partition_leads_in_its_new_directory() -> None:
    record = partition(1, 0, (3,))
    record.leader, record.isr, record.last_known_elr = -1, [], [3]
    image = three_brokers(topic("a", 1), record)
    after = assign(with_directories(image, NEW), NEW)
    assert (after.leader, after.isr, after.directory_of(3)) == (3, (3,), NEW)


def test_a_replica_whose_directory_returns_is_unchanged() -> None:
    before = leaderless(3, elr=(3,))
    image = three_brokers(topic("a", 1), before)  # type: ignore[arg-type]
    away = with_directories(image, SECOND)
    elections = elections_of()
    assert elections.on_returning(away, 3) == []
    back = with_directories(away, FIRST, SECOND)
    found = applied(back, elections.on_returning(back, 3)).topics.partition("a", 0)
    assert found is not None
    assert (found.leader, found.leader_recovery_state) == (3, 0)


def test_replicas_in_an_unknown_directory_may_be_lost_with_a_missing_directory() -> None:
    record = partition(1, 0, (1, 3))
    record.directories = [directory(1), DIRECTORY_UNASSIGNED]
    image = three_brokers(topic("a", 1), record, topic("b", 2), partition(2, 0, (1, 3)))
    image = applied(image, note_missing_directories(image, 3))
    unknown, known = (image.topics.partition(name, 0) for name in "ab")
    assert unknown is not None
    assert known is not None
    assert unknown.directories == (directory(1), DIRECTORY_LOST)
    assert known.directories == (directory(1), FIRST)
    # A log that begins anew is found there: it is not in sync.
    after = assign(with_directories(image, NEW), NEW)
    assert after.isr == (1,)


def test_a_replica_joins_the_isr_only_after_its_directory_assignment() -> None:
    record = partition(1, 0, (1, 2, 3))
    record.isr = [1, 2]
    image = with_directories(three_brokers(topic("a", 1), record), NEW)
    control = IsrControl(elections_of())
    asked = request(proposal([1, 2, 3]))
    answer = control.alter(view_of(image), asked).response.topics[0].partitions[0]
    assert answer.error_code == ErrorCode.INELIGIBLE_REPLICA
    record.directories = [directory(1), directory(2), NEW]
    image = with_directories(three_brokers(topic("a", 1), record), NEW)
    answer = control.alter(view_of(image), asked).response.topics[0].partitions[0]
    assert (answer.error_code, answer.isr) == (ErrorCode.NONE, [1, 2, 3])
