"""Fills directories of both brokers by the same requests, and describes their responses."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from barnabas.protocol.messages.committed_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from barnabas.protocol.messages.configs import (
    AlterableConfig,
    AlterClientQuotasRequest,
    AlterConfigsResource,
    DescribeClientQuotasRequest,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    EntityDataRequest,
    EntryDataRequest,
    IncrementalAlterConfigsRequest,
    OpData,
)
from barnabas.protocol.messages.connection import ApiVersionsRequest
from barnabas.protocol.messages.describe_transactions import DescribeProducersRequest, TopicRequest
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.groups import DeleteGroupsRequest, ListGroupsRequest
from barnabas.protocol.messages.log_dirs import DescribeLogDirsRequest
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
from barnabas.protocol.messages.metadata import FindCoordinatorRequest, MetadataRequest
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)
from barnabas.record.builder import BatchBuilder
from barnabas.record.reader import read_batches
from jvm.directory_requests import request_router
from waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from jvm.directory_requests import RequestRouter

NODE_ID = 1
ORDER_MS = 30_000
OFFSETS_TOPIC = "__consumer_offsets"
PLAIN, ROLLED, COMPACTED, STAMPED, TRIMMED = "plain", "rolled", "compacted", "stamped", "trimmed"
SHORT_LIVED = "short-lived"
PARTITIONS = {PLAIN: 3, ROLLED: 1, COMPACTED: 1, STAMPED: 2, TRIMMED: 1}
CONFIGS = {
    PLAIN: {"retention.ms": "-1", "max.message.bytes": "2000000"},
    ROLLED: {"segment.bytes": "1048576", "index.interval.bytes": "512"},
    COMPACTED: {
        "cleanup.policy": "compact",
        "segment.bytes": "1048576",
        "min.cleanable.dirty.ratio": "0.01",
    },
    STAMPED: {"message.timestamp.type": "LogAppendTime", "compression.type": "zstd"},
    TRIMMED: {"cleanup.policy": "compact,delete", "min.compaction.lag.ms": "3600000"},
}
BROKER_CONFIGS = {"": {"log.retention.ms": "90000000"}, str(NODE_ID): {"num.replica.fetchers": "2"}}
QUOTAS: tuple[tuple[list[tuple[str, str | None]], str, float], ...] = (
    ([("client-id", "slow")], "producer_byte_rate", 1e9),
    ([("user", None), ("client-id", None)], "consumer_byte_rate", 2e9),
    ([("ip", "10.0.0.1")], "connection_creation_rate", 5.0),
)
# The start offset of TRIMMED after DeleteRecords.
START = 5
GROUP, EXPLICIT, FADING, GONE = "readers", "explicit", "fading", "gone"
DYNAMIC_SOURCES = {1, 2, 3}
_TOPIC, _BROKER = 2, 4
_EARLIEST, _LATEST, _MAX_TIMESTAMP = -2, -1, -3

Description = dict[str, Any]


class Contents:
    """Writes to one broker after another, with more records each time.

    Args:
        bootstrap: the address of the first broker, or of all brokers of a cluster.
        replicas: the replication factor of all topics.
        start_ms: the timestamp of the first record. By default, all timestamps are within the last
            hour, so that no record is too old for retention.
        rounds: how often `write` was called before.
    """

    def __init__(
        self, bootstrap: str, replicas: int = 1, *, start_ms: int | None = None, rounds: int = 0
    ) -> None:
        self.bootstrap = bootstrap
        self._replicas = replicas
        self.start_ms = int(time.time() * 1000) - 3_600_000 if start_ms is None else start_ms
        self._round = rounds
        self._sequence = IdempotentSequence()

    def connect(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def fill(self) -> None:
        """Create one object of each kind."""
        with request_router(self.bootstrap) as send:
            create_topics(send, CONFIGS, self._replicas)
            create_topics(send, {SHORT_LIVED: {}}, self._replicas)
            self.write()
            deleted = send(DeleteTopicsRequest(topic_names=[SHORT_LIVED], timeout_ms=ORDER_MS), 4)
            assert [each.error_code for each in deleted.responses] == [0]
            _alter_configs(send)
            _alter_quotas(send)
            _trim(send, START)
            eventually(lambda: _is_applied(send), "configs, quotas or a deletion are not applied")
        self._write_groups()

    def write(self) -> None:
        """Write more records: in all compressions, in several segments, with a producer id."""
        start = self._round * 100
        self._round += 1
        with request_router(self.bootstrap) as send:
            for topic, partitions in PARTITIONS.items():
                for partition in range(partitions):
                    for compression in range(5):
                        builder = BatchBuilder(compression=compression)
                        self._append(builder, start + compression * 5, 5)
                        produce(send, topic, partition, builder)
            for number in range(24):
                large = BatchBuilder()
                self._append(large, start + 30 + (number * 7) % 24, 4, bytes(30_000))
                produce(send, ROLLED, 0, large)
                produce(send, COMPACTED, 0, large)
            self._sequence.produce_next(send, self.start_ms + start * 1000 + 99_000)

    def _append(
        self, builder: BatchBuilder, start: int, count: int, value: bytes | None = None
    ) -> None:
        for number in range(start, start + count):
            text = b"%d" % number
            builder.append(
                self.start_ms + number * 1000,
                # Keys of large values repeat, so that compaction removes records.
                b"key-%d" % (number if value is None else number % 10),
                text * 20 if value is None else value + text,
                [("n", text), ("none", None)],
            )

    def _write_groups(self) -> None:
        with request_router(self.bootstrap) as send:
            for group in (GROUP, EXPLICIT, FADING, GONE):
                assert send(FindCoordinatorRequest(key=group), 2).error_code == 0
            offsets = {0: (7, "here"), 1: (0, ""), 2: (3, "à")}
            commit(send, GROUP, offsets)
            commit(send, EXPLICIT, {0: (1, "")}, retention_ms=7_200_000)
            commit(send, FADING, {0: (1, "")}, retention_ms=1)
            commit(send, GONE, {0: (1, "")})
            deleted = send(DeleteGroupsRequest(groups_names=[GONE]), 2)
            assert [each.error_code for each in deleted.results] == [0]

    def await_periodic_work(self, directories: Sequence[Path]) -> None:
        """Wait until compaction, checkpoints and expiry have happened."""

        def is_compacted() -> bool:
            return any(is_cleaned(path, COMPACTED, 0) for path in directories)

        def is_trimmed() -> bool:
            starts = [path / "log-start-offset-checkpoint" for path in directories]
            return any(
                f"{TRIMMED} 0 {START}" in path.read_text() for path in starts if path.exists()
            )

        eventually(is_compacted, f"{COMPACTED} was not compacted")
        eventually(is_trimmed, f"no checkpoint has the start of {TRIMMED}")
        with request_router(self.bootstrap) as send:
            eventually(lambda: FADING not in _groups(send), f"{FADING} has not expired")

    def describe_contents(self) -> Description:
        """Return all observable contents of the broker."""
        with request_router(self.bootstrap) as send:
            topics = self.await_replicas(send)
            return {
                **{
                    f"{topic}-{index}": self._partition(send, topic, index)
                    for topic, count in PARTITIONS.items()
                    for index in range(count)
                },
                "topics": topics,
                "features": _features(send),
                "configs": _configs(send, [(_TOPIC, topic) for topic in PARTITIONS]),
                "broker configs": [_configs(send, [(_BROKER, name)]) for name in BROKER_CONFIGS],
                "quotas": _quotas(send),
                "groups": _groups(send),
                "directories": _directories(send),
            }

    def await_replicas(self, send: RequestRouter) -> dict[str, Any]:
        """Wait until all replicas are in sync, and return the description of the topics.

        Kafka opens its listener earlier.
        """

        def all_in_sync() -> dict[str, Any] | None:
            found = send.to_each(MetadataRequest(topics=None), 12)
            descriptions = [_topics(each.topics) for each in found]
            is_full = all(
                len(replicas) == len(isr) == self._replicas and not error
                for topics in descriptions
                for _, partitions in topics.values()
                for _, replicas, isr, error in partitions
            )
            return descriptions[0] if is_full else None

        descriptions = eventually(all_in_sync, "replicas are not in sync")
        for topic, count in PARTITIONS.items():
            for index in range(count):
                _list_offset(send, topic, index, _LATEST)
        return descriptions

    def _partition(self, send: RequestRouter, topic: str, index: int) -> dict[str, Any]:
        found = records(send, topic, index)
        if topic == COMPACTED and self._replicas > 1:
            # Each replica has different segments, and cleans only closed segments.
            last = {record.key: (epoch, record) for epoch, _, record in found}
            return {"last": last, "end": _list_offset(send, topic, index, _LATEST)[1]}
        return {
            "records": found,
            "epochs": [
                _epoch_end(send, topic, index, epoch)
                for epoch in sorted({each[0] for each in found})
            ],
            "times": [
                _list_offset(send, topic, index, at)
                for at in (_EARLIEST, _LATEST, _MAX_TIMESTAMP, *self._times(topic))
            ],
            "producers": _producers(send, topic, index),
        }

    def _times(self, topic: str) -> Iterable[int]:
        if topic == COMPACTED:
            # Kafka finds no record after a segment that compaction has emptied; Barnabas does.
            return ()
        return range(self.start_ms - 500, self.start_ms + self._round * 100_000, 9_500)

    def check_producer(self) -> None:
        """Check that the last batch of the producer is known, and that a gap is refused."""
        with request_router(self.bootstrap) as send:
            self._sequence.check(send)

    def append_torn_batch(self, directories: Iterable[Path]) -> None:
        """Append the beginning of a batch to a log, as after a crash."""
        for directory in directories:
            for segments in [sorted(directory.glob(f"{PLAIN}-1/*.log"))]:
                if segments and (content := segments[-1].read_bytes()):
                    with segments[-1].open("ab") as log:
                        log.write(content[:90])


class IdempotentSequence:
    """Records of one idempotent producer in one partition, across all brokers."""

    PRODUCER_ID, EPOCH, COUNT = 424_242, 3, 4

    def __init__(self) -> None:
        self._next = 0
        self._last_offset = -1
        self._last_timestamp = 0

    def _batch(self, sequence: int, timestamp: int) -> BatchBuilder:
        builder = BatchBuilder(
            producer_id=self.PRODUCER_ID, producer_epoch=self.EPOCH, base_sequence=sequence
        )
        for number in range(self.COUNT):
            builder.append(timestamp, b"%d" % number, b"idempotent")
        return builder

    def produce_next(self, send: RequestRouter, timestamp: int) -> None:
        self._last_timestamp = timestamp
        response = produce(send, PLAIN, 0, self._batch(self._next, timestamp))
        self._last_offset = response.base_offset
        self._next += self.COUNT

    def check(self, send: RequestRouter) -> None:
        last = self._batch(self._next - self.COUNT, self._last_timestamp)
        assert produce(send, PLAIN, 0, last).base_offset == self._last_offset
        beyond = self._batch(self._next + self.COUNT, self._last_timestamp)
        # OUT_OF_ORDER_SEQUENCE_NUMBER
        produce(send, PLAIN, 0, beyond, error_code=45)


def produce(
    send: RequestRouter,
    topic: str,
    partition: int,
    builder: BatchBuilder,
    error_code: int = 0,
) -> Any:
    """Append a batch, and return the response for the partition."""
    data = PartitionProduceData(index=partition, records=bytes(builder.build()))
    request = ProduceRequest(
        acks=-1,
        timeout_ms=ORDER_MS,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )
    response = send(request, 9).responses[0].partition_responses[0]
    assert response.error_code == error_code, (topic, partition, response.error_message)
    return response


def commit(
    send: RequestRouter,
    group: str,
    offsets: dict[int, tuple[int, str]],
    retention_ms: int | None = None,
) -> None:
    """Commit (offset, metadata) by partition of PLAIN."""
    version = 8 if retention_ms is None else 4
    request = OffsetCommitRequest(
        group_id=group,
        retention_time_ms=-1 if retention_ms is None else retention_ms,
        topics=[
            OffsetCommitRequestTopic(
                name=PLAIN,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=partition,
                        committed_offset=offset,
                        committed_leader_epoch=0 if version > 5 else -1,
                        committed_metadata=metadata,
                    )
                    for partition, (offset, metadata) in offsets.items()
                ],
            )
        ],
    )
    responses = send(request, version).topics[0].partitions
    assert [each.error_code for each in responses] == [0] * len(offsets), group


def create_topics(
    send: RequestRouter,
    configs: dict[str, dict[str, str]],
    replicas: int,
    partitions: int | None = None,
) -> None:
    """Create topics, by default with the partitions in `PARTITIONS`, and wait for leaders."""
    topics = [
        CreatableTopic(
            name=name,
            num_partitions=partitions or PARTITIONS.get(name, 1),
            replication_factor=replicas,
            assignments=[],
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in keys.items()],
        )
        for name, keys in configs.items()
    ]
    made = send(CreateTopicsRequest(topics=topics, timeout_ms=ORDER_MS), 7)
    assert [each.error_code for each in made.topics] == [0] * len(configs)

    def all_led() -> bool:
        return all(
            name in known and all(part.leader_id >= 0 for part in known[name].partitions)
            for response in send.to_each(MetadataRequest(topics=None), 12)
            for known in [{each.name: each for each in response.topics}]
            for name in configs
        )

    eventually(all_led, "topics without leader")


def _alter_configs(send: RequestRouter) -> None:
    for name, keys in BROKER_CONFIGS.items():
        resource = AlterConfigsResource(
            resource_type=_BROKER,
            resource_name=name,
            configs=[
                AlterableConfig(name=key, config_operation=0, value=value)
                for key, value in keys.items()
            ],
        )
        response = send(
            IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1
        )
        assert [each.error_message for each in response.responses] == [None]


def _alter_quotas(send: RequestRouter) -> None:
    entries = [
        EntryDataRequest(
            entity=[EntityDataRequest(entity_type=kind, entity_name=name) for kind, name in entity],
            ops=[OpData(key=key, value=value, remove=False)],
        )
        for entity, key, value in QUOTAS
    ]
    response = send(AlterClientQuotasRequest(entries=entries, validate_only=False), 1)
    assert [each.error_code for each in response.entries] == [0] * len(QUOTAS)


def _trim(send: RequestRouter, offset: int) -> None:
    requested = DeleteRecordsPartition(partition_index=0, offset=offset)
    topics = [DeleteRecordsTopic(name=TRIMMED, partitions=[requested])]
    response = send(DeleteRecordsRequest(topics=topics, timeout_ms=ORDER_MS), 2)
    assert response.topics[0].partitions[0].low_watermark == offset


def is_cleaned(directory: Path, topic: str, partition: int) -> bool:
    """Return whether the cleaner's checkpoint is the start of the last of several segments."""
    segments = sorted((directory / f"{topic}-{partition}").glob("*.log"))
    checkpoint = directory / "cleaner-offset-checkpoint"
    content = checkpoint.read_text() if checkpoint.exists() else ""
    # The last line is a checksum, followed by white space.
    lines = [line.rstrip() for line in content.splitlines()]
    return bool(segments) and f"{topic} {partition} {int(segments[-1].stem)}" in lines


