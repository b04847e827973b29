"""The search for a record by its timestamp in the remote tier and in the local log."""

from __future__ import annotations

import pytest

from barnabas.record.compression import GZIP
from barnabas.storage.errors import StorageError
from barnabas.storage.remote.remote_storage import RemoteDamagedError, RemoteMissingError
from barnabas.storage.remote.segment_states import RemoteLog
from barnabas.storage.remote.time_search import find_by_timestamp
from unit.storage.remote.tiered_log import WHERE, TieredLog


@pytest.fixture
def tiered() -> TieredLog:
    """Three remote segments of two batches, then a local one. Record n has timestamp 1000 * n."""
    tiered = TieredLog()
    for segment in range(4):
        for number in range(2):
            offset = 2 * segment + number
            tiered.append(b"%d" % offset, timestamp=1_000 * offset)
        if segment < 3:
            tiered.log.roll()
    tiered.copy()
    tiered.leave()
    assert tiered.log.local_log_start_offset == 6
    return tiered


def find(tiered: TieredLog, timestamp: int) -> tuple[int, int, int] | None:
    search = find_by_timestamp(tiered.reader, tiered.log, tiered.remote, timestamp)
    return tiered.find(search)


@pytest.mark.parametrize("timestamp", [0, 1, 999, 1_000, 2_500, 4_000, 5_000, 5_001, 7_000])
def test_the_first_record_at_or_after_a_time_is_found(tiered: TieredLog, timestamp: int) -> None:
    offset = -(-timestamp // 1_000)
    assert find(tiered, timestamp) == (1_000 * offset, offset, 0)


def test_nothing_is_found_after_the_last_record(tiered: TieredLog) -> None:
    assert find(tiered, 7_001) is None


def test_only_segments_that_may_have_the_record_are_loaded(tiered: TieredLog) -> None:
    assert find(tiered, 4_500) == (5_000, 5, 0)
    assert tiered.loads == ["indexes", "range"]
    assert find(tiered, 6_000) == (6_000, 6, 0)
    assert len(tiered.loads) == 2


def test_records_below_the_log_start_are_not_found(tiered: TieredLog) -> None:
    tiered.log.maybe_increment_log_start_offset(3, "test")
    assert find(tiered, 0) == (3_000, 3, 0)


def test_a_record_within_a_compressed_batch_is_found() -> None:
    tiered = TieredLog()
    tiered.append(b"early", timestamp=1_000)
    # Decompressed off the loop.
    tiered.append(bytes(2 << 20), timestamp=2_000, compression=GZIP)
    tiered.log.roll()
    tiered.append(b"later", timestamp=3_000)
    tiered.copy()
    tiered.leave()
    assert find(tiered, 1_500) == (2_000, 1, 0)


def test_a_gap_in_the_tier_is_passed(tiered: TieredLog) -> None:
    segments = tiered.remote.segments()
    tiered.remote = RemoteLog(WHERE)
    for each in (segments[0], segments[2]):
        tiered.finish(each, each.custom or b"")
    assert find(tiered, 2_000) == (4_000, 4, 0)
    tiered.remote = RemoteLog(WHERE)
    assert find(tiered, 2_000) == (6_000, 6, 0)


def test_timestamps_that_do_not_ascend_are_found() -> None:
    tiered = TieredLog()
    for timestamp in (5_000, 1_000, 9_000, 2_000):
        tiered.append(b"value", timestamp=timestamp)
        tiered.log.roll()
    tiered.copy()
    tiered.leave()
    assert find(tiered, 3_000) == (5_000, 0, 0)
    assert find(tiered, 6_000) == (9_000, 2, 0)


def test_failures_of_the_store_end_the_search(tiered: TieredLog) -> None:
    tiered.store.lose(tiered.remote.segments()[0])
    with pytest.raises(RemoteMissingError):
        find(tiered, 0)
    assert find(tiered, 3_000) == (3_000, 3, 0)


def test_damaged_segments_end_the_search(tiered: TieredLog) -> None:
    segment = tiered.remote.segments()[0]
    tiered.store.disk.write_atomically(tiered.store._path(segment) + ".log", bytes(segment.size))
    with pytest.raises(RemoteDamagedError):
        find(tiered, 0)


def test_a_search_ends_with_an_error_that_is_thrown_into_it(tiered: TieredLog) -> None:
    search = find_by_timestamp(tiered.reader, tiered.log, tiered.remote, 0)
    next(search)
    with pytest.raises(StorageError):
        search.throw(RemoteMissingError("lost"))
