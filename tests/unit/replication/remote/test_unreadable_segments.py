"""Segments that are missing or damaged in the store are remembered until they are read again."""

from __future__ import annotations

import pytest

from barnabas.replication.remote.copy_causes import CopyCause
from barnabas.replication.remote.unreadable_segments import (
    REMEMBERED_MS,
    SEGMENTS_MAX,
    UnreadableSegments,
)
from barnabas.sim.world import sim_runtime
from unit.replication.remote.remote_fetches import Fetches, offsets, tiered_broker
from unit.replication.remote.tiered_broker import PARTITION, TieredBroker


def found(broker: TieredBroker) -> list[tuple[int, int, CopyCause]]:
    unreadable = list(broker.reads.unreadable)
    assert all(each.partition == PARTITION for each in unreadable)
    return [(each.start_offset, each.end_offset, each.kind) for each in unreadable]


@pytest.mark.parametrize("suffix", [".log", ".indexes"])
def test_a_missing_object_is_remembered_until_its_segment_is_read(suffix: str) -> None:
    broker = tiered_broker()
    segment = broker.remote.segments()[2]
    path = broker.store._path(segment) + suffix
    content = broker.store.disk.read(path)
    broker.store.lose(segment, suffix)
    Fetches(broker).fetch((0, 2))
    assert found(broker) == [(2, 2, CopyCause.MISSING)]
    assert broker.metrics.failed_reads == {CopyCause.MISSING: 1}
    broker.store.disk.write_atomically(path, content)
    [result] = Fetches(broker).fetch((0, 2))
    assert offsets(result) == [2]
    assert found(broker) == []


def test_a_damaged_object_is_remembered() -> None:
    broker = tiered_broker()
    segment = broker.remote.segments()[2]
    broker.store.disk.open(broker.store._path(segment) + ".log").write_at(
        b"damage", segment.size - 6
    )
    Fetches(broker).fetch((0, 2))
    assert found(broker) == [(2, 2, CopyCause.DAMAGED)]


def test_failures_that_pass_are_only_counted() -> None:
    broker = tiered_broker()
    broker.store.faults.unavailable = 1.0
    Fetches(broker).fetch((0, 2))
    assert found(broker) == []
    assert broker.metrics.failed_reads == {CopyCause.UNAVAILABLE: 1}


def test_a_deleted_segment_is_forgotten() -> None:
    broker = tiered_broker()
    segment = broker.remote.segments()[2]
    broker.store.lose(segment)
    Fetches(broker).fetch((0, 2))
    broker.reads.forget_segment(segment.id)
    assert found(broker) == []


def test_a_failure_is_forgotten_after_a_while_and_their_number_is_limited() -> None:
    broker = TieredBroker()
    world, runtime = sim_runtime(1)
    unreadable = UnreadableSegments(runtime.clock)
    for number in range(SEGMENTS_MAX + 1):
        unreadable.add(broker.foreign_segment(number, number), CopyCause.MISSING)
    assert [each.start_offset for each in unreadable] == list(range(1, SEGMENTS_MAX + 1))
    world.run_for(REMEMBERED_MS + 1)
    unreadable.add(broker.foreign_segment(0, 5), CopyCause.DAMAGED)
    assert [each.end_offset for each in unreadable] == [5]
