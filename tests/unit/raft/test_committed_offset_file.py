"""The file with the committed offset is written rarely, and by one write at a time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from barnabas.raft.log.metadata_check import CommittedOffsetFile, read_committed_offset
from barnabas.sim.world import sim_runtime
from unit.storage.storage_fixtures import LaterExecutor

DIRECTORY = "/metadata"


def new_file() -> tuple[Any, Any, LaterExecutor, CommittedOffsetFile]:
    """Return a world, its runtime, the executor of writes and the file."""
    world, runtime = sim_runtime(1)
    runtime.disk.make_directory(DIRECTORY)
    executor = LaterExecutor()
    log_dependencies: Any = SimpleNamespace(
        disk=runtime.disk, timer=runtime.timer, executor=executor
    )
    return world, runtime, executor, CommittedOffsetFile(log_dependencies, DIRECTORY)


def test_writes_of_the_committed_offset_do_not_overlap() -> None:
    world, runtime, executor, file = new_file()
    file.note(5)
    world.run_for(1_500)
    file.note(9)
    world.run_for(3_000)
    assert len(executor.waiting) == 1
    executor.run()
    assert read_committed_offset(runtime.disk, DIRECTORY) == 5
    world.run_for(1_500)
    executor.run()
    assert read_committed_offset(runtime.disk, DIRECTORY) == 9


def test_the_write_at_shutdown_is_omitted_during_another_write() -> None:
    world, runtime, executor, file = new_file()
    file.note(5)
    world.run_for(1_500)
    file.note(9)
    file.close()
    assert read_committed_offset(runtime.disk, DIRECTORY) == 0
    executor.run()
    assert read_committed_offset(runtime.disk, DIRECTORY) == 5
