"""The order of Java's PriorityQueue, on which results of Kafka's task assignors depend.

Java's queue and Python's `heapq` return items of equal priority in different orders.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

T = TypeVar("T")


class JavaQueue(Generic[T]):
    """A binary heap of items with a priority each. The lowest priority comes first."""

    __slots__ = ("_heap",)

    def __init__(self, items: Iterable[tuple[float, T]] = ()) -> None:
        # Invariant: the priority of item k is at least that of item (k - 1) // 2.
        self._heap: list[tuple[float, T]] = []
        for priority, item in items:
            self.add(priority, item)

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, priority: float, item: T) -> None:
        """Add an item."""
        heap = self._heap
        index = len(heap)
        added = (priority, item)
        heap.append(added)
        while index > 0:
            parent = (index - 1) >> 1
            if priority >= heap[parent][0]:
                break
            heap[index] = heap[parent]
            index = parent
        heap[index] = added

    def poll(self) -> T | None:
        """Remove and return the first item; None if there are no items."""
        heap = self._heap
        if not heap:
            return None
        first = heap[0][1]
        moved = heap.pop()
        if heap:
            self._sift_down(moved)
        return first

    def _sift_down(self, moved: tuple[float, T]) -> None:
        """Put an item at the free first index, and move it down to its position."""
        heap = self._heap
        size, index = len(heap), 0
        while index < size >> 1:
            child = 2 * index + 1
            if child + 1 < size and heap[child][0] > heap[child + 1][0]:
                child += 1
            if moved[0] <= heap[child][0]:
                break
            heap[index] = heap[child]
            index = child
        heap[index] = moved
