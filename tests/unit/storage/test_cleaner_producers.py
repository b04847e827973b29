"""Compaction and producers: sequences are kept without records; aborted data is removed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.record.batch import ControlType
from barnabas.storage.errors import InvalidProducerEpochError, OutOfOrderSequenceError
from barnabas.storage.results import FetchIsolation
from barnabas.storage.topic_partition import TXN_INDEX_SUFFIX
from unit.storage.cleaner_fixtures import DAY_MS, CleanerBench, all_batches, keyed
from unit.storage.storage_fixtures import NOW_MS, marker, read

if TYPE_CHECKING:
    from barnabas.record.batch import BatchHeader

PRODUCER = {"producer_id": 7, "producer_epoch": 0}
TRANSACTION = {**PRODUCER, "transactional": True}


def headers(bench: CleanerBench) -> list[tuple[int, int, bool]]:
    """Base offset, number of records and whether it is a control batch, of each batch."""
    return [
        (header.base_offset, header.record_count, header.is_control)
        for header, _ in all_batches(bench.log)
    ]


def by_base(bench: CleanerBench) -> dict[int, BatchHeader]:
    return {header.base_offset: header for header, _ in all_batches(bench.log)}


def test_the_last_batch_of_an_active_producer_stays_without_its_records() -> None:
    bench = CleanerBench()
    bench.put((b"a", b"1"), base_sequence=0, **PRODUCER)
    bench.put((b"a", b"2"), base_sequence=1, **PRODUCER)
    bench.put((b"a", b"3"))
    bench.seal_and_clean()
    assert headers(bench) == [(1, 0, False), (2, 1, False)]
    kept = by_base(bench)[1]
    assert (kept.base_sequence, kept.last_sequence, kept.max_timestamp) == (1, 1, NOW_MS)


def test_duplicates_are_detected_after_compaction_and_a_crash() -> None:
    bench = CleanerBench()
    bench.put((b"a", b"1"), base_sequence=0, **PRODUCER)
    bench.put((b"a", b"2"))
    bench.seal_and_clean()
    for name in bench.names():
        if name.endswith(".snapshot"):
            bench.disk.remove(f"/data/topic-0/{name}")
    bench.kill_and_reopen(recovery_point=0)
    assert bench.append(keyed([(b"a", b"1")], base_sequence=0, **PRODUCER)).duplicate
    with pytest.raises(OutOfOrderSequenceError):
        bench.append(keyed([(b"a", b"1")], base_sequence=5, **PRODUCER))
    assert bench.append(keyed([(b"a", b"9")], base_sequence=1, **PRODUCER)).first_offset == 2


def test_empty_batches_of_an_expired_producer_are_removed() -> None:
    bench = CleanerBench()
    bench.put((b"a", b"1"), base_sequence=0, **PRODUCER)
    bench.put((b"a", b"2"))
    bench.seal()
    assert bench.log.producer_state.remove_expired(NOW_MS + 2 * DAY_MS) == 1
    bench.clean()
    assert headers(bench) == [(1, 1, False)]


def abort(bench: CleanerBench, first: int = 0) -> None:
    bench.coordinate(keyed([(b"a", b"aborted")], base_sequence=first, **TRANSACTION))
    bench.coordinate(marker(ControlType.ABORT, 7))


def commit(bench: CleanerBench, first: int = 0) -> None:
    bench.coordinate(keyed([(b"a", b"committed")], base_sequence=first, **TRANSACTION))
    bench.coordinate(marker(ControlType.COMMIT, 7))


def test_records_from_an_open_transaction_on_are_not_compacted() -> None:
    bench = CleanerBench()
    bench.put((b"a", b"1"), (b"a", b"2"))
    bench.log.roll()
    bench.coordinate(keyed([(b"a", b"3")], base_sequence=0, **TRANSACTION))
    bench.put((b"a", b"4"))
    bench.seal_and_clean()
    assert bench.offsets() == [1, 2, 3]
    assert bench.checkpoint() == 2
    bench.coordinate(marker(ControlType.COMMIT, 7))
    bench.seal_and_clean()
    assert bench.offsets() == [3]


def test_aborted_records_are_removed_and_supersede_no_older_records() -> None:
    bench = CleanerBench()
    bench.put((b"a", b"1"))
    abort(bench)
    bench.seal_and_clean()
    # The last batch of the producer is needed for its sequence, the marker is the end of the log.
    assert headers(bench) == [(0, 1, False), (1, 0, False), (2, 1, True)]
    assert bench.pairs() == [(b"a", b"1")]


def test_the_marker_of_an_aborted_transaction_is_kept_longer_than_its_records() -> None:
    bench = CleanerBench()
    abort(bench)
    bench.put((b"b", b"1"), base_sequence=1, **PRODUCER)
    bench.seal_and_clean()
    assert headers(bench) == [(1, 1, True), (2, 1, False)]
    assert by_base(bench)[1].delete_horizon is None
    bench.put((b"c", b"1"))
    bench.seal_and_clean()
    assert by_base(bench)[1].delete_horizon == NOW_MS + DAY_MS
    bench.clock.now_ms = DAY_MS
    bench.put((b"c", b"2"))
    bench.seal_and_clean()
    assert 1 not in by_base(bench)


def test_the_marker_of_a_committed_transaction_is_kept_with_its_records() -> None:
    bench = CleanerBench()
    commit(bench)
    bench.put((b"b", b"1"), base_sequence=1, **PRODUCER)
    bench.seal_and_clean()
    assert by_base(bench)[1].delete_horizon is None
    bench.put((b"a", b"2"))
    bench.seal_and_clean()
    # The record has gone in this pass, so the marker still belonged to something.
    assert (0 in by_base(bench), by_base(bench)[1].delete_horizon) == (False, None)
    bench.put((b"c", b"1"))
    bench.seal_and_clean()
    assert by_base(bench)[1].delete_horizon == NOW_MS + DAY_MS
    bench.clock.now_ms = DAY_MS
    bench.put((b"c", b"2"))
    bench.seal_and_clean()
    assert 1 not in by_base(bench)


def test_a_marker_with_the_last_epoch_of_a_producer_is_kept_empty() -> None:
    bench = CleanerBench()
    bench.coordinate(marker(ControlType.ABORT, 7, epoch=3))
    for _ in range(3):
        bench.put((b"a", b"1"))
        bench.seal_and_clean()
        bench.clock.now_ms += DAY_MS
    bench.put((b"a", b"1"))
    bench.seal_and_clean()
    kept = by_base(bench)[0]
    assert (kept.record_count, kept.is_control, kept.producer_epoch) == (0, True, 3)


def test_the_index_of_aborted_transactions_matches_the_kept_markers() -> None:
    bench = CleanerBench()
    abort(bench)
    bench.put((b"b", b"1"), base_sequence=1, **PRODUCER)
    bench.seal_and_clean()
    (segment, _) = bench.log.segments
    found = bench.log.segments.collect_aborted(0, 2)
    assert [(entry.first_offset, entry.last_offset) for entry in found] == [(0, 1)]
    assert bench.disk.exists(segment.path(TXN_INDEX_SUFFIX))
    bench.put((b"c", b"1"))
    bench.seal_and_clean()
    assert not bench.log.segments[0].txn_index.may_have_entries
    assert bench.log.segments.collect_aborted(0, 2) == []
    assert not bench.disk.exists(bench.log.segments[0].path(TXN_INDEX_SUFFIX))


def test_a_transaction_over_several_segments_is_aborted_in_all_of_them() -> None:
    bench = CleanerBench()
    bench.put((b"a", b"1"))
    for sequence in range(3):
        bench.coordinate(keyed([(b"a", b"x")], base_sequence=sequence, **TRANSACTION))
        bench.log.roll()
    bench.coordinate(marker(ControlType.ABORT, 7))
    bench.put((b"b", b"1"), base_sequence=3, **PRODUCER)
    bench.seal_and_clean()
    assert bench.pairs() == [(b"a", b"1"), (b"b", b"1")]


def test_an_aborted_transaction_with_its_marker_in_the_active_segment_is_removed() -> None:
    bench = CleanerBench()
    bench.put((b"a", b"1"))
    bench.coordinate(keyed([(b"a", b"x")], base_sequence=0, **TRANSACTION))
    bench.log.roll()
    bench.coordinate(marker(ControlType.ABORT, 7))
    bench.replicate()
    bench.log.sync.flush(force=True)
    bench.clean()
    assert bench.pairs() == [(b"a", b"1")]


def test_a_committed_reader_sees_the_same_before_and_after() -> None:
    bench = CleanerBench()
    bench.put((b"a", b"1"))
    abort(bench)
    commit(bench, first=1)
    bench.put((b"b", b"1"))
    bench.seal()

    def visible() -> list[tuple[bytes | None, bytes | None]]:
        result = read(bench.log, isolation=FetchIsolation.TXN_COMMITTED)
        aborted = [each.producer_id for each in result.aborted_transactions or ()]
        found, hidden = {}, False
        for header, records in all_batches(bench.log):
            if header.is_control:
                hidden = False
            elif header.is_transactional and header.base_offset == 1:
                hidden = header.producer_id in aborted
            if not header.is_control and not hidden:
                found.update({record.key: record.value for record in records})
        return list(found.items())

    before = visible()
    bench.clean()
    assert visible() == before == [(b"a", b"committed"), (b"b", b"1")]


def test_an_old_epoch_is_refused_after_cleaning_and_a_crash() -> None:
    bench = CleanerBench()
    bench.put((b"a", b"1"), base_sequence=0, producer_id=7, producer_epoch=2)
    bench.put((b"a", b"2"))
    bench.seal_and_clean()
    bench.kill_and_reopen(recovery_point=0)
    with pytest.raises(InvalidProducerEpochError):
        bench.put((b"a", b"3"), base_sequence=0, producer_id=7, producer_epoch=1)
