"""Pending syncs of files are shared between callers."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from barnabas.runtime.rng import SeededRng
from barnabas.sim.disk import SimDisk
from barnabas.storage.log.log_sync import UnsyncedFiles
from unit.storage.storage_fixtures import DIRECTORY, Bench, LaterExecutor, batch

TOPIC_ID = bytes(range(16))


@pytest.mark.parametrize("is_closed", [True, False])
def test_a_running_sync_removes_nothing_from_the_next_sync(is_closed: bool) -> None:
    for seed in range(20):
        bench = Bench()
        executor = LaterExecutor()
        bench.disk = SimDisk(bench.clock, SeededRng(seed))
        bench.disk.make_directory("/data")
        bench.disk.sync_directory("/")
        bench.log_dependencies = replace(bench.log_dependencies, disk=bench.disk, executor=executor)
        bench.open()
        bench.log.identity.assign_topic_id(TOPIC_ID)
        bench.append(batch([b"v"]))
        # Begun, and never done: the broker ends first, or a caller cannot wait for it.
        bench.log.sync.flush_async(lambda _: None)
        if is_closed:
            bench.log.close()
        else:
            bench.log.sync.flush(force=True)
        bench.disk.crash()
        bench.open(clean_shutdown=is_closed, recovery_point=1)
        assert bench.log.topic_id == TOPIC_ID
        assert bench.log.log_end_offset == 1
        assert bench.disk.size(f"{DIRECTORY}/leader-epoch-checkpoint")


def test_files_that_changed_during_a_sync_are_synced_again() -> None:
    asked: list[list[str]] = []

    def prepare(paths: list[str]):
        asked.append(paths)
        return lambda: None

    files = UnsyncedFiles()
    files.add(["/a/x", "/a/y"])
    sync = files.covering(prepare)
    files.add(["/a/y"])
    sync()
    files.covering(prepare)()
    files.on_directory_renamed("/a", "/b")
    files.covering(prepare)()
    assert asked == [["/a/x", "/a/y"], ["/a/y"], []]


def test_file_names_follow_a_renamed_directory() -> None:
    files = UnsyncedFiles()
    files.add(["/a/x"])
    files.on_directory_renamed("/a", "/b")
    asked: list[list[str]] = []
    files.covering(lambda paths: asked.append(paths) or (lambda: None))
    assert asked == [["/b/x"]]
