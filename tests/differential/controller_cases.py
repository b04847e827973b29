"""What made-up brokers do to both controllers; each function is a case."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.metadata.partition_registration import (
    DIRECTORY_LOST,
    DIRECTORY_MIGRATING,
    DIRECTORY_UNASSIGNED,
)
from barnabas.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from barnabas.protocol.messages.controller_registration import ControllerRegistrationRequest
from barnabas.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from barnabas.protocol.messages.unregister_broker import UnregisterBrokerRequest
from barnabas.protocol.messages.unregister_controller import UnregisterControllerRequest
from differential.controller_scene import features_of
from differential.controllers import FEATURES

if TYPE_CHECKING:
    from collections.abc import Callable

    from differential.controller_scene import Scene

CASES: list[Callable[[Scene], None]] = []

# What differs on purpose: case -> what is told of it (`*` for anything) -> why.
KNOWN: dict[str, dict[str, str]] = {
    "registration_right_after_a_controlled_shutdown": {
        "step 5 BrokerRegistration *": "who was let go need not wait for its session to end"
    },
    "registration_in_a_version_that_cannot_say_how_the_former_life_ended": {
        "step * BrokerRegistration * PartitionChangeRecord.last_known_elr: *": (
            "a replica that has restarted uncleanly is known behind the last leader"
        )
    },
    "a_move_that_leaves_out_who_was_to_be_added": {
        "step 15 AlterPartitionReassignments *": "Kafka goes on adding whom it removes, for ever"
    },
    "a_move_that_keeps_the_leader": {"*.eligible_leader_replicas: *": "no replica any more"},
    "moves_that_are_cancelled": {"*.eligible_leader_replicas: *": "no replica any more"},
    "moves_with_eligible_replicas": {"*.eligible_leader_replicas: *": "no replica any more"},
    "directories_that_fail": {
        "step 19 AssignReplicasToDirs *": "Kafka elects at the next occasion, we at once"
    },
    "assignments_to_directories_that_are_lost": {
        "step 12 AssignReplicasToDirs *": "Kafka elects at the next occasion, we at once"
    },
}


def case(play: Callable[[Scene], None]) -> Callable[[Scene], None]:
    """Register a case."""
    CASES.append(play)
    return play


# -- registration ---------------------------------------------------------------------------------


@case
def registration_and_the_first_heartbeats(scene: Scene) -> None:
    scene.register(1, rack="r1")
    scene.beat(1, offset=0)
    scene.beat(1, offset=lambda side: scene.epoch(side, 1) - 1)
    scene.beat(1, offset=lambda side: scene.epoch(side, 1))
    scene.beat(1)


@case
def registration_of_the_same_life_again(scene: Scene) -> None:
    scene.register(1)
    scene.register(1)
    scene.beat(1)
    scene.register(1, rack="other")
    scene.beat(1, offset=lambda side: scene.epoch(side, 1))
    scene.beat(1)


@case
def registration_that_does_not_fit(scene: Scene) -> None:
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
    for left_out in FEATURES:
        scene.register(1, features=features_of({k: v for k, v in every.items() if k != left_out}))
    scene.register(1, features=features_of({**every, "unknown.feature": (1, 5)}))


@case
def registration_with_the_directory_of_another(scene: Scene) -> None:
    scene.register(1)
    scene.register(2, log_dirs=[scene.directory(1)])
    scene.register(2, log_dirs=[scene.directory(2), scene.directory(1)])


@case
def registration_of_two_lives_without_a_heartbeat(scene: Scene) -> None:
    scene.register(1)
    scene.register(1, life=2)
    scene.register(1, life=3)


@case
def registration_in_a_version_that_cannot_say_how_the_former_life_ended(scene: Scene) -> None:
    """Before v3 nothing is said of the former epoch, before v2 nothing of directories either."""
    scene.brokers(1, 2, 3)
    scene.create("t", [1, 2, 3], [2, 3, 1], [3, 1, 2])
    for broker in (1, 2, 3):
        scene.beat(broker, shut_down=True)
        scene.beat(broker, shut_down=True)
    scene.wait_for_sessions_to_end()
    for broker, version in ((1, 2), (3, 2), (2, 3)):
        scene.register(broker, life=2, version=version)
    for version in (0, 1):
        scene.register(3, life=3 + version, version=version)


@case
def registration_of_a_second_life_beside_the_first(scene: Scene) -> None:
    scene.register(1)
    scene.beat(1, offset=0)
    scene.register(1, life=2)
    scene.beat(1)
    scene.register(1, life=2)


@case
def registration_right_after_a_controlled_shutdown(scene: Scene) -> None:
    scene.brokers(1)
    scene.beat(1, shut_down=True)
    scene.register(1, life=2, clean=True)


@case
def restarts_after_clean_shutdowns_and_after_crashes(scene: Scene) -> None:
    scene.brokers(1, 2, 3)
    scene.create("t", [1, 2, 3], [2, 3, 1], [3, 1, 2])
    scene.create("u", [1], [2], [3])
    scene.create("v", [3, 2])
    for broker in (1, 2, 3):
        scene.beat(broker, shut_down=True)
        scene.beat(broker, shut_down=True)
    scene.wait_for_sessions_to_end()
    scene.register(1, life=2)
    scene.register(2, life=2, clean=True)
    scene.register(3, life=2)
    for broker in (1, 3, 2):
        scene.beat(broker)


@case
def registration_during_a_controlled_shutdown(scene: Scene) -> None:
    scene.brokers(1, 2)
    scene.create("t", [1, 2], [2, 1])
    scene.beat(1, shut_down=True)
    scene.register(1, life=2)
    scene.beat(1)


# -- heartbeats -----------------------------------------------------------------------------------


@case
def heartbeats_of_lives_that_are_not(scene: Scene) -> None:
    scene.register(1)
    scene.beat(1, epoch=0)
    scene.beat(1, epoch=1 << 40)
    scene.beat(2, epoch=5)


@case
def heartbeats_that_want_to_be_fenced(scene: Scene) -> None:
    scene.brokers(1, 2, 3)
    scene.create("t", [1, 2, 3], [2, 3, 1])
    scene.create("u", [1])
    scene.beat(1, fence=True)
    scene.beat(1, fence=True)
    scene.beat(1)
    scene.beat(1, fence=True, shut_down=True)
    scene.beat(1, shut_down=True)


@case
def controlled_shutdown_waits_until_the_others_know(scene: Scene) -> None:
    scene.brokers(1, 2, 3)
    scene.create("t", [1, 2, 3], [2, 3, 1])
    scene.beat(2, offset=1)
    scene.beat(1, shut_down=True)
    scene.beat(1, shut_down=True)
    scene.beat(3)
    scene.beat(1, shut_down=True)
    scene.beat(2)
    scene.beat(1, shut_down=True)
    scene.beat(1, shut_down=True)


@case
def controlled_shutdown_of_who_leads_nothing(scene: Scene) -> None:
    scene.brokers(1, 2)
    scene.create("t", [2, 1])
    scene.beat(1, shut_down=True)
    scene.beat(1)


@case
def controlled_shutdown_of_all_one_after_the_other(scene: Scene) -> None:
    scene.brokers(1, 2)
    scene.create("t", [1, 2])
    for broker in (1, 2):
        scene.beat(broker, shut_down=True)
        scene.beat(broker, shut_down=True)


# -- elections ------------------------------------------------------------------------------------


@case
def fencing_and_returning_with_eligible_replicas(scene: Scene) -> None:
    scene.brokers(1, 2, 3)
    scene.create("t", [1, 2, 3])
    for broker in (1, 2, 3):
        scene.beat(broker, fence=True)
    for broker in (3, 1, 2):
        scene.beat(broker)


@case
def an_eligible_replica_stands_before_one_in_sync(scene: Scene) -> None:
    scene.brokers(1, 2, 3, 4)
    scene.create("t", [1, 2, 3, 4], min_insync_replicas="3")
    scene.beat(1, fence=True)
    scene.beat(2, fence=True)
    scene.beat(1)
    scene.beat(3, fence=True)
    scene.beat(4, fence=True)
    scene.beat(3)


@case
def a_crash_costs_eligibility(scene: Scene) -> None:
    scene.brokers(1, 2, 3)
    scene.create("t", [1, 2, 3], [2, 3, 1])
    scene.beat(3, fence=True)
    scene.beat(2, fence=True)
    scene.beat(1, fence=True)
    scene.beat(2, shut_down=True)
    scene.beat(3)
    scene.beat(3, fence=True)


@case
def eligible_brokers_that_come_back_as_strangers(scene: Scene) -> None:
    scene.brokers(1, 2, 3)
    scene.create("t", [1, 2, 3], [2, 3, 1])
    scene.create("u", [1])
    for broker in (2, 3, 1):
        scene.beat(broker, fence=True)
    for broker in (1, 2):
        scene.step(lambda _, broker=broker: UnregisterBrokerRequest(broker_id=scene.id(broker)), 0)  # type: ignore[misc]
        scene.register(broker, life=2)
        scene.beat(broker)
    scene.beat(3)


@case
def unclean_elections_where_the_topic_allows_them(scene: Scene) -> None:
    scene.brokers(1, 2, 3)
    scene.create("t", [1, 2, 3], unclean_leader_election_enable="true")
    scene.isr("t", 1, [1])
    scene.beat(1, fence=True)
    scene.beat(1)
    scene.isr("t", 2, [2], recovery=1)
    scene.isr("t", 2, [2], recovery=0)


@case
def unclean_elections_by_request(scene: Scene) -> None:
    scene.brokers(1, 2, 3)
    scene.create("t", [1, 2, 3], min_insync_replicas="1")
    scene.isr("t", 1, [1])
    scene.elect("t", 1)
    scene.beat(1, fence=True)
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
    scene.beat(1, fence=True)
    scene.elect("t", 1)
    scene.beat(2, fence=True)
    scene.beat(2)
    scene.isr("t", 2, [2], recovery=0)
    scene.beat(1)
    scene.isr("t", 2, [2, 1])
    scene.elect("t", 0)


@case
def preferred_elections(scene: Scene) -> None:
    scene.brokers(1, 2, 3)
    scene.create("t", [1, 2, 3], [2, 1, 3])
    scene.elect("t", 0, 0, 1, 7)
    scene.elect("absent", 0)
    scene.beat(1, fence=True)
    scene.elect("t", 0)
    scene.beat(1)
    scene.elect("t", 0)
    scene.isr("t", 2, [2, 3, 1])
    scene.elect("t", 0, 0, 1)
    scene.elect("t", 2)


@case
def preferred_elections_of_what_nobody_leads(scene: Scene) -> None:
    scene.brokers(1, 2)
    scene.create("t", [1, 2], min_insync_replicas="1")
    scene.isr("t", 1, [1])
    scene.beat(1, fence=True)
    scene.elect("t", 0)
    scene.config("t", "unclean.leader.election.enable", "true")
    scene.elect("t", 0)


@case
def a_smaller_minimum_clears_the_eligible(scene: Scene) -> None:
    scene.brokers(1, 2, 3)
    scene.create("t", [1, 2, 3])
    scene.isr("t", 1, [1])
    scene.config("t", "min.insync.replicas", "1")
    scene.isr("t", 1, [1, 2])
    scene.config("t", "min.insync.replicas", "9")
    scene.isr("t", 1, [1])


# -- the rest -------------------------------------------------------------------------------------


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
    scene.beat(1)
    scene.step(lambda _: UnregisterBrokerRequest(broker_id=scene.id(3)), 0)
    scene.register(3, life=2)
    scene.beat(3)
    scene.register(1, life=2)
    scene.beat(1)


@case
def producer_ids_for_lives_that_are_not(scene: Scene) -> None:
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
