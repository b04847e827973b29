"""Hashes, order and collections of Java, on which results of Kafka depend.

A hash table iterates over its buckets, and over the keys of one bucket in the order of their
insertion; in reverse order if they were inserted by `computeIfAbsent`. Java converts buckets of
more than eight keys to trees if the table has 64 buckets or more. Their order is not reproduced.

Java's priority queue and Python's `heapq` return items of equal priority in different orders.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from operator import mul
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence

K = TypeVar("K")
T = TypeVar("T")

_MASK = 0xFFFF_FFFF
# Buckets of a table that is created without a size.
_CAPACITY = 16
# A table doubles its buckets when more than three quarters of this number are keys.
_FULL = 0.75
# A small table doubles its buckets as well when it adds a key to a bucket of this size.
_BUCKET_MAX = 8
_SMALL = 64
# Smaller hash codes equal their spread hash.
_SPREAD_FROM = 1 << 16
_TOPICS_CACHED_MAX = 1_024
# Members that one step of `member_order` adds.
_ADDED_AT_ONCE = 64
# Powers of 31 for the hashes of short strings: the last unit has the factor 1.
_SHORT = 256
_POWERS = [pow(31, exponent, 1 << 32) for exponent in range(_SHORT - 1, -1, -1)]


def string_hash(text: str) -> int:
    """Return Java's String.hashCode as an unsigned number."""
    if text.isascii():
        units: Sequence[int] = text.encode()
    else:
        raw = string_order(text)
        units = struct.unpack(f">{len(raw) // 2}H", raw)
    if len(units) <= _SHORT:
        products: Iterator[int] = map(mul, units, _POWERS[_SHORT - len(units) :])
        return sum(products) & _MASK
    value = 0
    for unit in units:
        value = (31 * value + unit) & _MASK
    return value


def string_order(text: str) -> bytes:
    """Return the key by which Java's String.compareTo sorts: the UTF-16 code units."""
    return text.encode("utf-16-be", "surrogatepass")


@lru_cache(_TOPICS_CACHED_MAX)
def topic_id_hash(topic_id: bytes) -> int:
    """Return the hash code of Kafka's Uuid as an unsigned number."""
    folded = int.from_bytes(topic_id[:8]) ^ int.from_bytes(topic_id[8:])
    return (folded >> 32) ^ (folded & _MASK)


def topic_id_partition_hash(key: tuple[bytes, int]) -> int:
    """Return the hash code of Kafka's TopicIdPartition as an unsigned number."""
    topic_id, partition = key
    return (31 * topic_id_hash(topic_id) + partition) & _MASK


def topic_partition_hash(key: tuple[str, int]) -> int:
    """Return the hash code of Kafka's TopicPartition as an unsigned number."""
    topic, partition = key
    return (31 * (31 + partition) + string_hash(topic)) & _MASK


def number_hash(number: int) -> int:
    """Return the hash code of Java's Integer."""
    return number


def room_for(count: int) -> int:
    """Return the number of buckets that Kafka's Utils.newHashMap requests for `count` keys."""
    return _power_of_two(int((count + 1) / _FULL + 1))


def capacity_for(count: int) -> int:
    """Return the number of buckets of a HashMap that is created with `count` as its capacity."""
    return _power_of_two(count)


def copied(count: int) -> int:
    """Return the number of buckets of a HashSet that copies a collection of `count` keys."""
    return _power_of_two(max(int(count / _FULL) + 1, _CAPACITY))


class JavaTable(Generic[K]):
    """Keys with the iteration order of a HashMap or HashSet."""

    __slots__ = ("_capacity", "_hash", "_hashes", "_is_computed")

    def __init__(
        self,
        hash_of: Callable[[K], int],
        keys: Iterable[K] = (),
        capacity: int = _CAPACITY,
        *,
        is_computed: bool = False,
    ) -> None:
        """Create a table.

        Args:
            hash_of: returns Java's hash of a key, as an unsigned number.
            keys: its first keys.
            capacity: its first number of buckets, a power of two.
            is_computed: whether Kafka adds the keys by `computeIfAbsent` and not by `put`.
        """
        self._hash = hash_of
        self._is_computed = is_computed
        # Number of buckets, a power of two. Removals do not lower it.
        self._capacity = capacity
        # The spread hash of each key, in the order of insertion.
        self._hashes: dict[K, int] = {}
        for key in keys:
            self.add(key)

    def __len__(self) -> int:
        return len(self._hashes)

    def __contains__(self, key: K) -> bool:
        return key in self._hashes

    def __iter__(self) -> Iterator[K]:
        """Iterate over the keys that the table has now; it may change meanwhile."""
        hashes, last = self._hashes, self._capacity - 1
        keys = reversed(hashes) if self._is_computed else iter(hashes)
        return iter(sorted(keys, key=lambda key: hashes[key] & last))

    def add(self, key: K) -> None:
        """Add a key, unless the table has it."""
        hashes = self._hashes
        # `computeIfAbsent` checks the size before it searches for the key.
        if self._is_computed and len(hashes) > self._capacity * _FULL:
            self._capacity *= 2
        if key in hashes:
            return
        code = self._hash(key)
        code ^= code >> 16
        bucket_max = _BUCKET_MAX - 1 if self._is_computed else _BUCKET_MAX
        if len(hashes) >= bucket_max and self._capacity < _SMALL:
            last = self._capacity - 1
            if sum((each ^ code) & last == 0 for each in hashes.values()) >= bucket_max:
                self._capacity *= 2
        hashes[key] = code
        if not self._is_computed and len(hashes) > self._capacity * _FULL:
            self._capacity *= 2

    def remove(self, key: K) -> None:
        """Remove a key, which must be in the table."""
        del self._hashes[key]

    def first(self) -> K:
        """Return the first key of the table, which must not be empty."""
        hashes, last = self._hashes, self._capacity - 1
        keys = reversed(hashes) if self._is_computed else iter(hashes)
        return min(keys, key=lambda key: hashes[key] & last)


def member_order(member_ids: Collection[str]) -> Generator[None, None, list[str]]:
    """Return the ids in the order of a HashMap to which they were added. Yields after some ids."""
    if len(member_ids) <= _BUCKET_MAX:
        # The table keeps its first size.
        return sorted(member_ids, key=_first_bucket)
    table: JavaTable[str] = JavaTable(string_hash)
    for position, member_id in enumerate(member_ids):
        table.add(member_id)
        if position % _ADDED_AT_ONCE == _ADDED_AT_ONCE - 1:
            yield
    return list(table)


def _first_bucket(member_id: str) -> int:
    """Return the bucket of an id in a table of the first size."""
    code = string_hash(member_id)
    return (code ^ code >> 16) & (_CAPACITY - 1)


def partition_order(partitions: Iterable[int]) -> list[int]:
    """Return partitions in the order of a HashSet that copies them in ascending order."""
    ordered = sorted(partitions)
    capacity = copied(len(ordered))
    if not ordered or ordered[-1] < min(capacity, _SPREAD_FROM):
        # Each partition has the bucket of its number.
        return ordered
    return list(JavaTable(number_hash, ordered, capacity))


def _power_of_two(least: int) -> int:
    return 1 << max(least - 1, 0).bit_length()


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
