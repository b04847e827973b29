"""The metadata topic of remote segments on one broker, in virtual time."""

from __future__ import annotations

import pytest

from barnabas.metadata.configs_image import TOPIC
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.log_offsets import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas.protocol.messages.topics import DeleteTopicsRequest
from barnabas.protocol.records.remote_log import (
    RemoteLogSegmentMetadataSnapshotRecord,
    RemotePartitionDeleteMetadataRecord,
)
from barnabas.server.remote.metadata_events import EVENT_BYTES_MAX
from barnabas.storage.remote.config import MetadataTopicConfig
from barnabas.storage.remote.segment_states import Applied
from barnabas.storage.remote_keys import REMOTE_LOG_TOPIC
from barnabas.storage.topic_partition import TopicIdPartition
from unit.server.remote.metadata_broker import (
    GZIP,
    OTHER,
    MetadataBroker,
    attach,
    copied,
    encoded,
)
from unit.storage.remote.remote_log_stories import WHERE, id_entry, start, update

THIRD = TopicIdPartition(b"third-topic-id..", "third", 1)


@pytest.fixture
def broker() -> MetadataBroker:
    """A broker whose metadata topic has one partition."""
    return MetadataBroker()


def delete_topic(broker: MetadataBroker) -> None:
    request = DeleteTopicsRequest(topic_names=[REMOTE_LOG_TOPIC], timeout_ms=30_000)
    assert broker.broker.ask(request, 5).responses[0].error_code == 0


def test_the_first_partition_creates_the_topic() -> None:
    config = MetadataTopicConfig(remote_log_metadata_topic_num_partitions=7)
    broker = MetadataBroker(config)
    cluster = broker.broker.node.shared.cluster
    broker.run_for(5_000)
    assert cluster.partition_count(REMOTE_LOG_TOPIC) == 0
    broker.assign(WHERE)
    assert cluster.partition_count(REMOTE_LOG_TOPIC) == 7
    assert dict(cluster.image.configs.get(TOPIC, REMOTE_LOG_TOPIC)) == {
        "cleanup.policy": "delete",
        # The defaults are 3 replicas and 2 in sync; this cluster has one broker.
        "min.insync.replicas": "1",
        "remote.storage.enable": "false",
        "retention.ms": "-1",
    }


def test_nothing_happens_before_the_start(broker: MetadataBroker) -> None:
    cluster = broker.broker.node.shared.cluster
    metadata = attach(broker.broker.node, broker.config)
    metadata.assign([WHERE])
    broker.run_for(5_000)
    assert cluster.partition_count(REMOTE_LOG_TOPIC) == 0
    metadata.start()
    broker.until(lambda: metadata.log_of(WHERE) is not None)


def test_one_image_with_the_topic_is_enough(broker: MetadataBroker) -> None:
    metadata = attach(broker.broker.node, broker.config, follows_images=False)
    metadata.start()
    metadata.assign([WHERE])
    broker.until(lambda: broker.broker.node.shared.cluster.partition_count(REMOTE_LOG_TOPIC) == 1)
    metadata.on_image()
    broker.until(lambda: metadata.log_of(WHERE) is not None)


def test_a_published_event_is_read_again(broker: MetadataBroker) -> None:
    broker.assign(WHERE)
    applied = broker.publish(start("A", (0, 9), [(0, 0)]))
    assert isinstance(applied, Applied)
    assert applied.was_allowed
    log = broker.metadata.log_of(WHERE)
    assert log is not None
    assert log.segments() == [applied.segment]
    assert broker.publish(update("A", 1)).was_allowed
    assert log.segment_at(0, 5) is not None
    assert broker.metadata.segment_count == 1


def test_the_publisher_learns_that_its_event_was_dropped(broker: MetadataBroker) -> None:
    broker.assign(WHERE)
    assert broker.publish(update("A", 1)) == Applied(None, False)
    # Another broker was faster.
    broker.write(encoded(start("B", (0, 9), [(0, 0)])), encoded(update("B", 2)))
    assert not broker.publish(update("B", 1)).was_allowed
    assert broker.metadata.dropped == 2


