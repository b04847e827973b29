"""Writing the file of the trusted time: one write at a time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from barnabas.storage.manager.trusted_clock import CHECKPOINT, TrustedClock, TrustedClockFile
from unit.storage.storage_fixtures import Bench, LaterExecutor

HOUR_MS = 3_600_000


def test_a_write_and_the_stop_wait_for_the_previous_write() -> None:
    bench, executor = Bench(), LaterExecutor()
    log_dependencies: Any = SimpleNamespace(disk=bench.disk, executor=executor)
    file = TrustedClockFile(TrustedClock(bench.log_dependencies.clock, HOUR_MS), log_dependencies)
    directory: Any = SimpleNamespace(path="/data", checkpoints=[])
    failures: list[object] = []
    for _ in range(3):
        file.write([directory], lambda *given: failures.append(given))
    assert len(executor.waiting) == 1
    assert file.is_writing
    executor.run()
    assert not file.is_writing
    file.write([directory], lambda *given: failures.append(given))
    assert len(executor.waiting) == 1
    executor.run()
    assert bench.disk.exists(f"/data/{CHECKPOINT}")
    assert not failures
