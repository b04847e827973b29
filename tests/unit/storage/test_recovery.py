"""Opening a log after a clean stop, a kill, a power loss, and damage."""

from __future__ import annotations

from typing import ClassVar

import pytest
from msgspec.structs import replace

from barnabas.record.batch import ControlType
from barnabas.sim.disk import SimDisk
from barnabas.storage.config import LogConfig
from barnabas.storage.errors import InconsistentTopicIdError
from unit.storage.storage_fixtures import (
    DIRECTORY,
    NOW_MS,
    Bench,
    LaterExecutor,
    all_records,
    batch,
    marker,
    read,
)

SMALL = LogConfig(segment_bytes=1000, index_interval_bytes=200)
FIRST = f"{DIRECTORY}/00000000000000000000"


def offsets(bench: Bench) -> list[int]:
    return [record.offset for record in all_records(bench.log)]


def test_an_empty_log_opens_empty() -> None:
    bench = Bench()
    bench.reopen_cleanly()
    assert (bench.log.log_start_offset, bench.log.log_end_offset) == (0, 0)
    bench.kill_and_reopen()
    assert bench.log.log_end_offset == 0


def test_a_log_is_complete_after_a_clean_stop() -> None:
    bench = Bench(SMALL)
    bench.append_many(30)
    bench.log.update_high_watermark(20)
    bench.reopen_cleanly()
    assert offsets(bench) == list(range(30))
    assert bench.log.high_watermark == 20
    assert bench.log.recovery_point == 30
    bench.append_many(1)
    assert offsets(bench) == list(range(31))


def test_a_log_is_complete_after_a_kill() -> None:
    bench = Bench(SMALL)
    bench.append_many(30)
    bench.kill_and_reopen()
    assert offsets(bench) == list(range(30))
    for offset in range(30):
        assert read(bench.log, offset).position.message_offset == offset


@pytest.mark.parametrize("kept", [1, 12, 60, 61, 100, 160])
def test_a_torn_tail_is_truncated_after_the_last_whole_batch(kept: int) -> None:
    bench = Bench()
    bench.append_many(3)
    size = bench.log.size // 3
    bench.disk.open(f"{FIRST}.log").truncate(2 * size + min(kept, size - 1))
    bench.kill_and_reopen()
    assert offsets(bench) == [0, 1]
    assert bench.log.size == 2 * size


def test_a_clean_marker_does_not_hide_a_torn_tail() -> None:
    bench = Bench()
    bench.append_many(3)
    bench.log.close()
    bench.disk.open(f"{FIRST}.log").truncate(bench.log.size - 5)
    bench.open(clean_shutdown=True, recovery_point=3)
    assert offsets(bench) == [0, 1]


def test_a_flipped_bit_above_the_recovery_point_truncates_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench(SMALL)
    bench.append_many(30)
    second = bench.log.segments[1]
    file = bench.disk.open(second.path(".log"))
    file.write_at(b"\xff\xff", 100)
    bench.kill_and_reopen(recovery_point=0)
    assert offsets(bench) == list(range(second.base_offset))
    # The log reports the damage, and each segment that it deleted.
    lines = [record.getMessage() for record in caplog.records]
    assert f"the log ends at offset {second.base_offset}" in lines[0]
    assert len(lines) > 1
    assert all("Deleted a segment" in each for each in lines[1:])
    bench.append_many(1)
    assert offsets(bench) == list(range(second.base_offset + 1))


def test_zeros_after_the_batches_are_truncated() -> None:
    bench = Bench()
    bench.append_many(3)
    bench.disk.open(f"{FIRST}.log").append(bytes(5000))
    bench.kill_and_reopen()
    assert offsets(bench) == [0, 1, 2]


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("clean", [True, False])
def test_a_missing_index_is_rebuilt(suffix: str, clean: bool) -> None:
    bench = Bench(SMALL)
    bench.append_many(30)
    bench.log.close()
    whole = bench.disk.read(FIRST + suffix)
    bench.disk.remove(FIRST + suffix)
    bench.open(clean_shutdown=clean, recovery_point=30)
    assert bench.disk.read(FIRST + suffix) == whole
    assert offsets(bench) == list(range(30))


