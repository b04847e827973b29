"""Administration requests: topics, features, elections, reassignments, brokers and users."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.nodes import (
    FeatureUpdateKey,
    UnregisterBrokerRequest,
    UpdateFeaturesRequest,
)
from barnabas.protocol.messages.partition_changes import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
    TopicPartitions,
)
from barnabas.protocol.messages.security import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from barnabas.protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from barnabas.protocol.schema import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Callable

    from conformance.raw_client import RawClient

TIMEOUT_MS = 50_000
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
PREFERRED, UNCLEAN = 0, 1
UNKNOWN_ID = bytes(15) + b"\x09"


def new(
    name: str,
    count: int = 1,
    factor: int = 1,
    assigned: dict[int, list[int]] | None = None,
    configs: list[tuple[str, str | None]] | None = None,
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=count,
        replication_factor=factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
            for index, brokers in (assigned or {}).items()
        ],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs or []],
    )


def create(raw: RawClient, *topics: CreatableTopic, timeout_ms: int = TIMEOUT_MS) -> dict[str, str]:
    """Return the result for each topic, with validate_only."""
    request = CreateTopicsRequest(topics=list(topics), timeout_ms=timeout_ms, validate_only=True)
    response: Any = raw.ask(request, 7)
    return {each.name: ErrorCode(each.error_code).name for each in response.topics}


@pytest.mark.parametrize(
    ("creatable", "error"),
    [
        (new("n", -1, -1), "NONE"),
        (new("n", 0), "INVALID_PARTITIONS"),
        (new("n", -2), "INVALID_PARTITIONS"),
        (new("n", 10_000), "POLICY_VIOLATION"),
        (new("n", 1_000_000), "POLICY_VIOLATION"),
        (new("n", 1, 0), "INVALID_REPLICATION_FACTOR"),
        (new("n", 1, 2), "INVALID_REPLICATION_FACTOR"),
        (new(""), "INVALID_TOPIC_EXCEPTION"),
        (new(".."), "INVALID_TOPIC_EXCEPTION"),
        (new("x" * 249), "NONE"),
        (new("x" * 250), "INVALID_TOPIC_EXCEPTION"),
        (new("é"), "INVALID_TOPIC_EXCEPTION"),
        (new("__cluster_metadata"), "INVALID_REQUEST"),
        (new("n", -1, -1, {0: [1], 1: [1]}), "NONE"),
        (new("n", 2, -1, {0: [1], 1: [1]}), "INVALID_REQUEST"),
        (new("n", -1, 1, {0: [1]}), "INVALID_REQUEST"),
        (new("n", -1, -1, {0: [1], 2: [1]}), "INVALID_REPLICA_ASSIGNMENT"),
        (new("n", -1, -1, {0: [7]}), "INVALID_REPLICA_ASSIGNMENT"),
        (new("n", -1, -1, {0: []}), "INVALID_REPLICA_ASSIGNMENT"),
        (new("n", -1, -1, {0: [1, 1]}), "INVALID_REPLICA_ASSIGNMENT"),
        (new("n", configs=[("no.such", "1")]), "INVALID_CONFIG"),
        (new("n", configs=[("retention.ms", None)]), "INVALID_CONFIG"),
        (new("n", configs=[("retention.ms", "")]), "INVALID_CONFIG"),
        (new("n", configs=[("retention.ms", "x"), ("retention.ms", " 5 ")]), "NONE"),
        (new("n", 0, configs=[("no.such", "1")]), "INVALID_CONFIG"),
    ],
)
def test_a_topic_is_validated(raw: RawClient, creatable: CreatableTopic, error: str) -> None:
    assert create(raw, creatable) == {creatable.name: error}


def test_topics_of_one_request_are_validated_together(raw: RawClient) -> None:
    assert create(raw, new("d"), new("d"), new("e")) == {"d": "INVALID_REQUEST", "e": "NONE"}
    assert create(raw, new("q.q"), new("q_q")) == {"q.q": "NONE", "q_q": "NONE"}
    assert set(create(raw, new("d", 6000), new("e", 6000)).values()) == {"POLICY_VIOLATION"}
    assert create(raw, new("d"), timeout_ms=0) == {"d": "REQUEST_TIMED_OUT"}


def add(raw: RawClient, *topics: tuple[str, int]) -> dict[str, str]:
    request = CreatePartitionsRequest(
        topics=[
            CreatePartitionsTopic(name=name, count=count, assignments=None)
            for name, count in topics
        ],
        timeout_ms=TIMEOUT_MS,
        validate_only=True,
    )
    response: Any = raw.ask(request, 3)
    return {each.name: ErrorCode(each.error_code).name for each in response.results}


def test_new_partitions_are_validated(raw: RawClient, make_topic: Callable[..., str]) -> None:
    a, b = make_topic(3), make_topic(1)
    assert add(raw, (a, 4), ("no-such-topic", 4)) == {
        a: "NONE",
        "no-such-topic": "UNKNOWN_TOPIC_OR_PARTITION",
    }
    assert add(raw, (a, 3)) == {a: "INVALID_PARTITIONS"}
    assert add(raw, (a, 4), (a, 5)) == {a: "INVALID_REQUEST"}
    assert add(raw, (a, 10_003)) == {a: "NONE"}
    assert add(raw, (a, 6000), (b, 6000)) == {a: "POLICY_VIOLATION", b: "POLICY_VIOLATION"}


def delete(raw: RawClient, *topics: tuple[str | None, bytes]) -> list[tuple[str | None, str]]:
    request = DeleteTopicsRequest(
        topics=[DeleteTopicState(name=name, topic_id=topic_id) for name, topic_id in topics],
        timeout_ms=TIMEOUT_MS,
    )
    response: Any = raw.ask(request, 6)
    return [(each.name, ErrorCode(each.error_code).name) for each in response.responses]


def test_deletions_of_topics_are_validated(raw: RawClient) -> None:
    name = "to-be-deleted"
    response: Any = raw.ask(CreateTopicsRequest(topics=[new(name)]), 7)
    topic_id = response.topics[0].topic_id
    assert delete(raw, (name, topic_id)) == [(name, "INVALID_REQUEST")]
    assert delete(raw, (None, ZERO_UUID)) == [(None, "INVALID_REQUEST")]
    assert delete(raw, (name, ZERO_UUID), (name, ZERO_UUID)) == [(name, "INVALID_REQUEST")]
    assert delete(raw, (name, ZERO_UUID), (None, topic_id)) == [(name, "INVALID_REQUEST")]
    assert delete(raw, (None, topic_id), (None, topic_id)) == [(None, "INVALID_REQUEST")]
    assert delete(raw, ("", ZERO_UUID)) == [("", "UNKNOWN_TOPIC_OR_PARTITION")]
    assert delete(raw, (None, UNKNOWN_ID)) == [(None, "UNKNOWN_TOPIC_ID")]
    assert delete(raw, (None, topic_id)) == [(name, "NONE")]


def update(
    raw: RawClient, *updates: tuple[str, int, int], version: int = 2
) -> tuple[str, list[tuple[str, str]]]:
    """Return the response to a request with validate_only."""
    request = UpdateFeaturesRequest(
        feature_updates=[
            FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
            for name, level, kind in updates
        ],
        validate_only=True,
    )
    response: Any = raw.ask(request, version)
    results = [(each.feature, ErrorCode(each.error_code).name) for each in response.results]
    return ErrorCode(response.error_code).name, results


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (("metadata.version", 33, UPGRADE), "NONE"),
        (("metadata.version", 34, UPGRADE), "INVALID_UPDATE_VERSION"),
        (("metadata.version", 6, SAFE_DOWNGRADE), "INVALID_UPDATE_VERSION"),
        (("metadata.version", -1, UPGRADE), "INVALID_UPDATE_VERSION"),
        (("metadata.version", 32, UPGRADE), "INVALID_UPDATE_VERSION"),
        (("metadata.version", 32, SAFE_DOWNGRADE), "INVALID_UPDATE_VERSION"),
        (("metadata.version", 32, UNSAFE_DOWNGRADE), "INVALID_UPDATE_VERSION"),
        (("metadata.version", 33, 0), "INVALID_UPDATE_VERSION"),
        (("no.such.feature", 0, SAFE_DOWNGRADE), "INVALID_UPDATE_VERSION"),
        (("no.such.feature", 1, UPGRADE), "INVALID_UPDATE_VERSION"),
        (("eligible.leader.replicas.version", 0, UPGRADE), "INVALID_UPDATE_VERSION"),
        (("eligible.leader.replicas.version", 0, SAFE_DOWNGRADE), "NONE"),
        (("eligible.leader.replicas.version", 2, UPGRADE), "INVALID_UPDATE_VERSION"),
        (("kraft.version", 0, UPGRADE), "NONE"),
        (("kraft.version", 2, UPGRADE), "INVALID_UPDATE_VERSION"),
    ],
)
def test_a_feature_level_is_validated(
    raw: RawClient, change: tuple[str, int, int], error: str
) -> None:
    assert update(raw, change) == (error, [])
    results = [(change[0], "NONE")] if error == "NONE" else []
    assert update(raw, change, version=1) == (error, results)


def elect(
    raw: RawClient, kind: int, *topics: tuple[str, list[int]]
) -> tuple[str, list[tuple[str, list[str]]]]:
    request = ElectLeadersRequest(
        election_type=kind,
        topic_partitions=[TopicPartitions(topic=name, partitions=ids) for name, ids in topics],
        timeout_ms=TIMEOUT_MS,
    )
    response: Any = raw.ask(request, 2)
    results = [
        (each.topic, [ErrorCode(result.error_code).name for result in each.partition_result])
        for each in response.replica_election_results
    ]
    return ErrorCode(response.error_code).name, results


def test_elections_on_one_broker_are_not_needed(raw: RawClient, topic: str) -> None:
    expected = ["ELECTION_NOT_NEEDED", "UNKNOWN_TOPIC_OR_PARTITION"]
    for kind in (PREFERRED, UNCLEAN):
        assert elect(raw, kind, (topic, [0, 9])) == ("NONE", [(topic, expected)])
    unknown = [("no-such-topic", ["UNKNOWN_TOPIC_OR_PARTITION"])]
    assert elect(raw, PREFERRED, ("no-such-topic", [0])) == ("NONE", unknown)
    assert elect(raw, 7, (topic, [0])) == ("INVALID_REQUEST", [(topic, ["INVALID_REQUEST"])])
    everything: Any = raw.ask(ElectLeadersRequest(topic_partitions=None), 2)
    found = {each.topic: each.partition_result for each in everything.replica_election_results}
    assert found[topic] == []


@pytest.mark.parametrize(
    ("replicas", "error"),
    [
        ([1], "NONE"),
        (None, "NO_REASSIGNMENT_IN_PROGRESS"),
        ([2], "INVALID_REPLICA_ASSIGNMENT"),
        ([1, 2], "INVALID_REPLICA_ASSIGNMENT"),
        ([1, 1], "INVALID_REPLICA_ASSIGNMENT"),
        ([], "INVALID_REPLICA_ASSIGNMENT"),
    ],
)
def test_a_partition_cannot_move_on_a_single_broker(
    raw: RawClient, topic: str, replicas: list[int] | None, error: str
) -> None:
    def move(name: str, index: int) -> str:
        partition = ReassignablePartition(partition_index=index, replicas=replicas)
        request = AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(name=name, partitions=[partition])]
        )
        response: Any = raw.ask(request, 1)
        assert response.error_code == ErrorCode.NONE
        return ErrorCode(response.responses[0].partitions[0].error_code).name

    assert move(topic, 0) == error
    assert move(topic, 9) == move("no-such-topic", 0) == "UNKNOWN_TOPIC_OR_PARTITION"
    listed: Any = raw.ask(ListPartitionReassignmentsRequest(topics=None), 0)
    assert (listed.error_code, listed.topics) == (ErrorCode.NONE, [])


def test_users_without_credentials_are_reported(raw: RawClient) -> None:
    def describe(*users: str) -> list[tuple[str, str]]:
        request = DescribeUserScramCredentialsRequest(users=[UserName(name=user) for user in users])
        response: Any = raw.ask(request, 0)
        assert response.error_code == ErrorCode.NONE
        return [(each.user, ErrorCode(each.error_code).name) for each in response.results]

    assert describe() == []
    assert describe("a", "b") == [("a", "RESOURCE_NOT_FOUND"), ("b", "RESOURCE_NOT_FOUND")]
    assert describe("a", "a") == [("a", "DUPLICATE_RESOURCE")]


def test_a_missing_broker_cannot_be_unregistered(raw: RawClient) -> None:
    response: Any = raw.ask(UnregisterBrokerRequest(broker_id=99), 0)
    assert response.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