def _is_applied(send: RequestRouter) -> bool:
    """Return whether all brokers have applied the changes, which they do after the response."""
    known = [
        topic.name
        for each in send.to_each(MetadataRequest(topics=None), 12)
        for topic in each.topics
    ]
    configs = {name: _configs(send, [(_BROKER, name)])[name] for name in BROKER_CONFIGS}
    has_configs = all(
        configs[name].get(key, ("",))[0] == value
        for name, keys in BROKER_CONFIGS.items()
        for key, value in keys.items()
    )
    return SHORT_LIVED not in known and has_configs and len(_quotas(send)) == len(QUOTAS)


def _topics(found: list[Any]) -> dict[str, Any]:
    """Return id and partitions by name, without leaders and epochs, which change with a start."""
    return {
        each.name: (
            each.topic_id,
            sorted(
                (part.partition_index, tuple(part.replica_nodes), tuple(sorted(part.isr_nodes)),
                 part.error_code)
                for part in each.partitions
            ),
        )
        for each in found
    }  # fmt: skip


def _features(send: RequestRouter) -> dict[str, int]:
    request = ApiVersionsRequest(client_software_name="raw", client_software_version="1")
    return {each.name: each.max_version_level for each in send(request, 3).finalized_features}


def _list_offset(
    send: RequestRouter, topic: str, partition: int, timestamp: int
) -> tuple[int, int, int]:
    requested = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
    topics = [ListOffsetsTopic(name=topic, partitions=[requested])]
    found = send(ListOffsetsRequest(replica_id=-1, topics=topics), 7).topics[0].partitions[0]
    assert found.error_code == 0, (topic, partition, timestamp, found.error_code)
    # The leader epoch of the latest offset changes with a start.
    epoch = found.leader_epoch if timestamp != _LATEST else -1
    return found.timestamp, found.offset, epoch


