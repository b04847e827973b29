"""Segments whose records a restore would lose without a gap between others."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.cli.remote.damaged_segments import damaged_segments, lost_beginnings, lost_ends
from barnabas.cli.remote.restore_plan import PartitionPlan, StartOffsets
from barnabas.storage.remote.remote_storage import RemoteSegment
from unit.cli.remote_stores import TOPIC_ID, MadeStore

ANY_START = StartOffsets({})


@pytest.fixture
def store(tmp_path: Path) -> MadeStore:
    return MadeStore(tmp_path)


def damaged(store: MadeStore) -> dict[int, list[int]]:
    listed = store.storage.list_segments("flights")
    whole = {each.name for each in listed if each.is_whole}
    return damaged_segments(store.storage, "flights", TOPIC_ID, whole)


def plan(*segments: RemoteSegment) -> PartitionPlan:
    return PartitionPlan(segments[0].partition, segments, 0)


def test_a_segment_with_a_manifest_and_without_all_objects_is_damaged(store: MadeStore) -> None:
    segments = [store.add(start, partition=1) for start in (0, 10, 20, 30, 40)]
    store.add(0, topic="flights2")
    store.add(0, topic_id=b"of-another-topic")
    assert damaged(store) == {}
    store.object(segments[0], ".log").unlink()
    path = store.object(segments[1], ".indexes")
    path.write_bytes(path.read_bytes() + b"x")
    store.object(segments[2], ".json").write_text("{}")
    # A copy that is not finished, or a deletion that has begun.
    store.object(segments[3], ".json").unlink()
    assert damaged(store) == {1: [0, 10, 20]}


def test_damaged_first_segments_are_named_unless_the_user_allows_it(store: MadeStore) -> None:
    segments = [store.add(start) for start in (20, 30)]
    found = {0: [0, 10, 30]}
    (problem,) = lost_beginnings(found, [plan(*segments)], ANY_START)
    assert "from offsets 0, 10 on" in problem
    assert problem.endswith("--from 0:20")
    assert lost_beginnings(found, [plan(*segments)], StartOffsets({0: 20})) == []
    assert lost_beginnings({0: [20]}, [plan(*segments)], ANY_START) == []


def test_a_partition_without_whole_segments_is_named(store: MadeStore) -> None:
    (problem,) = lost_beginnings({3: [5, 15]}, [plan(store.add(0))], ANY_START)
    assert problem.startswith("partition 3: ")
    assert problem.endswith("--from 3:5")
    assert lost_beginnings({3: [5]}, [plan(store.add(0))], StartOffsets({3: 5})) == []


def test_damaged_last_segments_are_named(store: MadeStore) -> None:
    segments = [store.add(start) for start in (0, 10)]
    (sentence,) = lost_ends({0: [10, 20, 30], 1: [0]}, [plan(*segments)])
    assert "from offsets 20, 30 on" in sentence
    assert "its end is 20" in sentence
    assert lost_ends({0: [10]}, [plan(*segments)]) == []
