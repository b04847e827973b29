"""Consumer groups on Barnabas and Apache Kafka: levels of group.version, and target assignments.

At level 0, brokers refuse the requests of the consumer protocol. The groups stay, and their members
continue when the level is raised again.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from barnabas.client.facade import Client
from barnabas.coordinator.group.consumer.consumer_assignors import assign_uniformly
from barnabas.coordinator.group.targets import (
    AssignorInput,
    MemberInput,
)
from barnabas.protocol.api_table import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.committed_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.connection import ApiVersionsRequest
from barnabas.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from barnabas.protocol.messages.groups import (
    ConsumerGroupHeartbeatRequest,
    HeartbeatRequest,
    ListGroupsRequest,
)
from barnabas.protocol.messages.metadata import FindCoordinatorRequest
from barnabas.testing.broker_process import BrokerProcess
from barnabas.waiting.steps import run_to_end
from conformance.cli_shell import Shell
from conformance.raw_client import RawClient
from jvm.kafka_process import KafkaProcess
from jvm.tool_host import ToolHost
from waiting import eventually, eventually_equal

pytestmark = pytest.mark.conformance

FEATURE = "group.version"
TOPIC = "levels"
PARTITIONS = 4
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
}

SetLevel = Callable[[str, int], None]
# Partitions by name and id of the topic.
Target = dict[tuple[str, bytes], frozenset[int]]


@pytest.fixture(scope="module", params=["barnabas", "kafka"])
def bootstrap(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    request.getfixturevalue("kafka_jars")
    kind = KafkaProcess if request.param == "kafka" else BrokerProcess
    process = kind(tmp_path_factory.mktemp(request.param), SETTINGS)
    try:
        process.start()
        with Client(process.bootstrap) as client:
            client.create_topic(TOPIC, PARTITIONS, 1)
        yield process.bootstrap
    finally:
        process.close()


@pytest.fixture
def feature_command(tool_host: ToolHost) -> SetLevel:
    """Return a function that sets the level with Kafka's tool."""

    def set_level(bootstrap: str, level: int) -> None:
        verb = "upgrade" if level else "downgrade"
        words = ("--bootstrap-server", bootstrap, verb, "--feature", f"{FEATURE}={level}")
        done = tool_host.run("FeatureCommand", *words)
        assert done.returncode == 0, done.stdout + done.stderr

    return set_level


def barnabas_features(bootstrap: str, level: int) -> None:
    """Set the level with our command."""
    Shell(bootstrap).ok("features", "upgrade" if level else "downgrade", f"{FEATURE}={level}")


class Group:
    """The members of one group, and other requests for it."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self.client = RawClient(bootstrap)
        self.name = name
        # The last epoch of each member.
        self.epochs: dict[str, int] = {}
        request = FindCoordinatorRequest(key=name)
        eventually(lambda: not self.client.ask(request, 0).error_code, "no coordinator")

    def beat(self, member: str, epoch: int, **fields: object) -> tuple[str, int]:
        """Return the error and the member's epoch."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.name, member_id=member, member_epoch=epoch, **fields
        )
        response = self.client.ask(request, 1)
        if response.error_code == ErrorCode.NONE:
            self.epochs[member] = response.member_epoch
        return ErrorCode(response.error_code).name, response.member_epoch

    def join(self, member: str, *topics: str) -> int:
        def join() -> int:
            error, epoch = self.beat(
                member,
                0,
                subscribed_topic_names=list(topics or [TOPIC]),
                rebalance_timeout_ms=60_000,
                topic_partitions=[],
            )
            return epoch if error == "NONE" else 0

        # Kafka's coordinator loads its state after the response of FindCoordinator.
        eventually(join, "the member does not join")
        return join()

    def describe(self) -> tuple[str, str, int]:
        """Return the error, the state and the number of members."""
        request = ConsumerGroupDescribeRequest(
            group_ids=[self.name], include_authorized_operations=False
        )
        (found,) = self.client.ask(request, 1).groups
        return ErrorCode(found.error_code).name, found.group_state, len(found.members)

    def targets(self) -> dict[str, Target]:
        """Return the target assignment of each member, by names and ids of topics."""
        request = ConsumerGroupDescribeRequest(
            group_ids=[self.name], include_authorized_operations=False
        )
        (found,) = self.client.ask(request, 1).groups
        return {
            member.member_id: {
                (each.topic_name, each.topic_id): frozenset(each.partitions)
                for each in member.target_assignment.topic_partitions
            }
            for member in found.members
        }

    def commit(self, member: str, epoch: int) -> str:
        partition = OffsetCommitRequestPartition(
            partition_index=0, committed_offset=7, committed_metadata=None
        )
        topic = OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])
        request = OffsetCommitRequest(
            group_id=self.name,
            member_id=member,
            generation_id_or_member_epoch=epoch,
            topics=[topic],
        )
        response = self.client.ask(request, 9)
        return ErrorCode(response.topics[0].partitions[0].error_code).name

    def classic_heartbeat(self, member: str, generation: int) -> str:
        request = HeartbeatRequest(group_id=self.name, generation_id=generation, member_id=member)
        return ErrorCode(self.client.ask(request, 4).error_code).name

    def listed(self) -> list[tuple[str, str]]:
        """Return the type and the state of the group in the list of all groups."""
        found = self.client.ask(ListGroupsRequest(), 5).groups
        return [(each.group_type, each.group_state) for each in found if each.group_id == self.name]

    def has_protocol(self) -> bool:
        """Return whether the broker offers the consumer protocol."""
        keys = {each.api_key for each in self.client.ask(ApiVersionsRequest(), 0).api_keys}
        return ApiKey.CONSUMER_GROUP_HEARTBEAT in keys


