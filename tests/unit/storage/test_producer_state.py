"""Idempotent producers and transactions (KIP-98, KIP-360)."""

from __future__ import annotations

import pytest

from barnabas.record.batch import ControlType
from barnabas.runtime.disk import FileSlice
from barnabas.storage.config import LogConfig
from barnabas.storage.errors import (
    InvalidProducerEpochError,
    InvalidRecordError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
    TransactionCoordinatorFencedError,
)
from barnabas.storage.producers.open_transactions import VerificationGuard
from barnabas.storage.producers.producer_entry import (
    REMEMBERED_BATCHES,
    CorruptSnapshotError,
    ProducerEntry,
    RememberedBatch,
    decode_snapshot,
    encode_snapshot,
)
from barnabas.storage.results import AbortedTransaction, AppendOrigin, FetchIsolation
from unit.storage.storage_fixtures import NOW_MS, Bench, batch, marker, read

SEQUENCE_MAX = 0x7FFF_FFFF


def idempotent(sequence: int, count: int = 1, epoch: int = 0, **options: object) -> bytearray:
    options.setdefault("producer_id", 1)
    return batch([b"v"] * count, producer_epoch=epoch, base_sequence=sequence, **options)


def test_a_duplicate_gets_its_original_offsets_and_is_not_written() -> None:
    bench = Bench()
    first = bench.append(idempotent(0, 3))
    size = bench.log.size
    again = bench.append(idempotent(0, 3))
    assert again.duplicate
    assert (again.first_offset, again.last_offset) == (first.first_offset, first.last_offset)
    assert bench.log.size == size


def test_exactly_the_last_five_batches_are_kept() -> None:
    bench = Bench()
    for sequence in range(6):
        bench.append(idempotent(sequence))
    assert [bench.append(idempotent(s)).first_offset for s in range(1, 6)] == [1, 2, 3, 4, 5]
    with pytest.raises(OutOfOrderSequenceError):
        bench.append(idempotent(0))


@pytest.mark.parametrize("bumps_epoch", [False, True])
def test_a_client_of_version_2_begins_with_sequence_0(bumps_epoch: bool) -> None:
    bench = Bench()
    state = bench.log.producer_state
    state.requires_verification = True

    def append(sequence: int, epoch: int = 0) -> None:
        guard = state.begin_verification(1, epoch, sequence, NOW_MS, bumps_epoch=bumps_epoch)
        if guard is not None:
            state.confirm_verification(1, guard)
        bench.append(idempotent(sequence, epoch=epoch, transactional=True))

    if bumps_epoch:
        with pytest.raises(OutOfOrderSequenceError):
            append(5)
        assert bench.log.log_end_offset == 0
        append(0)
    else:
        append(5)
    assert bench.log.log_end_offset == 1
    # The next transaction of the same epoch goes on.
    bench.coordinate(marker(ControlType.COMMIT, 1))
    append(1 if bumps_epoch else 6)
    assert bench.log.log_end_offset == 3


@pytest.mark.parametrize("other", [2, 4])
def test_another_epoch_does_not_disturb_a_verification(other: int) -> None:
    bench = Bench()
    state = bench.log.producer_state
    state.requires_verification = True

    def begin(epoch: int, sequence: int) -> VerificationGuard:
        guard = state.begin_verification(1, epoch, sequence, NOW_MS)
        assert guard is not None
        return guard

    def append(epoch: int, sequence: int) -> None:
        bench.append(idempotent(sequence, epoch=epoch, transactional=True))

    guard = begin(3, 0)
    # A fenced producer, or a client that guesses: the coordinator refuses it.
    begin(other, 0)
    state.confirm_verification(1, guard)
    with pytest.raises(InvalidTxnStateError):
        append(other, 0)
    # A batch with a later sequence does not overtake the one that waits.
    assert begin(3, 5) is guard
    with pytest.raises(OutOfOrderSequenceError):
        append(3, 5)
    append(3, 0)
    assert bench.log.log_end_offset == 1


def test_unfinished_verifications_expire() -> None:
    bench = Bench()
    state = bench.log.producer_state
    state.requires_verification = True
    old = state.begin_verification(1, 0, 0, NOW_MS)
    assert old is not None
    new = state.begin_verification(1, 1, 0, NOW_MS + state.expiration_ms)
    state.remove_expired(NOW_MS + state.expiration_ms)
    assert state.verifications is not None
    assert state.verifications.find(1, 0) is None
    assert state.verifications.find(1, 1) is new


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


def test_an_unknown_producer_may_begin_at_any_sequence() -> None:
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


def test_inactive_producers_expire_unless_they_have_open_transactions() -> None:
    bench = Bench()
    bench.append(idempotent(0, producer_id=1))
    bench.append(idempotent(0, producer_id=2, transactional=True))
    state = bench.log.producer_state
    assert state.remove_expired(NOW_MS + 86_400_000 - 1) == 0
    assert state.remove_expired(NOW_MS + 86_400_000) == 1
    assert list(state.entries) == [2]


