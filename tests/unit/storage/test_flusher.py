"""The flush policy: what is synced, and which callers wait for it."""

from __future__ import annotations

import errno

from msgspec.structs import replace

from barnabas.sim.disk import DiskFault
from barnabas.storage.config import LogConfig
from barnabas.storage.log.log import Log
from barnabas.storage.log_dependencies import LogOpening
from unit.storage.storage_fixtures import (
    DIRECTORY,
    PARTITION,
    Bench,
    LaterExecutor,
    batch,
)


def bench_with_threads(config: LogConfig | None = None) -> tuple[Bench, LaterExecutor]:
    bench = Bench(config)
    executor = LaterExecutor()
    bench.log_dependencies = replace(bench.log_dependencies, executor=executor)
    bench.log = Log.open(DIRECTORY, bench.config, bench.log_dependencies, LogOpening(PARTITION))
    return bench, executor


def test_an_append_reports_that_flush_messages_is_reached() -> None:
    bench = Bench(LogConfig(flush_messages=2))
    assert not bench.append(batch([b"a"])).needs_flush
    assert bench.append(batch([b"b"])).needs_flush
    bench.log.sync.flush()
    assert not bench.append(batch([b"c"])).needs_flush


def test_a_flush_raises_the_recovery_point_to_the_log_end() -> None:
    bench = Bench()
    bench.append_many(3)
    bench.log.sync.flush()
    assert bench.log.recovery_point == 3


def test_an_asynchronous_flush_covers_the_log_end_at_its_submission() -> None:
    bench, executor = bench_with_threads()
    done: list[object] = []
    bench.append(batch([b"a"]))
    bench.log.sync.flush_async(done.append)
    bench.append(batch([b"b"]))
    assert done == []
    executor.run()
    assert done == [None]
    assert bench.log.recovery_point == 1


def test_a_flush_requested_during_a_flush_waits_for_the_next_one() -> None:
    bench, executor = bench_with_threads()
    done: list[str] = []
    bench.append(batch([b"a"]))
    bench.log.sync.flush_async(lambda _: done.append("first"))
    bench.append(batch([b"b"]))
    bench.log.sync.flush_async(lambda _: done.append("second"))
    bench.log.sync.flush_async(lambda _: done.append("third"))
    executor.run()
    assert done == ["first"]
    executor.run()
    assert done == ["first", "second", "third"]
    assert bench.log.recovery_point == 2


def test_a_flush_without_new_records_completes_immediately() -> None:
    bench, executor = bench_with_threads()
    done: list[object] = []
    bench.log.sync.flush_async(done.append)
    assert done == [None]
    assert executor.waiting == []


def test_a_flush_from_before_a_truncation_does_not_raise_the_recovery_point() -> None:
    bench, executor = bench_with_threads()
    bench.append_many(5)
    bench.log.sync.flush_async(lambda _: None)
    bench.log.truncate_to(2)
    executor.run()
    assert bench.log.recovery_point == 0
    bench.log.sync.flush_async(lambda _: None)
    executor.run()
    assert bench.log.recovery_point == 2


def test_a_failed_sync_takes_the_log_offline_and_fails_the_waiting_flushes() -> None:
    bench, executor = bench_with_threads()
    done: list[BaseException | None] = []
    bench.append(batch([b"a"]))
    bench.disk.faults.append(DiskFault(DIRECTORY, ("sync",)))
    bench.log.sync.flush_async(done.append)
    executor.run()
    assert isinstance(done[0], OSError)
    assert [path for path, _ in bench.failures] == [DIRECTORY]
    assert bench.log.recovery_point == 0


def test_a_roll_syncs_the_sealed_segment_off_the_loop() -> None:
    bench, executor = bench_with_threads()
    bench.append_many(3)
    bench.log.roll()
    assert bench.log.recovery_point == 0
    executor.run()
    assert bench.log.recovery_point == 3


def test_a_sync_without_a_free_descriptor_is_retried() -> None:
    bench, executor = bench_with_threads()
    done: list[object] = []
    bench.append(batch([b"a"]))
    bench.log.sync.flush_async(done.append)
    bench.disk.faults.append(DiskFault(DIRECTORY, ("open",), errno.EMFILE))
    executor.run()
    assert (done, bench.failures) == ([], [])
    bench.disk.faults.clear()
    bench.append(batch([b"b"]))
    bench.timer.run()
    executor.run()
    assert done == [None]
    assert bench.log.recovery_point == 2
