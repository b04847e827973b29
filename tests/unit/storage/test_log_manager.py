"""All logs of a broker."""

from __future__ import annotations

from collections import Counter

import pytest
from msgspec.structs import replace

from barnabas.runtime.rng import SeededRng
from barnabas.sim.disk import DiskFault
from barnabas.storage.config import LogConfig, StorageConfig
from barnabas.storage.errors import InconsistentTopicIdError, KafkaStorageError
from barnabas.storage.files.checkpoint import LOG_START_OFFSETS
from barnabas.storage.files.log_directory import LogDirectory
from barnabas.storage.log.log import Log
from barnabas.storage.manager.log_manager import LogManager
from barnabas.storage.topic_partition import TopicPartition
from unit.storage.storage_fixtures import NOW_MS, Bench, all_records, batch

CONFIG = LogConfig(segment_bytes=1000)
PARTITIONS = [TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b-c", 0)]
TOPIC_ID = bytes(range(16))


class Broker:
    """A log manager over simulated directories, started and stopped at will."""

    def __init__(self, *paths: str, seed: int = 1, config: LogConfig = CONFIG) -> None:
        self.config = config
        self.bench = Bench(seed=seed)
        self.disk = self.bench.disk
        self.paths = paths or ("/logs",)
        self.offline: list[str] = []
        self.start()

    def start(self) -> LogManager:
        directories = [
            LogDirectory.open(self.disk, path, 1, "cluster", SeededRng(1)) for path in self.paths
        ]
        log_dependencies = replace(self.bench.log_dependencies)
        self.manager = LogManager(
            directories, StorageConfig(), log_dependencies, lambda d, _: self.offline.append(d.path)
        )
        self.manager.startup(lambda _: self.config)
        return self.manager

    def append(self, partition: TopicPartition, count: int = 1) -> None:
        self.bench.log = self.manager.get_or_create(partition, None, self.config)
        for _ in range(count):
            self.bench.append(batch([bytes(100)]))

    def records(self, partition: TopicPartition) -> int:
        log = self.manager.get(partition)
        assert log is not None
        return len(all_records(log))


def test_logs_are_found_again_after_a_clean_stop() -> None:
    broker = Broker()
    for partition in PARTITIONS:
        broker.append(partition, 12)
    broker.manager.shutdown(broker_epoch=9)
    assert broker.start().previous_broker_epoch == 9
    assert [broker.records(partition) for partition in PARTITIONS] == [12, 12, 12]
    assert not broker.disk.exists("/logs/.kafka_cleanshutdown")


def test_logs_are_found_again_after_a_kill() -> None:
    broker = Broker()
    for partition in PARTITIONS:
        broker.append(partition, 12)
    broker.disk.kill()
    broker.start()
    assert [broker.records(partition) for partition in PARTITIONS] == [12, 12, 12]


def test_high_watermarks_and_log_starts_come_from_their_checkpoints() -> None:
    broker = Broker()
    broker.append(PARTITIONS[0], 12)
    log = broker.manager.logs[PARTITIONS[0]]
    log.update_high_watermark(7)
    log.maybe_increment_log_start_offset(3, "test")
    broker.manager.checkpoint_high_watermarks()
    broker.manager.checkpoint_log_start_offsets()
    broker.disk.kill()
    broker.start()
    log = broker.manager.logs[PARTITIONS[0]]
    assert (log.log_start_offset, log.high_watermark) == (3, 7)


def test_offsets_of_many_logs_are_collected_in_several_turns() -> None:
    broker = Broker()
    partitions = [TopicPartition("many", number) for number in range(900)]
    for partition in partitions:
        broker.manager.get_or_create(partition, None, broker.config)
    # Each look at the clock takes longer than a slice.
    clock = broker.bench.clock
    real_ms = clock.monotonic_ms

    def slow_ms() -> float:
        clock.now_ms += 5
        return real_ms()

    ended: list[bool] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clock, "monotonic_ms", slow_ms)
        broker.manager.checkpoint_high_watermarks(lambda: ended.append(True))
        turns = 0
        while not ended:
            assert broker.manager.directories[0].high_watermarks.may_name(partitions[-1])
            turns += 1
            broker.bench.timer.run()
    assert turns > 2
    assert set(broker.manager.directories[0].high_watermarks.read()) == set(partitions)