def test_a_follower_appends_without_sequence_checks() -> None:
    bench = Bench()
    for offset, sequence in enumerate((5, 9, 2)):
        bench.log.appender.append_as_follower(idempotent(sequence, base_offset=offset))
    assert bench.log.producer_state.entries[1].last_sequence == 2


def test_markers_are_checked_only_for_the_coordinator_epoch() -> None:
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


def test_the_last_stable_offset_waits_until_the_marker_is_below_the_high_watermark() -> None:
    """A high watermark at the marker's offset does not include the marker."""
    bench = Bench()
    bench.append(idempotent(0, transactional=True))
    bench.append(batch([b"a"]))
    bench.coordinate(marker(ControlType.COMMIT, 1))
    found = []
    for high_watermark in (1, 2, 3):
        bench.log.update_high_watermark(high_watermark)
        found.append(bench.log.last_stable_offset)
    assert found == [0, 0, 3]


def test_the_earliest_open_transaction_determines_the_last_stable_offset() -> None:
    bench = Bench()
    bench.append(idempotent(0, producer_id=1, transactional=True))
    bench.append(idempotent(0, producer_id=2, transactional=True))
    bench.coordinate(marker(ControlType.COMMIT, 1))
    bench.log.update_high_watermark(3)
    assert bench.log.last_stable_offset == 1


def test_a_late_transaction_is_counted_from_its_last_write() -> None:
    bench = Bench()
    state = bench.log.producer_state
    assert not state.has_transaction_before(NOW_MS + 1)
    bench.append(idempotent(0, producer_id=3))
    assert not state.has_transaction_before(NOW_MS + 1)
    bench.append(idempotent(0, transactional=True))
    bench.append(idempotent(0, transactional=True, producer_id=2, timestamp=NOW_MS + 500))
    assert state.has_transaction_before(NOW_MS + 1)
    assert not state.has_transaction_before(NOW_MS)
    bench.coordinate(marker(ControlType.COMMIT, 1))
    assert not state.has_transaction_before(NOW_MS + 500)
    assert state.has_transaction_before(NOW_MS + 501)


def test_read_committed_ends_at_the_last_stable_offset_and_lists_aborted_transactions() -> None:
    bench = Bench()
    bench.append(idempotent(0, transactional=True))
    bench.coordinate(marker(ControlType.ABORT, 1))
    bench.append(idempotent(1, transactional=True))
    bench.log.update_high_watermark(3)
    result = read(bench.log, isolation=FetchIsolation.TXN_COMMITTED)
    assert result.aborted_transactions == [AbortedTransaction(1, 0)]
    # The records go from the file to the socket, like those of other readers.
    assert isinstance(result.records, FileSlice)
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


def test_a_follower_derives_transactions_from_the_records() -> None:
    leader, follower = Bench(), Bench()
    leader.append(idempotent(0, transactional=True))
    leader.coordinate(marker(ControlType.ABORT, 1))
    follower.log.appender.append_as_follower(read(leader.log).records.read())
    for bench in (leader, follower):
        assert len(bench.log.segments.active.txn_index.entries()) == 1
    assert follower.log.producer_state.entries == leader.log.producer_state.entries


@pytest.mark.parametrize("timestamps", ["CreateTime", "LogAppendTime"])
def test_a_follower_keeps_the_same_batches_as_its_leader(timestamps: str) -> None:
    config = LogConfig(message_timestamp_type=timestamps)
    leader, follower = Bench(config), Bench(config)
    for sequence in range(0, 16, 2):
        leader.append(idempotent(sequence, 2) + idempotent(sequence, 2, producer_id=2))
        leader.clock.now_ms += 7
    follower.log.appender.append_as_follower(read(leader.log).records.read())
    remembered = follower.log.producer_state.entries
    assert len(remembered[1].batches) == REMEMBERED_BATCHES
    assert remembered == leader.log.producer_state.entries


def test_a_truncated_log_keeps_the_last_batches_below_the_truncation() -> None:
    bench = Bench()
    for sequence in range(12):
        bench.append(idempotent(sequence))
    bench.log.truncate_to(9)
    assert [bench.append(idempotent(s)).first_offset for s in range(4, 9)] == [4, 5, 6, 7, 8]
    with pytest.raises(OutOfOrderSequenceError):
        bench.append(idempotent(3))


def test_a_snapshot_has_only_the_last_batch_of_a_producer() -> None:
    """As in Kafka: a retry of an earlier batch gets OUT_OF_ORDER_SEQUENCE_NUMBER."""
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


def test_one_append_of_a_coordinator_may_contain_data_and_a_marker() -> None:
    bench = Bench()
    both = idempotent(0, transactional=True) + marker(ControlType.COMMIT, 1)
    view = memoryview(both)
    bench.log.appender.append_as_leader(view, 1, AppendOrigin.COORDINATOR, NOW_MS)
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
def test_a_damaged_snapshot_is_detected(position: int) -> None:
    content = bytearray(
        encode_snapshot([ProducerEntry(7, 1, (RememberedBatch(3, 5, 10, 12, 99),), 99)])
    )
    content[position] ^= 0x10
    with pytest.raises(CorruptSnapshotError):
        decode_snapshot(bytes(content))
