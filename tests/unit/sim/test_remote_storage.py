"""The faults of the simulated store, and that it outlives the hosts."""

from __future__ import annotations

import pytest

from barnabas.runtime.rng import SeededRng
from barnabas.sim.remote_storage import SimRemoteStorage
from barnabas.sim.world import SimWorld
from barnabas.storage.remote.remote_storage import (
    RemoteDamagedError,
    RemoteFullError,
    RemoteMissingError,
    RemoteRefusedError,
    RemoteSegment,
    RemoteUnavailableError,
)
from unit.storage.remote.stored_segments import LocalSegment, finished, local_segment, segment_at


class Place:
    """A store, and one broker's host."""

    def __init__(self, seed: int = 1) -> None:
        self.world = SimWorld(seed)
        self.host = self.world.host("a")
        self.host.disk.make_directory("/local")
        self.store = SimRemoteStorage(self.host.clock, SeededRng(seed))
        self.storage = self.store.on(self.host.disk)

    def made(self, segment: RemoteSegment) -> LocalSegment:
        return local_segment(self.host.disk, segment, "/local")

    def copied(self, start_offset: int = 0) -> LocalSegment:
        local = self.made(segment_at(start_offset))
        custom = self.storage.copy_segment(local.segment, local.files)
        return local._replace(segment=finished(local.segment, custom))


def test_segments_outlive_the_host_and_are_read_by_another_one() -> None:
    place = Place()
    segment, _, content = place.copied()
    place.host.lose_power()
    other = place.store.on(place.world.host("b").disk)
    assert other.read(segment, 0, 1000) == content
    assert place.store.bytes_read == 1000


def test_a_store_may_not_answer() -> None:
    place = Place()
    segment = place.copied().segment
    place.store.faults.unavailable = 1.0
    with pytest.raises(RemoteUnavailableError):
        place.storage.size_of(segment)
    place.store.faults.unavailable = 0.0
    assert place.storage.size_of(segment) == 1000


def test_a_store_may_refuse_and_may_be_full() -> None:
    place = Place()
    segment = place.copied().segment
    place.store.faults.is_full = True
    with pytest.raises(RemoteFullError):
        place.copied(50)
    assert place.storage.size_of(segment) == 1000
    place.store.faults.is_refusing = True
    with pytest.raises(RemoteRefusedError):
        place.storage.size_of(segment)


def test_a_store_may_lie_about_a_copy() -> None:
    place = Place()
    place.store.faults.lie = 1.0
    segment = place.copied().segment
    assert place.storage.size_of(segment) is None
    assert place.store.names() == []
    place.store.faults.lie = 0.0
    assert place.copied().segment == segment


def test_a_copy_may_store_some_of_the_objects() -> None:
    counts = set()
    for seed in range(30):
        place = Place(seed)
        place.store.faults.torn_copy = 1.0
        with pytest.raises(RemoteUnavailableError):
            place.copied()
        assert place.storage.size_of(segment_at(0)) is None
        counts.add(len(place.store.names()))
    assert counts == {0, 1, 2}


def test_objects_may_be_lost_cut_and_damaged() -> None:
    place = Place()
    lost, cut, flipped = (place.copied(start).segment for start in (0, 50, 100))
    assert len(place.store.names()) == 9
    place.store.lose(lost)
    place.store.cut(cut, 10)
    position = place.store.flip_bit(flipped)
    with pytest.raises(RemoteMissingError):
        place.storage.read(lost, 0, 1)
    with pytest.raises(RemoteDamagedError):
        place.storage.read(cut, 0, 11)
    content = place.made(flipped).content
    assert place.storage.read(flipped, 0, 1000)[position] != content[position]
