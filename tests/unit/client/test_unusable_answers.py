"""Well-formed responses with unusable content: an error or a backoff, never a hang."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.client.connections.connections import deliver_response
from barnabas.client.connections.lookups import Coordinators
from barnabas.client.connections.metadata_cache import MetadataCache
from barnabas.client.errors import (
    BrokerError,
    ClientError,
    UnusableResponseError,
    broker_error,
)
from barnabas.client.fetch.offset_lookups import LATEST, OffsetLookup
from barnabas.client.fetch.record_set import scan_records
from barnabas.client.group.group_leader import read_assignment
from barnabas.client.group.group_offsets import CommittedOffset, GroupOffsets
from barnabas.client.producer.producer_identity import ProducerIdentity
from barnabas.client.topic_partition import TopicPartition
from barnabas.protocol.codec import encode_bytes
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.committed_offsets import OffsetCommitResponse
from barnabas.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from barnabas.protocol.messages.log_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from barnabas.protocol.messages.metadata import (
    Coordinator,
    FindCoordinatorResponse,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from barnabas.protocol.messages.transactions import InitProducerIdResponse
from barnabas.protocol.records.consumer_protocol_assignment import (
    ConsumerProtocolAssignment,
    TopicPartition as AssignedTopic,
)
from unit.client.fetch.started_fetcher import TP, VERSION, answer, batch, fetching, started
from unit.client.scripted_cluster import TOPIC_ID, ScriptedCluster

# Of a broker that is newer than this client.
FUTURE = 9_999
UNKNOWN = [FUTURE, -2, 32_767, -32_768]


@pytest.mark.parametrize("code", UNKNOWN)
def test_an_unknown_error_code_is_an_unknown_error_with_its_number(code: int) -> None:
    error = broker_error(code, "fetch from t-0")
    assert (error.error_code, error.retriable) == (ErrorCode.UNKNOWN_SERVER_ERROR, False)
    assert f"error code {code}" in str(error)


def test_a_response_that_the_caller_cannot_use_ends_in_an_error() -> None:
    told: list[tuple[object, ClientError | None]] = []

    def on_done(response: object, error: ClientError | None) -> None:
        told.append((response, error))
        if response is not None:
            raise KeyError("t")

    deliver_response(on_done, "a response", "FETCH", "h:1")
    (first, (nothing, error)) = told
    assert first == ("a response", None)
    assert nothing is None
    assert isinstance(error, UnusableResponseError)
    assert "h:1: its response to FETCH cannot be used (KeyError: 't')" in str(error)


def brokers(*given: tuple[int, str, int]) -> MetadataResponse:
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=n, host=h, port=p) for n, h, p in given], topics=[]
    )


def test_brokers_with_an_invalid_address_are_left_out() -> None:
    cache = MetadataCache()
    cache.update(
        brokers((1, "h", 9092), (-1, "h", 9092), (2, "", 1), (3, "h", 0), (4, "h", 70_000)), None
    )
    assert list(cache.nodes) == [1]


def topic_of(*numbers: int) -> MetadataResponse:
    partitions = [
        MetadataResponsePartition(
            error_code=0,
            partition_index=number,
            leader_id=1,
            leader_epoch=0,
            replica_nodes=[1],
            isr_nodes=[1],
            offline_replicas=[],
        )
        for number in numbers
    ]
    topic = MetadataResponseTopic(name="t", topic_id=TOPIC_ID, error_code=0, partitions=partitions)
    return MetadataResponse(brokers=[], topics=[topic])


@pytest.mark.parametrize("numbers", [(), (-1, 0), (0, 0), (0, 2), (1,), (0, 2**31 - 1)])
def test_partitions_with_invalid_numbers_make_the_topic_unusable(numbers: tuple[int, ...]) -> None:
    cache = MetadataCache()
    cache.update(topic_of(*numbers), ["t"])
    assert cache.topics == {}
    assert cache.errors == {"t": ErrorCode.UNKNOWN_SERVER_ERROR}
    cache.update(topic_of(1, 0), ["t"])
    assert set(cache.topics["t"].partitions) == {0, 1}
    assert cache.errors == {}
    cache.update(topic_of(*numbers), ["t"])
    assert set(cache.topics["t"].partitions) == {0, 1}


def found_by(cluster: ScriptedCluster) -> tuple[Any, list[Any], Coordinators]:
    stands_in: Any = cluster
    coordinators = Coordinators(stands_in)
    ended: list[Any] = []
    coordinators.find("g", lambda node_id, error: ended.append(error or node_id))
    return cluster.take(4)[1], ended, coordinators


def coordinator(node_id: int, key: str = "g", code: int = 0) -> FindCoordinatorResponse:
    found = Coordinator(
        key=key, node_id=node_id, host="h", port=1, error_code=code, error_message=None
    )
    return FindCoordinatorResponse(coordinators=[found])


@pytest.mark.parametrize("node_id", [-1, 99])
def test_a_coordinator_missing_in_the_metadata_is_looked_up_again(node_id: int) -> None:
    reply, ended, coordinators = found_by(ScriptedCluster())
    reply(coordinator(node_id))
    (error,) = ended
    assert error.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert error.retriable
    assert coordinators.known("g") is None


def test_a_response_for_another_group_is_an_error() -> None:
    reply, ended, coordinators = found_by(ScriptedCluster())
    reply(coordinator(1, key="other"))
    (error,) = ended
    assert error.retriable
    assert coordinators.known("g") is None


@pytest.mark.parametrize("code", UNKNOWN)
def test_an_unknown_error_of_a_coordinator_ends_the_call(code: int) -> None:
    reply, ended, _coordinators = found_by(ScriptedCluster())
    reply(coordinator(-1, code=code))
    (error,) = ended
    assert isinstance(error, BrokerError)
    assert not error.retriable


def looked_up() -> tuple[ScriptedCluster, Any, list[Any]]:
    cluster = ScriptedCluster()
    stands_in: Any = cluster
    ended: list[Any] = []
    OffsetLookup(
        stands_in, {TP: LATEST}, 0, 5_000, lambda found, error: ended.append(error or found)
    ).start()
    return cluster, cluster.take(7)[1], ended


@pytest.mark.parametrize("others", [[], [TopicPartition("u", 0)]])
def test_a_partition_missing_in_the_offsets_response_is_an_error(
    others: list[TopicPartition],
) -> None:
    _cluster, reply, ended = looked_up()
    topics = [
        ListOffsetsTopicResponse(
            name=tp.topic,
            partitions=[
                ListOffsetsPartitionResponse(
                    partition_index=tp.partition, error_code=FUTURE, offset=1
                )
            ],
        )
        for tp in others
    ]
    reply(ListOffsetsResponse(topics=topics))
    (error,) = ended
    assert isinstance(error, BrokerError)
    assert "offsets of t-0" in str(error)
    assert "no response" in str(error)


def test_an_unknown_error_for_an_offset_is_raised() -> None:
    _cluster, reply, ended = looked_up()
    partition = ListOffsetsPartitionResponse(partition_index=0, error_code=FUTURE, offset=-1)
    reply(ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[partition])]))
    (error,) = ended
    assert f"error code {FUTURE}" in str(error)


def test_a_commit_fails_if_a_partition_is_missing_in_the_response() -> None:
    cluster: Any = ScriptedCluster()
    ended: list[Any] = []
    GroupOffsets(cluster, Coordinators(cluster)).commit(
        *("g", {TP: CommittedOffset(1)}, {}, 5_000),
        lambda done, error: ended.append(error or done),
    )
    cluster.take(4)[1](coordinator(1))
    cluster.take(9)[1](OffsetCommitResponse(topics=[]))
    (error,) = ended
    assert "commit of t-0 in group g" in str(error)
    assert "missing in the response" in str(error)


@pytest.mark.parametrize("code", UNKNOWN)
def test_an_unknown_error_of_a_fetched_partition_is_raised(code: int) -> None:
    cluster, fetcher = fetching()
    cluster.take(VERSION)[1](answer(code=code))
    item: Any = fetcher.take()
    assert f"error code {code}" in str(item.error)
    assert not cluster.calls


@pytest.mark.parametrize("code", UNKNOWN)
def test_an_unknown_error_of_a_whole_fetch_is_followed_by_another_after_a_back_off(
    code: int,
) -> None:
    cluster, _fetcher = fetching()
    cluster.take(VERSION)[1](FetchResponse(error_code=code, responses=[]))
    assert not cluster.calls
    cluster.time.advance(200)
    assert len(cluster.calls) == 1


def test_an_unknown_preferred_replica_is_retried_after_a_backoff() -> None:
    cluster, _fetcher = fetching()
    partition = PartitionData(
        partition_index=0, error_code=0, high_watermark=9, preferred_read_replica=77, records=b""
    )
    topic = FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[partition])
    cluster.take(VERSION)[1](FetchResponse(session_id=7, responses=[topic]))
    assert not cluster.calls
    assert cluster.updates_requested == 1
    cluster.time.advance(200)
    assert cluster.called == [1, 1]


def test_records_before_the_position_are_requested_again_after_a_backoff() -> None:
    cluster, fetcher = fetching(50)
    cluster.take(VERSION)[1](answer(batch(0, 5)))
    assert not cluster.calls
    assert not fetcher.buffer
    cluster.time.advance(200)
    assert len(cluster.calls) == 1


def test_a_range_without_progress_fails_after_the_timeout() -> None:
    cluster = ScriptedCluster(default_api_timeout_ms=2_000)
    fetcher = started(cluster, 50, end=60)
    for _ in range(60):
        if cluster.calls:
            cluster.take(VERSION)[1](answer(batch(0, 5)))
        cluster.time.advance(100)
    item: Any = fetcher.take()
    assert isinstance(item.error, BrokerError)
    assert not cluster.calls


@pytest.mark.parametrize(("position", "value"), [(0, b"\xff" * 8), (0, b"\x7f" + b"\xff" * 7)])
def test_invalid_offsets_are_malformed(position: int, value: bytes) -> None:
    data = bytearray(batch(0, 5) + batch(5, 5))
    start = len(batch(0, 5)) + position
    data[start : start + len(value)] = value
    scan = scan_records(bytes(data), check_crcs=True)
    assert (scan.next_offset, len(scan.batches)) == (5, 1)
    assert scan.invalid is not None
    assert scan.invalid.reason == "invalid offsets"


def test_a_batch_that_ends_before_it_begins_is_malformed() -> None:
    data = bytearray(batch(3, 5))
    data[23:27] = (-4).to_bytes(4, "big", signed=True)
    scan = scan_records(bytes(data), check_crcs=False)
    assert (scan.next_offset, scan.batches) == (-1, [])
    assert scan.invalid is not None


def assignment(*numbers: int) -> bytes:
    message = ConsumerProtocolAssignment(
        assigned_partitions=[AssignedTopic(topic="t", partitions=list(numbers))], user_data=None
    )
    return b"\x00\x03" + encode_bytes(message, 3)


def test_a_partition_that_is_assigned_twice_counts_once() -> None:
    assert list(read_assignment(assignment(1, 0, 1)).partitions) == [
        TopicPartition("t", 1),
        TopicPartition("t", 0),
    ]


def test_a_negative_partition_makes_an_assignment_unusable() -> None:
    with pytest.raises(Exception, match="invalid partition -1"):
        read_assignment(assignment(0, -1))


@pytest.mark.parametrize(("producer_id", "epoch"), [(-1, 0), (5, -1), (-1, -1)])
def test_an_invalid_producer_id_is_an_error(producer_id: int, epoch: int) -> None:
    cluster: Any = ScriptedCluster()
    ready: list[bool] = []
    identity = ProducerIdentity(cluster, lambda: ready.append(True))
    identity.request()
    cluster.take(4)[1](
        InitProducerIdResponse(error_code=0, producer_id=producer_id, producer_epoch=epoch)
    )
    assert not identity.is_ready
    assert isinstance(identity.error, BrokerError)
    assert ready == [True]