def _epoch_end(send: RequestRouter, topic: str, partition: int, epoch: int) -> tuple[int, int]:
    requested = OffsetForLeaderPartition(partition=partition, leader_epoch=epoch)
    topics = [OffsetForLeaderTopic(topic=topic, partitions=[requested])]
    response = send(OffsetForLeaderEpochRequest(replica_id=-1, topics=topics), 4)
    found = response.topics[0].partitions[0]
    assert found.error_code == 0
    return found.leader_epoch, found.end_offset


def _producers(send: RequestRouter, topic: str, partition: int) -> list[tuple[int, int, int, int]]:
    request = DescribeProducersRequest(
        topics=[TopicRequest(name=topic, partition_indexes=[partition])]
    )
    found = send(request, 0).topics[0].partitions[0]
    assert found.error_code == 0
    return [
        (each.producer_id, each.producer_epoch, each.last_sequence, each.last_timestamp)
        for each in found.active_producers
    ]


def records(send: RequestRouter, topic: str, partition: int) -> list[tuple[int, int, Any]]:
    """Return (leader epoch of the batch, its compression, record) of all records."""
    offset = _list_offset(send, topic, partition, _EARLIEST)[1]
    end = _list_offset(send, topic, partition, _LATEST)[1]
    found: list[tuple[int, int, Any]] = []
    while offset < end:
        requested = FetchPartition(
            partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20
        )
        request = FetchRequest(
            max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic=topic, partitions=[requested])]
        )
        response = send(request, 12).responses[0].partitions[0]
        assert response.error_code == 0
        for header, records in read_batches(bytes(response.records)):
            offset = header.next_offset
            found += [
                (header.partition_leader_epoch, header.compression, record)
                for record in records
                if record.offset < end
            ]
    return found