@pytest.mark.parametrize("tool", ["barnabas features", "kafka-features"])
def test_a_group_survives_that_the_level_is_lowered_and_raised(
    bootstrap: str, feature_command: SetLevel, tool: str
) -> None:
    set_level = feature_command if tool == "kafka-features" else barnabas_features
    group = Group(bootstrap, tool.replace(" ", "-"))
    assert group.join("first") == 2
    assert group.join("second") == 3
    assert group.commit("second", 3) == "NONE"

    set_level(bootstrap, 0)
    eventually_equal(lambda: group.beat("second", 3), ("UNSUPPORTED_VERSION", 0))
    assert {
        "is offered": group.has_protocol(),
        "describe": group.describe(),
        "list": group.listed(),
        "commit": group.commit("second", 3),
        "commit with another epoch": group.commit("second", 9),
        "classic heartbeat": group.classic_heartbeat("second", 3),
    } == {
        "is offered": True,
        "describe": ("UNSUPPORTED_VERSION", "", 0),
        "list": [("consumer", "Reconciling")],
        "commit": "NONE",
        "commit with another epoch": "STALE_MEMBER_EPOCH",
        "classic heartbeat": "UNKNOWN_MEMBER_ID",
    }

    set_level(bootstrap, 1)
    eventually_equal(lambda: group.beat("second", 3), ("NONE", 3))
    assert {
        "describe": group.describe(),
        "revoked": group.beat("first", 2, topic_partitions=[]),
        "leave": group.beat("second", -1),
        "members": group.describe()[2],
    } == {
        "describe": ("NONE", "Reconciling", 2),
        "revoked": ("NONE", 3),
        "leave": ("NONE", -1),
        "members": 1,
    }


# The order in Java's hash tables depends on the ids; these ids are in different orders.
FIRST, SAME, OTHER = "a", "bcdefgh", "ijklmnop"
COUNTS = {"one": 5, "two": 12, "three": 7}


def test_targets_are_those_that_the_uniform_assignor_computes(bootstrap: str) -> None:
    group = Group(bootstrap, "targets")

    def first_beat(**fields: object) -> str:
        return group.beat(FIRST, group.epochs[FIRST], **fields)[0]

    with Client(bootstrap) as client:
        for name, count in COUNTS.items():
            client.create_topic(name, count, 1)
    group.join(FIRST, *COUNTS)
    # Kafka's coordinator learns of topics after they are created.
    eventually(lambda: first_beat() == "NONE" and len(group.targets()[FIRST]) == len(COUNTS))
    ids = dict(group.targets()[FIRST])
    subscriptions = {FIRST: frozenset(ids)}
    known: dict[str, Target] = {FIRST: ids}

    def compare() -> None:
        topics = {each for own in subscriptions.values() for each in own}
        assignor_input = AssignorInput(
            {
                name: MemberInput(
                    frozenset(topic_id for _, topic_id in own),
                    {topic_id: found for (_, topic_id), found in known.get(name, {}).items()},
                )
                for name, own in subscriptions.items()
            },
            {topic_id: COUNTS[name] for name, topic_id in topics},
            is_homogeneous=len(set(subscriptions.values())) == 1,
        )
        known.clear()
        known.update(group.targets())
        assert run_to_end(assign_uniformly(assignor_input)) == {
            name: {topic_id: own for (_, topic_id), own in target.items()}
            for name, target in known.items()
        }

    (two,) = [each for each in ids if each[0] == "two"]
    assert first_beat(subscribed_topic_names=["two"]) == "NONE"
    subscriptions[FIRST] = frozenset({two})
    compare()
    for name in SAME:
        group.join(name, "two")
        subscriptions[name] = frozenset({two})
        compare()
    chance = random.Random(1)
    for name in OTHER:
        subscriptions[name] = frozenset(chance.sample(sorted(ids), chance.randint(1, 3)))
        group.join(name, *(topic for topic, _ in subscriptions[name]))
        compare()
    for name in SAME[::2] + OTHER[::2]:
        assert group.beat(name, -1) == ("NONE", -1)
        del subscriptions[name]
        known.pop(name)
        assert first_beat() == "NONE"
        compare()
