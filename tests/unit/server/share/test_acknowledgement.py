"""Acknowledgements, renewals and releases of records of a share group."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barnabas.server.share.records import acknowledgement
from barnabas.server.share.records.in_flight_records import InFlightRecords
from barnabas.server.share.records.record_states import RecordRun
from unit.server.share.share_fixtures import ACCEPT, GAP, REJECT, RELEASE, RENEW, Bench


def fetched(*sizes: int, **limits: int | bool) -> Bench:
    bench = Bench(**limits)
    bench.append(*sizes)
    bench.fetch()
    return bench


def test_each_type_leads_to_its_state() -> None:
    bench = fetched(5)
    change = bench.begin((0, 4, [RELEASE, ACCEPT, REJECT, GAP, RELEASE]))
    bench.end(change)
    assert bench.states == "0-0:V1 1-1:D1 2-3:X1 4-4:V1"
    assert bench.records.in_flight.delivery_complete_count == 3


def test_the_start_offset_moves_above_terminal_records() -> None:
    bench = fetched(4, 4)
    bench.acknowledge((0, 1, [ACCEPT]))
    assert bench.offsets[0] == 2
    bench.acknowledge((2, 5, [REJECT]))
    assert bench.offsets == (6, 7, 8)
    bench.acknowledge((6, 7, [ACCEPT]))
    assert bench.offsets == (8, 8, 8)
    assert bench.states == ""


def test_records_are_not_acquired_while_their_release_is_written() -> None:
    bench = fetched(3)
    change = bench.begin((0, 2, [RELEASE]))
    assert bench.fetch("b") == []
    bench.end(change)
    assert bench.fetch("b") == [(0, 2, 2)]


def test_a_failed_write_restores_the_lock() -> None:
    bench = fetched(3)
    bench.end(bench.begin((0, 2, [ACCEPT])), is_written=False)
    assert bench.states == "0-2:A1a"
    assert bench.records.in_flight.delivery_complete_count == 0
    bench.wait(1_000)
    assert bench.states == "0-2:V1"


def test_a_failed_write_after_the_timeout_releases_the_records() -> None:
    bench = fetched(3)
    change = bench.begin((0, 2, [ACCEPT]))
    bench.wait(1_000)
    bench.end(change, is_written=False)
    assert bench.states == "0-2:V1"


def test_the_last_delivery_archives_released_records() -> None:
    bench = fetched(2, delivery_count_limit=2)
    bench.acknowledge((0, 1, [RELEASE]))
    assert bench.fetch("b") == [(0, 1, 2)]
    bench.acknowledge((0, 1, [RELEASE]), member="b")
    assert bench.offsets == (2, 2, 2)


def test_only_the_owner_acknowledges() -> None:
    bench = fetched(4)
    assert bench.refusal((0, 3, [ACCEPT]), member="b") == "INVALID_RECORD_STATE"
    bench.acknowledge((0, 0, [RELEASE]))
    bench.fetch("b")
    assert bench.refusal((0, 1, [ACCEPT]), member="b") == "INVALID_RECORD_STATE"
    assert bench.states == "0-0:A2b 1-3:A1a"


def test_unknown_offsets_are_refused() -> None:
    bench = Bench(start_offset=5)
    assert bench.refusal((5, 6, [ACCEPT])) == "INVALID_RECORD_STATE"
    bench = fetched(4)
    assert bench.refusal((4, 5, [ACCEPT])) == "INVALID_REQUEST"
    assert bench.refusal((3, 5, [ACCEPT])) == "INVALID_REQUEST"
    bench.acknowledge((0, 3, [ACCEPT]))
    # The records are processed: their acknowledgement is repeated.
    bench.acknowledge((0, 3, [ACCEPT]))


def test_a_refused_batch_undoes_the_batches_before_it() -> None:
    bench = fetched(4)
    assert bench.refusal((0, 1, [ACCEPT]), (1, 2, [ACCEPT])) == "INVALID_RECORD_STATE"
    assert bench.states == "0-3:A1a"
    assert bench.records.in_flight.delivery_complete_count == 0


def test_a_renewed_lock_lasts_longer() -> None:
    bench = fetched(4)
    bench.wait(600)
    assert not bench.begin((0, 3, [RENEW]))
    bench.wait(600)
    assert bench.states == "0-3:A1a"
    assert not bench.begin((0, 3, [RENEW, RENEW, ACCEPT, RENEW])).runs[1:]
    bench.wait(400)
    bench.wait(600)
    assert bench.states.startswith("0-1:V1")


def test_a_group_may_forbid_renewals() -> None:
    bench = fetched(2, can_renew=False)
    assert bench.refusal((0, 1, [RENEW])) == "INVALID_RECORD_STATE"
    assert bench.refusal((0, 0, [RENEW])) == "INVALID_RECORD_STATE"


def test_records_of_a_session_that_ends_are_released() -> None:
    bench = fetched(2, 2)
    bench.acknowledge((1, 1, [ACCEPT]))
    bench.end(bench.records.release_member("a", bench.limits))
    assert bench.states == "0-0:V1 1-1:D1 2-3:V1"


def test_only_the_records_of_the_member_are_released() -> None:
    bench = fetched(3)
    bench.acknowledge((1, 1, [RELEASE]))
    bench.fetch("b")
    bench.end(bench.records.release_member("b", bench.limits))
    assert bench.states == "0-0:A1a 1-1:V2 2-2:A1a"


def test_records_below_a_moved_log_start_are_archived_at_their_release() -> None:
    bench = fetched(6)
    bench.records.in_flight.move_log_start(2)
    change = bench.records.release_member("a", bench.limits)
    assert [tuple(map(int, each)) for each in change.states()] == [(0, 1, 4, 1), (2, 5, 0, 1)]


def test_too_many_ranges_are_refused() -> None:
    count = acknowledgement.RANGES_MAX + 1
    bench = fetched(count, record_locks_max=10 * count)
    types = [1 + offset % 2 for offset in range(count)]
    bench.records.in_flight.batches[0].runs_in(0, 0)
    assert bench.refusal((0, count - 1, types)) == "INVALID_REQUEST"


def test_too_many_renewals_of_one_batch_are_refused() -> None:
    bench = fetched(1)
    renewals = [(0, 0, [RENEW])] * (acknowledgement.RANGES_MAX + 1)
    assert bench.refusal(*renewals) == "INVALID_REQUEST"


def test_a_renewal_of_adjacent_batches_is_one_timeout_and_all_locks_end() -> None:
    bench = fetched(*[1] * 50)
    bench.wait(600)
    assert not bench.begin(*((offset, offset, [RENEW]) for offset in range(50)))
    assert len(bench.records._timeouts) == 2
    bench.wait(600)
    assert bench.states == "0-49:A1a"
    bench.wait(400)
    assert bench.states == "0-49:V1"


def test_renewals_of_many_batches_seldom_walk_over_all_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The queue of timeouts drops outdated entries, which costs a walk over all records."""
    bench = Bench(record_locks_max=8_000)
    bench.append(*[1] * 8_000)
    for _ in range(8_000 // 500):
        bench.fetch(records_max=500, batches_max=500)
    real, walks = InFlightRecords.runs, []

    def runs(records: InFlightRecords) -> Iterator[RecordRun]:
        walks.append(records)
        return real(records)

    monkeypatch.setattr(InFlightRecords, "runs", runs)
    # Every second record, so that no two renewals are one range.
    for _ in range(3):
        assert not bench.begin(*((offset, offset, [RENEW]) for offset in range(0, 8_000, 2)))
    assert 0 < len(walks) < 10
    assert len(bench.records._timeouts) < 20_000
