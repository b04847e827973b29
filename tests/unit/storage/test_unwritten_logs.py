"""A log without records has no segment files; its first use creates them."""

from __future__ import annotations

import errno

import pytest

from barnabas.sim.disk import DiskFault
from barnabas.storage.config import LogConfig
from barnabas.storage.errors import KafkaStorageError
from barnabas.storage.log.log import Log
from barnabas.storage.topic_partition import PARTITION_METADATA
from barnabas.waiting.steps import run_steps
from unit.storage.storage_fixtures import DIRECTORY, NOW_MS, Bench, all_records, batch, read

TOPIC_ID = bytes(range(16))
SEGMENT_FILES = ["00000000000000000000" + suffix for suffix in (".index", ".log", ".timeindex")]


def clean(bench: Bench) -> Log:
    return bench.reopen_cleanly()


def kill(bench: Bench) -> Log:
    return bench.kill_and_reopen()


def lose_power(bench: Bench) -> Log:
    bench.disk.sync_directory("/data")
    bench.disk.crash()
    return bench.open()


@pytest.mark.parametrize("end", [clean, kill, lose_power])
def test_an_unwritten_log_stays_without_segment_files_over_ends(end) -> None:
    bench = Bench()
    bench.open(topic_id=TOPIC_ID)
    assert bench.names() == [PARTITION_METADATA]
    for _ in range(2):
        log = end(bench)
        assert set(bench.names()) <= {PARTITION_METADATA}
        assert (log.log_start_offset, log.log_end_offset, log.size) == (0, 0, 0)
    assert bench.append(batch([b"a"])).first_offset == 0
    assert set(SEGMENT_FILES) <= set(bench.names())
    assert [record.value for record in all_records(bench.log)] == [b"a"]


def test_reads_of_an_unwritten_log_create_no_files() -> None:
    bench = Bench()
    assert len(read(bench.log).records) == 0
    assert run_steps(bench.log.reader.offset_for_timestamp(NOW_MS)) is None
    assert run_steps(bench.log.reader.max_timestamp_offset()) is None
    assert bench.log.delete_old_segments(NOW_MS) == 0
    assert bench.log.segments.active.modified_ms() == NOW_MS
    assert not bench.log.truncate_to(0)
    bench.log.roll()
    bench.log.sync.flush(force=True)
    bench.log.close_idle()
    bench.log.release_idle()
    assert bench.names() == []


def test_an_unwritten_log_needs_no_sync_at_the_second_clean_stop() -> None:
    bench = Bench()
    assert bench.log.prepare_close() is not None
    bench.reopen_cleanly()
    assert bench.log.prepare_close() is None


@pytest.mark.parametrize("flushes_before", [0, 1])
def test_the_first_synced_record_survives_a_loss_of_power(flushes_before: int) -> None:
    for seed in range(20):
        bench = Bench(seed=seed)
        for _ in range(flushes_before):
            bench.log.sync.flush(force=True)
        bench.append(batch([b"a"]))
        bench.log.sync.flush()
        bench.disk.sync_directory("/data")
        bench.disk.crash()
        bench.open(recovery_point=bench.log.recovery_point)
        assert [record.value for record in all_records(bench.log)] == [b"a"], seed


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex"])
def test_a_failed_creation_fails_the_append_and_the_next_start_repeats_it(suffix: str) -> None:
    bench = Bench()
    path = f"{DIRECTORY}/{SEGMENT_FILES[0].removesuffix('.index')}{suffix}"
    bench.disk.faults.append(DiskFault(path, ("write",), errno.ENOSPC))
    with pytest.raises(KafkaStorageError):
        bench.append(batch([b"a"]))
    assert [error.errno for _, error in bench.failures] == [errno.ENOSPC]
    bench.disk.faults.clear()
    bench.kill_and_reopen()
    bench.append(batch([b"b"]))
    assert [record.value for record in all_records(bench.kill_and_reopen())] == [b"b"]


def test_a_log_that_starts_later_has_files_that_show_its_start() -> None:
    bench = Bench()
    bench.disk.remove_tree(DIRECTORY)
    log = bench.open(log_start_offset=7)
    assert log.log_end_offset == 7
    assert "00000000000000000007.log" in bench.names()


def test_a_log_whose_records_were_all_deleted_keeps_its_files() -> None:
    bench = Bench(LogConfig(retention_ms=0))
    bench.append(batch([b"a"], timestamp=NOW_MS - 10))
    bench.log.update_high_watermark(1)
    assert bench.log.delete_old_segments(NOW_MS) == 1
    assert "00000000000000000001.log" in bench.names()
