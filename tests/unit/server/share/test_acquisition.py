"""Acquisition of records by members of a share group."""

from __future__ import annotations

import pytest

from barnabas.server.share.records.acquisition import (
    RECORD_LIMIT,
    FetchedBatch,
    throttled_deliveries,
)
from barnabas.server.share.records.share_records import FetchedRecords, MemberRequest
from barnabas.storage.results import AbortedTransaction
from unit.server.share.share_fixtures import ACCEPT, RELEASE, Bench


def test_whole_record_batches_are_acquired_even_above_the_maximum() -> None:
    bench = Bench()
    bench.append(3, 3, 3)
    assert bench.fetch(records_max=4) == [(0, 5, 1)]
    assert bench.fetch() == [(6, 8, 1)]
    assert bench.fetch() == []


def test_acquired_records_are_divided_at_record_batches() -> None:
    bench = Bench()
    bench.append(3, 3, 3, 3)
    assert bench.fetch(batch_size=4) == [(0, 5, 1), (6, 11, 1)]


def test_a_record_limit_is_exact() -> None:
    bench = Bench()
    bench.append(6)
    assert bench.fetch(records_max=2, mode=RECORD_LIMIT) == [(0, 1, 1)]
    assert bench.states == "0-1:A1a 2-5:V0"
    assert bench.fetch("b", records_max=2, mode=RECORD_LIMIT) == [(2, 3, 1)]
    assert bench.fetch("b") == [(4, 5, 1)]


def test_released_records_are_fetched_before_new_ones() -> None:
    bench = Bench()
    bench.append(4, 4)
    bench.fetch(records_max=4)
    bench.acknowledge((1, 2, [RELEASE]))
    assert bench.offsets == (0, 3, 1)
    assert bench.fetch("b") == [(1, 2, 2), (4, 7, 1)]


def test_the_limit_of_record_locks_stops_new_records_only() -> None:
    bench = Bench(record_locks_max=6)
    bench.append(3, 3, 3)
    assert bench.fetch() == [(0, 5, 1)]
    assert not bench.records.in_flight.can_acquire(bench.limits)
    bench.acknowledge((4, 4, [RELEASE]))
    assert bench.records.in_flight.can_acquire(bench.limits)
    assert bench.fetch("b") == [(4, 4, 2)]
    assert bench.fetch("b") == []
    bench.acknowledge((0, 3, [ACCEPT]))
    assert bench.fetch("b") == [(6, 8, 1)]


def test_records_near_the_limit_of_deliveries_come_in_smaller_portions() -> None:
    bench = Bench()
    bench.append(8)
    bench.fetch()
    sizes: list[int] = []
    for _ in range(20):
        acquired = bench.fetch() if sizes else [(0, 7, 1)]
        if not acquired:
            break
        sizes.append(sum(last - first + 1 for first, last, _ in acquired))
        for first, last, _ in acquired:
            bench.acknowledge((first, last, [RELEASE]))
    # Two whole deliveries more, then portions of a half and a quarter, and each record alone.
    assert sizes[:5] == [8, 8, 8, 4, 1]
    assert bench.states == ""


@pytest.mark.parametrize(("limit", "expected"), [(2, 2), (3, 2), (4, 2), (5, 3), (6, 3), (10, 5)])
def test_throttling_begins_at_half_of_the_deliveries(limit: int, expected: int) -> None:
    assert throttled_deliveries(limit) == expected


def test_compacted_batches_are_archived_when_a_read_skips_them() -> None:
    bench = Bench()
    bench.append(2, 2, 2)
    bench.fetch()
    bench.acknowledge((0, 5, [RELEASE]))
    del bench.log[0]
    # A batch of the cache is acquired as a whole where its records remain.
    assert bench.fetch("b") == [(2, 5, 2)]
    assert bench.states == "0-1:X1 2-5:A2b"
    assert bench.records.in_flight.delivery_complete_count == 2


def test_records_of_aborted_transactions_are_archived() -> None:
    bench = Bench()
    batches = [
        FetchedBatch(0, 1),
        FetchedBatch(2, 3, 7, True),
        FetchedBatch(4, 5, 8, True),
        FetchedBatch(6, 6, 7, False, True),
        FetchedBatch(7, 8, 7, True),
    ]
    acquired = bench.records.acquire(
        MemberRequest("a", 0, 500),
        500,
        FetchedRecords(0, batches, [AbortedTransaction(7, 2)]),
        bench.limits,
        0.0,
    )
    assert [(each.first, each.last) for each in acquired] == [(0, 1), (4, 8)]
    assert bench.states == "0-1:A1a 2-3:X1 4-8:A1a"


def test_a_new_leader_fetches_gaps_between_stored_batches_again() -> None:
    bench = Bench((4, 5, 2, 1), (8, 9, 0, 1))
    bench.append(10)
    assert bench.offsets == (0, 9, 0)
    assert bench.fetch() == [(0, 3, 1), (6, 7, 1), (8, 9, 2)]
    assert bench.states == "0-3:A1a 4-5:D1 6-7:A1a 8-9:A2a"


def test_a_start_offset_inside_a_record_batch_is_kept() -> None:
    bench = Bench(start_offset=3)
    bench.append(6)
    assert bench.fetch() == [(3, 5, 1)]


def test_a_record_is_acquired_again_in_a_batch_that_begins_below_the_start_offset() -> None:
    # After a leader change, the first batch in flight begins inside the record batch 3-6.
    bench = Bench(start_offset=5)
    bench.append(3, 4, 2)
    assert bench.fetch() == [(5, 8, 1)]
    bench.acknowledge((5, 8, [ACCEPT, RELEASE, ACCEPT, RELEASE]))
    assert bench.states == "5-5:D1 6-6:V1 7-7:D1 8-8:V1"
    assert bench.offsets == (6, 8, 6)
    assert bench.fetch() == [(6, 6, 2), (8, 8, 2)]


def test_the_delivery_count_stays_at_its_maximum() -> None:
    bench = Bench((0, 0, 0, 32_766), (1, 1, 0, 32_767))
    bench.append(2)
    assert [bench.fetch(), bench.fetch()] == [[(0, 0, 32_767)], [(1, 1, 32_767)]]