def test_the_checkpoint_has_every_log_with_a_tier() -> None:
    config = replace(CONFIG, is_remote=True, local_retention_bytes=0, retention_ms=-1)
    broker = Broker(config=config)
    broker.append(PARTITIONS[0], 30)
    log = broker.manager.logs[PARTITIONS[0]]
    broker.manager.checkpoint_log_start_offsets()
    path = f"/logs/{LOG_START_OFFSETS}"
    assert broker.disk.read(path).splitlines()[2].split() == [b"a", b"0", b"0"]
    log.update_high_watermark(30)
    log.maybe_increment_log_start_offset(3, "test")
    log.raise_highest_remote_offset(20)
    log.raise_verified_remote_offset(20)
    broker.manager.tasks.apply_retention()
    broker.manager.checkpoint_log_start_offsets()
    assert broker.disk.read(path).splitlines()[2].split() == [b"a", b"0", b"3"]
    starts = log.log_start_offset, log.local_log_start_offset
    assert starts == (3, log.segments[0].base_offset)
    assert log.segments[0].base_offset > 3
    for is_clean in (False, True):
        if is_clean:
            broker.manager.shutdown()
        else:
            broker.disk.kill()
        broker.start()
        log = broker.manager.logs[PARTITIONS[0]]
        assert (log.log_start_offset, log.local_log_start_offset) == starts


def test_the_directory_of_a_kafka_with_a_tier_is_opened() -> None:
    # Kafka writes the offset of every log with a tier, and no checksum.
    config = replace(CONFIG, is_remote=True)
    broker = Broker(config=config)
    broker.append(PARTITIONS[0], 30)
    log = broker.manager.logs[PARTITIONS[0]]
    second = log.segments[1].base_offset
    broker.manager.shutdown()
    for name in broker.disk.list("/logs/a-0"):
        if name.startswith("0" * 20):
            broker.disk.remove(f"/logs/a-0/{name}")
    broker.disk.write_atomically(f"/logs/{LOG_START_OFFSETS}", b"0\n1\na 0 1\n")
    broker.start()
    log = broker.manager.logs[PARTITIONS[0]]
    assert (log.log_start_offset, log.local_log_start_offset) == (1, second)
    assert log.leader_epochs.first_offset == 1
    assert not broker.bench.log_dependencies.damage.counts


def test_new_logs_are_placed_in_the_directory_with_the_fewest_logs() -> None:
    broker = Broker("/one", "/two")
    for partition in PARTITIONS:
        broker.append(partition)
    counts = [len([n for n in broker.disk.list(p) if "-" in n and "check" not in n])
              for p in broker.paths]  # fmt: skip
    assert sorted(counts) == [1, 2]


def test_an_existing_log_of_another_topic_id_is_refused() -> None:
    broker = Broker()
    broker.manager.get_or_create(PARTITIONS[0], TOPIC_ID, CONFIG)
    with pytest.raises(InconsistentTopicIdError):
        broker.manager.get_or_create(PARTITIONS[0], bytes(16), CONFIG)


def test_a_deleted_log_is_removed_immediately_and_its_files_later() -> None:
    broker = Broker()
    broker.append(PARTITIONS[0])
    assert broker.manager.delete_async(PARTITIONS[0])
    assert not broker.manager.delete_async(PARTITIONS[0])
    assert broker.manager.get(PARTITIONS[0]) is None
    assert [name for name in broker.disk.list("/logs") if name.endswith("-delete")]
    broker.append(PARTITIONS[0])
    broker.bench.timer.run()
    assert not [name for name in broker.disk.list("/logs") if name.endswith("-delete")]
    assert broker.records(PARTITIONS[0]) == 1


def test_a_deletion_interrupted_by_a_kill_is_completed() -> None:
    broker = Broker()
    broker.append(PARTITIONS[0])
    broker.manager.delete_async(PARTITIONS[0])
    broker.disk.kill()
    broker.bench.timer.waiting.clear()
    broker.start()
    assert broker.manager.get(PARTITIONS[0]) is None
    broker.bench.timer.run()
    assert not [name for name in broker.disk.list("/logs") if name.endswith("-delete")]


