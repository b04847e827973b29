"""The cleaner's checkpoint: the clean part of each log, and invalid checkpoints."""

from __future__ import annotations

from msgspec.structs import replace

from unit.storage.cleaner_fixtures import COMPACTED, CleanerBench
from unit.storage.storage_fixtures import PARTITION


def test_the_checkpoint_is_kafkas_file() -> None:
    bench = CleanerBench()
    bench.put((b"a", b"1"))
    bench.seal_and_clean()
    assert bench.disk.read("/data/cleaner-offset-checkpoint").split() == b"0 1 topic 0 1".split()


def test_after_a_restart_only_new_records_are_read_for_keys() -> None:
    bench = CleanerBench()
    bench.put((b"a", b"1"), (b"a", b"2"))
    bench.seal_and_clean()
    bench.reopen_cleanly()
    bench.clean()
    assert bench.cleaner.statistics.passes == 0


def test_a_checkpoint_below_the_log_start_is_corrected() -> None:
    bench = CleanerBench(replace(COMPACTED, segment_bytes=100))
    for index in range(4):
        bench.put((b"k%d" % index, bytes(20)))
    bench.seal()
    bench.clean()
    assert bench.checkpoint() == 4
    bench.cleaner.checkpoints.put(bench.data_directory, PARTITION, 1)
    bench.log.maybe_increment_log_start_offset(3, "records deleted")
    bench.clean()
    assert bench.checkpoint() == 4
    assert bench.log.segments.base_offsets[0] == 3


def test_a_checkpoint_above_the_log_end_is_reset() -> None:
    bench = CleanerBench()
    bench.put((b"a", b"1"), (b"a", b"2"))
    bench.seal()
    bench.cleaner.checkpoints.put(bench.data_directory, PARTITION, 99)
    bench.clean()
    assert bench.offsets() == [1]
    assert bench.checkpoint() == 2


def test_a_damaged_checkpoint_only_causes_one_more_pass() -> None:
    bench = CleanerBench()
    bench.put((b"a", b"1"), (b"a", b"2"))
    bench.seal_and_clean()
    bench.disk.write_atomically("/data/cleaner-offset-checkpoint", b"nonsense")
    bench.reopen_cleanly()
    bench.clean()
    assert bench.offsets() == [1]
    assert bench.checkpoint() == 2


def test_a_truncated_log_is_dirty_from_the_truncation_on() -> None:
    bench = CleanerBench()
    bench.put((b"a", b"1"))
    bench.seal_and_clean()
    bench.put((b"b", b"1"))
    bench.seal_and_clean()
    assert bench.checkpoint() == 2
    bench.cleaner.before_truncation(PARTITION, 1)
    bench.log.truncate_to(1)
    bench.cleaner.on_truncated(PARTITION)
    assert bench.checkpoint() == bench.log.segments.active.base_offset
    bench.put((b"a", b"2"))
    bench.seal_and_clean()
    assert bench.pairs() == [(b"a", b"2")]


def test_a_deleted_partition_is_removed_from_the_checkpoint() -> None:
    bench = CleanerBench()
    bench.put((b"a", b"1"))
    bench.seal_and_clean()
    bench.cleaner.on_deleted(PARTITION, bench.data_directory)
    assert bench.checkpoint() is None
