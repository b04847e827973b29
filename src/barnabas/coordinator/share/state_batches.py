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
    if not _is_combined(batches):
        return _sweep([*batches, *new_batches])
    if not new_batches:
        return batches
    if is_ordered(new_batches):
        new_batches = _overlay(new_batches, [])
    else:
        if not all(map(_is_valid, new_batches)):
            return _sweep([*batches, *new_batches])
        new_batches = _sweep(new_batches)
    # Only the batches that overlap or touch a new one can change.
    begin = bisect_left(batches, new_batches[0].first_offset - 1, key=_last)
    end = max(begin, bisect_right(batches, new_batches[-1].last_offset + 1, key=_first))
    return [*batches[:begin], *_overlay(batches[begin:end], new_batches), *batches[end:]]


def is_ordered(batches: list[StateBatch]) -> bool:
    """Return whether the batches are in the order of their offsets, without overlap."""
    end = -(1 << 63)
    for each in batches:
        if not end <= each.first_offset <= each.last_offset < _INT64_MAX:
            return False
        end = each.last_offset + 1
    return True


def _is_combined(batches: list[StateBatch]) -> bool:
    """Return whether the batches are ordered, and no neighbors can be joined."""
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
                count, state = highest
                _append(merged, StateBatch(since, offset - 1, state, count))
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


def _overlay(batches: list[StateBatch], new_batches: list[StateBatch]) -> list[StateBatch]:
    """Merge two results of `combine` in linear time."""
    merged: list[StateBatch] = []
    # The rest of the current batch of each list, and its following batches. The smallest begin
    # comes first; of batches that begin at the same offset, the one with the lower priority.
    rest = iter(batches)
    other = iter(new_batches)
    one = next(rest, None)
    two = next(other, None)
    while one is not None and two is not None:
        if two.first_offset < one.first_offset:
            one, two, rest, other = two, one, other, rest
        if one.last_offset < two.first_offset:
            _append(merged, one)
            one = next(rest, None)
        elif one.first_offset < two.first_offset:
            _append(merged, _part(one, one.first_offset, two.first_offset - 1))
            one = _part(one, two.first_offset, one.last_offset)
        else:
            if _priority(one) > _priority(two):
                one, two, rest, other = two, one, other, rest
            # Both begin at this offset: the higher priority covers the lower one.
            if one.last_offset <= two.last_offset:
                one = next(rest, None)
            else:
                one = _part(one, two.last_offset + 1, one.last_offset)
                _append(merged, two)
                two = next(other, None)
    for batch, following in ((one, rest), (two, other)):
        if batch is not None:
            _append(merged, batch)
        for each in following:
            _append(merged, each)
    return merged


def _priority(batch: StateBatch) -> tuple[int, int]:
    return batch.delivery_count, batch.delivery_state


def _part(batch: StateBatch, first: int, last: int) -> StateBatch:
    return StateBatch(first, last, batch.delivery_state, batch.delivery_count)


def _append(merged: list[StateBatch], batch: StateBatch) -> None:
    """Append a batch, or extend the last one if it touches this one and is alike."""
    if merged:
        before = merged[-1]
        if (
            before.last_offset + 1 == batch.first_offset
            and before.delivery_count == batch.delivery_count
            and before.delivery_state == batch.delivery_state
        ):
            merged[-1] = _part(before, before.first_offset, batch.last_offset)
            return
    merged.append(batch)
