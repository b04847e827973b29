"""DescribeLogDirs and AlterReplicaLogDirs by raw request, on a broker with one data directory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
    DescribableLogDirTopic,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResult,
)
from conformance.conftest import SECONDS
from waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from conformance.raw_client import RawClient


def describe(
    raw: RawClient, topic: str, partitions: list[int], version: int = 5
) -> list[DescribeLogDirsResult]:
    topics = [DescribableLogDirTopic(topic=topic, partitions=partitions)]
    response = raw.ask(DescribeLogDirsRequest(topics=topics), version)
    assert response.error_code == 0
    return response.results


def found_in(results: list[DescribeLogDirsResult]) -> dict[int, DescribeLogDirsPartition]:
    return {
        each.partition_index: each
        for result in results
        for topic in result.topics
        for each in topic.partitions
    }


def directory_of(raw: RawClient, topic: str, partition: int = 0) -> str:
    """Return the directory of a replica; Kafka creates it after the topic."""
    return eventually(
        lambda: next(
            (each.log_dir for each in describe(raw, topic, [partition]) if each.topics), ""
        )
    )


def alter(raw: RawClient, path: str, topic: str, partition: int, version: int = 2) -> int:
    topics = [AlterReplicaLogDirTopic(name=topic, partitions=[partition])]
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=topics)])
    return raw.ask(request, version).results[0].partitions[0].error_code


@pytest.mark.parametrize("version", [1, 2, 3, 4, 5])
def test_directories_are_described_with_their_replicas(
    raw: RawClient, bootstrap: str, make_topic: Callable[..., str], version: int
) -> None:
    topic = make_topic(2)
    for partition in (0, 1):
        directory_of(raw, topic, partition)
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, bytes(1000), partition=1)
    assert producer.flush(SECONDS) == 0
    results = describe(raw, topic, [0, 1, 7], version)
    assert all(each.error_code == 0 and each.log_dir.startswith("/") for each in results)
    found = found_in(results)
    assert sorted(found) == [0, 1]
    assert found[0].partition_size == 0
    assert 1000 < found[1].partition_size < 1200
    assert not any(each.is_future_key or each.offset_lag for each in found.values())
    if version >= 4:
        assert all(each.total_bytes >= each.usable_bytes > 0 for each in results)
    else:
        assert {each.total_bytes for each in results} == {-1}
    assert not any(each.is_cordoned for each in results)


def test_all_partitions_are_described_and_none_of_an_unknown_topic(
    raw: RawClient, topic: str
) -> None:
    results = raw.ask(DescribeLogDirsRequest(topics=None), 5).results
    assert topic in {each.name for result in results for each in result.topics}
    assert not found_in(describe(raw, "conformance-nowhere", [0]))
    assert not any(each.topics for each in raw.ask(DescribeLogDirsRequest(topics=[]), 5).results)


@pytest.mark.parametrize("version", [1, 2])
def test_a_replica_is_assigned_to_a_directory(raw: RawClient, topic: str, version: int) -> None:
    here = directory_of(raw, topic)
    assert alter(raw, here, topic, 0, version) == ErrorCode.NONE
    assert alter(raw, "/nowhere", topic, 0, version) == ErrorCode.LOG_DIR_NOT_FOUND
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert alter(raw, here, topic, 5, version) == unknown
    assert alter(raw, here, "conformance-nowhere", 0, version) == unknown


def test_a_name_too_long_for_a_future_replica_is_refused(
    raw: RawClient, topic: str, long_name: str
) -> None:
    here = describe(raw, topic, [0])[0].log_dir
    assert alter(raw, here, long_name, 0) == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.fixture
def long_name() -> str:
    """A legal name for which `<name>-<partition>.<32 digits>-future` has more than 255 bytes."""
    return "x" * 249