def test_an_index_padded_with_zeros_is_read_and_trimmed() -> None:
    bench = Bench(LogConfig(index_interval_bytes=200))
    bench.append_many(30)
    bench.log.close()
    whole = bench.disk.read(f"{FIRST}.index")
    for suffix, size in ((".index", 10485760), (".timeindex", 10485756)):
        bench.disk.open(FIRST + suffix).truncate(size)
    bench.open(clean_shutdown=True, recovery_point=30)
    assert offsets(bench) == list(range(30))
    bench.append_many(30)
    bench.log.close()
    assert bench.disk.read(f"{FIRST}.index").startswith(whole)
    assert bench.disk.size(f"{FIRST}.index") < 1000


@pytest.mark.parametrize("records", [0, 30])
def test_the_padding_of_indexes_is_removed_after_a_kill_without_writes(records: int) -> None:
    # Apache Kafka's tool that dumps segments fails on padded indexes.
    bench = Bench(LogConfig(index_interval_bytes=200))
    bench.append_many(records)
    bench.reopen_cleanly()
    bench.disk.open(f"{FIRST}.log")
    sizes = []
    for suffix, size in ((".index", 10485760), (".timeindex", 10485756)):
        file = bench.disk.open(FIRST + suffix)
        sizes.append(file.size())
        file.truncate(size)
    bench.log.close()
    bench.open(recovery_point=records)
    assert offsets(bench) == list(range(records))
    assert [bench.disk.size(FIRST + suffix) for suffix in (".index", ".timeindex")] == sizes


def test_a_corrupt_index_above_the_recovery_point_is_rebuilt() -> None:
    bench = Bench(LogConfig(index_interval_bytes=200))
    bench.append_many(30)
    bench.log.close()
    whole = bench.disk.read(f"{FIRST}.index")
    bench.disk.open(f"{FIRST}.index").write_at(b"\x7f" * len(whole), 0)
    bench.open()
    assert bench.disk.read(f"{FIRST}.index") == whole


def test_a_corrupt_index_below_the_recovery_point_does_not_hide_records() -> None:
    bench = Bench(SMALL)
    bench.append_many(30)
    bench.log.close()
    size = bench.disk.size(f"{FIRST}.index")
    bench.disk.open(f"{FIRST}.index").write_at(b"\x7f" * size, 0)
    bench.open(clean_shutdown=True, recovery_point=30)
    assert offsets(bench) == list(range(30))


def test_an_index_without_its_segment_is_dropped() -> None:
    bench = Bench()
    bench.append_many(1)
    bench.disk.open(f"{DIRECTORY}/00000000000000000077.index").close()
    bench.kill_and_reopen()
    assert "00000000000000000077.index" not in bench.names()


def test_files_marked_for_deletion_are_removed() -> None:
    bench = Bench()
    bench.append_many(1)
    for name in ("00000000000000000000.log.deleted", "00000000000000000000.log.cleaned"):
        bench.disk.open(f"{DIRECTORY}/{name}").close()
    bench.kill_and_reopen()
    assert not [name for name in bench.names() if name.endswith(("deleted", "cleaned"))]


def test_producers_survive_a_clean_stop() -> None:
    bench = Bench()
    for sequence in range(3):
        bench.append(batch([b"a"], producer_id=1, producer_epoch=2, base_sequence=sequence))
    bench.reopen_cleanly()
    again = batch([b"a"], producer_id=1, producer_epoch=2, base_sequence=2)
    assert bench.append(again).first_offset == 2
    assert bench.log.log_end_offset == 3


