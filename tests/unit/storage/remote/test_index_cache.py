"""The cache of remote indexes: files, memory, limits, and damaged files."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from barnabas.protocol.primitives import uuid_to_string
from barnabas.storage.remote.loaded_indexes import LoadedIndexes
from barnabas.storage.remote.remote_storage import (
    RemoteMissingError,
    RemoteStorageError,
    RemoteUnavailableError,
)
from unit.storage.remote.tiered_log import A_WHILE_MS, INDEX_DIRECTORY, TieredLog

SUFFIXES = (".index", ".timeindex", ".txnindex")


@pytest.fixture
def tiered() -> TieredLog:
    """A log with four remote segments."""
    tiered = TieredLog()
    tiered.tier(4)
    return tiered


class Loads:
    """The outcomes of loads, in order."""

    def __init__(self, tiered: TieredLog) -> None:
        self.tiered = tiered
        self.done: list[LoadedIndexes | RemoteStorageError] = []

    def start(self, number: int):
        segment = self.tiered.remote.segments()[number]
        return self.tiered.indexes.load(segment, self._on_done)

    def _on_done(self, loaded: LoadedIndexes | None, error: RemoteStorageError | None) -> None:
        self.done.append(error if loaded is None else loaded)

    def load(self, number: int) -> LoadedIndexes | RemoteStorageError:
        self.start(number)
        self.tiered.world.run_for(A_WHILE_MS)
        return self.done[-1]


def reads_of_store(tiered: TieredLog) -> int:
    return tiered.store.calls["read_indexes"]


def names(tiered: TieredLog) -> list[str]:
    return tiered.runtime.disk.list(INDEX_DIRECTORY)


def test_loaded_indexes_are_in_memory_and_in_files_with_the_names_of_kafka(
    tiered: TieredLog,
) -> None:
    loaded = Loads(tiered).load(1)
    segment = tiered.remote.segments()[1]
    assert tiered.indexes.get(segment.id) is loaded
    assert isinstance(loaded, LoadedIndexes)
    assert loaded.position_of(3) > 0
    prefix = f"2_{uuid_to_string(segment.id)}"
    assert names(tiered) == [prefix + suffix for suffix in SUFFIXES]
    sizes = [tiered.runtime.disk.size(f"{INDEX_DIRECTORY}/{name}") for name in names(tiered)]
    assert tiered.indexes.file_bytes == sum(sizes)


def test_the_files_serve_a_new_process(tiered: TieredLog) -> None:
    Loads(tiered).load(0)
    files = tiered.indexes.file_bytes
    tiered.open_caches()
    assert tiered.indexes.file_bytes == files
    assert isinstance(Loads(tiered).load(0), LoadedIndexes)
    assert reads_of_store(tiered) == 1


def test_concurrent_loads_of_one_segment_read_the_store_once(tiered: TieredLog) -> None:
    loads = Loads(tiered)
    loads.start(0)
    loads.start(0)
    tiered.world.run_for(A_WHILE_MS)
    assert len(loads.done) == 2
    assert reads_of_store(tiered) == 1
    loads.start(0)
    assert len(loads.done) == 2, "never called before the load returns"
    tiered.world.run_for(A_WHILE_MS)
    assert len(loads.done) == 3


def test_a_canceled_load_is_not_answered(tiered: TieredLog) -> None:
    loads = Loads(tiered)
    loads.start(0).cancel()
    tiered.world.run_for(A_WHILE_MS)
    assert not loads.done
    assert isinstance(loads.load(0), LoadedIndexes)


def test_an_error_of_the_store_is_passed_on_and_the_next_load_tries_again(
    tiered: TieredLog,
) -> None:
    tiered.store.faults.unavailable = 1.0
    loads = Loads(tiered)
    assert isinstance(loads.load(0), RemoteUnavailableError)
    tiered.store.faults.unavailable = 0.0
    assert isinstance(loads.load(0), LoadedIndexes)


def test_lost_indexes_are_reported(tiered: TieredLog) -> None:
    tiered.store.lose(tiered.remote.segments()[0], ".indexes")
    assert isinstance(Loads(tiered).load(0), RemoteMissingError)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("content", [b"", b"damaged", b"\xff" * 34, None])
def test_a_damaged_or_missing_file_is_replaced_from_the_store(
    tiered: TieredLog, suffix: str, content: bytes | None
) -> None:
    Loads(tiered).load(0)
    path = f"{INDEX_DIRECTORY}/{names(tiered)[0].rpartition('.')[0]}{suffix}"
    before = tiered.runtime.disk.read(path)
    if content is None:
        tiered.runtime.disk.remove(path)
    else:
        tiered.runtime.disk.write_atomically(path, content)
    tiered.open_caches()
    loaded = Loads(tiered).load(0)
    assert isinstance(loaded, LoadedIndexes)
    if content != b"":
        # An empty index is valid, and leads to the start of the segment.
        assert tiered.runtime.disk.read(path) == before
        assert loaded.position_of(1) > 0


def test_the_least_recently_used_files_leave_beyond_the_limit(tiered: TieredLog) -> None:
    loads = Loads(tiered)
    for number in range(3):
        loads.load(number)
    one = tiered.indexes.file_bytes // 3
    first = tiered.remote.segments()[0]
    assert tiered.indexes.get(first.id) is not None
    tiered.index_limits = tiered.index_limits._replace(file_bytes_max=3 * one)
    loads.load(3)
    assert tiered.indexes.file_bytes <= 3 * one
    left = {int(name.partition("_")[0]) for name in names(tiered)}
    assert left == {0, 4, 6}, "segment 2 was not used since its load"


def test_the_least_recently_used_indexes_leave_memory_and_stay_in_files(
    tiered: TieredLog,
) -> None:
    tiered.index_limits = tiered.index_limits._replace(memory_bytes_max=1)
    loads = Loads(tiered)
    loads.load(0)
    loads.load(1)
    first, second, *_ = tiered.remote.segments()
    assert tiered.indexes.get(first.id) is None
    assert tiered.indexes.get(second.id) is not None
    loads.load(0)
    assert reads_of_store(tiered) == 2


def test_indexes_that_are_not_used_for_long_leave(tiered: TieredLog) -> None:
    tiered.index_limits = tiered.index_limits._replace(ttl_ms=100_000)
    loads = Loads(tiered)
    loads.load(0)
    loads.load(1)
    first, second, *_ = tiered.remote.segments()
    tiered.world.run_for(80_000)
    assert tiered.indexes.get(second.id) is not None
    tiered.world.run_for(80_000)
    assert tiered.indexes.get(first.id) is None
    assert {int(name.partition("_")[0]) for name in names(tiered)} == {2}


def test_forgotten_segments_leave_memory_and_files(tiered: TieredLog) -> None:
    Loads(tiered).load(0)
    tiered.indexes.forget([each.id for each in tiered.remote.segments()])
    tiered.world.run_for(A_WHILE_MS)
    assert names(tiered) == []
    assert tiered.indexes.file_bytes == tiered.indexes.memory_bytes == 0


def test_incomplete_and_temporary_files_are_deleted_at_the_start(tiered: TieredLog) -> None:
    Loads(tiered).load(0)
    kept = names(tiered)
    disk = tiered.runtime.disk
    identity = uuid_to_string(bytes(16))
    for name in (f"7_{identity}.timeindex", f"8_{identity}.index.deleted", "other"):
        disk.write_atomically(f"{INDEX_DIRECTORY}/{name}", b"content")
    tiered.open_caches()
    assert names(tiered) == sorted([*kept, "other"])


def test_a_full_disk_costs_no_read(tiered: TieredLog) -> None:
    disk = tiered.runtime.disk
    disk.remove_tree(INDEX_DIRECTORY)
    # A file where the directory should be: no index can be written.
    disk.write_atomically(INDEX_DIRECTORY, b"no directory")
    assert isinstance(Loads(tiered).load(0), LoadedIndexes)
    assert tiered.indexes.file_bytes == 0


def test_indexes_of_another_segment_do_not_fit(tiered: TieredLog) -> None:
    segment = tiered.remote.segments()[0]
    shorter = replace(segment, end_offset=segment.start_offset, size=10)
    done: list[object] = []
    tiered.indexes.load(shorter, lambda *outcome: done.extend(outcome))
    tiered.world.run_for(A_WHILE_MS)
    assert done[0] is None
    assert isinstance(done[1], RemoteStorageError)
