"""An unexpected error in one partition is its error in the response, logged with traceback."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.log_offsets import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.storage.topic_partition import TopicPartition
from unit.server.handlers.fetch_requests import errors, fetch, named, part
from unit.server.simulated_broker import SimulatedBroker, SimulatedClient

if TYPE_CHECKING:
    from barnabas.replication.partition.partition import Partition

BAD, GOOD = TopicPartition("t", 0), TopicPartition("t", 1)
OURS = ErrorCode.UNKNOWN_SERVER_ERROR


class RaisingLog:
    """A log of which chosen methods and attributes raise an unexpected error."""

    def __init__(self, log: Any, *raising: str) -> None:
        self._log = log
        self._raising = raising

    def __getattr__(self, name: str) -> Any:
        if name in self._raising:
            raise RuntimeError(f"{name} is not foreseen")
        return getattr(self._log, name)


@pytest.fixture
def broker() -> SimulatedBroker:
    made = SimulatedBroker()
    made.make_topic("t", 2)
    made.produce("t", b"a record")
    return made


def partition(broker: SimulatedBroker, key: TopicPartition = BAD) -> Partition:
    found = broker.node.broker.replicas.partition(key)
    assert not isinstance(found, ErrorCode)
    return found


def break_log(broker: SimulatedBroker, *raising: str) -> None:
    broken = partition(broker)
    broken._state.log = RaisingLog(broken.log, *raising)  # type: ignore[assignment]


def counts(broker: SimulatedBroker) -> Any:
    return broker.node.broker.replicas.metrics.topics["t"]


def assert_told(caplog: pytest.LogCaptureFixture, times: int = 1) -> None:
    """The traceback, and the partition's name beside it."""
    told = [each for each in caplog.records if each.exc_info is not None]
    assert len(told) == times
    assert all("t-0" in each.getMessage() for each in told)


def test_an_unexpected_error_of_a_read_fails_only_its_partition(
    broker: SimulatedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    break_log(broker, "reader")
    answer = broker.ask(fetch([named("t", part(0), part(1)), named("t")], 0, 0), 12)
    assert errors(answer) == [("t", 0, OURS), ("t", 1, ErrorCode.NONE)]
    assert counts(broker).failed_fetch_requests == 1
    assert_told(caplog)


def test_an_unexpected_error_of_an_append_fails_only_its_partition(
    broker: SimulatedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    break_log(broker, "appender")
    data = [PartitionProduceData(index=each, records=broker.batch(b"x")) for each in (0, 1)]
    request = ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout_ms=1_000,
        topic_data=[TopicProduceData(name="t", partition_data=data)],
    )
    (topic,) = broker.ask(request, 9).responses
    found = {each.index: each.error_code for each in topic.partition_responses}
    assert found == {0: OURS, 1: ErrorCode.NONE}
    assert partition(broker, GOOD).log.log_end_offset == 1
    assert counts(broker).failed_produce_requests == 1
    assert_told(caplog)


@pytest.mark.parametrize("timestamp", [-1, -2, -3, 1])
def test_an_unexpected_error_of_list_offsets_fails_only_its_partition(
    broker: SimulatedBroker, caplog: pytest.LogCaptureFixture, timestamp: int
) -> None:
    break_log(
        broker, "high_watermark", "leader_epochs", "max_timestamp_offset", "offset_for_timestamp"
    )
    asked = [
        ListOffsetsPartition(partition_index=each, current_leader_epoch=-1, timestamp=timestamp)
        for each in (0, 1)
    ]
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=asked)]
    )
    (topic,) = broker.ask(request, 7).topics
    found = {each.partition_index: each.error_code for each in topic.partitions}
    assert found == {0: OURS, 1: ErrorCode.NONE}
    assert_told(caplog)


def test_an_unexpected_error_of_list_offsets_v0_fails_only_its_partition(
    broker: SimulatedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    break_log(broker, "segments")
    asked = [
        ListOffsetsPartition(partition_index=each, timestamp=-1, max_num_offsets=1)
        for each in (0, 1)
    ]
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=asked)]
    )
    (topic,) = broker.ask(request, 0).topics
    found = {each.partition_index: each.error_code for each in topic.partitions}
    assert found == {0: OURS, 1: ErrorCode.NONE}
    assert_told(caplog)


def test_an_unexpected_error_of_an_epoch_end_fails_only_its_partition(
    broker: SimulatedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    break_log(broker, "end_offset_for_epoch")
    asked = [
        OffsetForLeaderPartition(partition=each, current_leader_epoch=-1, leader_epoch=0)
        for each in (0, 1)
    ]
    request = OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[OffsetForLeaderTopic(topic="t", partitions=asked)]
    )
    (topic,) = broker.ask(request, 4).topics
    found = {each.partition: each.error_code for each in topic.partitions}
    assert found == {0: OURS, 1: ErrorCode.NONE}
    assert_told(caplog)


def test_an_unexpected_error_of_delete_records_fails_only_its_partition(
    broker: SimulatedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    break_log(broker, "maybe_increment_log_start_offset")
    asked = [DeleteRecordsPartition(partition_index=each, offset=0) for each in (0, 1)]
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name="t", partitions=asked)], timeout_ms=1_000
    )
    (topic,) = broker.ask(request, 2).topics
    found = {each.partition_index: each.error_code for each in topic.partitions}
    assert found == {0: OURS, 1: ErrorCode.NONE}
    assert_told(caplog)


def test_an_unexpected_error_of_a_delayed_fetch_does_not_fail_the_producer(
    broker: SimulatedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """The append succeeds and is answered; the fetch has the error of its partition."""
    reader = SimulatedClient(broker.world, "reader")
    waiting = reader.send(fetch([named("t", part(0, 1), part(1))], 1_000, 20_000), 12)
    broker.world.run_for(50)
    assert waiting == []
    break_log(broker, "reader", "read")
    assert broker.produce("t", b"another").error_code == ErrorCode.NONE
    assert broker.world.run_until(lambda: bool(waiting))
    answer, failure = waiting[0]
    assert failure is None
    assert errors(answer) == [("t", 0, OURS), ("t", 1, ErrorCode.NONE)]
    assert any("in a waiting fetch" in each.getMessage() for each in caplog.records)


def test_an_unexpected_error_of_a_metadata_listener_does_not_affect_others(
    broker: SimulatedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """Later listeners get the same image, and the node continues."""
    heard: list[int] = []

    def failing(_: object) -> None:
        raise RuntimeError("not foreseen")

    follower = broker.node.broker.follower
    follower.on_changes.append(failing)
    follower.on_changes.append(lambda changes: heard.append(len(changes.leaders)))
    broker.make_topic("more", 3)
    assert heard == [3]
    assert broker.produce("more", b"x").error_code == ErrorCode.NONE
    assert broker.failures == []
    assert "RuntimeError: not foreseen" in caplog.text
    name = "kafka.server:broker-metadata-metrics:metadata-apply-error-count"
    (family,) = [each for each in broker.node.observation.registry.families() if each.name == name]
    assert [value for _, value in family.samples] == [1]
