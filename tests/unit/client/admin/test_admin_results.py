"""Admin calls over many things: a failure of one is raised; topics are listed and described."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import pytest

from barnabas.client.admin import groups, topics
from barnabas.client.admin.sender import AdminSender, Plan, checked, raise_failed, run
from barnabas.client.admin.topics import TopicListing
from barnabas.client.connections.lookups import Coordinators
from barnabas.client.errors import AdminResultsError, BrokerError, UnsupportedVersionError
from barnabas.client.session.session import Waiter
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.metadata import (
    CursorResponse,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    FindCoordinatorResponse,
    MetadataResponse,
    MetadataResponseTopic,
)
from barnabas.protocol.messages.topics import DeletableTopicResult, DeleteTopicsResponse
from unit.client.admin.answering_cluster import AnsweringCluster
from unit.client.scripted_cluster import HandStepper

REFUSED = BrokerError(ErrorCode.TOPIC_ALREADY_EXISTS, "create topic a")


@pytest.fixture
def cluster() -> AnsweringCluster:
    return AnsweringCluster(**{"default.api.timeout.ms": 2000})


def made(cluster: AnsweringCluster, plan: Callable[[AdminSender], Plan[Any]]) -> Any:
    stepper: Any = HandStepper(cluster.time)
    core: Any = cluster
    waiter = Waiter(stepper, lambda: None, 2000)
    return run(plan(AdminSender(core, Coordinators(core))), waiter)


def test_results_without_an_error_are_returned() -> None:
    raise_failed({"a": None, "b": True, "c": 5})
    raise_failed({})


def test_an_error_among_the_results_is_raised_with_all_of_them() -> None:
    with pytest.raises(AdminResultsError) as caught:
        raise_failed({"a": REFUSED, "b": None})
    error = caught.value
    assert error.results == {"a": REFUSED, "b": None}
    assert error.errors == {"a": REFUSED}
    assert (error.error_code, error.retriable) == (ErrorCode.TOPIC_ALREADY_EXISTS, False)
    assert error.__cause__ is REFUSED
    assert str(error).startswith("1 of 2 failed: create topic a: TOPIC_ALREADY_EXISTS")


def test_the_error_of_a_single_result_is_its_own_error() -> None:
    with pytest.raises(AdminResultsError) as caught:
        raise_failed({"a": REFUSED})
    assert str(caught.value) == str(REFUSED)


def test_an_election_that_was_not_needed_is_no_failure() -> None:
    raise_failed({"a": BrokerError(ErrorCode.ELECTION_NOT_NEEDED, "leader of t-0")})


def test_errors_can_be_returned_as_results() -> None:
    def plan() -> Generator[Any, Any, dict[str, BrokerError | None]]:
        yield {}
        return {"a": REFUSED}

    for raise_errors in (True, False):
        running = checked(plan(), raise_errors=raise_errors)
        next(running)
        with pytest.raises(StopIteration if not raise_errors else AdminResultsError) as ended:
            running.send({})
        assert raise_errors or ended.value.value == {"a": REFUSED}  # type: ignore[union-attr]


def deleting(cluster: AnsweringCluster, codes: dict[str, ErrorCode]) -> list[list[str]]:
    asked: list[list[str]] = []

    def answer(_node_id: int, request: Any) -> Any:
        asked.append(request.topic_names)
        return DeleteTopicsResponse(
            responses=[
                DeletableTopicResult(name=name, error_code=codes.get(name, 0))
                for name in request.topic_names
            ]
        )

    cluster.answers[ApiKey.DELETE_TOPICS] = answer
    return asked


def test_a_topic_that_was_not_deleted_is_an_error(cluster: AnsweringCluster) -> None:
    deleting(cluster, {"b": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
    with pytest.raises(AdminResultsError) as caught:
        made(cluster, lambda sender: topics.delete_topics(sender, ["a", "b"]))
    assert caught.value.results["a"] is None
    assert set(caught.value.errors) == {"b"}
    found = made(cluster, lambda sender: topics.delete_topics(sender, ["b"], raise_errors=False))
    assert found["b"].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_single_name_is_not_taken_for_its_letters(cluster: AnsweringCluster) -> None:
    asked = deleting(cluster, {})
    assert made(cluster, lambda sender: topics.delete_topics(sender, "abc")) == {"abc": None}
    assert asked == [["abc"]]
    refusal = FindCoordinatorResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    cluster.answers[ApiKey.FIND_COORDINATOR] = lambda _node_id, _request: refusal
    with pytest.raises(AdminResultsError) as caught:
        made(cluster, lambda sender: groups.delete_groups(sender, "group"))
    assert set(caught.value.errors) == {"group"}


def test_topics_are_listed_by_name_without_internal_ones(cluster: AnsweringCluster) -> None:
    answer = MetadataResponse(
        brokers=[],
        topics=[
            MetadataResponseTopic(name="b", topic_id=b"b" * 16, error_code=0, partitions=[]),
            MetadataResponseTopic(name="a", topic_id=b"a" * 16, error_code=0, partitions=[]),
            MetadataResponseTopic(
                name="__own", topic_id=b"o" * 16, error_code=0, is_internal=True, partitions=[]
            ),
            MetadataResponseTopic(name="bad", error_code=3, partitions=[]),
            MetadataResponseTopic(name=None, error_code=0, partitions=[]),
        ],
    )
    cluster.answers[ApiKey.METADATA] = lambda _node_id, _request: answer
    found = made(cluster, topics.list_topics)
    assert list(found) == ["a", "b"]
    assert found["a"] == TopicListing("a", b"a" * 16, False)
    all_of_them = made(cluster, lambda sender: topics.list_topics(sender, internal=True))
    assert list(all_of_them) == ["__own", "a", "b"]


def page(numbers: list[int], cursor: int | None, code: int = 0) -> DescribeTopicPartitionsResponse:
    partitions = [
        DescribeTopicPartitionsResponsePartition(
            partition_index=number,
            error_code=0,
            leader_id=1,
            leader_epoch=0,
            replica_nodes=[1],
            isr_nodes=[1],
            offline_replicas=[],
            eligible_leader_replicas=None,
            last_known_elr=None,
        )
        for number in numbers
    ]
    topic = DescribeTopicPartitionsResponseTopic(
        name="t", error_code=code, topic_id=b"t" * 16, partitions=partitions
    )
    following = None if cursor is None else CursorResponse(topic_name="t", partition_index=cursor)
    return DescribeTopicPartitionsResponse(topics=[topic], next_cursor=following)


def described(cluster: AnsweringCluster, pages: list[Any]) -> Any:
    cluster.answers[ApiKey.DESCRIBE_TOPIC_PARTITIONS] = lambda _node_id, _request: pages.pop(0)
    return made(cluster, lambda sender: topics.describe_topics(sender, ["t"]))


def test_topics_are_described_page_by_page(cluster: AnsweringCluster) -> None:
    found = described(cluster, [page([0, 1], 2), page([2], None)])
    assert list(found["t"].partitions) == [0, 1, 2]


def test_an_empty_list_of_names_describes_no_topics(cluster: AnsweringCluster) -> None:
    assert made(cluster, lambda sender: topics.describe_topics(sender, [])) == {}
    assert not cluster.asked


def test_a_topic_that_is_not_there_is_an_error(cluster: AnsweringCluster) -> None:
    with pytest.raises(AdminResultsError) as caught:
        described(cluster, [page([], None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)])
    assert caught.value.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_missing_in_the_response_is_an_error(cluster: AnsweringCluster) -> None:
    answer = DescribeTopicPartitionsResponse(topics=[], next_cursor=None)
    with pytest.raises(AdminResultsError, match="missing in the response"):
        described(cluster, [answer])


def test_repeated_pages_end_the_call(cluster: AnsweringCluster) -> None:
    with pytest.raises(BrokerError, match="returns pages without end"):
        described(cluster, [page([0], 0)] * 1_000)


def test_endless_pages_are_requested_until_the_timeout(
    cluster: AnsweringCluster,
) -> None:
    numbers = iter(range(10**9))

    def answer(_node_id: int, _request: Any) -> Any:
        cluster.time.advance(10)
        return page([0], next(numbers))

    cluster.answers[ApiKey.DESCRIBE_TOPIC_PARTITIONS] = answer
    with pytest.raises(BrokerError, match="returns pages without end"):
        made(cluster, lambda sender: topics.describe_topics(sender, ["t"]))
    assert next(numbers) <= 201


def test_a_topic_that_fails_on_a_later_page_is_an_error(cluster: AnsweringCluster) -> None:
    pages = [page([0], 1), page([], None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    with pytest.raises(AdminResultsError):
        described(cluster, pages)


def test_older_brokers_are_described_by_metadata(cluster: AnsweringCluster) -> None:
    refusal = UnsupportedVersionError("h:1", "DESCRIBE_TOPIC_PARTITIONS", "too old")
    topic = MetadataResponseTopic(name="t", topic_id=b"t" * 16, error_code=0, partitions=[])
    cluster.answers[ApiKey.METADATA] = lambda _node_id, _request: MetadataResponse(
        brokers=[], topics=[topic]
    )
    assert described(cluster, [refusal])["t"].partitions == {}
