"""Ranges: split, limited and derived from offsets, deterministically."""

from __future__ import annotations

import itertools

from hypothesis import given, strategies as st

from barnabas.client.topic_partition import TopicPartition
from barnabas.spark.topics.offsets import OffsetRange, limit_offsets, ranges_between, split_ranges

A, B = TopicPartition("a", 0), TopicPartition("b", 1)


def test_ranges_lie_between_two_offsets_and_empty_ones_are_left_out() -> None:
    assert ranges_between({A: 5, B: 7}, {B: 7, A: 9}) == [OffsetRange("a", 0, 5, 9)]


def test_a_partition_without_a_start_begins_at_zero() -> None:
    assert ranges_between({}, {B: 2}) == [OffsetRange("b", 1, 0, 2)]


def test_large_ranges_are_split_into_more_parts() -> None:
    split = split_ranges([OffsetRange("a", 0, 0, 900), OffsetRange("a", 1, 0, 100)], 10)
    assert len([r for r in split if r.partition == 0]) == 9
    assert len([r for r in split if r.partition == 1]) == 1


def test_no_range_is_larger_than_the_maximum() -> None:
    split = split_ranges([OffsetRange("a", 0, 3, 1003)], None, 300)
    assert [r.size for r in split] == [250, 250, 250, 250]


@given(
    sizes=st.lists(st.integers(1, 10**6), min_size=1, max_size=6),
    parts=st.none() | st.integers(1, 40),
    limit=st.none() | st.integers(1, 10**5),
)
def test_split_ranges_cover_the_whole_without_overlap(
    sizes: list[int], parts: int | None, limit: int | None
) -> None:
    whole = [OffsetRange("t", i, 10, 10 + size) for i, size in enumerate(sizes)]
    if limit is not None and sum(sizes) / limit > 10_000:
        limit = None
    split = split_ranges(whole, parts, limit)
    for one in whole:
        pieces = sorted(r for r in split if r.partition == one.partition)
        assert pieces[0].start == one.start
        assert pieces[-1].end == one.end
        assert all(x.end == y.start for x, y in itertools.pairwise(pieces))
        assert all(r.size > 0 for r in pieces)


def test_a_limit_is_distributed_in_proportion_to_pending_offsets() -> None:
    assert limit_offsets({A: 0, B: 100}, {A: 300, B: 200}, 100) == {A: 75, B: 125}


def test_shares_add_up_to_the_limit() -> None:
    latest = {TopicPartition("t", p): 101 + p for p in range(7)}
    assert sum(limit_offsets({}, latest, 500).values()) == 500


def test_a_small_partition_is_not_starved() -> None:
    assert limit_offsets({A: 0, B: 0}, {A: 10**6, B: 1}, 10)[B] == 1


def test_all_offsets_are_taken_within_the_limit() -> None:
    assert limit_offsets({A: 0}, {A: 10}, 10) == {A: 10}


@given(
    have=st.dictionaries(st.integers(0, 9), st.integers(0, 10**9), min_size=1),
    limit=st.integers(1, 10**6),
)
def test_a_limited_trigger_makes_progress_and_never_passes_the_end(
    have: dict[int, int], limit: int
) -> None:
    latest = {TopicPartition("t", p): n for p, n in have.items()}
    start = dict.fromkeys(latest, 0)
    end = limit_offsets(start, latest, limit)
    assert all(0 <= end[tp] <= latest[tp] for tp in latest)
    assert end != start or not any(latest.values())
    assert sum(end.values()) <= max(limit, 0) + len(latest)