def test_a_partition_that_is_not_ready_publishes_nothing(broker: MetadataBroker) -> None:
    record = start("A", (0, 9), [(0, 0)])
    assert broker.publish(record) is ErrorCode.REPLICA_NOT_AVAILABLE
    broker.metadata.assign([WHERE])
    assert broker.publish(record) is ErrorCode.REPLICA_NOT_AVAILABLE


def test_an_event_that_readers_would_skip_is_not_published(broker: MetadataBroker) -> None:
    broker.assign(WHERE)
    epochs = [(number, number) for number in range(EVENT_BYTES_MAX // 12)]
    record = start("A", (0, 1 << 40), epochs)
    assert broker.publish(record) is ErrorCode.MESSAGE_TOO_LARGE


def test_events_are_published_together(broker: MetadataBroker) -> None:
    broker.assign(WHERE, OTHER)
    outcome: list[object] = []
    for number in range(500):
        where = (WHERE, OTHER)[number % 2]
        first = number * 10
        record = start(f"s{number}", (first, first + 9), [(0, first)], where=where)
        broker.metadata.publish(where, record, outcome.append)
    broker.until(lambda: len(outcome) == 500)
    assert all(isinstance(each, Applied) and each.was_allowed for each in outcome)
    assert len(broker.names()) == len(broker.names(OTHER)) == 250
    assert broker.metadata.segment_count == 500


def test_the_metadata_is_read_again_after_a_restart(broker: MetadataBroker) -> None:
    broker.assign(WHERE)
    broker.write(*copied("A", 0), *copied("B", 10))
    broker.restart()
    assert broker.metadata.log_of(WHERE) is None
    broker.assign(WHERE)
    assert broker.names() == ["A", "B"]


def test_a_later_partition_catches_up(broker: MetadataBroker) -> None:
    broker.assign(WHERE)
    broker.write(*copied("A", 0), *copied("B", 0, OTHER))
    broker.until(lambda: broker.names() == ["A"])
    broker.assign(OTHER)
    assert broker.names(OTHER) == ["B"]
    assert broker.metadata.segment_count == 2
    # Both follow the topic from now on.
    broker.write(*copied("C", 10, OTHER), *copied("D", 10))
    broker.until(lambda: broker.names() == ["A", "D"])
    assert broker.names(OTHER) == ["B", "C"]


def test_partitions_catch_up_while_events_arrive(broker: MetadataBroker) -> None:
    broker.assign(WHERE)
    for number in range(20):
        broker.write(*copied(f"a{number:02}", number * 10), *copied(f"o{number:02}", 0, OTHER))
    broker.metadata.assign([OTHER])
    for number in range(20, 40):
        broker.write(*copied(f"a{number:02}", number * 10), *copied(f"o{number:02}", 0, OTHER))
        broker.metadata.assign([THIRD] if number == 30 else [])
    broker.write(*copied("last", 0, THIRD))
    broker.until(lambda: broker.names(THIRD) == ["last"])
    assert len(broker.names()) == len(broker.names(OTHER)) == 40
    assert broker.metadata.segment_count == 81


def test_a_partition_may_leave_while_it_catches_up(broker: MetadataBroker) -> None:
    broker.assign(WHERE)
    broker.write(*copied("A", 0), *copied("B", 0, OTHER))
    broker.until(lambda: broker.names() == ["A"])
    called: list[str] = []
    broker.metadata.assign([OTHER, THIRD])
    broker.metadata.on_ready(OTHER, lambda: called.append("other"))
    broker.metadata.on_ready(THIRD, lambda: called.append("third"))
    broker.metadata.unassign([OTHER])
    broker.until(lambda: bool(called))
    broker.run_for(1_000)
    assert called == ["third"]
    assert broker.metadata.log_of(OTHER) is None
    assert broker.metadata.segment_count == 1


def test_a_forgotten_partition_is_read_again_when_it_comes_back(broker: MetadataBroker) -> None:
    broker.assign(WHERE, OTHER)
    broker.write(*copied("A", 0), *copied("B", 0, OTHER))
    broker.until(lambda: broker.names() == ["A"])
    broker.metadata.unassign([WHERE])
    assert broker.metadata.log_of(WHERE) is None
    assert broker.metadata.segment_count == 1
    broker.assign(WHERE)
    assert broker.names() == ["A"]
    broker.metadata.unassign([WHERE, OTHER])
    assert broker.metadata.segment_count == 0
    broker.assign(OTHER)
    assert broker.names(OTHER) == ["B"]


def test_callbacks_of_ready_partitions(broker: MetadataBroker) -> None:
    called: list[str] = []
    broker.metadata.on_ready(WHERE, lambda: called.append("not assigned"))
    broker.metadata.assign([WHERE])
    broker.metadata.on_ready(WHERE, lambda: called.append("later"))
    assert not called
    broker.until(lambda: bool(called))
    broker.metadata.on_ready(WHERE, lambda: called.append("at once"))
    assert called == ["later", "at once"]


def test_events_of_a_forgotten_partition_fail(broker: MetadataBroker) -> None:
    broker.assign(WHERE)
    outcome: list[object] = []
    broker.metadata.publish(WHERE, start("A", (0, 9), [(0, 0)]), outcome.append)
    broker.metadata.unassign([WHERE])
    broker.until(lambda: bool(outcome))
    broker.run_for(5_000)
    assert outcome == [ErrorCode.REPLICA_NOT_AVAILABLE]


def test_an_event_that_is_not_read_again_in_time_fails() -> None:
    broker = MetadataBroker(
        MetadataTopicConfig(
            remote_log_metadata_topic_num_partitions=1, remote_log_metadata_consume_wait_ms=3_000
        )
    )
    broker.assign(WHERE)
    delete_topic(broker)
    assert broker.publish(start("A", (0, 9), [(0, 0)])) is ErrorCode.REQUEST_TIMED_OUT


def hostile_values() -> dict[str, bytes | None]:
    event = encoded(start("X", (0, 9), [(0, 0)]))
    no_event = RemotePartitionDeleteMetadataRecord(
        topic_id_partition=id_entry("X").topic_id_partition,
        broker_id=1,
        event_timestamp_ms=1,
        remote_partition_delete_state=2,
    )
    snapshot = RemoteLogSegmentMetadataSnapshotRecord(
        segment_id=bytes(16),
        start_offset=0,
        end_offset=9,
        broker_id=1,
        max_timestamp_ms=1,
        event_timestamp_ms=1,
        segment_leader_epochs=[],
        segment_size_in_bytes=1,
        remote_log_segment_state=1,
    )
    many_epochs = [(number, number) for number in range(EVENT_BYTES_MAX // 12)]
    return {
        "null": None,
        "empty": b"",
        "text": b"hello",
        "one byte": b"\x01",
        "another frame version": b"\x02" + event[1:],
        "another record type": b"\x01\x07" + event[2:],
        "another record version": event[:2] + b"\x05" + event[3:],
        "truncated": event[:-1],
        "truncated in the partition": event[:20],
        "bytes too many": event + b"\0",
        "a name that is longer than the event": event[:3] + b"\xff\xff\xff\xff\x0f" + event[4:],
        "a name that is no text": event.replace(b"orders", b"\xff\xfe\xfd\xfc\xfb\xfa"),
        "an event that is too large": encoded(start("X", (0, 1 << 40), many_epochs)),
        "the deletion of the partition": encoded(no_event),
        "a snapshot": encoded(snapshot),
    }


HOSTILE = hostile_values()
HARMLESS = ("the deletion of the partition", "a snapshot")


@pytest.mark.parametrize("case", HOSTILE)
def test_a_record_that_is_no_event_is_skipped(broker: MetadataBroker, case: str) -> None:
    broker.assign(WHERE)
    broker.write(*copied("A", 0), HOSTILE[case], *copied("B", 10))
    broker.until(lambda: broker.names() == ["A", "B"])
    assert broker.metadata.skipped == (0 if case in HARMLESS else 1)
    broker.restart()
    broker.assign(WHERE)
    assert broker.names() == ["A", "B"]


def test_compressed_events_are_read(broker: MetadataBroker) -> None:
    broker.assign(WHERE)
    broker.write(*copied("A", 0), compression=GZIP)
    broker.write(*copied("B", 10), b"garbage", *copied("C", 20), compression=GZIP)
    broker.until(lambda: broker.names() == ["A", "B", "C"])
    assert broker.metadata.skipped == 1


def test_many_events_are_read_in_steps(broker: MetadataBroker) -> None:
    broker.assign(WHERE)
    for part in range(10):
        firsts = range(part * 1000, part * 1000 + 1000, 10)
        broker.write(*(value for first in firsts for value in copied(f"{first:06}", first)))
    broker.until(lambda: len(broker.names()) == 1_000)
    broker.assign(OTHER)


def test_the_metadata_may_begin_above_offset_0(broker: MetadataBroker) -> None:
    broker.assign(WHERE)
    broker.write(*copied("A", 0), *copied("B", 10))
    broker.until(lambda: broker.names() == ["A", "B"])
    partition = DeleteRecordsPartition(partition_index=0, offset=2)
    asked = DeleteRecordsTopic(name=REMOTE_LOG_TOPIC, partitions=[partition])
    response = broker.broker.ask(DeleteRecordsRequest(topics=[asked], timeout_ms=1000), 2)
    assert response.topics[0].partitions[0].error_code == 0
    # A catch-up and a new tail meet the new start.
    broker.assign(OTHER)
    broker.metadata.unassign([WHERE])
    broker.assign(WHERE)
    assert broker.names() == ["B"]
    broker.restart()
    broker.assign(WHERE)
    assert broker.names() == ["B"]


def test_a_topic_that_was_created_again_is_read_from_its_start(broker: MetadataBroker) -> None:
    broker.assign(WHERE)
    broker.write(*copied("A", 0))
    broker.until(lambda: broker.names() == ["A"])
    delete_topic(broker)
    broker.run_for(1_000)
    assert broker.names() == ["A"]
    broker.broker.make_topic(REMOTE_LOG_TOPIC)
    broker.until(lambda: broker.metadata.log_of(WHERE) is not None and not broker.names())
    assert broker.metadata.segment_count == 0
    assert broker.publish(start("B", (0, 9), [(0, 0)])).was_allowed


def test_a_topic_with_another_number_of_partitions_is_not_read(
    broker: MetadataBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.broker.make_topic(REMOTE_LOG_TOPIC, partitions=3)
    broker.metadata.assign([WHERE])
    broker.run_for(5_000)
    assert broker.metadata.log_of(WHERE) is None
    problem = (
        "the topic __remote_log_metadata has 3 partitions, but "
        "remote.log.metadata.topic.num.partitions is 1"
    )
    assert broker.metadata.problem == problem
    assert [each for each in caplog.messages if problem in each] == [
        f"Segments are neither copied nor read: {problem}"
    ]


def test_segments_of_deleted_topics_are_found(broker: MetadataBroker) -> None:
    broker.assign(WHERE)
    gone = [encoded(update("D", 2, where=THIRD)), encoded(update("D", 3, where=THIRD))]
    broker.write(*copied("A", 0), *copied("B", 0, OTHER), *copied("D", 0, THIRD), *gone)
    found: list[list[TopicIdPartition]] = []
    index = broker.metadata.partition_of(WHERE)
    broker.metadata.find_deleted(index, lambda topic_id: topic_id == WHERE.topic_id, found.append)
    broker.until(lambda: bool(found))
    # The third topic has no segment any more.
    assert found == [[OTHER]]
    broker.metadata.find_deleted(index, lambda _: True, found.append)
    broker.until(lambda: len(found) == 2)
    assert found[1] == []


def test_segments_of_deleted_topics_are_found_in_an_empty_topic(broker: MetadataBroker) -> None:
    broker.assign(WHERE)
    found: list[list[TopicIdPartition]] = []
    broker.metadata.find_deleted(0, lambda _: False, found.append)
    broker.until(lambda: bool(found))
    assert found == [[]]


def test_a_closed_reader_makes_no_calls(broker: MetadataBroker) -> None:
    broker.assign(WHERE)
    broker.write(*copied("B", 10))
    broker.until(lambda: broker.names() == ["B"])
    outcome: list[object] = []
    broker.metadata.publish(WHERE, start("A", (0, 9), [(0, 0)]), outcome.append)
    broker.metadata.find_deleted(0, lambda _: False, outcome.append)
    broker.metadata.assign([OTHER])
    broker.metadata.on_ready(OTHER, lambda: outcome.append("ready"))
    broker.metadata.close()
    broker.run_for(200_000)
    assert not outcome