def test_the_log_manager_ignores_the_metadata_log() -> None:
    broker = Broker()
    broker.disk.make_directory("/logs/__cluster_metadata-0")
    broker.manager.shutdown()
    assert broker.start().logs == {}


def test_only_the_directory_that_fails_goes_offline() -> None:
    broker = Broker("/one", "/two")
    for partition in PARTITIONS:
        broker.append(partition)
    failing = broker.manager.directory_of(PARTITIONS[0])
    assert failing is not None
    broker.disk.faults.append(DiskFault(failing.path, ("write", "sync")))
    with pytest.raises(KafkaStorageError):
        broker.append(PARTITIONS[0])
    assert broker.offline == [failing.path]
    assert broker.manager.get(PARTITIONS[0]) is None
    assert len(broker.manager.logs) >= 1
    broker.append(PARTITIONS[0])
    assert broker.manager.directory_of(PARTITIONS[0]) is not failing


def test_retention_runs_over_all_logs_in_slices() -> None:
    broker = Broker()
    many = [TopicPartition("m", number) for number in range(100)]
    for partition in many:
        broker.append(partition)
        broker.manager.logs[partition].update_high_watermark(1)
    broker.bench.clock.now_ms = 8 * 86_400_000
    broker.manager.tasks.apply_retention()
    while broker.bench.timer.waiting:
        broker.bench.timer.run()
    assert {broker.manager.logs[partition].log_start_offset for partition in many} == {1}


def test_a_task_that_raises_for_one_log_visits_the_others_and_is_repeated() -> None:
    broker = Broker()
    for partition in PARTITIONS:
        broker.append(partition)
    log_tasks, timer = broker.manager.tasks, broker.bench.timer
    visited: list[TopicPartition] = []

    def visit(log: Log) -> None:
        visited.append(log.topic_partition)
        if len(visited) == 1:
            raise MemoryError

    timer.waiting.clear()
    log_tasks.repeat("task", 1_000, lambda: log_tasks._in_slices(visit))
    with pytest.raises(MemoryError):
        timer.run()
    # The next repetition, and the rest of the first one.
    timer.run()
    assert Counter(visited) == dict.fromkeys(PARTITIONS, 2)


def test_a_truncation_lowers_the_recovery_point_on_disk() -> None:
    broker = Broker()
    broker.append(PARTITIONS[0], 12)
    broker.manager.logs[PARTITIONS[0]].sync.flush()
    broker.manager.checkpoint_recovery_points()
    (directory,) = broker.manager.directories
    # Below the end, whose segment has unsynced indexes.
    assert directory.recovery_points.read() == {PARTITIONS[0]: 11}
    broker.manager.truncate_to(PARTITIONS[0], 5)
    assert directory.recovery_points.read() == {PARTITIONS[0]: 5}


def test_a_log_is_synced_when_flush_ms_has_passed() -> None:
    broker = Broker()
    broker.append(PARTITIONS[0])
    log = broker.manager.logs[PARTITIONS[0]]
    log.update_config(replace(CONFIG, flush_ms=1000))
    broker.bench.clock.now_ms = 999
    broker.manager.tasks.flush_dirty_logs()
    assert log.recovery_point == 0
    broker.bench.clock.now_ms = 1000
    broker.manager.tasks.flush_dirty_logs()
    assert log.recovery_point == 1


MANY = [TopicPartition("many", number) for number in range(70)]


@pytest.mark.parametrize("reports_failed_writes", [True, False])
def test_all_logs_of_a_clean_stop_survive_the_loss_of_power(reports_failed_writes: bool) -> None:
    for seed in range(5):
        broker = Broker(seed=seed)
        if not reports_failed_writes:
            broker.manager.directories[0].file_system = None
        for partition in MANY:
            broker.append(partition, partition.partition % 3)
            if partition.partition % 2:
                # Later records are written to files that were synced before.
                broker.manager.logs[partition].sync.flush()
                broker.append(partition, 2)
        before = [broker.records(partition) for partition in MANY]
        broker.manager.shutdown()
        broker.disk.crash()
        broker.start()
        assert [broker.records(partition) for partition in MANY] == before, seed
        assert all(each.was_stopped_cleanly for each in broker.manager.directories)
        for log in broker.manager.logs.values():
            active = log.segments.active
            assert active.time_index.last_entry()[0] == (NOW_MS if active.size else -1), seed


