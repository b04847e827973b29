"""Loading, offsets, timeouts, and records that the log has lost."""

from __future__ import annotations

import pytest

from barnabas.server.share.records.in_flight_records import InFlightRecords, StoredBatch
from unit.server.share.share_fixtures import ACCEPT, RELEASE, Bench


def test_terminal_records_are_dropped_when_the_state_is_loaded() -> None:
    bench = Bench((5, 6, 2, 1), (7, 7, 4, 5), (8, 9, 0, 2), (10, 10, 2, 1), start_offset=5)
    assert bench.offsets == (8, 10, 8)
    assert bench.states == "8-9:V2 10-10:D1"
    assert bench.records.in_flight.delivery_complete_count == 1


def test_the_start_offset_stays_at_a_gap_of_the_stored_state() -> None:
    bench = Bench((0, 3, 2, 1), (6, 9, 2, 1))
    assert bench.offsets == (4, 9, 4)
    bench.append(10)
    assert bench.fetch() == [(4, 5, 1)]
    bench.acknowledge((4, 5, [ACCEPT]))
    # The batch at the end of the stored state is dropped after the next acknowledgement.
    assert bench.offsets == (6, 9, 10)
    bench.append(2)
    assert bench.fetch() == [(10, 11, 1)]
    bench.acknowledge((10, 11, [ACCEPT]))
    assert bench.offsets == (12, 12, 12)


@pytest.mark.parametrize(
    "stored",
    [
        [StoredBatch(4, 5, 0, 1)],
        [StoredBatch(5, 4, 0, 1)],
        [StoredBatch(5, 7, 0, 1), StoredBatch(7, 8, 0, 1)],
        [StoredBatch(5, 7, 5, 1)],
    ],
)
def test_invalid_states_are_refused(stored: list[StoredBatch]) -> None:
    with pytest.raises(ValueError, match="invalid state batch"):
        InFlightRecords.load(5, stored)


def test_locks_time_out_and_release_or_archive() -> None:
    bench = Bench(delivery_count_limit=2)
    bench.append(2, 2)
    bench.fetch(records_max=2)
    bench.wait(500)
    bench.fetch("b")
    bench.wait(500)
    assert bench.states == "0-1:V1 2-3:A1b"
    bench.wait(500)
    assert bench.states == "0-3:V1"
    bench.fetch("c")
    bench.wait(1_000)
    assert bench.offsets == (4, 4, 4)


def test_outdated_timeouts_do_not_accumulate() -> None:
    bench = Bench(lock_duration_ms=3_600_000)
    bench.append(*[2] * 5_000)
    for first in range(0, 10_000, 2):
        bench.fetch(records_max=2, batches_max=1)
        bench.acknowledge((first, first + 1, [ACCEPT]))
    assert len(bench.records._timeouts) < 2_000


def test_available_records_below_the_log_start_are_archived() -> None:
    bench = Bench()
    bench.append(4, 4)
    bench.fetch()
    bench.acknowledge((0, 3, [RELEASE]))
    bench.records.in_flight.move_log_start(2)
    assert bench.states == "0-1:X1 2-3:V1 4-7:A1a"
    assert bench.offsets == (2, 7, 2)


def test_acquired_records_below_the_log_start_are_archived_by_the_timeout() -> None:
    bench = Bench()
    bench.append(4)
    bench.fetch()
    bench.records.in_flight.move_log_start(9)
    assert bench.states == "0-3:A1a"
    assert bench.offsets == (9, 9, 9)
    bench.wait(1_000)
    assert bench.states == ""
    assert bench.offsets == (9, 9, 9)


def test_the_start_offset_never_moves_back() -> None:
    bench = Bench(start_offset=7)
    assert not bench.records.in_flight.move_log_start(7)
    assert not bench.records.in_flight.move_log_start(3)
    assert bench.records.in_flight.move_log_start(8)
    assert bench.offsets == (8, 8, 8)


def test_acknowledged_records_below_a_moved_start_are_not_counted() -> None:
    bench = Bench()
    bench.append(6)
    bench.fetch()
    bench.acknowledge((2, 4, [ACCEPT]))
    assert bench.records.in_flight.delivery_complete_count == 3
    bench.records.in_flight.move_log_start(3)
    assert bench.records.in_flight.delivery_complete_count == 2


def test_the_log_start_divides_records_that_are_being_written() -> None:
    bench = Bench()
    bench.append(6)
    bench.fetch()
    change = bench.begin((0, 5, [ACCEPT]))
    bench.records.in_flight.move_log_start(2)
    bench.wait(1_000)
    bench.end(change, is_written=False)
    assert bench.states == "0-1:X1 2-5:V1"
    assert bench.offsets == (2, 5, 2)
