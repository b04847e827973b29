"""Idempotent producers and transactions (KIP-98, KIP-360)."""

from __future__ import annotations

import pytest

from barnabas.record.control import ControlType
from barnabas.storage.append_info import AppendOrigin
from barnabas.storage.config import LogConfig
from barnabas.storage.errors import (
    InvalidProducerEpochError,
    InvalidRecordError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
    TransactionCoordinatorFencedError,
)
from barnabas.storage.producers.producer_entry import (
    REMEMBERED_BATCHES,
    ProducerEntry,
    RememberedBatch,
)
from barnabas.storage.producers.producer_snapshot import (
    CorruptSnapshotError,
    decode_snapshot,
    encode_snapshot,
)
from barnabas.storage.read_result import AbortedTransaction, FetchIsolation
from unit.storage.storage_fixtures import NOW_MS, Bench, batch, marker, read

SEQUENCE_MAX = 0x7FFF_FFFF


def idempotent(sequence: int, count: int = 1, epoch: int = 0, **options: object) -> bytearray:
    options.setdefault("producer_id", 1)
    return batch([b"v"] * count, producer_epoch=epoch, base_sequence=sequence, **options)


def test_a_duplicate_is_answered_with_its_first_offsets_and_not_written() -> None:
    bench = Bench()
    first = bench.append(idempotent(0, 3))
    size = bench.log.size
    again = bench.append(idempotent(0, 3))
    assert again.duplicate
    assert (again.first_offset, again.last_offset) == (first.first_offset, first.last_offset)
    assert bench.log.size == size


def test_the_last_five_batches_are_remembered_and_no_more() -> None:
    bench = Bench()
    for sequence in range(6):
        bench.append(idempotent(sequence))
    assert [bench.append(idempotent(s)).first_offset for s in range(1, 6)] == [1, 2, 3, 4, 5]
    with pytest.raises(OutOfOrderSequenceError):
        bench.append(idempotent(0))


def test_a_gap_in_the_sequence_is_refused_and_changes_nothing() -> None:
    bench = Bench()
    bench.append(idempotent(0))
    with pytest.raises(OutOfOrderSequenceError):
        bench.append(idempotent(2))
    assert bench.append(idempotent(1)).first_offset == 1


def test_sequences_wrap_to_zero() -> None:
    bench = Bench()
    bench.append(idempotent(SEQUENCE_MAX))
    assert bench.append(idempotent(0)).first_offset == 1


def test_an_unknown_producer_may_begin_anywhere() -> None:
    bench = Bench()
    assert bench.append(idempotent(77)).first_offset == 0


def test_a_new_epoch_begins_with_sequence_zero() -> None:
    bench = Bench()
    bench.append(idempotent(0))
    with pytest.raises(OutOfOrderSequenceError):
        bench.append(idempotent(1, epoch=1))
    assert bench.append(idempotent(0, epoch=1)).first_offset == 1


def test_an_older_epoch_is_fenced() -> None:
    bench = Bench()
    bench.append(idempotent(0, epoch=5))
    with pytest.raises(InvalidProducerEpochError):
        bench.append(idempotent(1, epoch=4))


def test_a_producer_without_sequence_is_refused() -> None:
    bench = Bench()
    with pytest.raises(InvalidRecordError):
        bench.append(idempotent(-1))


def test_silent_producers_are_forgotten_but_for_open_transactions() -> None:
    bench = Bench()
    bench.append(idempotent(0, producer_id=1))
    bench.append(idempotent(0, producer_id=2, transactional=True))
    state = bench.log.producer_state
    assert state.remove_expired(NOW_MS + 86_400_000 - 1) == 0
    assert state.remove_expired(NOW_MS + 86_400_000) == 1
    assert list(state.entries) == [2]


def test_a_follower_takes_producers_without_checks() -> None:
    bench = Bench()
    for offset, sequence in enumerate((5, 9, 2)):
        bench.log.append_as_follower(idempotent(sequence, base_offset=offset))
    assert bench.log.producer_state.entries[1].last_sequence == 2


def test_coordinators_are_checked_for_their_epoch_alone() -> None:
    bench = Bench()
    bench.coordinate(idempotent(0, epoch=3))
    bench.coordinate(idempotent(9, epoch=3))
    with pytest.raises(InvalidProducerEpochError):
        bench.coordinate(idempotent(10, epoch=2))


def test_an_open_transaction_holds_the_last_stable_offset() -> None:
    bench = Bench()
    bench.append(batch([b"a"]))
    bench.append(idempotent(0, transactional=True))
    bench.append(batch([b"b"]))
    bench.log.update_high_watermark(3)
    assert bench.log.last_stable_offset == 1
    bench.coordinate(marker(ControlType.COMMIT, 1))
    assert bench.log.last_stable_offset == 1
    bench.log.update_high_watermark(4)
    assert bench.log.last_stable_offset == 4


