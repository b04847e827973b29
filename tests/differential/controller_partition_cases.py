"""Requests of simulated leaders and brokers to both controllers: ISRs, moves, directories."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.metadata.partition_registration import (
    DIRECTORY_LOST,
    DIRECTORY_MIGRATING,
    DIRECTORY_UNASSIGNED,
)
from barnabas.protocol.messages.partition_changes import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from barnabas.protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from differential.controller_cases import CASES, KNOWN, case

if TYPE_CHECKING:
    from collections.abc import Callable

    from differential.controller_scene import Scene

# All cases, those of `controller_cases` first.
__all__ = ["CASES", "KNOWN"]

# -- ISRs -----------------------------------------------------------------------------------------


@case
def isr_changes(scene: Scene) -> None:
    scene.brokers(1, 2, 3)
    scene.create("t", [1, 2, 3])
    scene.isr("t", 1, [3, 1])
    scene.isr("t", 1, [3, 1])
    scene.isr("t", 1, [1, 3])
    scene.isr("t", 1, [3, 2, 1])
    scene.isr("t", 1, [1])
    scene.isr("t", 1, [1, 2])


@case
def isr_changes_that_are_refused(scene: Scene) -> None:
    scene.brokers(1, 2, 3)
    scene.create("t", [1, 2, 3])
    scene.isr("absent", 1, [1])
    scene.isr("t", 1, [1], 9)
    scene.isr("t", 1, [1], leader_epoch=1)
    scene.isr("t", 1, [1], leader_epoch=-1)
    scene.isr("t", 1, [1], partition_epoch=1)
    scene.isr("t", 1, [1], partition_epoch=-1)
    scene.isr("t", 2, [2])
    scene.isr("t", 1, [2, 3])
    scene.isr("t", 1, [])
    scene.isr("t", 1, [1, 1])
    scene.isr("t", 1, [1, 4])
    scene.isr("t", 1, [1], recovery=1)
    scene.isr("t", 1, [1, 2], recovery=1)
    scene.isr("t", 1, [1], broker_epoch=0)
    scene.isr("t", 4, [1], broker_epoch=0)
    scene.heartbeat(2, fence=True)
    scene.isr("t", 1, [1, 2])
    scene.heartbeat(2)
    scene.isr("t", 1, [1, 2], member_epoch=1)
    scene.isr("t", 1, [1, 2], member_epoch=-2)
    scene.heartbeat(3, shut_down=True)
    scene.isr("t", 1, [1, 2, 3])


@case
def an_isr_change_that_adds_a_broker_in_controlled_shutdown(scene: Scene) -> None:
    scene.brokers(1, 2)
    scene.create("t", [1, 2], [2, 1])
    scene.heartbeat(1, shut_down=True)
    scene.isr("t", 2, [2, 1])


# -- reassignments --------------------------------------------------------------------------------


@case
def a_move_to_other_brokers(scene: Scene) -> None:
    scene.brokers(1, 2, 3, 4)
    scene.create("t", [1, 2])
    scene.reassign("t", [3, 4])
    scene.step(_list(scene, "t"), 0)
    scene.isr("t", 1, [1, 2, 3])
    scene.isr("t", 1, [1, 2, 3, 4])
    scene.step(_list(scene, "t"), 0)
    scene.isr("t", 3, [3])


@case
def a_move_that_keeps_the_leader(scene: Scene) -> None:
    scene.brokers(1, 2, 3)
    scene.create("t", [1, 2])
    scene.reassign("t", [1, 3])
    scene.isr("t", 1, [1, 3])
    scene.reassign("t", [1, 3])
    scene.reassign("t", [3, 1])
    scene.reassign("t", [3, 1, 2])
    scene.isr("t", 1, [3, 1, 2])
    scene.reassign("t", [1])


@case
def moves_that_replace_moves(scene: Scene) -> None:
    scene.brokers(1, 2, 3, 4)
    scene.create("t", [1, 2])
    scene.reassign("t", [3, 4])
    scene.isr("t", 1, [1, 2, 3])
    scene.reassign("t", [3, 4, 2])
    scene.isr("t", 1, [1, 2, 3, 4])


@case
def a_move_that_drops_an_adding_replica(scene: Scene) -> None:
    scene.brokers(1, 2, 3, 4)
    scene.create("t", [1, 2])
    scene.reassign("t", [3, 4])
    scene.reassign("t", [3, 2])


@case
def moves_that_are_cancelled(scene: Scene) -> None:
    scene.brokers(1, 2, 3, 4)
    scene.create("t", [1, 2], [1, 2])
    scene.reassign("t", None)
    scene.reassign("t", [3, 4])
    scene.reassign("t", None)
    scene.reassign("t", [3, 4], 1)
    scene.isr("t", 1, [1, 2, 3], 1)
    scene.heartbeat(1, fence=True)
    scene.reassign("t", None, 1)


@case
def a_cancellation_that_would_lose_records(scene: Scene) -> None:
    scene.brokers(1, 2, 3)
    scene.create("t", [1], min_insync_replicas="1")
    scene.reassign("t", [2, 3])
    scene.isr("t", 1, [1, 2])
    scene.heartbeat(1, fence=True)
    scene.reassign("t", None)
    scene.config("t", "unclean.leader.election.enable", "true")
    scene.reassign("t", None)
    scene.heartbeat(1)


@case
def a_move_whose_leader_dies(scene: Scene) -> None:
    scene.brokers(1, 2, 3, 4)
    scene.create("t", [1, 2])
    scene.reassign("t", [3, 4])
    scene.isr("t", 1, [1, 2, 3, 4][:3])
    scene.heartbeat(1, fence=True)
    scene.heartbeat(2, fence=True)
    scene.isr("t", 3, [3, 4])


@case
def moves_that_are_refused(scene: Scene) -> None:
    scene.brokers(1, 2, 3)
    scene.create("t", [1, 2])
    scene.reassign("absent", [1])
    scene.reassign("absent", None)
    scene.reassign("t", [1], 7)
    scene.reassign("t", [])
    scene.reassign("t", [1, 1])
    scene.reassign("t", [1, 9])
    scene.reassign("t", [1], may_change=False)
    scene.reassign("t", [3, 1], may_change=False)
    scene.reassign("t", [3], may_change=False)
    scene.reassign("t", [3, 2], may_change=False)
    scene.heartbeat(3, fence=True)
    scene.reassign("t", [3])


@case
def moves_with_eligible_replicas(scene: Scene) -> None:
    scene.brokers(1, 2, 3)
    scene.create("t", [1, 2])
    scene.isr("t", 1, [1])
    scene.reassign("t", [1, 3])
    scene.isr("t", 1, [1, 3])
    scene.isr("t", 1, [1])
    scene.reassign("t", [1])


# -- directories ----------------------------------------------------------------------------------


@case
def directories_that_fail(scene: Scene) -> None:
    scene.brokers(1, 2, directories=2)
    scene.create("t", [1, 2], [1, 2], [2, 1])
    scene.create("u", [1])
    scene.assign(1, scene.directory(1), "u", 0)
    for index in range(3):
        scene.assign(1, scene.directory(1, index % 2), "t", index)
        scene.assign(2, scene.directory(2), "t", index)
    scene.assign(1, scene.directory(1), "t", 0)
    scene.heartbeat(1, offline_log_dirs=[scene.directory(1)])
    scene.heartbeat(1, offline_log_dirs=[scene.directory(1)])
    scene.assign(1, scene.directory(1, 1), "u", 0)
    scene.heartbeat(2, offline_log_dirs=[scene.directory(2), scene.directory(2, 1)])


@case
def assignments_of_directories_that_are_refused(scene: Scene) -> None:
    scene.brokers(1, 2, directories=2)
    scene.create("t", [1], [2])
    scene.assign(1, scene.directory(1), "absent", 0)
    scene.assign(1, scene.directory(1), "t", 0, 9)
    scene.assign(2, scene.directory(2), "t", 0, 1)


@case
def assignments_to_directories_that_are_lost(scene: Scene) -> None:
    scene.brokers(1, 2, directories=2)
    scene.create("t", [1, 2], [2, 1], min_insync_replicas="1")
    scene.create("u", [1])
    scene.assign(1, scene.directory(1, 7), "t", 0)
    scene.assign(1, DIRECTORY_LOST, "t", 1)
    scene.assign(1, DIRECTORY_LOST, "u", 0)
    scene.assign(1, scene.directory(1), "u", 0)


@case
def assignments_to_directories_with_another_meaning(scene: Scene) -> None:
    scene.brokers(1, 2, directories=2)
    scene.create("t", [1, 2])
    for directory in (DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED, DIRECTORY_LOST):
        scene.assign(1, directory, "t", 0)


@case
def directories_that_are_cordoned(scene: Scene) -> None:
    scene.brokers(1, 2, 3, directories=2)
    scene.heartbeat(1, cordoned_log_dirs=[])
    scene.heartbeat(1, cordoned_log_dirs=[scene.directory(1)])
    scene.heartbeat(1, cordoned_log_dirs=[scene.directory(1)])
    scene.create("one-of-two", [1, 2])
    scene.heartbeat(1, cordoned_log_dirs=[scene.directory(1, 1), scene.directory(1)])
    scene.create("both", [1, 2])
    scene.create("both-behind", [2, 1])
    scene.step(_placed(scene, "three", 3), 7)
    scene.create("elsewhere", [2, 3])
    scene.reassign("elsewhere", [1, 2])
    scene.reassign("elsewhere", [2, 1])
    scene.reassign("one-of-two", [1, 3])
    scene.heartbeat(1, cordoned_log_dirs=[scene.directory(9)])
    scene.heartbeat(2, cordoned_log_dirs=[scene.directory(2), scene.directory(2, 1)])
    scene.heartbeat(1, cordoned_log_dirs=[])
    scene.create("again", [1, 3])


@case
def an_assignment_while_replicas_are_eligible(scene: Scene) -> None:
    scene.brokers(1, 2, 3, directories=2)
    scene.create("t", [1, 2, 3])
    scene.isr("t", 1, [1])
    scene.assign(1, scene.directory(1), "t", 0)
    scene.assign(2, scene.directory(2), "t", 0)


def _placed(scene: Scene, name: str, factor: int) -> Callable[[object], CreateTopicsRequest]:
    topic = CreatableTopic(
        name=scene.topic(name),
        num_partitions=1,
        replication_factor=factor,
        assignments=[],
        configs=[],
    )
    return lambda _: CreateTopicsRequest(topics=[topic], timeout_ms=10_000)


def _list(scene: Scene, name: str) -> Callable[[object], ListPartitionReassignmentsRequest]:
    return lambda _: ListPartitionReassignmentsRequest(
        timeout_ms=10_000,
        topics=[ListPartitionReassignmentsTopics(name=scene.topic(name), partition_indexes=[0])],
    )
