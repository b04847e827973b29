"""A follower's log that continues after records in the remote tier (KIP-405)."""

from __future__ import annotations

import errno
from contextlib import suppress

import pytest

from barnabas.record.batch import ControlType
from barnabas.sim.disk import FailingCall
from barnabas.storage.config import LogConfig
from barnabas.storage.errors import CorruptRecordError, KafkaStorageError
from barnabas.storage.files.leader_epoch_cache import EpochEntry
from barnabas.storage.topic_partition import PRODUCER_SNAPSHOT_SUFFIX
from unit.storage.storage_fixtures import Bench, all_records, batch, marker

TIERED = LogConfig(is_remote=True, remote_storage_enable=True)
EPOCHS = [EpochEntry(0, 0), EpochEntry(2, 40), EpochEntry(5, 90)]
START, OFFSET = 50, 100
# The epochs from the log start on.
KEPT = [(2, START), (5, 90)]
PRODUCER, OPEN_PRODUCER = 7, 8


def snapshot_at(offset: int) -> bytes:
    """Return the snapshot of a log with a producer and an open transaction below `offset`."""
    bench = Bench()
    bench.log.truncate_fully_and_start_at(offset - 2)
    bench.append(batch([b"a"], producer_id=PRODUCER, producer_epoch=1, base_sequence=0))
    bench.append(
        batch([b"b"], producer_id=OPEN_PRODUCER, producer_epoch=0, base_sequence=0,
              transactional=True)
    )  # fmt: skip
    bench.log.roll()
    content = bench.log.producer_state.read_snapshot(offset)
    assert content
    return content


SNAPSHOT = snapshot_at(OFFSET)


def bench_of(seed: int = 1) -> Bench:
    """Return a log with some own records, which a follower has before it hears of the tier."""
    bench = Bench(TIERED, seed)
    bench.append_many(5)
    bench.log.roll()
    bench.append_many(5)
    return bench


def adopt(bench: Bench, snapshot: bytes = SNAPSHOT) -> None:
    bench.log.adopt_auxiliary_state(OFFSET, START, EPOCHS, snapshot)


def test_a_log_continues_empty_after_the_tier() -> None:
    bench = bench_of()
    adopt(bench)
    log = bench.log
    assert (log.log_start_offset, log.local_log_start_offset) == (START, OFFSET)
    assert (log.log_end_offset, log.high_watermark, log.size) == (OFFSET, OFFSET, 0)
    assert log.segments.base_offsets == [OFFSET]
    assert log.leader_epochs.entries == KEPT
    assert not log.lacks_epochs


def test_it_knows_the_producers_of_the_records_in_the_tier() -> None:
    bench = bench_of()
    adopt(bench)
    again = batch([b"a"], producer_id=PRODUCER, producer_epoch=1, base_sequence=0)
    assert bench.append(again, epoch=6).duplicate
    info = bench.append(batch([b"c"], producer_id=PRODUCER, producer_epoch=1, base_sequence=1), 6)
    assert info.first_offset == OFFSET


def test_an_open_transaction_in_the_tier_keeps_the_last_stable_offset_until_it_ends() -> None:
    bench = bench_of()
    adopt(bench)
    bench.append(batch([b"c"]), epoch=6)
    bench.log.update_high_watermark(OFFSET + 1)
    assert bench.log.last_stable_offset == OFFSET - 1
    bench.coordinate(marker(ControlType.ABORT, OPEN_PRODUCER), epoch=6)
    bench.log.update_high_watermark(OFFSET + 2)
    assert bench.log.last_stable_offset == OFFSET + 2


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_restart_finds_the_same_state(is_clean: bool) -> None:
    bench = bench_of()
    adopt(bench)
    bench.append(batch([b"c"]), epoch=6)
    opening = {"log_start_offset": START, "high_watermark": OFFSET + 1}
    if is_clean:
        bench.log.close()
        bench.open(clean_shutdown=True, recovery_point=bench.log.recovery_point, **opening)
    else:
        bench.kill_and_reopen(**opening)
    log = bench.log
    assert (log.log_start_offset, log.local_log_start_offset) == (START, OFFSET)
    assert log.leader_epochs.entries == [*KEPT, (6, OFFSET)]
    assert set(log.producer_state.entries) == {PRODUCER, OPEN_PRODUCER}
    assert log.last_stable_offset == OFFSET - 1
    assert [record.value for record in all_records(log)] == [b"c"]
    assert not bench.log_dependencies.damage.counts


@pytest.mark.parametrize("snapshot", [SNAPSHOT[:-1], SNAPSHOT[:-1] + b"?", b"no snapshot"])
def test_a_damaged_snapshot_changes_nothing(snapshot: bytes) -> None:
    bench = bench_of()
    before = bench.names()
    with pytest.raises(CorruptRecordError, match="snapshot"):
        adopt(bench, snapshot)
    assert bench.names() == before
    assert len(all_records(bench.log)) == 10


def test_a_snapshot_of_a_later_offset_is_refused() -> None:
    with pytest.raises(CorruptRecordError, match=f"has a batch at {OFFSET + 3}"):
        adopt(bench_of(), snapshot_at(OFFSET + 5))


def test_without_a_snapshot_no_producer_is_known() -> None:
    bench = bench_of()
    adopt(bench, b"")
    assert not bench.log.producer_state.entries
    assert not [name for name in bench.names() if name.endswith(PRODUCER_SNAPSHOT_SUFFIX)]


def test_old_copies_do_not_count_above_the_offset() -> None:
    bench = bench_of()
    bench.log.raise_highest_remote_offset(500)
    bench.log.raise_verified_remote_offset(80)
    adopt(bench)
    assert bench.log.highest_remote_offset == OFFSET - 1
    assert bench.log.verified_remote_offset == 80


def _check(bench: Bench, where: object) -> None:
    """Check that the log is the old one, or starts empty, or has the whole adopted state."""
    log = bench.log
    if log.segments[0].base_offset == OFFSET:
        assert log.leader_epochs.entries == KEPT, where
        assert log.producer_state.snapshots == [OFFSET], where
        assert set(log.producer_state.entries) == {PRODUCER, OPEN_PRODUCER}, where
        return
    assert log.log_start_offset == log.local_log_start_offset == 0, where
    assert log.log_end_offset <= 10, where
    assert len(all_records(log)) == log.log_end_offset, where
    assert all(entry.start_offset <= log.log_end_offset for entry in log.leader_epochs.entries)


def _calls() -> int:
    bench = bench_of()
    bench.disk.call_log = []
    adopt(bench)
    return len(bench.disk.call_log)


def test_a_kill_at_any_call_leaves_a_whole_state() -> None:
    for number in range(_calls()):
        bench = bench_of()
        bench.disk.call_log = []
        bench.disk.failing_call = FailingCall(number, errno.EIO, lasts=True)
        try:
            adopt(bench)
        except KafkaStorageError:
            pass
        else:
            continue
        bench.disk.call_log = bench.disk.failing_call = None
        bench.kill_and_reopen(recovery_point=0)
        _check(bench, number)


def test_a_loss_of_power_at_any_call_leaves_a_whole_state() -> None:
    for number in range(_calls() + 1):
        for seed in range(5):
            bench = bench_of(seed)
            bench.log.sync.flush(force=True)
            bench.disk.sync_directory("/data")
            bench.disk.call_log = []
            bench.disk.failing_call = FailingCall(number, errno.EIO, lasts=True)
            with suppress(KafkaStorageError):
                adopt(bench)
            bench.disk.call_log = bench.disk.failing_call = None
            bench.disk.crash()
            bench.open(recovery_point=0)
            _check(bench, (number, seed))
