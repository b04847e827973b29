"""The local log start of a log with a remote tier: offsets, reads, retention and restarts."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from msgspec.structs import replace

from barnabas.protocol.errors import ErrorCode
from barnabas.storage.config import SAME_AS_TOTAL, LogConfig
from barnabas.storage.errors import OffsetInRemoteTierError, OffsetOutOfRangeError
from barnabas.waiting.steps import run_steps
from unit.storage.storage_fixtures import DIRECTORY, NOW_MS, Bench, all_records, batch, read

SIZE = len(batch([bytes(100)]))
# Two records fill a segment.
TIERED = LogConfig(
    segment_bytes=SIZE * 2, is_remote=True, remote_storage_enable=True, retention_ms=-1
)
RECORDS = 8


def bench_of(config: LogConfig = TIERED, *, high_watermark: int = RECORDS) -> Bench:
    """Return a log with the segments [0, 2), [2, 4), [4, 6) and the full active one, [6, 8)."""
    bench = Bench(config)
    for index in range(RECORDS):
        bench.append(batch([bytes(100)], timestamp=NOW_MS + index), epoch=index // 3)
    bench.log.update_high_watermark(high_watermark)
    assert bench.log.segments.base_offsets == [0, 2, 4, 6]
    return bench


def copied(bench: Bench, highest: int, verified: int | None = None) -> Bench:
    bench.log.raise_highest_remote_offset(highest)
    bench.log.raise_verified_remote_offset(highest if verified is None else verified)
    return bench


def keep_locally(bench: Bench, offset: int) -> None:
    """Copy all segments and delete those below an offset locally."""
    copied(bench, bench.log.log_end_offset - 1)
    kept = sum(each.size for each in bench.log.segments if each.base_offset >= offset)
    bench.log.update_config(replace(bench.log.config, local_retention_bytes=kept))
    bench.log.delete_old_segments(NOW_MS)
    bench.log.update_config(replace(bench.log.config, local_retention_bytes=SAME_AS_TOTAL))
    assert bench.log.local_log_start_offset == offset


def offsets_of(bench: Bench) -> tuple[int, int, int]:
    log = bench.log
    return log.log_start_offset, log.local_log_start_offset, log.log_end_offset


# -- offsets ---------------------------------------------------------------------------------------


def test_both_starts_of_a_log_without_a_tier_are_equal() -> None:
    bench = bench_of(LogConfig(segment_bytes=SIZE * 2, retention_bytes=SIZE * 4))
    assert offsets_of(bench) == (0, 0, 8)
    bench.log.delete_old_segments(NOW_MS)
    assert offsets_of(bench) == (4, 4, 8)
    bench.log.maybe_increment_log_start_offset(5, "test")
    assert offsets_of(bench) == (5, 5, 8)


def test_deleted_records_raise_the_local_start_only_if_it_is_below() -> None:
    bench = bench_of()
    keep_locally(bench, 4)
    bench.log.maybe_increment_log_start_offset(3, "test")
    assert offsets_of(bench) == (3, 4, 8)
    bench.log.maybe_increment_log_start_offset(5, "test")
    assert offsets_of(bench) == (5, 5, 8)


def test_offsets_in_the_tier_are_never_lowered_by_a_report() -> None:
    bench = bench_of()
    assert (bench.log.highest_remote_offset, bench.log.verified_remote_offset) == (-1, -1)
    assert bench.log.raise_highest_remote_offset(5)
    assert bench.log.raise_verified_remote_offset(3)
    assert not bench.log.raise_highest_remote_offset(4)
    assert not bench.log.raise_verified_remote_offset(3)
    assert (bench.log.highest_remote_offset, bench.log.verified_remote_offset) == (5, 3)


def test_a_truncation_forgets_copies_of_the_removed_records() -> None:
    # The offsets are used again for other records, which have no copy.
    bench = copied(bench_of(), 7)
    bench.log.truncate_to(5)
    assert (bench.log.highest_remote_offset, bench.log.verified_remote_offset) == (4, 4)
    bench.log.truncate_fully_and_start_at(3)
    assert (bench.log.highest_remote_offset, bench.log.verified_remote_offset) == (2, 2)


def test_the_local_start_does_not_pass_the_verified_copies() -> None:
    bench = copied(bench_of(), 7, 3)
    with pytest.raises(AssertionError, match="above the copies"):
        bench.log.offsets.raise_local_log_start_offset(5)


def test_the_high_watermark_does_not_go_below_the_local_start() -> None:
    bench = bench_of()
    keep_locally(bench, 4)
    bench.log.update_high_watermark(2)
    assert bench.log.high_watermark == 4


# -- reads -----------------------------------------------------------------------------------------


def test_a_read_below_the_local_start_is_told_from_one_below_the_log_start() -> None:
    bench = bench_of()
    keep_locally(bench, 4)
    bench.log.maybe_increment_log_start_offset(1, "test")
    for offset in (1, 3):
        with pytest.raises(OffsetInRemoteTierError, match=f"offset {offset} "):
            read(bench.log, offset)
    for offset in (0, 9):
        with pytest.raises(OffsetOutOfRangeError, match=r"outside \[1, 8\]") as raised:
            read(bench.log, offset)
        assert not isinstance(raised.value, OffsetInRemoteTierError)
    assert OffsetInRemoteTierError.error_code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert [record.offset for record in all_records(bench.log)] == [4, 5, 6, 7]


def test_searches_by_time_find_local_records_only() -> None:
    bench = bench_of()
    keep_locally(bench, 4)
    assert run_steps(bench.log.reader.offset_for_timestamp(NOW_MS)) == (NOW_MS + 4, 4, 1)
    assert run_steps(bench.log.reader.max_timestamp_offset()) == (NOW_MS + 7, 7, 2)


# -- retention -------------------------------------------------------------------------------------


class Row(NamedTuple):
    """One case of retention, applied to the log of `bench_of`."""

    name: str
    config: dict[str, object]
    # Highest and verified remote offset.
    copies: tuple[int, int]
    # Log start, local log start and base offsets afterwards.
    expected: tuple[int, int, list[int]]
    # Offset up to which all records are older than one second, exclusive.
    old: int = 0
    high_watermark: int = RECORDS
    log_start: int = 0


SECOND = {"local_retention_ms": 1000}
ALL = [0, 2, 4, 6]
ROWS = [
    Row("copied segments go by time", SECOND, (3, 3), (0, 4, [4, 6]), old=4),
    Row("without a copy they stay", SECOND, (-1, -1), (0, 0, ALL), old=4),
    Row("they stay above the verified copies", SECOND, (3, 1), (0, 2, [2, 4, 6]), old=4),
    Row("they stay above the highest copy", SECOND, (1, 3), (0, 2, [2, 4, 6]), old=4),
    Row("a copy of a part does not count", SECOND, (2, 2), (0, 2, [2, 4, 6]), old=4),
    Row("young segments stay", SECOND, (7, 7), (0, 4, [4, 6]), old=5),
    Row("an old active segment is rolled", SECOND, (5, 5), (0, 6, [6, 8]), old=8),
    Row("it is not while others wait", SECOND, (3, 3), (0, 4, [4, 6]), old=8),
    Row("it goes if it has a copy", SECOND, (7, 7), (0, 8, [8]), old=8),
    Row("nothing goes above the high watermark", SECOND, (7, 7), (0, 2, [2, 4, 6]), 8, 3),
    Row("copied segments go by size", {"local_retention_bytes": SIZE * 4}, (7, 7), (0, 4, [4, 6])),
    Row("by size they need a copy", {"local_retention_bytes": SIZE * 4}, (1, 1), (0, 2, [2, 4, 6])),
    Row("too large an active segment is rolled", {"local_retention_bytes": 0}, (5, 5),
        (0, 6, [6, 8])),
    Row("-2 is the total size", {"retention_bytes": SIZE * 4}, (7, 7), (0, 4, [4, 6])),
    Row("-2 is the total time", {"retention_ms": 1000}, (7, 7), (0, 4, [4, 6]), old=4),
    Row("-1 is no limit", {"local_retention_ms": -1, "local_retention_bytes": -1,
        "retention_ms": 1000, "retention_bytes": 0}, (7, 7), (0, 0, ALL), old=8),
    Row("no policy: local retention applies", {**SECOND, "cleanup_policy": ()}, (7, 7),
        (0, 4, [4, 6]), old=4),
    Row("deleted records need no copy", {}, (-1, -1), (5, 5, [4, 6]), log_start=5),
    Row("the start and copies add up", SECOND, (5, 5), (2, 6, [6]), old=6, log_start=2),
    Row("copying is off: the total time", {"remote_copy_disable": True, "retention_ms": 1000},
        (-1, -1), (4, 4, [4, 6]), old=4),
    Row("copying is off: the total size", {"remote_copy_disable": True,
        "retention_bytes": SIZE * 4}, (1, 1), (4, 4, [4, 6])),
    Row("copying is off: not the local time", {**SECOND, "remote_copy_disable": True}, (7, 7),
        (0, 0, ALL), old=8),
    Row("copying is off: the active segment goes", {"remote_copy_disable": True,
        "retention_ms": 1000}, (-1, -1), (8, 8, [8]), old=8),
    Row("copying is off, no policy: nothing", {"remote_copy_disable": True, "retention_ms": 1000,
        "cleanup_policy": ()}, (7, 7), (0, 0, ALL), old=8),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_retention_of_a_log_with_a_tier(row: Row) -> None:
    config = replace(TIERED, **row.config)
    bench = copied(bench_of(config, high_watermark=row.high_watermark), *row.copies)
    if row.log_start:
        bench.log.maybe_increment_log_start_offset(row.log_start, "test")
    before = len(bench.log.segments)
    deleted = bench.log.delete_old_segments(NOW_MS + row.old + 1000)
    log = bench.log
    found = (log.log_start_offset, log.local_log_start_offset, log.segments.base_offsets)
    assert found == row.expected
    rolled = log.segments.base_offsets[-1] == RECORDS
    assert deleted == before + rolled - len(log.segments)
    assert log.leader_epochs.first_offset == log.log_start_offset
    assert not bench.log_dependencies.damage.counts


def test_local_retention_keeps_epochs_and_the_snapshots_of_its_segments() -> None:
    bench = bench_of()
    epochs = bench.log.leader_epochs.entries
    keep_locally(bench, 4)
    assert bench.log.leader_epochs.entries == epochs
    bench.timer.run()
    snapshots = [name for name in bench.names() if name.endswith(".snapshot")]
    assert [int(name[:20]) for name in snapshots] == [4, 6]


def test_total_retention_after_local_retention_raises_both_starts() -> None:
    bench = bench_of()
    keep_locally(bench, 4)
    config = replace(TIERED, remote_copy_disable=True, retention_bytes=SIZE * 2)
    bench.log.update_config(config)
    assert bench.log.delete_old_segments(NOW_MS) == 1
    assert offsets_of(bench) == (6, 6, 8)
    assert bench.log.leader_epochs.entries == [(2, 6)]


# -- restarts --------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_restart_keeps_the_log_start_of_the_checkpoint(is_clean: bool) -> None:
    bench = bench_of()
    bench.log.maybe_increment_log_start_offset(1, "test")
    keep_locally(bench, 4)
    epochs = bench.log.leader_epochs.entries
    opening = {"log_start_offset": 1, "high_watermark": 2}
    if is_clean:
        bench.log.close()
        point = bench.log.recovery_point
        bench.open(clean_shutdown=True, recovery_point=point, **opening)
    else:
        bench.kill_and_reopen(**opening)
    assert offsets_of(bench) == (1, 4, 8)
    assert bench.log.leader_epochs.entries == epochs
    # The records before were committed, or they were not in the tier.
    assert bench.log.high_watermark == 4
    assert (bench.log.highest_remote_offset, bench.log.verified_remote_offset) == (-1, -1)
    assert not bench.log_dependencies.damage.counts
    assert [record.offset for record in all_records(bench.log)] == [4, 5, 6, 7]


def test_a_start_without_a_checkpoint_takes_a_log_start_that_is_too_low() -> None:
    # The leader raises it. A log start that is too high would delete records from the tier.
    bench = bench_of()
    bench.log.maybe_increment_log_start_offset(1, "test")
    keep_locally(bench, 4)
    bench.kill_and_reopen()
    assert offsets_of(bench) == (0, 4, 8)
    assert bench.log.lacks_epochs
    bench.log.maybe_increment_log_start_offset(1, "the tier")
    assert not bench.log.lacks_epochs


def test_lost_epochs_do_not_raise_the_log_start_at_any_later_start() -> None:
    bench = bench_of()
    epochs = bench.log.leader_epochs.entries
    keep_locally(bench, 4)
    assert not bench.log.lacks_epochs
    bench.disk.kill()
    bench.disk.remove(bench.log.leader_epochs.path)
    for _ in range(3):
        bench.open()
        assert offsets_of(bench) == (0, 4, 8)
        assert bench.log.leader_epochs.entries == [(1, 4), (2, 6)]
        assert bench.log.lacks_epochs
        bench.disk.kill()
    bench.open(log_start_offset=1)
    bench.log.restore_epochs(epochs)
    assert bench.log.leader_epochs.entries == [(0, 1), *epochs[1:]]
    assert not bench.log.lacks_epochs
    bench.kill_and_reopen(log_start_offset=1)
    assert not bench.log.lacks_epochs


def test_without_a_tier_the_missing_beginning_is_damage() -> None:
    bench = bench_of()
    keep_locally(bench, 4)
    bench.config = replace(TIERED, is_remote=False)
    bench.kill_and_reopen()
    assert offsets_of(bench) == (4, 4, 8)
    assert bench.log_dependencies.damage.counts["gap"] == 1


def test_recovery_after_a_loss_of_power_keeps_the_local_start_and_producers() -> None:
    for seed in range(20):
        bench = Bench(TIERED, seed)
        for index in range(RECORDS):
            records = batch([bytes(60)], producer_id=7, producer_epoch=0, base_sequence=index)
            bench.append(records)
        bench.log.update_high_watermark(RECORDS)
        bench.log.roll()
        bench.log.sync.flush(force=True)
        bases = bench.log.segments.base_offsets
        keep_locally(bench, bases[2])
        bench.disk.sync_directory("/data")
        bench.disk.crash()
        bench.open(recovery_point=RECORDS, high_watermark=RECORDS)
        log = bench.log
        assert log.log_start_offset == 0
        assert log.local_log_start_offset == log.segments[0].base_offset <= bases[2]
        assert log.log_end_offset == RECORDS
        assert log.producer_state.entries[7].last_sequence == RECORDS - 1
        offsets = [record.offset for record in all_records(log)]
        assert offsets == list(range(log.local_log_start_offset, RECORDS))


def test_a_log_whose_local_records_are_lost_starts_empty_at_its_log_start() -> None:
    bench = bench_of()
    keep_locally(bench, 4)
    bench.disk.kill()
    for name in bench.names():
        if name.endswith(".log"):
            bench.disk.remove(f"{DIRECTORY}/{name}")
    bench.open(log_start_offset=1, recovery_point=8)
    assert offsets_of(bench) == (1, 1, 1)
    assert bench.log_dependencies.damage.counts["gap"] == 1


# -- truncation ------------------------------------------------------------------------------------


def test_a_truncation_within_the_local_log_keeps_both_starts() -> None:
    bench = bench_of()
    keep_locally(bench, 4)
    assert bench.log.truncate_to(5)
    assert offsets_of(bench) == (0, 4, 5)
    assert bench.log.leader_epochs.entries == [(0, 0), (1, 3)]


@pytest.mark.parametrize("offset", [2, 3])
def test_a_truncation_below_the_local_log_keeps_what_the_tier_has(offset: int) -> None:
    bench = bench_of()
    keep_locally(bench, 4)
    assert bench.log.truncate_to(offset)
    assert offsets_of(bench) == (0, offset, offset)
    assert bench.log.leader_epochs.entries == [(0, 0)]
    assert bench.log.highest_remote_offset == offset - 1
    bench.append(batch([b"new"]), epoch=9)
    bench.kill_and_reopen()
    assert offsets_of(bench) == (0, offset, offset + 1)
    assert bench.log.leader_epochs.entries == [(0, 0), (9, offset)]
    assert not bench.log_dependencies.damage.counts


def test_a_truncation_below_the_log_start_leaves_nothing() -> None:
    bench = bench_of()
    keep_locally(bench, 4)
    bench.log.maybe_increment_log_start_offset(2, "test")
    assert bench.log.truncate_to(1)
    assert offsets_of(bench) == (1, 1, 1)
    assert bench.log.leader_epochs.entries == []


def test_the_truncation_of_damage_in_the_first_local_segment_keeps_the_tier() -> None:
    bench = bench_of()
    keep_locally(bench, 4)
    bench.log.truncate_damage(bench.log.segments[0].path(".log"))
    assert offsets_of(bench) == (0, 4, 4)
    assert bench.log.leader_epochs.entries == [(0, 0), (1, 3)]
    assert bench.log.producer_state.snapshots == [4]


def test_a_truncation_within_the_local_log_keeps_producers_of_the_tier() -> None:
    bench = Bench(TIERED)
    for index in range(RECORDS):
        bench.append(
            batch([bytes(60)], producer_id=index % 2, producer_epoch=0, base_sequence=index // 2)
        )
    bench.log.update_high_watermark(RECORDS)
    bases = bench.log.segments.base_offsets
    keep_locally(bench, bases[-1])
    bench.log.truncate_to(RECORDS - 1)
    entries = bench.log.producer_state.entries
    assert {key: entry.last_sequence for key, entry in entries.items()} == {0: 3, 1: 2}