def _configs(
    send: RequestRouter, resources: list[tuple[int, str]]
) -> dict[str, dict[str, tuple[str, int]]]:
    """Return value and source of dynamic configs."""
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
            for kind, name in resources
        ]
    )
    return {
        each.resource_name: {
            config.name: (config.value, config.config_source)
            for config in each.configs
            if config.config_source in DYNAMIC_SOURCES
        }
        for each in send(request, 4).results
    }


def _quotas(send: RequestRouter) -> list[Any]:
    found = send(DescribeClientQuotasRequest(components=[], strict=False), 1)
    return sorted(
        (
            sorted((part.entity_type, part.entity_name or "") for part in each.entity),
            [(value.key, value.value) for value in each.values],
        )
        for each in found.entries
    )


def _groups(send: RequestRouter) -> dict[str, Any]:
    def listed() -> list[Any] | None:
        responses = send.to_each(ListGroupsRequest(), 5)
        return None if any(each.error_code for each in responses) else responses

    return {
        each.group_id: (each.protocol_type, each.group_state, each.group_type,
                        _offsets(send, each.group_id))
        for response in eventually(listed, "no groups are listed")
        for each in response.groups
    }  # fmt: skip


def _offsets(send: RequestRouter, group: str) -> list[Any]:
    requested = OffsetFetchRequestGroup(group_id=group, topics=None)
    (found,) = send(OffsetFetchRequest(groups=[requested], require_stable=True), 8).groups
    return sorted(
        (topic.name, part.partition_index, part.committed_offset, part.metadata,
         part.committed_leader_epoch, part.error_code)
        for topic in found.topics
        for part in topic.partitions
    )  # fmt: skip


def _directories(send: RequestRouter) -> list[dict[str, list[Any]]]:
    """Return the logs of each directory by broker, with the sizes of the tested topics."""
    return [
        {
            Path(each.log_dir).name: sorted(
                (topic.name, part.partition_index,
                 part.partition_size if topic.name in PARTITIONS else None)
                for topic in each.topics
                for part in topic.partitions
            )
            for each in response.results
        }
        for response in send.to_each(DescribeLogDirsRequest(topics=None), 4)
    ]  # fmt: skip
