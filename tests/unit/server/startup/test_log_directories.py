"""A broker with several data directories: placement, failure of one directory, start."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResult,
)
from barnabas.protocol.messages.log_offsets import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas.protocol.messages.topics import DeleteTopicsRequest
from barnabas.record.legacy import read_records
from barnabas.runtime.rng import SeededRng
from barnabas.server.startup.log_directories import DirectoryPaths, open_data_directories
from barnabas.sim.disk import DiskFault
from barnabas.storage.errors import InconsistentDirectoryError
from barnabas.storage.topic_partition import TopicPartition
from unit.server.simulated_broker import SimulatedBroker, produce_request

if TYPE_CHECKING:
    from barnabas.metadata.partition_registration import PartitionRegistration

ONE, TWO = "/one", "/two"
TOPICS = ("a", "b", "c", "d")


def two_directories(seed: int = 1) -> SimulatedBroker:
    return SimulatedBroker(seed, log_dirs=f"{ONE},{TWO}")


def filled(seed: int = 1) -> SimulatedBroker:
    broker = two_directories(seed)
    for topic in TOPICS:
        broker.make_topic(topic)
        assert broker.produce(topic, b"1", b"2").error_code == 0
    return broker


def directory_of(broker: SimulatedBroker, topic: str) -> str:
    found = broker.node.broker.logs.directory_of(TopicPartition(topic, 0))
    assert found is not None
    return found.path


def registration(broker: SimulatedBroker, topic: str) -> PartitionRegistration:
    found = broker.node.shared.cluster.partition(topic, 0)
    assert found is not None
    return found


def describe(
    broker: SimulatedBroker, *topics: str, version: int = 5
) -> list[DescribeLogDirsResult]:
    asked = [DescribableLogDirTopic(topic=topic, partitions=[0]) for topic in topics] or None
    return broker.ask(DescribeLogDirsRequest(topics=asked), version).results


def lying_in(broker: SimulatedBroker, path: str) -> list[str]:
    return [topic for topic in TOPICS if directory_of(broker, topic) == path]


def names(broker: SimulatedBroker, path: str, suffix: str) -> list[str]:
    return [name for name in broker.host.disk.list(path) if name.endswith(suffix)]


def test_logs_are_distributed_and_their_directories_are_assigned() -> None:
    broker = filled()
    assert len(lying_in(broker, ONE)) == len(lying_in(broker, TWO)) == 2
    ids = {each.path: each.id for each in broker.node.broker.logs.directories}
    assert broker.world.run_until(
        lambda: all(
            registration(broker, topic).directories == (ids[directory_of(broker, topic)],)
            for topic in TOPICS
        )
    )


def test_directories_are_described() -> None:
    broker = filled()
    found = describe(broker)
    assert [each.log_dir for each in found] == [ONE, TWO]
    assert all(each.error_code == 0 and each.total_bytes >= each.usable_bytes > 0 for each in found)
    partitions = {topic.name: topic.partitions[0] for each in found for topic in each.topics}
    assert sorted(partitions) == list(TOPICS)
    assert all(each.partition_size > 60 and each.offset_lag == 0 for each in partitions.values())
    assert [topic.name for each in describe(broker, "b", "nowhere") for topic in each.topics] == [
        "b"
    ]
    old = describe(broker, version=3)
    assert {each.total_bytes for each in old} == {-1}


def test_a_failed_directory_takes_only_its_partitions_offline() -> None:
    broker = filled()
    lost, kept = lying_in(broker, TWO), lying_in(broker, ONE)
    broker.host.disk.faults.append(DiskFault(TWO, ("write", "sync")))
    for _ in range(2):
        assert broker.produce(lost[0], b"x").error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert broker.produce(lost[1], b"x").error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert [broker.produce(topic, b"x").error_code for topic in kept] == [0, 0]
    assert broker.world.run_until(
        lambda: all(registration(broker, topic).leader == -1 for topic in lost)
    )
    (partition,) = broker.metadata(lost[0]).topics[0].partitions
    assert (partition.leader_id, partition.offline_replicas) == (-1, [1])
    assert partition.error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert {each.log_dir: each.error_code for each in describe(broker)} == {
        ONE: 0,
        TWO: ErrorCode.KAFKA_STORAGE_ERROR,
    }
    assert not broker.failures
    broker.make_topic("e", 2)
    assert names(broker, ONE, "e-0")
    assert names(broker, ONE, "e-1")


def test_a_failed_directory_serves_again_after_a_restart() -> None:
    broker = filled()
    lost = lying_in(broker, TWO)
    broker.host.disk.faults.append(DiskFault(TWO, ("write", "sync")))
    assert broker.produce(lost[0], b"x").error_code == ErrorCode.KAFKA_STORAGE_ERROR
    broker.world.run_for(100)
    broker.stop()
    broker.host.disk.faults.clear()
    broker.restart()
    assert broker.produce(lost[0], b"3").base_offset == 2
    assert [each.error_code for each in describe(broker)] == [0, 0]


def test_a_full_disk_stops_one_directory_until_a_restart_with_free_space() -> None:
    broker = filled()
    topic = lying_in(broker, TWO)[0]
    broker.host.disk.faults.append(DiskFault(TWO, ("write",), 28))
    assert broker.produce(topic, b"x").error_code == ErrorCode.KAFKA_STORAGE_ERROR
    broker.host.kill()
    broker.host.disk.faults.clear()
    broker.restart()
    assert broker.produce(topic, b"3").base_offset == 2


def test_a_disk_full_at_the_epoch_checkpoint_is_handled_like_any_full_disk() -> None:
    broker = two_directories()
    for topic in TOPICS:
        broker.make_topic(topic)
    topic = lying_in(broker, TWO)[0]
    checkpoint = f"{TWO}/{topic}-0/leader-epoch-checkpoint"
    broker.host.disk.faults.append(DiskFault(checkpoint, ("write",), 28))
    sent = broker.batch(b"x", producer_id=1, producer_epoch=0, base_sequence=0)
    for _ in range(3):
        answer = broker.ask(produce_request(topic, sent), 9)
        (partition,) = answer.responses[0].partition_responses
        assert partition.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    broker.host.kill()
    broker.host.disk.faults.clear()
    broker.restart()
    # Written by the first one, which was not acknowledged.
    answer = broker.ask(produce_request(topic, sent), 9)
    (partition,) = answer.responses[0].partition_responses
    assert (partition.error_code, partition.base_offset) == (0, 0)
    assert broker.produce(topic, b"next").base_offset == 1


def test_the_loss_of_the_metadata_directory_stops_the_broker() -> None:
    broker = filled()
    broker.host.disk.faults.append(DiskFault(ONE, ("write", "sync")))
    broker.client.send(produce_request(lying_in(broker, ONE)[0], broker.batch(b"x")), 9)
    assert broker.world.run_until(lambda: bool(broker.failures))


def test_a_directory_that_cannot_be_opened_is_offline() -> None:
    broker = filled()
    lost, kept = lying_in(broker, TWO), lying_in(broker, ONE)
    broker.stop()
    broker.host.disk.faults.append(DiskFault(TWO, ("read", "write", "sync")))
    broker.restart()
    assert broker.produce(kept[0], b"3").base_offset == 2
    assert broker.produce(lost[0], b"3").error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert registration(broker, lost[0]).leader == -1
    assert sorted(each.error_code for each in describe(broker)) == [0, 56]
    assert not names(broker, ONE, f"{lost[0]}-0")
    broker.stop()
    broker.host.disk.faults.clear()
    broker.restart()
    assert broker.produce(lost[0], b"3").base_offset == 2


def test_a_missing_metadata_directory_stops_the_start() -> None:
    broker = filled()
    broker.stop()
    broker.host.disk.faults.append(DiskFault(ONE, ("read", "write", "sync")))
    broker.host.start()
    with pytest.raises(OSError, match="simulated"):
        broker.start()


def test_the_log_of_a_deleted_topic_is_moved_aside() -> None:
    broker = filled()
    broker.stop()
    disk = broker.host.disk
    for name in ("00000000000000000000.log", "partition.metadata"):
        source = next(p for p in (ONE, TWO) if disk.exists(f"{p}/a-0"))
        disk.make_directory(f"{TWO}/gone-0")
        disk.write_atomically(f"{TWO}/gone-0/{name}", disk.read(f"{source}/a-0/{name}"))
    broker.restart()
    assert [name.partition(".")[0] for name in names(broker, TWO, "-stray")] == ["gone-0"]
    broker.make_topic("gone")
    assert broker.produce("gone", b"new").base_offset == 0


def test_a_recreated_topic_does_not_have_its_old_records() -> None:
    broker = filled()
    disk, path = broker.host.disk, directory_of(broker, "a")
    old = {name: disk.read(f"{path}/a-0/{name}") for name in disk.list(f"{path}/a-0")}
    broker.ask(DeleteTopicsRequest(topics=[], topic_names=["a"], timeout_ms=1000), 5)
    broker.make_topic("a")
    where = directory_of(broker, "a")
    broker.stop()
    disk.remove_tree(f"{where}/a-0")
    disk.make_directory(f"{path}/a-0")
    for name, content in old.items():
        disk.write_atomically(f"{path}/a-0/{name}", content)
    broker.restart()
    assert broker.produce("a", b"new").base_offset == 0
    assert names(broker, path, "-stray")


def test_both_directories_are_marked_at_a_clean_stop_and_nothing_is_recovered() -> None:
    broker = filled()
    broker.stop()
    disk = broker.host.disk
    assert all(disk.exists(f"{path}/.kafka_cleanshutdown") for path in (ONE, TWO))
    sizes = {path: disk.size(path) for path in every_file(broker) if "checkpoint" not in path}
    broker.restart()
    for topic in TOPICS:
        log = broker.node.broker.logs.logs[TopicPartition(topic, 0)]
        assert log.recovery_point == log.log_end_offset == log.high_watermark == 2
        assert log.producer_state.map_end_offset == 2
    assert {path: size for path, size in sizes.items() if disk.exists(path)} == {
        path: disk.size(path) for path in sizes if disk.exists(path)
    }


def every_file(broker: SimulatedBroker) -> list[str]:
    disk = broker.host.disk
    return [
        f"{path}/{topic}/{name}"
        for path in (ONE, TWO)
        for topic in disk.list(path)
        if disk.is_directory(f"{path}/{topic}") and not topic.startswith("__")
        for name in disk.list(f"{path}/{topic}")
    ]


def test_a_copy_of_a_directory_is_refused() -> None:
    broker = two_directories()
    broker.stop()
    disk = broker.host.disk
    disk.write_atomically(f"{TWO}/meta.properties", disk.read(f"{ONE}/meta.properties"))
    with pytest.raises(InconsistentDirectoryError, match="is a copy of the other"):
        open_data_directories(disk, DirectoryPaths([ONE, TWO]), 1, SeededRng(1))


def test_the_metadata_log_may_have_a_separate_directory() -> None:
    broker = SimulatedBroker(log_dirs=f"{ONE},{TWO}", metadata_log_dir="/three")
    assert names(broker, "/three", "__cluster_metadata-0")
    assert not names(broker, ONE, "__cluster_metadata-0")
    broker.make_topic("t", 4)
    assert len(names(broker, ONE, "-0")) + len(names(broker, TWO, "-0")) >= 1
    broker.host.disk.faults.append(DiskFault(ONE, ("write", "sync")))
    broker.produce("t", b"x")
    assert not broker.failures


def alter(broker: SimulatedBroker, topic: str, path: str, partition: int = 0) -> int:
    asked = AlterReplicaLogDirTopic(name=topic, partitions=[partition])
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=[asked])])
    return broker.ask(request, 2).results[0].partitions[0].error_code


def other(path: str) -> str:
    return TWO if path == ONE else ONE


def values(broker: SimulatedBroker, topic: str) -> list[bytes | None]:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 24)
    request = FetchRequest(
        max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic=topic, partitions=[partition])]
    )
    records = broker.ask(request, 11).responses[0].partitions[0].records
    return [record.value for record in read_records(bytes(records))]


def moved(broker: SimulatedBroker, topic: str, path: str) -> bool:
    return directory_of(broker, topic) == path


def test_a_replica_moves_to_another_directory_during_writes() -> None:
    broker = filled()
    source = directory_of(broker, "a")
    target = other(source)
    large = [bytes([65 + number]) * 600_000 for number in range(6)]
    for value in large:
        broker.produce("a", value)
    assert alter(broker, "a", target) == 0
    (future,) = [
        each
        for result in describe(broker, "a")
        for topic in result.topics
        for each in topic.partitions
        if each.is_future_key
    ]
    assert future.offset_lag > 0
    expected = [b"1", b"2", *large]
    while not moved(broker, "a", target):
        value = b"%d" % len(expected)
        assert broker.produce("a", value).base_offset == len(expected)
        expected.append(value)
    broker.produce("a", b"behind")
    assert values(broker, "a") == [*expected, b"behind"]
    assert broker.world.run_until(
        lambda: (
            registration(broker, "a").directory_of(1)
            == next(each.id for each in broker.node.broker.logs.directories if each.path == target)
        )
    )
    assert "a-0" not in broker.host.disk.list(source)
    assert len(names(broker, source, "-delete")) == 1
    broker.stop()
    broker.restart()
    assert moved(broker, "a", target)
    assert values(broker, "a") == [*expected, b"behind"]


def test_a_move_is_limited_by_a_rate_that_can_change() -> None:
    """KIP-113, replica.alter.log.dirs.io.max.bytes.per.second."""
    broker = filled()
    target = other(directory_of(broker, "a"))
    large = [bytes([65 + number]) * 600_000 for number in range(6)]
    for value in large:
        broker.produce("a", value)
    throttle = broker.node.broker.replicas.throttles.moves
    throttle.bytes_per_second = 100_000
    assert alter(broker, "a", target) == 0
    # One read may exceed the rate; then it is made up for, over eleven seconds.
    broker.world.run_for(10_000)
    assert not moved(broker, "a", target)
    copied = throttle.byte_rate() * 10
    assert 500_000 < copied < 2_500_000
    broker.produce("a", b"meanwhile")
    throttle.bytes_per_second = 1 << 40
    assert broker.world.run_until(lambda: moved(broker, "a", target), 2_000)
    assert values(broker, "a") == [b"1", b"2", *large, b"meanwhile"]


@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("after_ms", [0, 1, 2, 4, 8, 16, 30])
def test_a_move_continues_after_a_kill_at_any_step(after_ms: int, power: bool) -> None:
    broker = SimulatedBroker(3 + after_ms, log_dirs=f"{ONE},{TWO}")
    broker.make_topic("a", flush_messages="1")
    expected = [bytes([65 + number]) * 300_000 for number in range(10)]
    for value in expected:
        assert broker.produce("a", value).error_code == 0
    target = other(directory_of(broker, "a"))
    assert alter(broker, "a", target) == 0
    broker.world.run_for(after_ms)
    (broker.host.lose_power if power else broker.host.kill)()
    broker.restart()
    # Whatever the loss of power left of the copy, the move can be asked for again.
    assert alter(broker, "a", target) == 0
    assert broker.world.run_until(lambda: moved(broker, "a", target))
    assert values(broker, "a") == expected
    assert not broker.node.broker.logs.futures


@pytest.mark.parametrize("topic", TOPICS)
def test_of_two_logs_of_a_replica_the_one_in_the_assigned_directory_is_kept(
    topic: str,
) -> None:
    broker = filled()
    named = directory_of(broker, topic)
    name, disk = f"{topic}-0", broker.host.disk
    broker.stop()
    # As a move leaves it whose second rename was lost: the copy has the replica's name too.
    copied = f"{other(named)}/{name}"
    disk.make_directory(copied)
    for entry in disk.list(f"{named}/{name}"):
        disk.write_atomically(f"{copied}/{entry}", disk.read(f"{named}/{name}/{entry}"))
    broker.restart()
    assert directory_of(broker, topic) == named
    assert broker.produce(topic, b"3").error_code == 0
    assert values(broker, topic) == [b"1", b"2", b"3"]
    assert name not in disk.list(other(named))
    assert [each for each in names(broker, other(named), "-stray") if each.startswith(name)]


def test_a_move_is_replaced_by_a_move_to_another_directory() -> None:
    broker = filled()
    source = directory_of(broker, "a")
    broker.produce("a", bytes(900_000))
    assert alter(broker, "a", other(source)) == 0
    assert alter(broker, "a", source) == 0
    assert not broker.node.broker.logs.futures
    broker.world.run_for(1000)
    assert moved(broker, "a", source)
    assert registration(broker, "a").directory_of(1) == next(
        each.id for each in broker.node.broker.logs.directories if each.path == source
    )


def test_impossible_moves_are_refused() -> None:
    broker = filled()
    broker.make_topic("x" * 220)
    assert alter(broker, "a", "/nowhere") == ErrorCode.LOG_DIR_NOT_FOUND
    assert alter(broker, "nowhere", ONE) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert alter(broker, "a", ONE, 7) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert alter(broker, "x" * 220, ONE) == ErrorCode.INVALID_TOPIC_EXCEPTION
    kept = lying_in(broker, ONE)[0]
    broker.host.disk.faults.append(DiskFault(TWO, ("write", "sync")))
    broker.produce(lying_in(broker, TWO)[0], b"x")
    assert alter(broker, kept, TWO) == ErrorCode.KAFKA_STORAGE_ERROR
    assert alter(broker, kept, ONE) == 0


def test_a_directory_can_be_chosen_before_the_topic_exists() -> None:
    broker = two_directories()
    assert alter(broker, "soon", TWO) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    broker.make_topic("soon")
    assert moved(broker, "soon", TWO)


def test_a_failed_target_directory_keeps_the_replica_in_its_directory() -> None:
    broker = filled()
    topic = lying_in(broker, ONE)[0]
    broker.produce(topic, bytes(900_000))
    assert alter(broker, topic, TWO) == 0
    broker.host.disk.faults.append(DiskFault(TWO, ("write", "sync")))
    broker.world.run_for(500)
    assert broker.produce(topic, b"4").base_offset == 3
    assert moved(broker, topic, ONE)


def test_deleted_records_stay_deleted_after_a_move() -> None:
    broker = filled()
    broker.produce("a", b"3", b"4", b"5")
    target = other(directory_of(broker, "a"))
    asked = DeleteRecordsTopic(
        name="a", partitions=[DeleteRecordsPartition(partition_index=0, offset=3)]
    )
    assert broker.ask(DeleteRecordsRequest(topics=[asked], timeout_ms=1000), 2).topics
    assert alter(broker, "a", target) == 0
    assert broker.world.run_until(lambda: moved(broker, "a", target))
    log = broker.node.broker.logs.logs[TopicPartition("a", 0)]
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (3, 5, 5)
