"""The cache of ranges: memory, sharing, waiting loads, and read-ahead."""

from __future__ import annotations

import pytest

from barnabas.storage.remote.range_cache import ActiveReaders, LoadedRange
from barnabas.storage.remote.remote_storage import (
    RemoteDamagedError,
    RemoteSegment,
    RemoteStorageError,
    RemoteUnavailableError,
)
from unit.storage.remote.tiered_log import A_WHILE_MS, MIB, TieredLog

KIB = 1 << 10


@pytest.fixture
def tiered() -> TieredLog:
    """A log with three remote segments of 2 MiB, in batches of 256 KiB."""
    tiered = TieredLog()
    tiered.tier(3, batches=8, size=256 * KIB)
    tiered.range_limits = tiered.range_limits._replace(bytes_max=2 * MIB, range_bytes_max=MIB)
    return tiered


class Loads:
    """The outcomes of loads, in order."""

    def __init__(self, tiered: TieredLog) -> None:
        self.tiered = tiered
        self.done: list[RemoteStorageError | None] = []

    def start(self, segment: RemoteSegment, position: int = 0, needed: int = 1):
        return self.tiered.ranges.load(segment, position, needed, self.done.append)

    def load(
        self, segment: RemoteSegment, position: int = 0, needed: int = 1
    ) -> LoadedRange | None:
        self.start(segment, position, needed)
        self.wait()
        assert self.done[-1] is None
        return self.tiered.ranges.find(segment.id, position, needed)

    def wait(self) -> None:
        self.tiered.world.run_for(A_WHILE_MS)


def test_a_loaded_range_has_the_bytes_of_the_segment(tiered: TieredLog) -> None:
    segment = tiered.remote.segments()[1]
    assert tiered.ranges.find(segment.id, 0, 1) is None
    loaded = Loads(tiered).load(segment, 300_000, 10)
    assert loaded is not None
    assert (loaded.start, loaded.end) == (300_000, 300_000 + MIB)
    whole = tiered.storage.read(segment, 0, segment.size)
    assert loaded.lend(300_000, 300_100) == whole[300_000:300_100]
    assert tiered.ranges.find(segment.id, loaded.end - 1, 1) is loaded
    assert tiered.ranges.find(segment.id, loaded.end - 1, 2) is None
    assert tiered.ranges.bytes_used == MIB


def test_a_range_ends_with_the_segment(tiered: TieredLog) -> None:
    segment = tiered.remote.segments()[0]
    loaded = Loads(tiered).load(segment, segment.size - 100, 100)
    assert loaded is not None
    assert loaded.end == segment.size
    assert loaded.ends_batch


def test_a_range_ends_with_a_batch_if_the_indexes_are_in_memory(tiered: TieredLog) -> None:
    segment = tiered.remote.segments()[0]
    tiered.indexes.load(segment, lambda *_: None)
    tiered.world.run_for(A_WHILE_MS)
    loaded = Loads(tiered).load(segment)
    assert loaded is not None
    assert loaded.ends_batch
    assert loaded.end == tiered.indexes.boundary(segment.id, 0, MIB)
    assert 0 < loaded.end <= MIB


def test_loads_of_the_same_bytes_are_one_load(tiered: TieredLog) -> None:
    loads, segment = Loads(tiered), tiered.remote.segments()[0]
    loads.start(segment, 0, 100)
    loads.start(segment, 1_000, 100)
    loads.wait()
    assert loads.done == [None, None]
    assert tiered.store.bytes_read == MIB
    loads.start(segment, 0, 100)
    assert len(loads.done) == 2, "never called before the load returns"
    loads.wait()
    assert len(loads.done) == 3
    assert tiered.store.bytes_read == MIB


def test_the_least_recently_used_ranges_leave(tiered: TieredLog) -> None:
    loads = Loads(tiered)
    first, second, third = tiered.remote.segments()
    loads.load(first)
    loads.load(second)
    assert tiered.ranges.find(first.id, 0, 1) is not None
    loads.load(third)
    assert tiered.ranges.bytes_used == 2 * MIB
    assert tiered.ranges.find(second.id, 0, 1) is None
    assert tiered.ranges.find(first.id, 0, 1) is not None


def test_a_lent_range_stays_and_its_memory_is_counted(tiered: TieredLog) -> None:
    loads = Loads(tiered)
    first, second, third = tiered.remote.segments()
    lent = [tiered.ranges.find(each.id, 0, 1) or loads.load(each) for each in (first, second)]
    views = [each.lend(0, 100)[10:20] for each in lent if each is not None]
    del lent
    loads.start(third)
    loads.wait()
    assert len(loads.done) == 2, "there is no memory"
    assert tiered.ranges.waiting == 1
    assert tiered.ranges.bytes_used == 2 * MIB
    views.pop()
    loads.wait()
    assert len(loads.done) == 3
    assert tiered.ranges.find(second.id, 0, 1) is None
    assert tiered.ranges.find(third.id, 0, 1) is not None


def test_waiting_loads_keep_their_order(tiered: TieredLog) -> None:
    loads = Loads(tiered)
    first, second, third = tiered.remote.segments()
    views = []
    for each in (first, second):
        loaded = loads.load(each)
        assert loaded is not None
        views.append(loaded.lend(0, 1))
        del loaded
    loads.start(third, 0, 2 * MIB - 1_000)
    loads.start(first, MIB, 1)
    views.pop()
    loads.wait()
    assert len(loads.done) == 2, "the larger load is first, and does not fit"
    views.pop()
    loads.wait()
    assert len(loads.done) == 4