@pytest.mark.parametrize("drop", ["", "all", "last", "torn"])
def test_producers_survive_a_kill_with_or_without_snapshots(drop: str) -> None:
    bench = Bench(SMALL)
    for sequence in range(30):
        bench.append(batch([bytes(80)], producer_id=1, producer_epoch=0, base_sequence=sequence))
    snapshots = [name for name in bench.names() if name.endswith(".snapshot")]
    assert len(snapshots) > 2
    for name in {"all": snapshots, "last": snapshots[-1:]}.get(drop, []):
        bench.disk.remove(f"{DIRECTORY}/{name}")
    if drop == "torn":
        bench.disk.open(f"{DIRECTORY}/{snapshots[-1]}").truncate(20)
    bench.kill_and_reopen(recovery_point=25)
    duplicate = bench.append(batch([bytes(80)], producer_id=1, producer_epoch=0, base_sequence=29))
    assert duplicate.duplicate
    assert duplicate.first_offset == 29
    following = batch([b"x"], producer_id=1, producer_epoch=0, base_sequence=30)
    assert bench.append(following).first_offset == 30


def test_aborted_transactions_survive_a_kill() -> None:
    bench = Bench()
    bench.append(
        batch([b"a"], producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    )
    bench.coordinate(marker(ControlType.ABORT, 1))
    before = bench.log.segments.active.txn_index.entries()
    bench.kill_and_reopen()
    assert bench.log.segments.active.txn_index.entries() == before != []


def test_an_open_transaction_holds_the_last_stable_offset_after_a_kill() -> None:
    bench = Bench()
    bench.append_many(2)
    bench.append(
        batch([b"a"], producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    )
    bench.kill_and_reopen(high_watermark=3)
    assert bench.log.last_stable_offset == 2


@pytest.mark.parametrize("damage", [b"", b"0\n1\n", b"nonsense\n1\n2 3\n"])
def test_damaged_leader_epochs_are_rebuilt_from_the_log(damage: bytes) -> None:
    bench = Bench(SMALL)
    for epoch in range(5):
        for _ in range(3):
            bench.append(batch([b"a"]), epoch=epoch)
    bench.log.close()
    entries = bench.log.leader_epochs.entries
    bench.disk.write_atomically(f"{DIRECTORY}/leader-epoch-checkpoint", damage)
    bench.open(clean_shutdown=True, recovery_point=15)
    assert bench.log.leader_epochs.entries == entries


def test_a_log_that_ends_below_its_start_is_emptied() -> None:
    bench = Bench()
    bench.append_many(3)
    bench.kill_and_reopen(log_start_offset=10)
    assert (bench.log.log_start_offset, bench.log.log_end_offset) == (10, 10)
    bench.append_many(1)
    assert offsets(bench) == [10]


def test_the_log_start_is_kept() -> None:
    bench = Bench()
    bench.append_many(5)
    bench.kill_and_reopen(log_start_offset=3)
    assert offsets(bench) == [3, 4]


def test_the_topic_id_is_kept_and_another_id_is_refused() -> None:
    bench = Bench()
    bench.log.identity.assign_topic_id(bytes(range(16)))
    assert bench.disk.read(f"{DIRECTORY}/partition.metadata") == (
        b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
    )
    bench.kill_and_reopen()
    assert bench.log.topic_id == bytes(range(16))
    with pytest.raises(InconsistentTopicIdError):
        bench.log.identity.assign_topic_id(bytes(16))
    with pytest.raises(InconsistentTopicIdError):
        bench.open(topic_id=b"x" * 16)


def test_a_restored_segment_after_a_gap_is_deleted() -> None:
    bench = Bench(SMALL)
    bench.append_many(30)
    names = [name for name in bench.names() if name.endswith(".log")]
    bench.disk.remove(f"{DIRECTORY}/{names[1]}")
    bench.kill_and_reopen(recovery_point=0)
    assert offsets(bench) == list(range(int(names[1][:20])))


@pytest.mark.parametrize("seed", range(20))
def test_synced_records_survive_a_power_loss(seed: int) -> None:
    bench = Bench(SMALL, seed)
    bench.append_many(17)
    bench.log.sync.flush()
    bench.disk.sync_directory("/data")
    bench.append_many(13)
    bench.disk.crash()
    bench.open(recovery_point=17)
    found = offsets(bench)
    assert found == list(range(len(found)))
    assert len(found) >= 17


def test_snapshots_where_no_segment_begins_are_removed_but_for_the_latest() -> None:
    bench = Bench(SMALL)
    bench.append_many(30)
    bench.log.close()
    end = bench.log.log_end_offset
    kept = [name for name in bench.names() if name.endswith(".snapshot")]
    assert len(kept) > 2
    stray = bench.log.segments[1].base_offset - 1
    bench.disk.write_atomically(
        f"{DIRECTORY}/{stray:020d}.snapshot", bench.disk.read(f"{DIRECTORY}/{kept[-1]}")
    )
    bench.open(clean_shutdown=True, recovery_point=end)
    assert [name for name in bench.names() if name.endswith(".snapshot")] == kept


def test_deleted_records_stay_deleted_after_the_loss_of_the_checkpoint() -> None:
    bench = Bench(SMALL)
    bench.append_many(10)
    bench.log.update_high_watermark(10)
    bench.log.maybe_increment_log_start_offset(7, "a request")
    bench.kill_and_reopen()
    assert bench.log.log_start_offset == 7
    assert offsets(bench) == [7, 8, 9]


def test_a_fully_deleted_log_stays_empty_after_the_loss_of_the_checkpoint() -> None:
    bench = Bench(SMALL)
    bench.append_many(1)
    bench.log.update_high_watermark(1)
    bench.log.maybe_increment_log_start_offset(1, "a request")
    bench.kill_and_reopen()
    assert (bench.log.log_start_offset, bench.log.log_end_offset) == (1, 1)
    bench.append_many(2)
    bench.kill_and_reopen()
    assert bench.log.log_start_offset == 1
    assert offsets(bench) == [1, 2]


class NotingDisk(SimDisk):
    """Counts the system calls by file name."""

    accesses: ClassVar[dict[str, int]] = {}

    def check(self, operation: str, path: str) -> None:
        super().check(operation, path)
        name = path.rpartition("/")[2]
        self.accesses[name] = self.accesses.get(name, 0) + 1


def calls_after_kill(segments: int) -> dict[str, int]:
    """Kill a log whose last segment is half full; return the calls by file during its recovery."""
    bench = Bench(SMALL, disk=NotingDisk)
    while len(bench.log.segments) < segments:
        bench.append_many(1)
    bench.append_many(1)
    point = bench.log.sync.safe_recovery_point
    assert point == bench.log.segments.active.base_offset
    NotingDisk.accesses.clear()
    bench.kill_and_reopen(recovery_point=point)
    return NotingDisk.accesses


def test_the_calls_of_a_recovery_do_not_depend_on_the_number_of_closed_segments() -> None:
    few, many = calls_after_kill(4), calls_after_kill(64)
    assert sum(few.values()) == sum(many.values())
    read = sorted(name for name in many if name.endswith(".log"))
    # Of the last closed segment only the end is read, from its last index entry on.
    assert len(read) == 2
    assert many[read[0]] <= 4


@pytest.mark.parametrize("seed", range(8))
def test_a_roll_after_a_checkpoint_and_a_power_loss_leaves_complete_time_indexes(seed: int) -> None:
    bench = Bench(SMALL, seed=seed)
    executor = LaterExecutor()
    bench.log_dependencies = replace(bench.log_dependencies, executor=executor)
    bench.open()
    for index in range(5):
        bench.append(batch([bytes(100)], timestamp=NOW_MS + index))
    bench.log.sync.flush()
    point = bench.log.sync.safe_recovery_point
    # The sync that the roll starts does not end before the loss of power.
    bench.log.roll()
    bench.disk.sync_directory(DIRECTORY)
    bench.disk.crash()
    bench.open(recovery_point=point)
    assert bench.log.log_end_offset == 5
    assert bench.log.segments[0].max_timestamp == NOW_MS + 4


def test_a_log_recovered_despite_a_clean_marker_is_synced_at_the_next_stop() -> None:
    for seed in range(8):
        bench = Bench(SMALL, seed=seed)
        bench.append_many(5)
        bench.log.close()
        # The point contradicts the marker, so the log is recovered.
        bench.open(clean_shutdown=True, recovery_point=4)
        bench.log.close()
        bench.disk.crash()
        bench.open(clean_shutdown=True, recovery_point=5)
        assert bench.log.segments.active.time_index.is_sane()
        assert len(bench.log.segments.active.offset_index) == 2, seed


def test_the_recovery_point_stays_below_the_end_until_all_indexes_are_synced() -> None:
    bench = Bench()
    bench.append_many(5)
    bench.log.sync.flush()
    assert bench.log.sync.safe_recovery_point == 4
    bench.reopen_cleanly()
    assert bench.log.sync.safe_recovery_point == 5
    bench.log.truncate_to(3)
    bench.append_many(2)
    bench.log.sync.flush()
    assert bench.log.sync.safe_recovery_point == 4
    bench.log.roll()
    assert bench.log.sync.safe_recovery_point == 5


def recovered(bench: Bench, point: int) -> bool:
    """Kill and open a log; return whether its batches were read and its indexes were written."""
    bench.disk.call_log = calls = []
    bench.kill_and_reopen(recovery_point=point)
    bench.disk.call_log = None
    return any(operation in ("write", "rename", "remove") for operation, _ in calls)


@pytest.mark.parametrize("count", [0, 1, 5, 30])
def test_a_log_without_writes_since_a_clean_stop_is_not_recovered_after_kills(count: int) -> None:
    bench = Bench(SMALL)
    bench.append_many(count)
    bench.reopen_cleanly()
    for _ in range(3):
        point = bench.log.sync.safe_recovery_point
        assert point == count
        assert not recovered(bench, point)
        assert offsets(bench) == list(range(count))
    bench.append_many(1)
    assert recovered(bench, bench.log.sync.safe_recovery_point)
    assert offsets(bench) == list(range(count + 1))


def test_an_idle_log_is_recovered_if_its_files_do_not_fit_the_recovery_point() -> None:
    def lose_time(bench: Bench) -> None:
        bench.disk.open(f"{FIRST}.timeindex").truncate(0)

    def lose_snapshot(bench: Bench) -> None:
        bench.disk.remove(f"{DIRECTORY}/00000000000000000005.snapshot")

    def lose_index(bench: Bench) -> None:
        bench.disk.remove(f"{FIRST}.index")

    def flip(bench: Bench) -> None:
        bench.disk.open(f"{FIRST}.log").write_at(b"\xff", bench.log.size - 3)

    for damage, left in ((lose_time, 5), (lose_snapshot, 5), (lose_index, 5), (flip, 4)):
        bench = Bench(SMALL)
        bench.append_many(5)
        bench.reopen_cleanly()
        damage(bench)
        assert recovered(bench, 5)
        assert offsets(bench) == list(range(left))
        assert bench.log.segments.active.max_timestamp == NOW_MS


def test_an_idle_log_accepts_records_of_its_producers_after_a_kill() -> None:
    bench = Bench()
    bench.append(batch([b"a"], producer_id=7, producer_epoch=0, base_sequence=0))
    bench.reopen_cleanly()
    assert not recovered(bench, 1)
    bench.append(batch([b"b"], producer_id=7, producer_epoch=0, base_sequence=1))
    assert bench.append(batch([b"b"], producer_id=7, producer_epoch=0, base_sequence=1)).duplicate
    bench.kill_and_reopen()
    assert offsets(bench) == [0, 1]
