"""Policies for topics and configs (KIP-108, KIP-133) get the same metadata as in Apache Kafka.

Each broker has policies in its own language, whose error messages contain the received metadata.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.alter_configs import (
    AlterableConfig as ReplacedConfig,
    AlterConfigsRequest,
    AlterConfigsResource as ReplacedResource,
)
from barnabas.protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from barnabas.protocol.resources import ResourceType
from barnabas.protocol.schema import Message
from barnabas.testing.broker_process import BrokerProcess
from conformance.raw_client import RawClient
from jvm.kafka_process import KafkaProcess
from waiting import eventually

pytestmark = pytest.mark.conformance

HERE = Path(__file__).parent
TIMEOUT_MS = 30_000
TOPIC, BROKER = ResourceType.TOPIC, ResourceType.BROKER
SET, DELETE, APPEND = 0, 1, 2
BEFORE = "before"
REFUSED, BROKEN = ("segment.ms", SET, "111111"), ("segment.ms", SET, "222222")


class Side(NamedTuple):
    """A broker with the policies."""

    client: RawClient
    process: BrokerProcess | KafkaProcess


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Side]]:
    directory = tmp_path_factory.mktemp("policies")
    ours = directory / "barnabas"
    ours.mkdir()
    shutil.copy(HERE / "python_policies.py", ours)
    kafka = KafkaProcess(
        directory / "kafka", settings_of("Policies$"), source=HERE / "Policies.java"
    )
    barnabas = BrokerProcess(ours, settings_of("python_policies:"))
    try:
        kafka.launch()
        barnabas.start()
        kafka.await_ready()
        made = [Side(RawClient(each.bootstrap), each) for each in (kafka, barnabas)]
        for side in made:
            assert side.client.ask(creation(topic(BEFORE)), 7).topics[0].error_code == 0  # type: ignore[attr-defined]
        yield made
        for side in made:
            side.client.close()
    finally:
        kafka.close()
        barnabas.close()


def settings_of(prefix: str) -> dict[str, str]:
    return {
        "create.topic.policy.class.name": f"{prefix}Topics",
        "alter.config.policy.class.name": f"{prefix}Configs",
        "test.word": "word",
    }


def topic(
    name: str,
    partitions: int = 1,
    factor: int = 1,
    configs: Mapping[str, str] | None = None,
    assignments: Sequence[Sequence[int]] = (),
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
            for index, brokers in enumerate(assignments)
        ],
        configs=[
            CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()
        ],
    )


def creation(*topics: CreatableTopic, validate_only: bool = False) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=list(topics), timeout_ms=TIMEOUT_MS, validate_only=validate_only
    )


def changes(
    resource_type: int,
    name: str,
    *configs: tuple[str, int, str | None],
    validate_only: bool = False,
) -> IncrementalAlterConfigsRequest:
    changed = [
        AlterableConfig(name=key, config_operation=operation, value=value)
        for key, operation, value in configs
    ]
    resource = AlterConfigsResource(
        resource_type=resource_type, resource_name=name, configs=changed
    )
    return IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)


def replacement(resource_type: int, name: str, **configs: str) -> AlterConfigsRequest:
    named = [
        ReplacedConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()
    ]
    resource = ReplacedResource(resource_type=resource_type, resource_name=name, configs=named)
    return AlterConfigsRequest(resources=[resource], validate_only=False)


def errors_of(side: Side, request: Message) -> list[tuple[str, str | None]]:
    """Send a request, and return its errors with the messages of policies only."""
    version = {CreateTopicsRequest: 7, IncrementalAlterConfigsRequest: 1, AlterConfigsRequest: 2}
    response = side.client.ask(request, version[type(request)])
    results = getattr(response, "topics", None) or response.responses  # type: ignore[attr-defined]
    return [
        (
            ErrorCode.of(each.error_code).name,
            each.error_message if each.error_code == ErrorCode.POLICY_VIOLATION else None,
        )
        for each in results
    ]


REFUSALS: dict[str, tuple[Message, str]] = {
    "numbers": (creation(topic("refused", 2)), "word refused 2 1 null {}"),
    "defaults": (
        creation(topic("refused", -1, -1, {"retention.ms": "5"})),
        "word refused 1 1 null {retention.ms=5}",
    ),
    "assigned replicas": (
        creation(topic("refused", -1, -1, None, [[1], [1]])),
        "word refused null null {0=[1], 1=[1]} {}",
    ),
    "validation only": (
        creation(topic("refused"), validate_only=True),
        "word refused 1 1 null {}",
    ),
    "configs of a new topic": (
        creation(topic("refused", 1, 3, {"segment.ms": "111111"})),
        "TOPIC refused {segment.ms=111111}",
    ),
    "removed and appended": (
        changes(
            TOPIC,
            BEFORE,
            REFUSED,
            ("flush.ms", DELETE, None),
            ("cleanup.policy", APPEND, "compact"),
        ),
        "TOPIC before {cleanup.policy=delete,compact, segment.ms=111111}",
    ),
    "validation of changes": (
        changes(TOPIC, BEFORE, REFUSED, validate_only=True),
        "TOPIC before {segment.ms=111111}",
    ),
    "replaced": (
        replacement(TOPIC, BEFORE, segment_ms="111111"),
        "TOPIC before {segment.ms=111111}",
    ),
    "a broker": (
        changes(BROKER, "1", ("my.own", SET, "refused"), ("other", DELETE, None)),
        "BROKER 1 {my.own=refused, other=null}",
    ),
    "all brokers": (changes(BROKER, "", ("my.own", SET, "refused")), "BROKER  {my.own=refused}"),
    "client metrics": (
        changes(ResourceType.CLIENT_METRICS, "sub", ("match", SET, "client_id=refused")),
        "CLIENT_METRICS sub {match=client_id=refused}",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_policies_get_equal_metadata_and_their_message_is_the_error(
    name: str, sides: list[Side]
) -> None:
    request, message = REFUSALS[name]
    for side in sides:
        assert errors_of(side, request) == [("POLICY_VIOLATION", message)], side


def test_unchanged_and_implicitly_removed_configs_are_not_shown(sides: list[Side]) -> None:
    kept, dropped = ("retention.ms", SET, "7000"), ("flush.ms", SET, "5000")
    for side in sides:
        assert errors_of(side, changes(TOPIC, BEFORE, kept, dropped)) == [("NONE", None)]
        again = errors_of(side, changes(TOPIC, BEFORE, kept, REFUSED, ("flush.ms", DELETE, None)))
        assert again == [("POLICY_VIOLATION", "TOPIC before {flush.ms=null, segment.ms=111111}")], (
            side
        )
        replaced = replacement(TOPIC, BEFORE, retention_ms="7000", segment_ms="111111")
        expected = "TOPIC before {segment.ms=111111}"
        assert errors_of(side, replaced) == [("POLICY_VIOLATION", expected)], side


@pytest.mark.parametrize(
    "request_",
    [
        creation(topic("refused", 1, 3)),
        creation(topic("refused", 0, 1)),
        creation(topic("refused", 1, 1, {"no.config": "1"})),
        creation(topic("refused name")),
        creation(topic("refused"), topic("refused")),
        changes(TOPIC, "absent", REFUSED),
        changes(TOPIC, BEFORE, ("max.message.bytes", SET, "111111x")),
        changes(ResourceType.BROKER_LOGGER, "1", ("refused", SET, "refused")),
    ],
    ids=["factor", "partitions", "config", "name", "twice", "absent", "value", "logger"],
)
def test_other_errors_come_before_the_policy(request_: Message, sides: list[Side]) -> None:
    first, second = [errors_of(side, request_) for side in sides]
    assert first == second
    assert "POLICY_VIOLATION" not in dict(first)


def test_an_error_of_a_policy_concerns_one_topic_or_resource(sides: list[Side]) -> None:
    for side in sides:
        names = [f"{each}-{number}" for number, each in enumerate(["good", "broken", "refused"])]
        responses = errors_of(side, creation(*map(topic, names)))
        assert responses == [
            ("NONE", None),
            ("UNKNOWN_SERVER_ERROR", None),
            ("POLICY_VIOLATION", "word refused-2 1 1 null {}"),
        ], side
        configs = creation(topic("new", configs={"segment.ms": "222222"}))
        broken = [configs, changes(TOPIC, BEFORE, BROKEN), changes(BROKER, "1", ("a", 0, "broken"))]
        for request in broken:
            assert errors_of(side, request) == [("UNKNOWN_SERVER_ERROR", None)], side
        # The controller is still active.
        assert errors_of(side, creation(topic("good-again"))) == [("NONE", None)]


def test_a_policy_refuses_topics_that_are_created_automatically(sides: list[Side]) -> None:
    for side in sides:
        names = ["automatic", "automatic-refused"]
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in names],
            allow_auto_topic_creation=True,
        )

        expected = {ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        eventually(partial(_has_errors, side, request, expected), str(side))


def _has_errors(side: Side, request: MetadataRequest, expected: set[int]) -> bool:
    topics = side.client.ask(request, 9).topics
    return {each.error_code for each in topics} == expected