def test_a_truncation_is_synced_at_shutdown_if_the_log_has_its_old_length() -> None:
    for seed in range(5):
        broker = Broker(seed=seed)
        broker.append(PARTITIONS[0], 2)
        log = broker.bench.log
        log.sync.flush()
        log.truncate_to(1)
        broker.bench.append(batch([b"x" * 100]))
        broker.manager.shutdown()
        broker.disk.crash()
        broker.start()
        found = broker.manager.get(PARTITIONS[0])
        assert found is not None
        assert all_records(found)[1].value == b"x" * 100, seed


def test_a_stop_syncs_the_names_of_all_logs_once() -> None:
    broker = Broker()
    for partition in PARTITIONS:
        broker.append(partition)
    broker.disk.call_log = []
    broker.manager.shutdown()
    synced = [path for operation, path in broker.disk.call_log if operation == "sync"]
    assert synced.count(broker.paths[0]) <= 1 + len(broker.manager.directories[0].checkpoints) + 1


def test_a_stop_makes_few_syncs_for_an_empty_log() -> None:
    broker = Broker()
    for partition in PARTITIONS:
        broker.append(partition, 0)
    broker.disk.call_log = []
    broker.manager.shutdown()
    synced = [path for operation, path in broker.disk.call_log if operation == "sync"]
    assert not [path for path in synced if path.endswith(("index", ".snapshot"))]


def test_a_stop_of_many_logs_opens_no_file_to_sync_it() -> None:
    broker = Broker()
    for partition in MANY:
        broker.append(partition)
    broker.disk.call_log = []
    broker.manager.shutdown()
    opened = [path for operation, path in broker.disk.call_log if operation == "open"]
    in_logs = [path.rpartition("/")[2] for path in opened if "/many-" in path]
    # The last entry of the time index is written when the log is closed.
    assert set(in_logs) == {"00000000000000000000.timeindex", "00000000000000000001.snapshot.tmp"}
    assert len(in_logs) == 2 * len(MANY)


def test_a_log_in_another_file_system_is_synced_itself() -> None:
    broker = Broker()
    for partition in MANY:
        broker.append(partition)
    elsewhere = broker.manager.logs[MANY[3]].directory

    class Mounted:
        """A file system without the directory of one log, whose sync has no effect there."""

        def holds(self, directory: str) -> bool:
            return directory != elsewhere

        def sync(self) -> None:
            raise AssertionError("must not be used")

        def close(self) -> None:
            """Do nothing: there is no descriptor."""

    broker.manager.directories[0].file_system = Mounted()
    broker.manager.shutdown()
    broker.disk.crash()
    broker.start()
    assert [broker.records(partition) for partition in MANY] == [1] * len(MANY)


def test_a_failed_write_of_another_program_does_not_make_a_stop_unclean() -> None:
    broker = Broker()
    for partition in MANY:
        broker.append(partition)
    other = broker.disk.open("/other")
    other.append(b"x")
    broker.disk.faults.append(DiskFault("/other", ("sync",)))
    broker.manager.shutdown()
    broker.start()
    assert all(each.was_stopped_cleanly for each in broker.manager.directories)


@pytest.mark.parametrize("count", [3, 70])
def test_a_shutdown_with_a_failed_sync_leaves_no_clean_shutdown_marker(count: int) -> None:
    broker = Broker()
    for partition in MANY[:count]:
        broker.append(partition)
    path = broker.manager.logs[MANY[1]].directory
    directory = broker.manager.directory_of(MANY[1])
    broker.disk.faults.append(DiskFault(f"{path}/", ("sync",)))
    broker.manager.shutdown()
    broker.disk.faults.clear()
    broker.start()
    stopped = {each.path: each.was_stopped_cleanly for each in broker.manager.directories}
    assert directory is not None
    assert stopped.pop(directory.path) is False
    assert all(stopped.values())
    assert [broker.records(partition) for partition in MANY[:count]] == [1] * count
