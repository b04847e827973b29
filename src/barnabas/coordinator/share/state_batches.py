"""Merges state batches of a share partition (Kafka's PersisterStateBatchCombiner, KIP-932).

At each offset the highest delivery count wins, then the highest delivery state. Neighbors with the
same state and count become one batch.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from operator import attrgetter

import msgspec

# No start offset: nothing is pruned.
NO_START_OFFSET = -1
_INT64_MAX = (1 << 63) - 1
_first = attrgetter("first_offset")
_last = attrgetter("last_offset")


class StateBatch(msgspec.Struct, frozen=True, gc=False):
    """The delivery state of a range of offsets. Both offsets are inclusive."""

    first_offset: int
    last_offset: int
    # 0 available, 2 acknowledged, 4 archived.
    delivery_state: int
    # Number of deliveries so far.
    delivery_count: int


class InvalidBatchError(ValueError):
    """A batch ends before it begins, and cannot be merged with others."""


def combine(
    batches: list[StateBatch], new_batches: list[StateBatch], start_offset: int
) -> list[StateBatch]:
    """Return the merged batches, in the order of their offsets.

    Args:
        batches: the batches so far. Linear time in the overlap with `new_batches` if they are a
            result of this function.
        new_batches: batches in any order, which may overlap.
        start_offset: offsets below it are dropped; -1 for none.

    Raises:
        InvalidBatchError: a batch ends before it begins. As in Kafka, a single batch is not
            checked.
    """
    batches = _prune(batches, start_offset)
    new_batches = _prune(new_batches, start_offset)
    if len(batches) + len(new_batches) <= 1:
        return batches or new_batches
    if not is_combined(batches) or not all(map(_is_valid, new_batches)):
        return _sweep([*batches, *new_batches])
    if not new_batches:
        return batches
    # Only the batches that overlap or touch a new one can change.
    low = min(map(_first, new_batches)) - 1
    high = max(map(_last, new_batches)) + 1
    begin = bisect_left(batches, low, key=_last)
    end = max(begin, bisect_right(batches, high, key=_first))
    return [*batches[:begin], *_sweep([*batches[begin:end], *new_batches]), *batches[end:]]


def is_combined(batches: list[StateBatch]) -> bool:
    """Return whether the batches are in order, without overlap, and cannot be joined further."""
    end, state, count = -(1 << 63), -1, -1
    for each in batches:
        first, last = each.first_offset, each.last_offset
        if last < first or last == _INT64_MAX or first < end:
            return False
        if first == end and each.delivery_state == state and each.delivery_count == count:
            return False
        end, state, count = last + 1, each.delivery_state, each.delivery_count
    return True


def _is_valid(batch: StateBatch) -> bool:
    return batch.first_offset <= batch.last_offset < _INT64_MAX


def _prune(batches: list[StateBatch], start_offset: int) -> list[StateBatch]:
    """Drop the offsets below the start offset."""
    if start_offset == NO_START_OFFSET or all(
        each.first_offset >= start_offset <= each.last_offset for each in batches
    ):
        return batches
    return [
        each
        if each.first_offset >= start_offset
        else StateBatch(start_offset, each.last_offset, each.delivery_state, each.delivery_count)
        for each in batches
        if each.last_offset >= start_offset
    ]


def _sweep(batches: list[StateBatch]) -> list[StateBatch]:
    """Merge batches in any order: go through their begins and ends in the order of the offsets."""
    events: list[tuple[int, bool, tuple[int, int]]] = []
    for each in batches:
        if each.last_offset >= _INT64_MAX:
            raise InvalidBatchError(f"no offset follows the last offset of {each}")
        priority = (each.delivery_count, each.delivery_state)
        events.append((each.first_offset, True, priority))
        # An end comes before a begin at the same offset.
        events.append((each.last_offset + 1, False, priority))
    events.sort()
    merged: list[StateBatch] = []
    # Number of batches at the current offset, by priority; and the priorities, ascending.
    active: dict[tuple[int, int], int] = {}
    priorities: list[tuple[int, int]] = []
    since = -1
    highest: tuple[int, int] | None = None
    for number, (offset, is_begin, priority) in enumerate(events):
        if offset != since or number == 0:
            if highest is not None and offset > since:
                _append(merged, since, offset - 1, highest)
            since = offset
        count = active.get(priority, 0)
        if is_begin:
            if not count:
                insort(priorities, priority)
            active[priority] = count + 1
        elif not count:
            raise InvalidBatchError(f"a batch ends before it begins: end_offset={offset}")
        elif count == 1:
            del active[priority]
            del priorities[bisect_left(priorities, priority)]
        else:
            active[priority] = count - 1
        highest = priorities[-1] if priorities else None
    return merged


def _append(merged: list[StateBatch], first: int, last: int, priority: tuple[int, int]) -> None:
    """Append a batch, or extend the last one if it touches this one and is alike."""
    count, state = priority
    if merged:
        before = merged[-1]
        is_alike = before.delivery_state == state and before.delivery_count == count
        if is_alike and before.last_offset + 1 == first:
            merged[-1] = StateBatch(before.first_offset, last, state, count)
            return
    merged.append(StateBatch(first, last, state, count))
