"""The segments that `barnabas remote restore` takes from the store."""

from __future__ import annotations

import pytest

from barnabas.cli.remote.restore_plan import (
    PartitionPlan,
    RestorePlanError,
    StartOffsets,
    plan_partition,
)
from barnabas.storage.files.leader_epoch_cache import EpochEntry
from unit.storage.remote.epoch_segments import segment

LOG = [EpochEntry(0, 0), EpochEntry(2, 100)]


def plan(
    *segments: object, epochs: list[EpochEntry] = LOG, from_offset: int | None = None
) -> PartitionPlan:
    return plan_partition(3, list(segments), lambda _: epochs, from_offset)


def ranges(found: PartitionPlan) -> list[tuple[int, int]]:
    return [(each.start_offset, each.end_offset) for each in found.segments]


def test_all_segments_of_one_history_are_taken_in_order() -> None:
    found = plan(segment(149, (2, 100)), segment(49, (0, 0)), segment(99, (0, 50)))
    assert ranges(found) == [(0, 49), (50, 99), (100, 149)]
    assert (found.log_start_offset, found.log_end_offset, found.left_out) == (0, 150, 0)


def test_the_latest_leader_epoch_decides_and_not_the_largest_offset() -> None:
    lost = segment(199, (1, 100))
    found = plan(segment(99, (0, 0)), lost, segment(149, (2, 100)))
    assert ranges(found) == [(0, 99), (100, 149)]
    assert found.left_out == 1


def test_second_copies_are_left_out() -> None:
    found = plan(
        segment(59, (0, 0)),
        segment(99, (0, 40)),
        segment(79, (0, 60)),
        segment(99, (0, 80)),
        segment(149, (2, 100)),
        segment(149, (2, 120)),
    )
    assert ranges(found) == [(0, 59), (40, 99), (100, 149)]
    assert found.left_out == 3


def test_a_gap_is_refused_with_the_offset_after_it() -> None:
    with pytest.raises(RestorePlanError, match=r"no segment has the offsets 50-69.*--from 3:70"):
        plan(segment(49, (0, 0)), segment(99, (0, 70)), segment(149, (2, 100)))


def test_the_offset_after_the_last_gap_is_proposed() -> None:
    with pytest.raises(RestorePlanError, match=r"90-99, 50-69.*--from 3:100"):
        plan(segment(49, (0, 0)), segment(89, (0, 70)), segment(149, (2, 100)))


def test_a_demanded_offset_leaves_out_what_comes_before_its_segment() -> None:
    given = segment(49, (0, 0)), segment(99, (0, 70)), segment(149, (2, 100))
    assert ranges(plan(*given, from_offset=75)) == [(70, 99), (100, 149)]
    assert ranges(plan(*given, from_offset=70)) == [(70, 99), (100, 149)]
    assert ranges(plan(*given, from_offset=149)) == [(100, 149)]


def test_a_demanded_offset_in_a_gap_is_refused() -> None:
    with pytest.raises(RestorePlanError, match="50-69"):
        plan(segment(49, (0, 0)), segment(149, (0, 70), (2, 100)), from_offset=60)


def test_a_demanded_offset_behind_all_segments_is_refused() -> None:
    with pytest.raises(RestorePlanError, match="its last offset in the store is 149"):
        plan(segment(149, (2, 100)), from_offset=150)


def test_a_log_can_begin_above_0() -> None:
    epochs = [EpochEntry(2, 120)]
    found = plan(segment(149, (2, 120)), segment(99, (0, 0)), epochs=epochs)
    assert ranges(found) == [(120, 149)]
    assert found.left_out == 1


def test_start_offsets_of_partitions_go_before_the_one_of_all() -> None:
    starts = StartOffsets({None: 5, 2: 7})
    assert (starts.of(1), starts.of(2)) == (5, 7)
    assert StartOffsets({2: 7}).of(1) is None
