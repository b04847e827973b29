"""The state of a share partition that its records store (Kafka's ShareGroupOffset, KIP-932).

State batches are merged as by Kafka's PersisterStateBatchCombiner. At each offset the highest
delivery count wins, then the highest delivery state. Neighbors with the same state and count become
one batch.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right, insort
from operator import attrgetter
from typing import NamedTuple

import msgspec

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.primitives import uuid_from_string, uuid_to_string

_INT32_MIN, _INT32_MAX = -(1 << 31), (1 << 31) - 1
_INTEGER = re.compile(r"[+-]?\d{1,40}")
# Length of a topic id with the padding of base64.
_PADDED_LENGTH = 24
# Characters that Java's trim removes.
_BLANK = "".join(map(chr, range(0x21)))


class SharePartitionKey(NamedTuple):
    """A group, a topic id of 16 bytes, and the index of a partition."""

    group_id: str
    topic_id: bytes
    partition: int

    @property
    def coordinator_key(self) -> str:
        """The key by which the share coordinator is found: GROUP:TOPIC_ID:PARTITION."""
        return f"{self.group_id}:{uuid_to_string(self.topic_id)}:{self.partition}"

    @classmethod
    def parse(cls, text: str) -> SharePartitionKey:
        """Return the share partition of a coordinator key. The group id may contain colons.

        As in Kafka, colons at the end are ignored, and the topic id may have its padding.

        Raises:
            ValueError: the text has another form.
        """
        group_id, _, rest = text.rstrip(":").rpartition(":")
        group_id, _, topic_id = group_id.rpartition(":")
        if not group_id.strip(_BLANK):
            raise ValueError(f"the share partition key has no group id: {text!r}")
        if not _INTEGER.fullmatch(rest) or not _INT32_MIN <= int(rest) <= _INT32_MAX:
            raise ValueError(f"the share partition key has no partition: {text!r}")
        if len(topic_id) == _PADDED_LENGTH:
            topic_id = topic_id.removesuffix("==")
        return cls(group_id, uuid_from_string(topic_id), int(rest))


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


NO_LEADER_EPOCH = -1
NO_DELIVERY_COMPLETE_COUNT = -1
_EPOCH_MIN, _EPOCH_MAX = -(1 << 31), (1 << 31) - 1


class SharePartitionState(msgspec.Struct, frozen=True, kw_only=True):
    """The state after a snapshot and its updates. Timestamps are wall-clock ms."""

    # Number of the snapshot; each snapshot of the share partition raises it.
    snapshot_epoch: int
    # Raised by the group coordinator when it initializes the share partition again.
    state_epoch: int
    # Leader epoch of the topic's partition in the last write; 0 after initialization.
    leader_epoch: int
    # First offset that is not delivered completely; -1 if the leader must choose it.
    start_offset: int
    # Number of completely delivered offsets from the start offset on; -1 if unknown (KIP-1226).
    delivery_complete_count: int
    # Offsets that have a state of their own.
    state_batches: list[StateBatch]
    # When a request caused the last snapshot, and when the last snapshot was written. A later
    # snapshot of an unchanged share partition changes only the second one.
    create_timestamp_ms: int
    write_timestamp_ms: int

    @property
    def next_snapshot_epoch(self) -> int:
        """The number of the next snapshot. It wraps around, as Java's integers do."""
        return self.snapshot_epoch + 1 if self.snapshot_epoch < _EPOCH_MAX else _EPOCH_MIN

    def updated(self, update: SharePartitionUpdate) -> SharePartitionState:
        """Return the state after an update.

        Raises:
            InvalidBatchError: a state batch ends before it begins.
        """
        start_offset = update.start_offset
        if start_offset == NO_START_OFFSET:
            start_offset = self.start_offset
        leader_epoch = update.leader_epoch
        if leader_epoch == NO_LEADER_EPOCH:
            leader_epoch = self.leader_epoch
        return SharePartitionState(
            snapshot_epoch=self.snapshot_epoch,
            state_epoch=self.state_epoch,
            leader_epoch=leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=update.delivery_complete_count,
            state_batches=combine(self.state_batches, update.state_batches, start_offset),
            create_timestamp_ms=self.create_timestamp_ms,
            write_timestamp_ms=self.write_timestamp_ms,
        )


class SharePartitionUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """A change of the state of a share partition, which an update record stores."""

    # Number of the snapshot that the update follows.
    snapshot_epoch: int
    # -1 if the leader epoch does not change.
    leader_epoch: int
    # -1 if the start offset does not change.
    start_offset: int
    delivery_complete_count: int
    # The changed state batches.
    state_batches: list[StateBatch]

    def as_state(self) -> SharePartitionState:
        """Return the state of an update without a snapshot before it, as in Kafka."""
        return SharePartitionState(
            snapshot_epoch=self.snapshot_epoch,
            state_epoch=0,
            leader_epoch=self.leader_epoch,
            start_offset=self.start_offset,
            delivery_complete_count=self.delivery_complete_count,
            state_batches=self.state_batches,
            create_timestamp_ms=0,
            write_timestamp_ms=0,
        )


class StateChange(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a write (WriteShareGroupState)."""

    state_epoch: int
    leader_epoch: int
    # -1 if the start offset does not change.
    start_offset: int
    delivery_complete_count: int = NO_DELIVERY_COMPLETE_COUNT
    state_batches: list[StateBatch] = msgspec.field(default_factory=list)


class StateOutcome(msgspec.Struct, frozen=True):
    """An error with its message, or the state that a read returns."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    # The state that was read; None if there is none, and for other operations.
    state: SharePartitionState | None = None


def refused(error: ErrorCode, message: str | None = None) -> StateOutcome:
    """Return an outcome with an error. Without a message, it has the error's own."""
    return StateOutcome(error, error.message if message is None else message)
