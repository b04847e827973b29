"""Requests of simulated brokers to both controllers; each function is a case."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.metadata.partition_registration import (
    DIRECTORY_LOST,
    DIRECTORY_MIGRATING,
    DIRECTORY_UNASSIGNED,
)
from barnabas.protocol.messages.nodes import (
    AllocateProducerIdsRequest,
    ControllerRegistrationRequest,
    UnregisterBrokerRequest,
    UnregisterControllerRequest,
)
from barnabas.protocol.messages.topics import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from differential.controller_scene import features_of
from differential.controllers import FEATURES

if TYPE_CHECKING:
    from collections.abc import Callable

    from differential.controller_scene import Scene

CASES: list[Callable[[Scene], None]] = []

_REMOVED = "Barnabas removes brokers that are no longer replicas"
_ELECTS = "Barnabas elects a leader at once, Kafka at the next change"
# Accepted differences: case -> reported line (`*` matches any text) -> reason.
KNOWN: dict[str, dict[str, str]] = {
    "registration_right_after_a_controlled_shutdown": {
        "step 5 BrokerRegistration *": "Barnabas does not wait for the end of the old session"
    },
    "registration_in_a_version_without_the_previous_epoch": {
        "step * BrokerRegistration * PartitionChangeRecord.last_known_elr: *": (
            "Barnabas also records a replica that restarted uncleanly, after the last leader"
        )
    },
    "a_move_that_drops_an_adding_replica": {
        "step 15 AlterPartitionReassignments *": "Kafka never finishes such a move"
    },
    "a_move_that_keeps_the_leader": {"*.eligible_leader_replicas: *": _REMOVED},
    "moves_that_are_cancelled": {"*.eligible_leader_replicas: *": _REMOVED},
    "moves_with_eligible_replicas": {"*.eligible_leader_replicas: *": _REMOVED},
    "directories_that_fail": {"step 19 AssignReplicasToDirs *": _ELECTS},
    "assignments_to_directories_that_are_lost": {"step 12 AssignReplicasToDirs *": _ELECTS},
}


def case(play: Callable[[Scene], None]) -> Callable[[Scene], None]:
    """Register a case."""
    CASES.append(play)
    return play


# -- registration ---------------------------------------------------------------------------------


@case
def registration_and_the_first_heartbeats(scene: Scene) -> None:
    scene.register(1, rack="r1")
    scene.heartbeat(1, offset=0)
    scene.heartbeat(1, offset=lambda side: scene.epoch(side, 1) - 1)
    scene.heartbeat(1, offset=lambda side: scene.epoch(side, 1))
    scene.heartbeat(1)


@case
def repeated_registration_of_one_incarnation(scene: Scene) -> None:
    scene.register(1)
    scene.register(1)
    scene.heartbeat(1)
    scene.register(1, rack="other")
    scene.heartbeat(1, offset=lambda side: scene.epoch(side, 1))
    scene.heartbeat(1)


@case
def invalid_registrations(scene: Scene) -> None:
    scene.register(1, cluster_id="another")
    scene.register(1, log_dirs=[])
    scene.register(1, log_dirs=[DIRECTORY_LOST])
    scene.register(1, log_dirs=[DIRECTORY_UNASSIGNED])
    scene.register(1, log_dirs=[DIRECTORY_MIGRATING])
    scene.register(1, log_dirs=[scene.directory(1), scene.directory(1)])
    scene.register(1, listeners=[])
    scene.register(1, is_migrating_zk_broker=True)
    scene.register(1, features=features_of({"metadata.version": (7, 32)}))
    scene.register(1, features=[])
    every = {name: (0, level) for name, level in FEATURES.items()}
    for missing in FEATURES:
        scene.register(1, features=features_of({k: v for k, v in every.items() if k != missing}))
    scene.register(1, features=features_of({**every, "unknown.feature": (1, 5)}))


@case
def registration_with_the_directory_of_another_broker(scene: Scene) -> None:
    scene.register(1)
    scene.register(2, log_dirs=[scene.directory(1)])
    scene.register(2, log_dirs=[scene.directory(2), scene.directory(1)])


@case
def registration_of_several_incarnations_without_a_heartbeat(scene: Scene) -> None:
    scene.register(1)
    scene.register(1, life=2)
    scene.register(1, life=3)


@case
def registration_in_a_version_without_the_previous_epoch(scene: Scene) -> None:
    """Versions below 3 lack the previous epoch, versions below 2 also lack directories."""
    scene.brokers(1, 2, 3)
    scene.create("t", [1, 2, 3], [2, 3, 1], [3, 1, 2])
    for broker in (1, 2, 3):
        scene.heartbeat(broker, shut_down=True)
        scene.heartbeat(broker, shut_down=True)
    scene.wait_for_sessions_to_end()
    for broker, version in ((1, 2), (3, 2), (2, 3)):
        scene.register(broker, life=2, version=version)
    for version in (0, 1):
        scene.register(3, life=3 + version, version=version)


@case
def registration_of_a_second_incarnation_during_the_session(scene: Scene) -> None:
    scene.register(1)
    scene.heartbeat(1, offset=0)
    scene.register(1, life=2)
    scene.heartbeat(1)
    scene.register(1, life=2)


@case
def registration_right_after_a_controlled_shutdown(scene: Scene) -> None:
    scene.brokers(1)
    scene.heartbeat(1, shut_down=True)
    scene.register(1, life=2, clean=True)


@case
def restarts_after_clean_shutdowns_and_after_crashes(scene: Scene) -> None:
    scene.brokers(1, 2, 3)
    scene.create("t", [1, 2, 3], [2, 3, 1], [3, 1, 2])
    scene.create("u", [1], [2], [3])
    scene.create("v", [3, 2])
    for broker in (1, 2, 3):
        scene.heartbeat(broker, shut_down=True)
        scene.heartbeat(broker, shut_down=True)
    scene.wait_for_sessions_to_end()
    scene.register(1, life=2)
    scene.register(2, life=2, clean=True)
    scene.register(3, life=2)
    for broker in (1, 3, 2):
        scene.heartbeat(broker)


@case
def registration_during_a_controlled_shutdown(scene: Scene) -> None:
    scene.brokers(1, 2)
    scene.create("t", [1, 2], [2, 1])
    scene.heartbeat(1, shut_down=True)
    scene.register(1, life=2)
    scene.heartbeat(1)


# -- heartbeats -----------------------------------------------------------------------------------


@case
def heartbeats_with_unknown_epochs(scene: Scene) -> None:
    scene.register(1)
    scene.heartbeat(1, epoch=0)
    scene.heartbeat(1, epoch=1 << 40)
    scene.heartbeat(2, epoch=5)


@case
def heartbeats_that_request_fencing(scene: Scene) -> None:
    scene.brokers(1, 2, 3)
    scene.create("t", [1, 2, 3], [2, 3, 1])
    scene.create("u", [1])
    scene.heartbeat(1, fence=True)
    scene.heartbeat(1, fence=True)
    scene.heartbeat(1)
    scene.heartbeat(1, fence=True, shut_down=True)
    scene.heartbeat(1, shut_down=True)


@case
def controlled_shutdown_waits_until_other_brokers_have_read_the_change(scene: Scene) -> None:
    scene.brokers(1, 2, 3)
    scene.create("t", [1, 2, 3], [2, 3, 1])
    scene.heartbeat(2, offset=1)
    scene.heartbeat(1, shut_down=True)
    scene.heartbeat(1, shut_down=True)
    scene.heartbeat(3)
    scene.heartbeat(1, shut_down=True)
    scene.heartbeat(2)
    scene.heartbeat(1, shut_down=True)
    scene.heartbeat(1, shut_down=True)


@case
def controlled_shutdown_of_a_broker_that_leads_no_partition(scene: Scene) -> None:
    scene.brokers(1, 2)
    scene.create("t", [2, 1])
    scene.heartbeat(1, shut_down=True)
    scene.heartbeat(1)


@case
def controlled_shutdown_of_all_brokers_in_turn(scene: Scene) -> None:
    scene.brokers(1, 2)
    scene.create("t", [1, 2])
    for broker in (1, 2):
        scene.heartbeat(broker, shut_down=True)
        scene.heartbeat(broker, shut_down=True)


# -- elections ------------------------------------------------------------------------------------


@case
def fencing_and_returning_with_eligible_replicas(scene: Scene) -> None:
    scene.brokers(1, 2, 3)
    scene.create("t", [1, 2, 3])
    for broker in (1, 2, 3):
        scene.heartbeat(broker, fence=True)
    for broker in (3, 1, 2):
        scene.heartbeat(broker)


@case
def an_eligible_replica_is_preferred_to_one_that_returned(scene: Scene) -> None:
    scene.brokers(1, 2, 3, 4)
    scene.create("t", [1, 2, 3, 4], min_insync_replicas="3")
    scene.heartbeat(1, fence=True)
    scene.heartbeat(2, fence=True)
    scene.heartbeat(1)
    scene.heartbeat(3, fence=True)
    scene.heartbeat(4, fence=True)
    scene.heartbeat(3)


@case
def a_crash_ends_eligibility(scene: Scene) -> None:
    scene.brokers(1, 2, 3)
    scene.create("t", [1, 2, 3], [2, 3, 1])
    scene.heartbeat(3, fence=True)
    scene.heartbeat(2, fence=True)
    scene.heartbeat(1, fence=True)
    scene.heartbeat(2, shut_down=True)
    scene.heartbeat(3)
    scene.heartbeat(3, fence=True)


@case
def eligible_brokers_that_are_unregistered_and_return(scene: Scene) -> None:
    scene.brokers(1, 2, 3)
    scene.create("t", [1, 2, 3], [2, 3, 1])
    scene.create("u", [1])
    for broker in (2, 3, 1):
        scene.heartbeat(broker, fence=True)
    for broker in (1, 2):
        scene.step(lambda _, broker=broker: UnregisterBrokerRequest(broker_id=scene.id(broker)), 0)  # type: ignore[misc]
        scene.register(broker, life=2)
        scene.heartbeat(broker)
    scene.heartbeat(3)


@case
def unclean_elections_where_the_topic_allows_them(scene: Scene) -> None:
    scene.brokers(1, 2, 3)
    scene.create("t", [1, 2, 3], unclean_leader_election_enable="true")
    scene.isr("t", 1, [1])
    scene.heartbeat(1, fence=True)
    scene.heartbeat(1)
    scene.isr("t", 2, [2], recovery=1)
    scene.isr("t", 2, [2], recovery=0)


@case
def unclean_elections_by_request(scene: Scene) -> None:
    scene.brokers(1, 2, 3)
    scene.create("t", [1, 2, 3], min_insync_replicas="1")
    scene.isr("t", 1, [1])
    scene.elect("t", 1)
    scene.heartbeat(1, fence=True)
    scene.elect("t", 0)
    scene.elect("t", 1)
    scene.isr("t", 2, [2, 3])
    scene.isr("t", 2, [2, 3], recovery=0)
    scene.isr("t", 2, [2], recovery=1)
    scene.elect("t", 1)


@case
def recovering_leaders_that_change(scene: Scene) -> None:
    scene.brokers(1, 2, 3)
    scene.create("t", [1, 2, 3], min_insync_replicas="1")
    scene.isr("t", 1, [1])
    scene.heartbeat(1, fence=True)
    scene.elect("t", 1)
    scene.heartbeat(2, fence=True)
    scene.heartbeat(2)
    scene.isr("t", 2, [2], recovery=0)
    scene.heartbeat(1)
    scene.isr("t", 2, [2, 1])
    scene.elect("t", 0)


@case
def preferred_elections(scene: Scene) -> None:
    scene.brokers(1, 2, 3)
    scene.create("t", [1, 2, 3], [2, 1, 3])
    scene.elect("t", 0, 0, 1, 7)
    scene.elect("absent", 0)
    scene.heartbeat(1, fence=True)
    scene.elect("t", 0)
    scene.heartbeat(1)
    scene.elect("t", 0)
    scene.isr("t", 2, [2, 3, 1])
    scene.elect("t", 0, 0, 1)
    scene.elect("t", 2)


@case
def preferred_elections_of_partitions_without_a_leader(scene: Scene) -> None:
    scene.brokers(1, 2)
    scene.create("t", [1, 2], min_insync_replicas="1")
    scene.isr("t", 1, [1])
    scene.heartbeat(1, fence=True)
    scene.elect("t", 0)
    scene.config("t", "unclean.leader.election.enable", "true")
    scene.elect("t", 0)


@case
def a_smaller_minimum_clears_eligible_replicas(scene: Scene) -> None:
    scene.brokers(1, 2, 3)
    scene.create("t", [1, 2, 3])
    scene.isr("t", 1, [1])
    scene.config("t", "min.insync.replicas", "1")
    scene.isr("t", 1, [1, 2])
    scene.config("t", "min.insync.replicas", "9")
    scene.isr("t", 1, [1])


# -- topics and other requests --------------------------------------------------------------------


@case
def topics_with_replicas_by_hand(scene: Scene) -> None:
    scene.brokers(1, 2)
    scene.register(3)
    scene.create("a", [1, 2], [2, 1])
    scene.create("b", [1], [1, 2])
    scene.create("c", [3])
    scene.create("d", [1, 3])
    scene.create("e", [1, 1])
    scene.create("f", [9])
    scene.create("g", [])
    scene.create("h", [3, 1, 2])


@case
def partitions_added_by_hand(scene: Scene) -> None:
    scene.brokers(1, 2)
    scene.register(3)
    scene.create("a", [1, 2])
    for count, replicas in (
        (2, [[2, 1]]),
        (4, [[3, 1], [1, 3]]),
        (5, [[3]]),
        (5, [[3, 9]]),
        (5, [[1, 1]]),
        (6, [[1, 2]]),
        (3, [[1, 2]]),
    ):
        scene.step(_more(scene, "a", count, replicas), 3)


@case
def brokers_that_are_unregistered(scene: Scene) -> None:
    scene.brokers(1, 2, 3)
    scene.create("t", [1, 2, 3])
    scene.create("u", [3])
    scene.step(lambda _: UnregisterBrokerRequest(broker_id=scene.id(9)), 0)
    scene.step(lambda _: UnregisterBrokerRequest(broker_id=scene.id(1)), 0)
    scene.heartbeat(1)
    scene.step(lambda _: UnregisterBrokerRequest(broker_id=scene.id(3)), 0)
    scene.register(3, life=2)
    scene.heartbeat(3)
    scene.register(1, life=2)
    scene.heartbeat(1)


@case
def producer_ids_for_unknown_broker_epochs(scene: Scene) -> None:
    scene.register(1)
    for broker, epoch in ((1, 0), (2, 0)):
        scene.step(
            lambda _, broker=broker, epoch=epoch: AllocateProducerIdsRequest(  # type: ignore[misc]
                broker_id=scene.id(broker), broker_epoch=epoch
            ),
            0,
        )


@case
def controllers_that_register(scene: Scene) -> None:
    controller = scene.id(1)
    request = ControllerRegistrationRequest(
        controller_id=controller,
        incarnation_id=bytes(15) + b"\x07",
        zk_migration_ready=False,
        listeners=[],
        features=[],
    )
    scene.step(lambda _: request, 0)
    scene.step(lambda _: request, 0)
    for _ in range(2):
        scene.step(lambda _: UnregisterControllerRequest(controller_id=controller), 0)


def _more(
    scene: Scene, name: str, count: int, replicas: list[list[int]]
) -> Callable[[object], CreatePartitionsRequest]:
    return lambda _: CreatePartitionsRequest(
        topics=[
            CreatePartitionsTopic(
                name=scene.topic(name),
                count=count,
                assignments=[
                    CreatePartitionsAssignment(broker_ids=[scene.id(b) for b in each])
                    for each in replicas
                ],
            )
        ],
        timeout_ms=10_000,
        validate_only=False,
    )
