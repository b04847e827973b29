"""Control batches with a good CRC whose key, value or record cannot be read."""

from __future__ import annotations

import pytest

from barnabas.record.batch import ControlType, set_offset_and_epoch
from barnabas.storage.errors import CorruptRecordError, InvalidTxnStateError
from unit.storage.control_batches import DAMAGED
from unit.storage.storage_fixtures import Bench, all_records, batch, marker, read


def open_transaction(**fields: object) -> bytearray:
    return batch(
        [b"a"], producer_id=1, producer_epoch=0, base_sequence=0, transactional=True, **fields
    )


@pytest.mark.parametrize("name", DAMAGED)
def test_a_follower_checks_markers_before_it_writes_anything(name: str) -> None:
    bench = Bench()
    made = bytearray(DAMAGED[name])
    set_offset_and_epoch(made, 0, 1, 3)
    before = batch([b"before"])
    with pytest.raises(CorruptRecordError):
        bench.log.appender.append_as_follower(bytes(before + made))
    assert (bench.log.log_end_offset, bench.log.size) == (0, 0)
    assert bench.log.producer_state.entries == {}
    assert bench.log.appender.append_as_follower(bytes(before)).last_offset == 0


@pytest.mark.parametrize("name", DAMAGED)
def test_a_leader_refuses_a_damaged_marker(name: str) -> None:
    bench = Bench()
    with pytest.raises(CorruptRecordError):
        bench.coordinate(DAMAGED[name])
    assert (bench.log.log_end_offset, bench.log.size) == (0, 0)


def test_a_follower_refuses_a_batch_outside_of_its_producers_open_transaction() -> None:
    """As in Kafka: InvalidTxnStateException, before the batch is written."""
    bench = Bench()
    bench.append(open_transaction())
    plain = batch([b"b"], producer_id=1, producer_epoch=0, base_sequence=1)
    set_offset_and_epoch(plain, 0, 1, 3)
    size = bench.log.size
    with pytest.raises(InvalidTxnStateError):
        bench.log.appender.append_as_follower(bytes(plain))
    assert (bench.log.log_end_offset, bench.log.size) == (1, size)


def test_a_follower_appends_several_transactions_of_a_producer_in_one_fetch() -> None:
    """Each batch is checked against the state after the previous batch."""
    leader, follower = Bench(), Bench()
    leader.append(open_transaction())
    leader.coordinate(marker(ControlType.ABORT, 1))
    again = batch([b"b"], producer_id=1, producer_epoch=0, base_sequence=1, transactional=True)
    leader.append(again)
    leader.coordinate(marker(ControlType.COMMIT, 1))
    leader.append(batch([b"c"], producer_id=1, producer_epoch=0, base_sequence=2))
    follower.log.appender.append_as_follower(read(leader.log).records.read())
    for bench in (leader, follower):
        assert len(bench.log.segments.active.txn_index.entries()) == 1
        entries = bench.log.producer_state.entries.values()
        assert [entry.txn_first_offset for entry in entries] == [-1]
    assert follower.log.producer_state.entries == leader.log.producer_state.entries


def test_a_batch_whose_last_offset_exceeds_63_bits_is_rejected() -> None:
    bench = Bench()
    made = batch([b"a", b"b"])
    set_offset_and_epoch(made, 0, (1 << 63) - 1, 3)
    with pytest.raises(CorruptRecordError):
        bench.log.appender.append_as_follower(bytes(made))
    assert bench.log.size == 0


def write_past_the_log(bench: Bench, name: str) -> int:
    """Append one good batch through the log, and write a damaged marker directly to the file."""
    bench.append(open_transaction())
    size = bench.log.size
    damaged = bytearray(DAMAGED[name])
    set_offset_and_epoch(damaged, 0, 1, 3)
    bench.log.segments.active.file.append(bytes(damaged))
    return size


@pytest.mark.parametrize("name", DAMAGED)
def test_recovery_truncates_the_log_at_an_unreadable_marker(name: str) -> None:
    """As in Kafka's recovery: like a batch with a wrong CRC."""
    bench = Bench()
    size = write_past_the_log(bench, name)
    bench.kill_and_reopen(recovery_point=0)
    assert (bench.log.log_end_offset, bench.log.size) == (1, size)
    assert bench.coordinate(marker(ControlType.COMMIT, 1)).first_offset == 1


@pytest.mark.parametrize("name", DAMAGED)
def test_a_log_that_was_closed_cleanly_opens_past_a_damaged_marker(name: str, caplog) -> None:
    """Nothing is truncated; only the producer state lacks the marker, which is logged."""
    bench = Bench()
    write_past_the_log(bench, name)
    bench.disk.kill()
    bench.open(clean_shutdown=True, recovery_point=2)
    assert bench.log.log_end_offset == 2
    assert bench.log.producer_state.entries[1].txn_first_offset == 0
    assert "control batch of offset 1" in caplog.text
    if name != "torn record":
        assert [each.offset for each in all_records(bench.log)] == [0, 1]