def test_the_earliest_of_several_transactions_counts() -> None:
    bench = Bench()
    bench.append(idempotent(0, producer_id=1, transactional=True))
    bench.append(idempotent(0, producer_id=2, transactional=True))
    bench.coordinate(marker(ControlType.COMMIT, 1))
    bench.log.update_high_watermark(3)
    assert bench.log.last_stable_offset == 1


def test_read_committed_ends_at_the_last_stable_offset_and_names_the_aborted() -> None:
    bench = Bench()
    bench.append(idempotent(0, transactional=True))
    bench.coordinate(marker(ControlType.ABORT, 1))
    bench.append(idempotent(1, transactional=True))
    bench.log.update_high_watermark(3)
    result = read(bench.log, isolation=FetchIsolation.TXN_COMMITTED)
    assert result.aborted_transactions == [AbortedTransaction(1, 0)]
    assert len(result.records) == read(bench.log, 2).position.relative_position
    assert read(bench.log, 2, isolation=FetchIsolation.TXN_COMMITTED).records == b""


def test_a_plain_batch_within_a_transaction_is_refused() -> None:
    bench = Bench()
    bench.append(idempotent(0, transactional=True))
    with pytest.raises(InvalidTxnStateError):
        bench.append(idempotent(1))


def test_a_marker_of_an_older_coordinator_is_fenced() -> None:
    bench = Bench()
    bench.coordinate(marker(ControlType.ABORT, 1, coordinator=5))
    with pytest.raises(TransactionCoordinatorFencedError):
        bench.coordinate(marker(ControlType.ABORT, 1, coordinator=4))


def test_a_follower_learns_of_transactions_from_the_bytes() -> None:
    leader, follower = Bench(), Bench()
    leader.append(idempotent(0, transactional=True))
    leader.coordinate(marker(ControlType.ABORT, 1))
    follower.log.append_as_follower(read(leader.log).records.read())
    for bench in (leader, follower):
        assert len(bench.log.segments.active.txn_index.entries()) == 1
    assert follower.log.producer_state.entries == leader.log.producer_state.entries


@pytest.mark.parametrize("timestamps", ["CreateTime", "LogAppendTime"])
def test_a_follower_remembers_the_very_batches_that_its_leader_does(timestamps: str) -> None:
    config = LogConfig(message_timestamp_type=timestamps)
    leader, follower = Bench(config), Bench(config)
    for sequence in range(0, 16, 2):
        leader.append(idempotent(sequence, 2) + idempotent(sequence, 2, producer_id=2))
        leader.clock.now_ms += 7
    follower.log.append_as_follower(read(leader.log).records.read())
    remembered = follower.log.producer_state.entries
    assert len(remembered[1].batches) == REMEMBERED_BATCHES
    assert remembered == leader.log.producer_state.entries


def test_a_truncated_log_remembers_the_last_batches_below_the_truncation() -> None:
    bench = Bench()
    for sequence in range(12):
        bench.append(idempotent(sequence))
    bench.log.truncate_to(9)
    assert [bench.append(idempotent(s)).first_offset for s in range(4, 9)] == [4, 5, 6, 7, 8]
    with pytest.raises(OutOfOrderSequenceError):
        bench.append(idempotent(3))


def test_a_snapshot_has_only_the_last_batch_of_a_producer() -> None:
    """As in Kafka: a producer that asks for an earlier one is told that it is out of order."""
    bench = Bench()
    for sequence in range(5):
        bench.append(idempotent(sequence))
    bench.reopen_cleanly()
    assert bench.append(idempotent(4)).first_offset == 4
    for sequence in range(4):
        with pytest.raises(OutOfOrderSequenceError):
            bench.append(idempotent(sequence))
    bench.append(idempotent(5))
    bench.append(idempotent(6))
    assert [bench.append(idempotent(s)).first_offset for s in (4, 5, 6)] == [4, 5, 6]


def test_a_data_batch_and_its_marker_in_one_append_of_a_coordinator() -> None:
    bench = Bench()
    both = idempotent(0, transactional=True) + marker(ControlType.COMMIT, 1)
    view = memoryview(both)
    bench.log.append_as_leader(view, 1, AppendOrigin.COORDINATOR, NOW_MS)
    bench.log.update_high_watermark(2)
    assert bench.log.last_stable_offset == 2


def test_snapshots_keep_the_last_batch_of_each_producer() -> None:
    entries = [
        ProducerEntry(7, 1, (RememberedBatch(3, 5, 10, 12, 99),), 99, -1, 10),
        ProducerEntry(8, 0, (RememberedBatch(SEQUENCE_MAX, 1, 20, 22, 98),), 98, 4, -1),
        ProducerEntry(9, 2, (), 97, 6, -1),
    ]
    assert decode_snapshot(encode_snapshot(entries)) == entries


@pytest.mark.parametrize("position", range(0, 56, 5))
def test_a_damaged_snapshot_is_noticed(position: int) -> None:
    content = bytearray(
        encode_snapshot([ProducerEntry(7, 1, (RememberedBatch(3, 5, 10, 12, 99),), 99)])
    )
    content[position] ^= 0x10
    with pytest.raises(CorruptSnapshotError):
        decode_snapshot(bytes(content))
