"""Records of a share partition that wait for their dead-letter write (KIP-1191)."""

from __future__ import annotations

from unit.server.share.share_fixtures import ACCEPT, GAP, REJECT, RELEASE, Bench


def fetched(*sizes: int, **limits: int | bool) -> Bench:
    bench = Bench(has_dead_letters=True, **limits)
    bench.append(*sizes)
    bench.fetch()
    return bench


def test_rejected_records_hold_the_start_offset_until_they_are_archived() -> None:
    bench = fetched(4)
    bench.acknowledge((0, 3, [REJECT, ACCEPT, GAP, REJECT]))
    assert bench.states == "0-0:G1 1-1:D1 2-2:X1 3-3:G1"
    assert bench.records.in_flight.delivery_complete_count == 2
    assert bench.offsets == (0, 3, 4)
    (run,) = bench.records.in_flight.end_archiving(0, 0)
    assert (run.first, run.last, run.is_rejected) == (0, 0, True)
    assert bench.records.in_flight.delivery_complete_count == 3
    assert bench.records.in_flight.advance()
    assert bench.states == "0-0:X1 1-1:D1 2-2:X1 3-3:G1"
    assert bench.offsets == (3, 3, 4)


def test_archiving_records_are_neither_acquired_nor_acknowledged() -> None:
    bench = fetched(2)
    bench.acknowledge((0, 1, [REJECT]))
    assert bench.fetch("b") == []
    assert bench.refusal((0, 1, [ACCEPT])) == "INVALID_RECORD_STATE"
    bench.wait(2_000)
    assert bench.states == "0-1:G1"


def test_records_become_archiving_at_their_last_delivery_only() -> None:
    bench = fetched(2, delivery_count_limit=2)
    bench.acknowledge((0, 1, [RELEASE]))
    assert bench.states == "0-1:V1"
    assert bench.fetch() == [(0, 1, 2)]
    bench.acknowledge((0, 0, [RELEASE]))
    bench.wait(1_000)
    assert bench.states == "0-1:G2"
    assert not any(run.is_rejected for run in bench.records.in_flight.archiving())


def test_the_end_of_a_session_makes_records_archiving_at_their_last_delivery() -> None:
    bench = fetched(1, delivery_count_limit=1)
    bench.end(bench.records.release_member("a", bench.limits))
    assert bench.states == "0-0:G1"


def test_a_failed_write_restores_rejected_records() -> None:
    bench = fetched(3)
    bench.end(bench.begin((0, 2, [REJECT])), is_written=False)
    assert bench.states == "0-2:A1a"
    bench.acknowledge((0, 2, [ACCEPT]))
    assert bench.states == ""


def test_a_failed_write_after_the_timeout_of_the_lock_archives_without_a_dead_letter() -> None:
    bench = fetched(2, delivery_count_limit=1)
    change = bench.begin((0, 1, [REJECT]))
    bench.now_ms += 2_000
    bench.end(change, is_written=False)
    assert bench.states == "0-1:X1"
    assert not bench.records.in_flight.archiving()


def test_the_log_start_may_pass_archiving_records() -> None:
    bench = fetched(4)
    bench.acknowledge((0, 3, [REJECT]))
    bench.records.in_flight.move_log_start(2)
    assert bench.offsets == (2, 3, 4)
    bench.records.in_flight.end_archiving(0, 3)
    assert bench.records.in_flight.delivery_complete_count == 2
    assert bench.records.in_flight.advance()
    assert bench.offsets == (4, 4, 4)
    assert bench.records.in_flight.delivery_complete_count == 0


def test_stored_archiving_records_are_loaded() -> None:
    bench = Bench((0, 1, 3, 2), (2, 2, 2, 1), has_dead_letters=True)
    assert [(run.first, run.last) for run in bench.records.in_flight.archiving()] == [(0, 1)]
    assert bench.offsets[0] == 0
    bench.records.in_flight.end_archiving(0, 1)
    assert bench.records.in_flight.advance()
    assert bench.offsets[0] == 3
