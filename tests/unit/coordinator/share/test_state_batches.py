"""State batches: the highest count wins, then the highest state; neighbors that are alike join."""

from __future__ import annotations

import random

import pytest

from barnabas.coordinator.share.share_partition_state import (
    InvalidBatchError,
    StateBatch,
    combine,
    is_ordered,
)

AVAILABLE, ACKNOWLEDGED, ARCHIVED = 0, 2, 4


def by_offset(batches: list[StateBatch], start_offset: int) -> list[StateBatch]:
    """The same result, from a table of all offsets."""
    highest: dict[int, tuple[int, int]] = {}
    for each in batches:
        for offset in range(each.first_offset, each.last_offset + 1):
            if start_offset == -1 or offset >= start_offset:
                priority = each.delivery_count, each.delivery_state
                highest[offset] = max(highest.get(offset, priority), priority)
    merged: list[StateBatch] = []
    for offset, (count, state) in sorted(highest.items()):
        before = merged[-1] if merged else None
        if before == StateBatch(before.first_offset if before else 0, offset - 1, state, count):
            merged[-1] = StateBatch(before.first_offset, offset, state, count)
        else:
            merged.append(StateBatch(offset, offset, state, count))
    return merged


def drawn(rng: random.Random) -> list[StateBatch]:
    found = []
    for _ in range(rng.randrange(6)):
        first = rng.randrange(12)
        state = rng.choice((AVAILABLE, ACKNOWLEDGED, ARCHIVED))
        found.append(StateBatch(first, first + rng.randrange(4), state, rng.randrange(1, 4)))
    return found


def test_random_batches_are_merged_as_offset_by_offset() -> None:
    rng = random.Random(7)
    for _ in range(5_000):
        so_far, new = drawn(rng), drawn(rng)
        if rng.random() < 0.8:
            so_far = by_offset(so_far, -1)
        start_offset = rng.choice((-1, 0, 3, 7))
        expected = by_offset([*so_far, *new], start_offset)
        assert combine(so_far, new, start_offset) == expected, (so_far, new, start_offset)


def test_only_the_overlap_changes() -> None:
    so_far = [StateBatch(2 * each, 2 * each, ACKNOWLEDGED, 1) for each in range(1_000)]
    merged = combine(so_far, [StateBatch(1_001, 1_001, ACKNOWLEDGED, 1)], -1)
    assert len(merged) == 999
    assert StateBatch(1_000, 1_002, ACKNOWLEDGED, 1) in merged
    # The other batches are the same objects.
    assert sum(each is other for each, other in zip(merged, so_far, strict=False)) == 500


def test_a_lower_count_changes_nothing() -> None:
    so_far = [StateBatch(5, 9, ACKNOWLEDGED, 3)]
    assert combine(so_far, [StateBatch(6, 7, ARCHIVED, 2)], -1) == so_far


@pytest.mark.parametrize(
    "batch", [StateBatch(5, 3, AVAILABLE, 1), StateBatch(5, (1 << 63) - 1, AVAILABLE, 1)]
)
def test_a_batch_without_an_end_is_refused_unless_it_is_alone(batch: StateBatch) -> None:
    assert combine([], [batch], -1) == [batch]
    assert not is_ordered([batch])
    for so_far in ([StateBatch(1, 2, AVAILABLE, 1)], [StateBatch(9, 9, AVAILABLE, 2)]):
        with pytest.raises(InvalidBatchError):
            combine(so_far, [batch], -1)
        with pytest.raises(InvalidBatchError):
            combine([batch], so_far, -1)
