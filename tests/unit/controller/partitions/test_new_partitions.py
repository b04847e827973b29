"""Adding partitions."""

from __future__ import annotations

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.topics import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from steps import finish
from unit.controller.parts import applied, partitions_of, view_of
from unit.metadata.clusters import partition, three_brokers, topic


def wanted(
    name: str, count: int, assignments: list[list[int]] | None = None
) -> CreatePartitionsTopic:
    given = None
    if assignments is not None:
        given = [CreatePartitionsAssignment(broker_ids=each) for each in assignments]
    return CreatePartitionsTopic(name=name, count=count, assignments=given)


def request(*topics: CreatePartitionsTopic, validate_only: bool = False) -> CreatePartitionsRequest:
    return CreatePartitionsRequest(topics=list(topics), timeout_ms=0, validate_only=validate_only)


IMAGE = three_brokers(
    topic("a", 1), partition(1, 0, (1, 2)), topic("b", 2), partition(2, 0, (1, 2))
)


def test_added_partitions_have_the_replication_factor_of_the_topic() -> None:
    result = finish(partitions_of().create(view_of(IMAGE), request(wanted("a", 3))))
    found = applied(IMAGE, result.records).topics.by_name("a")
    assert found is not None
    assert sorted(found.partitions) == [0, 1, 2]
    assert all(len(each.replicas) == 2 for each in found.partitions.values())


@pytest.mark.parametrize(
    ("topic_wanted", "error"),
    [
        (wanted("a", 1), ErrorCode.INVALID_PARTITIONS),
        (wanted("a", 0), ErrorCode.INVALID_PARTITIONS),
        (wanted("x", 2), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (wanted("a", 3, [[1, 2]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (wanted("a", 2, [[1]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (wanted("a", 2, [[1, 9]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (wanted("a", 2, [[3, 1]]), ErrorCode.NONE),
    ],
)
def test_invalid_new_partitions_are_refused(
    topic_wanted: CreatePartitionsTopic, error: ErrorCode
) -> None:
    result = finish(partitions_of().create(view_of(IMAGE), request(topic_wanted, wanted("b", 2))))
    assert [each.error_code for each in result.response.results] == [error, ErrorCode.NONE]


def test_a_request_for_too_many_partitions_is_refused_as_a_whole() -> None:
    result = finish(
        partitions_of().create(view_of(IMAGE), request(wanted("a", 20_000), wanted("b", 2)))
    )
    assert [each.error_code for each in result.response.results] == [ErrorCode.POLICY_VIOLATION] * 2


def test_a_duplicate_topic_gets_one_error() -> None:
    result = finish(partitions_of().create(view_of(IMAGE), request(wanted("a", 2), wanted("a", 3))))
    assert [each.error_code for each in result.response.results] == [ErrorCode.INVALID_REQUEST]
    assert result.records == []


def test_validate_only_writes_no_record() -> None:
    result = finish(
        partitions_of().create(view_of(IMAGE), request(wanted("a", 3), validate_only=True))
    )
    assert result.records == []
    assert result.response.results[0].error_code == ErrorCode.NONE
