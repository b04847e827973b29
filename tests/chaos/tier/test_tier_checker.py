"""The checker of the remote tier finds each kind of fault, and nothing in a clean tier."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.tier.tier_checker import LogRange, check_tier
from chaos.tier.tier_store import (
    COPY_FINISHED,
    COPY_STARTED,
    DELETE_FINISHED,
    DELETE_STARTED,
    PARTS,
    ChaosDirectory,
    ChaosTier,
    KnownSegment,
    StoredSegment,
)

TOPIC = "chaos"
ID = "AAAAAAAAAAAAAAAAAAAAA{}"


def known(*ranges: tuple[int, int], state: int = COPY_FINISHED) -> dict[str, KnownSegment]:
    """Return segments with these first and last offsets."""
    return {
        ID.format(number): KnownSegment(TOPIC, 0, start, end, state)
        for number, (start, end) in enumerate(ranges)
    }


def stored(*starts: int, parts: frozenset[str] = PARTS) -> list[StoredSegment]:
    """Return the files of segments with these first offsets."""
    return [
        StoredSegment(TOPIC, 0, start, ID.format(number), parts, str(start))
        for number, start in enumerate(starts)
    ]


def log(start: int, local_start: int) -> dict[tuple[str, int], LogRange]:
    return {(TOPIC, 0): LogRange(start, local_start)}


def test_a_tier_with_all_files_of_all_copied_segments_is_clean() -> None:
    segments = known((0, 4), (5, 9))
    assert check_tier(segments, stored(0, 5), log(0, 10)).is_clean
    # The log start may be within a segment, and the local log may overlap with the tier.
    assert check_tier(segments, stored(0, 5), log(3, 7)).is_clean


def test_deleted_segments_and_an_empty_tier_are_clean() -> None:
    assert check_tier(known((0, 4), state=DELETE_FINISHED), [], log(5, 5)).is_clean
    assert check_tier({}, [], log(0, 0)).is_clean


def test_overlapping_copies_are_clean() -> None:
    assert check_tier(known((0, 9), (3, 5), (8, 12)), stored(0, 3, 8), log(0, 13)).is_clean


@pytest.mark.parametrize(
    ("segments", "files", "local_start", "kind"),
    [
        ({}, stored(0), 0, "orphan"),
        (known((0, 4), state=DELETE_FINISHED), stored(0), 0, "orphan"),
        (known((0, 4)), [], 5, "missing"),
        (known((0, 4)), stored(0, parts=frozenset({"log", "json"})), 5, "missing"),
        (known((0, 4)), stored(0, parts=PARTS | {"log.tmp"}), 5, "missing"),
        (known((0, 4), state=COPY_STARTED), [], 0, "unfinished"),
        (known((0, 4), state=DELETE_STARTED), [], 0, "unfinished"),
        (known((0, 4), (6, 9)), stored(0, 6), 10, "hole"),
        (known((1, 4)), stored(1), 5, "hole"),
        (known((0, 4)), stored(0), 6, "hole"),
    ],
)
def test_each_kind_of_fault_is_found(
    segments: dict[str, KnownSegment], files: list[StoredSegment], local_start: int, kind: str
) -> None:
    found = check_tier(segments, files, log(0, local_start))
    assert set(found.counts) == {kind}, str(found)


def test_the_files_of_a_store_are_those_of_its_segments(tmp_path: Path) -> None:
    topic_id = "bbbbbbbbbbbbbbbbbbbbbb"
    partition = tmp_path / "cluster" / f"a-b-{topic_id}" / "3"
    partition.mkdir(parents=True)
    (tmp_path / "cluster" / "store.json").touch()
    (partition.parent / "topic.json").touch()
    for suffix in ("log", "indexes", "json", "json.tmp"):
        (partition / f"{7:020d}-{ID.format(0)}.{suffix}").touch()
    (partition / "unknown").touch()
    (found,) = ChaosTier(ChaosDirectory(tmp_path)).stored()
    assert (found.topic, found.partition, found.start_offset, found.id) == (
        "a-b",
        3,
        7,
        ID.format(0),
    )
    assert found.parts == {"log", "indexes", "json", "json.tmp"}