def test_a_canceled_load_leaves_the_queue(tiered: TieredLog) -> None:
    loads = Loads(tiered)
    first, second, third = tiered.remote.segments()
    views = []
    for each in (first, second):
        loaded = loads.load(each)
        assert loaded is not None
        views.append(loaded.lend(0, 1))
        del loaded
    loads.start(third).cancel()
    assert tiered.ranges.waiting == 0
    views.clear()
    loads.wait()
    assert len(loads.done) == 2
    assert tiered.ranges.find(third.id, 0, 1) is None


def test_a_canceled_load_that_runs_fills_the_cache(tiered: TieredLog) -> None:
    loads, segment = Loads(tiered), tiered.remote.segments()[0]
    loads.start(segment).cancel()
    loads.wait()
    assert not loads.done
    assert tiered.ranges.find(segment.id, 0, 1) is not None


def test_a_batch_above_the_limit_is_loaded_alone(tiered: TieredLog) -> None:
    loads = Loads(tiered)
    first, second, _ = tiered.remote.segments()
    tiered.range_limits = tiered.range_limits._replace(bytes_max=MIB)
    loads.load(first)
    loaded = loads.load(second, 0, MIB + 500_000)
    assert loaded is not None
    assert len(loaded.data) == MIB + 500_000
    assert tiered.ranges.find(first.id, 0, 1) is None


def test_an_error_frees_the_memory(tiered: TieredLog) -> None:
    tiered.store.faults.unavailable = 1.0
    loads, segment = Loads(tiered), tiered.remote.segments()[0]
    loads.start(segment)
    loads.wait()
    assert isinstance(loads.done[0], RemoteUnavailableError)
    assert tiered.ranges.bytes_used == 0
    tiered.store.faults.unavailable = 0.0
    assert loads.load(segment) is not None


def test_a_short_answer_of_the_store_is_damage(tiered: TieredLog) -> None:
    segment = tiered.remote.segments()[0]
    tiered.store.cut(segment, 1_000)
    loads = Loads(tiered)
    loads.start(segment)
    loads.wait()
    assert isinstance(loads.done[0], RemoteDamagedError)
    assert tiered.ranges.bytes_used == 0


def test_forgotten_ranges_are_not_found(tiered: TieredLog) -> None:
    loads = Loads(tiered)
    first, second, _ = tiered.remote.segments()
    loaded = loads.load(first)
    assert loaded is not None
    view = loaded.lend(0, 10)
    tiered.ranges.forget([first.id])
    del loaded
    assert tiered.ranges.find(first.id, 0, 1) is None
    assert tiered.ranges.bytes_used == MIB, "a response has a part of it"
    loads.load(second)
    tiered.ranges.forget([second.id])
    assert tiered.ranges.find(second.id, 0, 1) is None
    assert tiered.ranges.bytes_used == MIB
    del view
    loads.load(second)
    loads.load(second, MIB, 1)
    assert tiered.ranges.bytes_used == 2 * MIB


def test_many_readers_get_smaller_ranges(tiered: TieredLog) -> None:
    segment = tiered.remote.segments()[0]
    for reader in range(4):
        tiered.ranges.readers.move(("partition", reader), 0, 1)
    loaded = Loads(tiered).load(segment)
    assert loaded is not None
    assert len(loaded.data) == 256 * KIB
    tiered.world.run_for(20_000)
    loaded = Loads(tiered).load(segment, MIB, 1)
    assert loaded is not None
    assert len(loaded.data) == MIB


def test_readers_are_counted_by_the_offsets_where_they_continue() -> None:
    tiered = TieredLog()
    readers = ActiveReaders(tiered.runtime.clock)
    assert not readers.move("a", 0, 10)
    assert readers.move("a", 10, 20)
    assert not readers.move("a", 0, 10)
    assert not readers.move("b", 10, 20)
    assert len(readers) == 3
    tiered.world.run_for(9_000)
    assert readers.move("a", 20, 30)
    tiered.world.run_for(2_000)
    assert len(readers) == 1


def test_read_ahead_takes_only_free_memory(tiered: TieredLog) -> None:
    first, second, _ = tiered.remote.segments()
    loads = Loads(tiered)
    tiered.ranges.read_ahead(first, 0)
    loads.wait()
    assert tiered.ranges.find(first.id, 0, 1) is None, "it is switched off"
    tiered.range_limits = tiered.range_limits._replace(read_ahead=1)
    tiered.ranges.read_ahead(first, 0)
    loads.wait()
    assert tiered.ranges.find(first.id, 0, 1) is not None
    loads.load(second)
    tiered.ranges.read_ahead(first, MIB)
    loads.wait()
    assert tiered.ranges.find(first.id, MIB, 1) is None
    assert tiered.ranges.bytes_used == 2 * MIB


def test_no_load_starts_after_the_end(tiered: TieredLog) -> None:
    loads = Loads(tiered)
    loads.start(tiered.remote.segments()[0])
    tiered.ranges.close()
    loads.wait()
    assert not loads.done
