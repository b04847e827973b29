"""Compaction: which records stay, which part of a log is touched."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from barnabas.record.compression import GZIP, LZ4, SNAPPY, ZSTD
from barnabas.storage.cleaner.log_cleaner import LogCleaner, Pass
from barnabas.storage.config import CleanerConfig, LogConfig
from barnabas.storage.topic_partition import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TopicPartition,
)
from barnabas.waiting.steps import run_steps
from unit.storage.cleaner_fixtures import COMPACTED, DAY_MS, CleanerBench, all_batches
from unit.storage.storage_fixtures import DIRECTORY, NOW_MS, PARTITION, all_records, batch, read


def test_the_last_value_of_each_key_stays_at_its_offset() -> None:
    bench = CleanerBench()
    bench.put((b"a", b"1"), (b"b", b"1"), (b"a", b"2"))
    bench.put((b"c", b"1"), (b"b", b"2"))
    bench.seal_and_clean()
    assert bench.pairs() == [(b"a", b"2"), (b"c", b"1"), (b"b", b"2")]
    assert bench.offsets() == [2, 3, 4]
    assert bench.log.log_end_offset == 5


def test_records_of_the_active_segment_neither_are_removed_nor_supersede_others() -> None:
    bench = CleanerBench()
    bench.put((b"a", b"1"))
    bench.seal()
    bench.put((b"a", b"2"))
    bench.put((b"a", b"3"))
    bench.replicate()
    bench.clean()
    assert bench.pairs() == [(b"a", b"1"), (b"a", b"2"), (b"a", b"3")]


def test_nothing_above_the_high_watermark_is_touched() -> None:
    bench = CleanerBench()
    bench.put((b"a", b"1"), (b"a", b"2"))
    bench.seal()
    bench.put((b"a", b"3"), (b"a", b"4"))
    bench.log.roll()
    bench.log.sync.flush(force=True)
    bench.clean()
    assert bench.pairs() == [(b"a", b"2"), (b"a", b"3"), (b"a", b"4")]
    assert bench.checkpoint() == 2


def test_nothing_above_the_recovery_point_is_touched() -> None:
    bench = CleanerBench()
    bench.put((b"a", b"1"), (b"a", b"2"))
    bench.seal()
    bench.log.offsets.recovery_point = 1
    bench.clean()
    assert bench.offsets() == [0, 1]
    bench.log.offsets.recovery_point = 2
    bench.clean()
    assert bench.offsets() == [1]


@pytest.mark.parametrize("compression", [GZIP, SNAPPY, LZ4, ZSTD])
def test_a_partly_compacted_batch_keeps_its_compression(compression: int) -> None:
    bench = CleanerBench()
    bench.put((b"a", bytes(500)), (b"b", bytes(300)), compression=compression)
    bench.put((b"a", b"2"))
    bench.seal_and_clean()
    ((header, records), _) = [each for each in all_batches(bench.log) if each[1]]
    assert header.compression == compression
    assert [(record.offset, record.key, record.value) for record in records] == [
        (1, b"b", bytes(300))
    ]
    assert (header.base_offset, header.last_offset) == (0, 1)


def test_a_partly_compacted_batch_keeps_headers_timestamps_and_epoch() -> None:
    from barnabas.record.builder import BatchBuilder

    bench = CleanerBench()
    builder = BatchBuilder()
    builder.append(NOW_MS + 9, b"a", b"old", [("x", b"y")])
    builder.append(NOW_MS + 5, b"b", b"kept", [("h", b"1"), ("n", None)])
    bench.append(builder.build(), epoch=4)
    bench.put((b"a", b"new"))
    bench.seal_and_clean()
    header, (record,) = all_batches(bench.log)[0]
    assert (record.timestamp, record.headers) == (NOW_MS + 5, [("h", b"1"), ("n", None)])
    assert (header.max_timestamp, header.partition_leader_epoch) == (NOW_MS + 5, 4)


def test_records_without_a_time_are_compacted_as_others() -> None:
    from barnabas.record.builder import BatchBuilder

    bench = CleanerBench()
    builder = BatchBuilder()
    for key in (b"a", b"b", b"c"):
        builder.append(-1, key, b"old")
    bench.append(builder.build())
    bench.put((b"a", b"new"))
    bench.seal_and_clean()
    header, found = all_batches(bench.log)[0]
    assert [(record.key, record.timestamp) for record in found] == [(b"b", -1), (b"c", -1)]
    assert header.max_timestamp == -1


def test_batches_without_removed_records_are_copied_unchanged() -> None:
    bench = CleanerBench()
    bench.put((b"a", b"1"), (b"b", b"1"))
    bench.put((b"c", b"1"))
    bench.seal()
    before = bench.disk.read(bench.log.segments[0].path(LOG_SUFFIX))
    bench.clean()
    assert bench.disk.read(bench.log.segments[0].path(LOG_SUFFIX)) == before
    assert bench.cleaner.statistics.segments_replaced == 0
    assert bench.checkpoint() == 3


def test_records_without_a_key_are_removed() -> None:
    bench = CleanerBench(replace(COMPACTED, cleanup_policy=("delete",)))
    bench.append(batch([b"x", b"y"], key=None))
    bench.log.update_config(COMPACTED)
    bench.put((b"a", b"1"))
    bench.seal_and_clean()
    assert bench.pairs() == [(b"a", b"1")]


def test_the_last_batch_is_kept_empty_to_preserve_the_log_end() -> None:
    bench = CleanerBench(replace(COMPACTED, cleanup_policy=("delete",)))
    bench.append(batch([b"x", b"y"], key=None))
    bench.log.update_config(COMPACTED)
    bench.seal_and_clean()
    ((header, records),) = all_batches(bench.log)
    assert (header.base_offset, header.last_offset, records) == (0, 1, [])
    bench.kill_and_reopen()
    assert bench.log.log_end_offset == 2


def test_long_keys_are_distinguished() -> None:
    bench = CleanerBench()
    long = [bytes(100) + bytes([index]) for index in range(3)]
    bench.put(*((key, b"1") for key in long))
    bench.put((long[1], b"2"))
    bench.seal_and_clean()
    assert bench.offsets() == [0, 2, 3]


# -- tombstones -----------------------------------------------------------------------------------


def test_a_tombstone_removes_its_key_and_stays_until_its_delete_horizon() -> None:
    bench = CleanerBench()
    bench.put((b"a", b"1"), (b"b", b"1"))
    bench.put((b"a", None))
    bench.seal_and_clean()
    assert bench.pairs() == [(b"b", b"1"), (b"a", None)]
    (tombstone,) = [header for header, _ in all_batches(bench.log) if header.delete_horizon]
    assert tombstone.delete_horizon == NOW_MS + DAY_MS
    bench.clock.now_ms = DAY_MS - 1
    bench.put((b"c", b"1"))
    bench.seal_and_clean()
    assert (b"a", None) in bench.pairs()
    bench.clock.now_ms = DAY_MS
    bench.put((b"d", b"1"))
    bench.seal_and_clean()
    assert bench.pairs() == [(b"b", b"1"), (b"c", b"1"), (b"d", b"1")]


def test_the_delete_horizon_changes_no_timestamp() -> None:
    bench = CleanerBench()
    for compression in (0, ZSTD):
        bench.put((b"a%d" % compression, None), (b"b", b"1"), compression=compression)
        bench.put((b"c", None), timestamp=-1, compression=compression)
    bench.seal_and_clean()
    found = {record.offset: record.timestamp for record in all_records(bench.log)}
    assert found == {0: NOW_MS, 3: NOW_MS, 4: NOW_MS, 5: -1}


def test_a_delete_horizon_never_changes() -> None:
    bench = CleanerBench()
    bench.put((b"a", None), (b"b", b"1"))
    bench.seal_and_clean()
    bench.clock.now_ms = 1000
    bench.put((b"b", b"2"))
    bench.seal_and_clean()
    header, records = all_batches(bench.log)[0]
    assert (len(records), header.delete_horizon) == (1, NOW_MS + DAY_MS)


# -- how much, and when ---------------------------------------------------------------------------


def test_a_log_is_compacted_when_its_dirty_part_is_large_enough() -> None:
    bench = CleanerBench(replace(COMPACTED, min_cleanable_dirty_ratio=0.5))
    for index in range(6):
        bench.put((b"k%d" % index, bytes(100)))
    bench.seal_and_clean()
    assert bench.checkpoint() == 6
    bench.put((b"k0", bytes(100)))
    bench.seal_and_clean()
    assert bench.checkpoint() == 6
    for index in range(6):
        bench.put((b"k%d" % index, bytes(100)))
    bench.seal_and_clean()
    assert bench.checkpoint() == 13
    assert bench.offsets() == [7, 8, 9, 10, 11, 12]


def test_records_younger_than_min_compaction_lag_are_kept() -> None:
    bench = CleanerBench(replace(COMPACTED, min_compaction_lag_ms=1000))
    bench.put((b"a", b"1"), (b"a", b"2"))
    bench.seal_and_clean()
    assert bench.offsets() == [0, 1]
    bench.clock.now_ms = 1000
    bench.clean()
    assert bench.offsets() == [1]


def test_records_older_than_max_compaction_lag_are_compacted_at_any_dirty_ratio() -> None:
    lagging = replace(COMPACTED, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=1000)
    bench = CleanerBench(lagging)
    bench.put((b"a", b"1"), (b"a", b"2"))
    bench.seal_and_clean()
    assert bench.offsets() == [0, 1]
    bench.clock.now_ms = 1001
    bench.clean()
    assert bench.offsets() == [1]


def test_max_compaction_lag_rolls_active_segments() -> None:
    bench = CleanerBench(replace(COMPACTED, max_compaction_lag_ms=1000))
    for offset in (0, 1000, 1001):
        bench.put((b"a", b"1"), timestamp=NOW_MS + offset)
    assert bench.log.segments.base_offsets == [0, 2]


def test_a_full_map_ends_a_pass_and_the_next_pass_continues() -> None:
    # Room for three keys.
    config = CleanerConfig(
        log_cleaner_dedupe_buffer_size=160 * 3, log_cleaner_io_buffer_load_factor=1.0
    )
    bench = CleanerBench(COMPACTED, config)
    for value in (b"1", b"2"):
        for index in range(5):
            bench.put((b"k%d" % index, value))
    bench.seal_and_clean()
    assert bench.cleaner.statistics.passes > 1
    assert bench.checkpoint() == 10
    assert bench.pairs() == [(b"k%d" % index, b"2") for index in range(5)]


def test_a_batch_larger_than_the_buffer_is_read_whole() -> None:
    bench = CleanerBench(COMPACTED, CleanerConfig(log_cleaner_io_buffer_size=0))
    bench.put((b"a", bytes(20_000)), (b"b", bytes(20_000)))
    bench.put((b"a", b"1"))
    bench.seal_and_clean()
    assert bench.offsets() == [1, 2]


def test_the_dirtiest_log_comes_first() -> None:
    from barnabas.storage.cleaner.cleaner_selection import LogToClean

    ratios = [LogToClean(0, 9, clean, 100, 0).cleanable_ratio for clean in (0, 100, 300)]
    assert ratios == [1.0, 0.5, 0.25]


def test_a_disabled_or_paused_log_is_not_compacted() -> None:
    bench = CleanerBench()
    bench.put((b"a", b"1"), (b"a", b"2"))
    bench.seal()
    bench.cleaner.abort_and_pause_cleaning(PARTITION)
    bench.clean()
    assert bench.offsets() == [0, 1]
    bench.cleaner.resume_cleaning(PARTITION)
    bench.clean()
    assert bench.offsets() == [1]


def test_an_idle_cleaner_waits_for_the_backoff() -> None:
    bench = CleanerBench(COMPACTED, CleanerConfig(log_cleaner_backoff_ms=5000))
    bench.cleaner.start()
    bench.due.run_for(1)
    bench.put((b"a", b"1"), (b"a", b"2"))
    bench.seal()
    bench.due.run_for(4990)
    assert bench.offsets() == [0, 1]
    bench.due.run_for(20)
    assert bench.offsets() == [1]


def test_reads_and_writes_are_throttled() -> None:
    config = CleanerConfig(log_cleaner_io_max_bytes_per_second=10_000, log_cleaner_io_buffer_size=0)
    bench = CleanerBench(COMPACTED, config)
    for index in range(40):
        bench.put((b"k%d" % (index % 2), bytes(940)))
    bench.seal()
    assert bench.log.size > 40_000
    bench.cleaner.start()
    bench.pass_time(4000)
    assert bench.checkpoint() is None
    # Read twice, and two records are written.
    bench.pass_time(6000)
    assert bench.checkpoint() == 40


# -- segments -------------------------------------------------------------------------------------


def test_small_segments_are_joined_up_to_the_size_of_one() -> None:
    size = len(batch([bytes(100)], key=b"k0"))
    bench = CleanerBench(replace(COMPACTED, segment_bytes=size * 4))
    for index in range(6):
        bench.put((b"k%d" % index, bytes(100)))
        bench.log.roll()
    bench.seal_and_clean()
    assert bench.log.segments.base_offsets == [0, 4, 6]
    assert bench.offsets() == list(range(6))
    assert [name for name in bench.names() if name.endswith(LOG_SUFFIX)] == [
        f"{base:020d}.log" for base in (0, 4, 6)
    ]


def test_segments_whose_offsets_do_not_fit_one_index_are_not_joined() -> None:
    bench = CleanerBench()
    for offset in (0, 10, 1 << 31, (1 << 31) + 10):
        bench.log.appender.append_as_follower(batch([b"v"], base_offset=offset, key=b"%d" % offset))
        bench.log.roll()
    bench.seal_and_clean()
    assert bench.log.segments.base_offsets == [0, 11, (1 << 31) + 11]
    assert bench.offsets() == [0, 10, 1 << 31, (1 << 31) + 10]


def test_the_indexes_of_a_compacted_segment_find_its_batches() -> None:
    bench = CleanerBench()
    for index in range(200):
        bench.put((b"k%d" % (index % 50), bytes(50)), timestamp=NOW_MS + index)
    bench.seal_and_clean()
    segment = bench.log.segments[0]
    assert len(segment.offset_index) > 5
    assert bench.offsets() == list(range(150, 200))
    for offset in range(0, 200, 9):
        result = read(bench.log, offset, 1)
        first = int.from_bytes(result.records.read()[:8], "big")
        assert first == max(offset, 150)
    assert run_steps(bench.log.reader.offset_for_timestamp(NOW_MS + 170)) == (NOW_MS + 170, 170, 3)
    assert bench.disk.size(segment.path(INDEX_SUFFIX)) == 8 * len(segment.offset_index)
    assert bench.disk.size(segment.path(TIME_INDEX_SUFFIX)) == 12 * len(segment.time_index)


def test_a_compacted_segment_has_the_modification_time_of_its_last_source() -> None:
    bench = CleanerBench()
    bench.put((b"a", b"1"), (b"a", b"2"), timestamp=-1)
    bench.seal()
    modified = bench.log.segments[0].modified_ms()
    bench.clock.now_ms = 10_000
    bench.clean()
    assert bench.log.segments[0].modified_ms() == modified


def test_a_reader_of_the_old_segment_is_not_disturbed() -> None:
    bench = CleanerBench()
    bench.put((b"a", b"1"))
    bench.put((b"a", b"2"))
    bench.seal()
    old = read(bench.log).records
    expected = old.read()
    bench.clean()
    assert old.read() == expected
    assert len(expected) > bench.log.segments[0].size
    bench.due.run_for(COMPACTED.file_delete_delay_ms)
    assert not [name for name in bench.names() if name.endswith(".deleted")]


def test_producer_snapshots_are_removed_with_their_segments() -> None:
    bench = CleanerBench()
    for sequence in range(4):
        bench.put(
            (b"k%d" % sequence, b"1"), producer_id=1, producer_epoch=0, base_sequence=sequence
        )
        bench.log.roll()
    assert bench.log.producer_state.snapshots == [1, 2, 3, 4]
    bench.seal_and_clean()
    assert bench.log.producer_state.snapshots == [4]


# -- compact,delete -------------------------------------------------------------------------------


def test_compact_and_delete_applies_retention_too() -> None:
    both = replace(COMPACTED, cleanup_policy=("compact", "delete"), retention_ms=1000)
    bench = CleanerBench(both)
    bench.put((b"a", b"1"))
    bench.seal()
    bench.put((b"b", b"1"), (b"b", b"2"), timestamp=NOW_MS + 1500)
    bench.seal()
    bench.clock.now_ms = 1500
    bench.clean()
    assert bench.log.log_start_offset == 1
    assert bench.pairs() == [(b"b", b"2")]
    assert bench.checkpoint() == 3


def test_compact_alone_deletes_only_segments_below_the_log_start() -> None:
    bench = CleanerBench(replace(COMPACTED, retention_ms=1000, segment_bytes=100))
    for index in range(3):
        bench.put((b"k%d" % index, bytes(20)))
    bench.seal()
    bench.clock.now_ms = DAY_MS
    bench.log.maybe_increment_log_start_offset(1, "records deleted")
    bench.clean()
    assert bench.log.log_start_offset == 1
    assert bench.offsets() == [1, 2]


# -- called off, and failing ----------------------------------------------------------------------


def half_way(bench: CleanerBench) -> None:
    """Begin a pass and stop after it has written a part."""
    bench.cleaner.start()
    while not bench.suffixes():
        assert bench.due.step()


def filled() -> CleanerBench:
    bench = CleanerBench()
    for index in range(10):
        bench.put((b"k%d" % (index % 2), bytes(100)))
    bench.seal()
    return bench


def test_an_aborted_cleaning_leaves_no_files() -> None:
    bench = filled()
    half_way(bench)
    bench.cleaner.abort_cleaning(PARTITION)
    assert bench.suffixes() == []
    assert bench.offsets() == list(range(10))
    bench.clean()
    assert bench.offsets() == [8, 9]


def test_a_truncation_below_the_active_segment_aborts_the_cleaning() -> None:
    bench = filled()
    half_way(bench)
    bench.cleaner.before_truncation(PARTITION, bench.log.log_end_offset)
    assert bench.cleaner.in_progress == [PARTITION]
    bench.cleaner.before_truncation(PARTITION, 5)
    assert bench.cleaner.in_progress == []
    bench.log.truncate_to(5)
    assert bench.offsets() == list(range(5))


def test_a_log_truncated_during_a_pass_is_not_replaced() -> None:
    bench = filled()
    half_way(bench)
    bench.log.truncate_to(5)
    while bench.cleaner.in_progress:
        assert bench.due.step()
    assert bench.suffixes() == []
    assert bench.offsets() == list(range(5))


def test_a_damaged_batch_makes_the_log_uncleanable_and_changes_nothing() -> None:
    bench = filled()
    path = f"{DIRECTORY}/{0:020d}.log"
    before = bytearray(bench.disk.read(path))
    before[-1] ^= 1
    bench.disk.open(path).write_at(bytes(before), 0)
    bench.clean()
    assert bench.cleaner.uncleanable == {PARTITION}
    assert bench.suffixes() == []
    assert bench.disk.read(path) == bytes(before)
    bench.clean()
    assert bench.checkpoint() is None


def test_a_disk_that_fails_takes_the_directory_offline() -> None:
    import errno

    from barnabas.sim.disk import DiskFault

    bench = filled()
    fault = DiskFault(f"{DIRECTORY}/{0:020d}.log.cleaned", ("write",), errno.ENOSPC)
    bench.disk.faults.append(fault)
    bench.clean()
    ((path, error),) = bench.failures
    assert (path, error.errno) == ("/data", errno.ENOSPC)


def test_an_interrupted_pass_is_retried() -> None:
    from barnabas.runtime.offload import OffloadError

    bench = filled()
    half_way(bench)
    (cleaning,) = bench.cleaner._passes.values()
    assert cleaning.work is not None
    cleaning.work.cancel()
    bench.cleaner._on_done(cleaning, OffloadError("the process has died"))
    assert bench.suffixes() == []
    bench.due.run_for(15_000)
    assert bench.offsets() == [8, 9]


def test_compaction_needs_a_compacted_log() -> None:
    bench = CleanerBench(LogConfig())
    bench.put((b"a", b"1"), (b"a", b"2"))
    bench.seal_and_clean()
    assert bench.offsets() == [0, 1]


# -- what it shows --------------------------------------------------------------------------------


def shown(bench: CleanerBench) -> dict[str, float]:
    from barnabas.storage.manager.log_gauges import cleaner_families

    families = cleaner_families(bench.cleaner, [bench.data_directory])
    return {each.name.rpartition(":")[2]: value for each in families for _, value in each.samples}


def test_statistics_have_kafkas_names() -> None:
    config = CleanerConfig(
        log_cleaner_dedupe_buffer_size=160 * 4, log_cleaner_io_buffer_load_factor=1.0
    )
    bench = CleanerBench(COMPACTED, config)
    for number in range(20):
        bench.put((b"k%d" % (number % 2), bytes(100)))
    bench.seal_and_clean()
    bench.clock.now_ms = 3000
    found = shown(bench)
    assert found["cleaner-recopy-percent"] == 10
    assert found["max-buffer-utilization-percent"] == 50
    assert found["time-since-last-run-ms"] == 3000
    assert found["max-dirty-percent"] == 0
    assert (found["uncleanable-partitions-count"], found["uncleanable-bytes"]) == (0, 0)


def test_uncleanable_logs_are_shown_with_their_uncompacted_bytes() -> None:
    bench = filled()
    bench.cleaner.uncleanable.add(PARTITION)
    found = shown(bench)
    assert found["uncleanable-partitions-count"] == 1
    assert found["uncleanable-bytes"] == bench.log.size


def test_the_cleaner_goes_on_after_the_examination_of_a_log_raised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = CleanerBench()
    bench.put((b"k", b"1"), (b"k", b"2"))
    bench.seal()
    examine, calls = LogCleaner._check_log, []

    def failing(cleaner: LogCleaner, partition: TopicPartition) -> Iterator[Pass]:
        calls.append(partition)
        if len(calls) == 1:
            raise MemoryError
        return examine(cleaner, partition)

    monkeypatch.setattr(LogCleaner, "_check_log", failing)
    bench.cleaner.start()
    with pytest.raises(MemoryError):
        bench.due.run_for(1)
    bench.due.run_for(bench.cleaner_config.log_cleaner_backoff_ms + 1)
    assert bench.pairs() == [(b"k", b"2")]
