"""Closed segments as sources of copies in the remote tier (KIP-405)."""

from __future__ import annotations

from msgspec.structs import replace

from barnabas.record.batch import ControlType
from barnabas.storage.config import LogConfig
from barnabas.storage.files.leader_epoch_cache import decode_epochs
from barnabas.storage.producers.producer_entry import decode_snapshot
from barnabas.storage.segment.transaction_index import ENTRY_BYTES
from unit.storage.storage_fixtures import NOW_MS, Bench, batch, marker

SIZE = len(batch([bytes(100)]))
TIERED = LogConfig(
    segment_bytes=SIZE * 2, index_interval_bytes=SIZE, is_remote=True, remote_storage_enable=True
)
RECORDS = 8


def bench_of(config: LogConfig = TIERED) -> Bench:
    """Return a log with the segments [0, 2), [2, 4), [4, 6) and the active one, [6, 8)."""
    bench = Bench(config)
    for index in range(RECORDS):
        bench.append(batch([bytes(100)], timestamp=NOW_MS + index), epoch=index // 3)
    return bench


def bases(bench: Bench, from_offset: int, stable: int = RECORDS) -> list[int]:
    return [each.base_offset for each in bench.log.copyable_segments(from_offset, stable)]


def test_closed_segments_below_the_stable_offset_can_be_copied() -> None:
    bench = bench_of()
    assert bases(bench, 0) == [0, 2, 4]
    assert bases(bench, 0, 5) == [0, 2]
    assert bases(bench, 0, 4) == [0, 2]
    assert bases(bench, 0, 1) == []


def test_a_segment_that_contains_the_first_offset_without_a_copy_is_included() -> None:
    # Another leader closed its segments elsewhere.
    bench = bench_of()
    assert [bases(bench, offset) for offset in (2, 3, 4, 6, 100)] == [[2, 4], [2, 4], [4], [], []]


def test_the_active_segment_is_not_copied_even_if_it_is_empty() -> None:
    bench = bench_of()
    bench.log.roll()
    assert bases(bench, 0) == [0, 2, 4, 6]
    assert bases(bench, 8) == []


def test_a_call_returns_a_limited_number_of_segments() -> None:
    found = bench_of().log.copyable_segments(0, RECORDS, count_max=2)
    assert [each.base_offset for each in found] == [0, 2]


def test_a_segment_is_described_with_its_size_time_and_the_bytes_after_it() -> None:
    first, *_, last = bench_of().log.copyable_segments(0, RECORDS)
    assert first == (0, 2, SIZE * 2, NOW_MS + 1, SIZE * 6)
    assert last == (4, 6, SIZE * 2, NOW_MS + 5, SIZE * 2)


def test_a_segment_without_timestamps_is_as_old_as_its_file() -> None:
    bench = Bench(TIERED)
    for _ in range(3):
        bench.append(batch([bytes(100)], timestamp=-1))
    (found,) = bench.log.copyable_segments(0, 2)
    assert found.max_timestamp == NOW_MS


def test_segments_above_an_offset_are_counted_with_the_active_one() -> None:
    bench = bench_of()
    sizes = [bench.log.local_size_above(offset) for offset in (-1, 0, 1, 5, 6)]
    assert sizes == [SIZE * 8, SIZE * 6, SIZE * 6, SIZE * 2, 0]
    assert [bench.log.local_count_above(offset) for offset in (-1, 0, 1, 5, 6)] == [4, 3, 3, 1, 0]


def test_a_copy_has_the_files_of_the_segment() -> None:
    bench = bench_of()
    files = bench.log.open_for_copy(2)
    assert files is not None
    assert bench.disk.read(files.log_path)[: files.log_size] == bench.disk.read(files.log_path)
    assert files.log_size == SIZE * 2
    stem = files.log_path.removesuffix(".log")
    bench.log.sync.flush(force=True)
    assert files.offset_index == bench.disk.read(f"{stem}.index")
    assert files.time_index == bench.disk.read(f"{stem}.timeindex")
    assert len(files.time_index) >= 12
    assert files.transaction_index is None
    assert files.producer_snapshot == bench.disk.read(bench.log.producer_state.snapshot_path(4))
    assert files.leader_epochs == b"0\n2\n0 0\n1 3\n"


def test_the_copy_of_a_reopened_log_is_the_same() -> None:
    bench = bench_of()
    before = bench.log.open_for_copy(2)
    bench.reopen_cleanly()
    assert bench.log.open_for_copy(2) == before
    bench.kill_and_reopen()
    assert bench.log.open_for_copy(2) == before


def test_the_epochs_of_a_copy_reach_from_the_log_start_to_the_segments_end() -> None:
    bench = bench_of()
    bench.log.update_high_watermark(RECORDS)
    bench.log.maybe_increment_log_start_offset(1, "test")
    found = [bench.log.open_for_copy(base) for base in (0, 2, 4)]
    entries = [decode_epochs(each.leader_epochs) for each in found if each is not None]
    assert entries == [[(0, 1)], [(0, 1), (1, 3)], [(0, 1), (1, 3)]]
    assert bench.log.leader_epochs.entries_in(2, 4) == [(0, 2), (1, 3)]


def test_aborted_transactions_and_producers_are_copied() -> None:
    bench = Bench(replace(TIERED, segment_bytes=1 << 20))
    values = {"producer_id": 4, "producer_epoch": 0, "transactional": True}
    bench.append(batch([b"a"], base_sequence=0, **values))
    bench.coordinate(marker(ControlType.ABORT, 4))
    bench.log.roll()
    files = bench.log.open_for_copy(0)
    assert files is not None
    assert files.transaction_index is not None
    assert len(files.transaction_index) == ENTRY_BYTES
    assert [entry.producer_id for entry in decode_snapshot(files.producer_snapshot)] == [4]


def test_a_lost_snapshot_is_copied_as_an_empty_one() -> None:
    bench = bench_of()
    bench.disk.remove(bench.log.producer_state.snapshot_path(4))
    files = bench.log.open_for_copy(2)
    assert files is not None
    assert decode_snapshot(files.producer_snapshot) == []


def test_only_closed_segments_that_exist_can_be_copied() -> None:
    bench = bench_of()
    assert bench.log.open_for_copy(6) is None
    assert bench.log.open_for_copy(3) is None
    bench.log.update_high_watermark(RECORDS)
    bench.log.maybe_increment_log_start_offset(4, "test")
    bench.log.delete_old_segments(NOW_MS)
    assert bench.log.open_for_copy(2) is None
    assert bench.log.open_for_copy(4) is not None


def test_an_append_tells_that_it_closed_a_segment() -> None:
    bench = Bench(TIERED)
    rolled = [bench.append(batch([bytes(100)])).rolled for _ in range(5)]
    assert rolled == [False, False, True, False, True]
