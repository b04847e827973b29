"""The fetched output of all partitions, in the order in which it is returned (Kafka's FetchBuffer).

The output itself is in the `FetchState` of each partition. This buffer holds the order of arrival
and counts the bytes, so that fetching stops while too many are queued.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from barnabas.client.fetch.fetched_set import FetchedSet

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.client.errors import CorruptRecordsError
    from barnabas.client.fetch.fetch_state import FetchState, Output
    from barnabas.client.fetch.record_set import FetchFailure

__all__ = ["FetchBuffer"]


class FetchBuffer:
    """Order and size of the buffered output.

    Args:
        bytes_max: The size at which the buffer is full (bytes).
    """

    __slots__ = ("_bytes_max", "_queue", "queued_bytes")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        # The partitions of the buffered items, in the order in which the items are returned.
        # Invariant: a partition has one entry per item of its `buffered`, or none while it is held.
        self._queue: deque[FetchState] = deque()
        # Bytes of the queued sets of which nothing was returned yet. Never negative.
        self.queued_bytes = 0

    def __bool__(self) -> bool:
        """Return whether there is an item to return."""
        return bool(self._queue)

    @property
    def is_full(self) -> bool:
        """Whether no fetch may be sent because of the queued bytes."""
        return self.queued_bytes >= self._bytes_max

    @property
    def first(self) -> FetchState | None:
        """The partition whose first buffered item is returned next; None if there is none."""
        return self._queue[0] if self._queue else None

    def add(self, state: FetchState, fetched: FetchedSet) -> None:
        """Add a fetched set of a partition that is not held, after all other items."""
        assert not state.is_held, state.tp
        state.buffered.append(fetched)
        self._queue.append(state)
        self.queued_bytes += len(fetched.record_set.data)

    def add_failure(self, state: FetchState, failure: FetchFailure) -> None:
        """Add the failure that ends the fetched sets of a partition, after all other items."""
        state.buffered.append(failure)
        if not state.is_held:
            self._queue.append(state)

    def pop(self) -> Output:
        """Remove and return the first item."""
        item = self._queue.popleft().buffered.popleft()
        if isinstance(item, FetchedSet) and not item.has_begun:
            self._count(-len(item.record_set.data))
        return item

    def begin(self, on_corrupt: Callable[[CorruptRecordsError], None]) -> None:
        """Begin to return the records of the first item, a set; its bytes no longer count.

        Args:
            on_corrupt: Called with the error of each batch that cannot be decoded.

        Raises:
            CorruptRecordsError: A transaction marker cannot be decoded.
        """
        item = self._queue[0].buffered[0]
        assert isinstance(item, FetchedSet), item
        self._count(-len(item.record_set.data))
        item.begin(on_corrupt)

    def replace_first(self, failure: FetchFailure) -> None:
        """Replace the first item, a set that has begun, by a failure."""
        item = self._queue[0].buffered.popleft()
        assert not _queued_bytes(item), (failure.topic_partition, _queued_bytes(item))
        self._queue[0].buffered.appendleft(failure)

    def put_back(self, state: FetchState, item: FetchedSet) -> None:
        """Make a set that was returned the first item again."""
        assert item.has_begun, state.tp
        state.buffered.appendleft(item)
        if not state.is_held:
            self._queue.appendleft(state)

    def hold(self, state: FetchState) -> None:
        """Stop returning the items of a partition that is held now.

        Of the sets that have not begun, only the first is kept, so that many held partitions use
        little memory. The others are fetched again.
        """
        assert state.is_held, state.tp
        self._remove_entries(state)
        items = state.buffered
        begun = sum(map(_has_begun, items))
        if len(items) > begun + 1 and isinstance(first := items[begun], FetchedSet):
            state.buffered = deque(list(items)[: begun + 1])
            state.rewind(first.record_set)

    def release(self, state: FetchState) -> None:
        """Return the items of a partition that is no longer held."""
        assert not state.is_held, state.tp
        assert state not in self._queue, state.tp
        for item in reversed(state.buffered):
            if _has_begun(item):
                self._queue.appendleft(state)
        for item in state.buffered:
            if not _has_begun(item):
                self._queue.append(state)
                self._count(_queued_bytes(item))

    def drop(self, state: FetchState) -> None:
        """Discard the items of a partition."""
        if state.buffered:
            self._remove_entries(state)
            state.buffered.clear()

    def _remove_entries(self, state: FetchState) -> None:
        if state not in self._queue:
            return
        self._queue = deque(each for each in self._queue if each is not state)
        self._count(-sum(map(_queued_bytes, state.buffered)))

    def _count(self, size: int) -> None:
        self.queued_bytes += size
        assert self.queued_bytes >= 0, (self.queued_bytes, size)


def _has_begun(item: Output) -> bool:
    return isinstance(item, FetchedSet) and item.has_begun


def _queued_bytes(item: Output) -> int:
    """Return the bytes that an item adds to `queued_bytes` while it is queued."""
    if isinstance(item, FetchedSet) and not item.has_begun:
        return len(item.record_set.data)
    return 0
