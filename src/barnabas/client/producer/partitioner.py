"""Which partition a record goes to (Kafka's built-in partitioner; KIP-480, KIP-794).

A record with a key goes where murmur2 of the key says, the same place as with Kafka's own client.
Others stick to one partition until a batch worth of bytes went there, then move to another: most
likely one whose queue is short, since its broker is quick.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.runtime.rng import Rng

__all__ = [
    "CallablePartitioner",
    "RoundRobinPartitioner",
    "StickyPartitioner",
    "TopicPartitioner",
    "murmur2",
    "partition_for_key",
]

_M = 0x5BD1E995
_SEED = 0x9747B28C
_MASK = 0xFFFFFFFF
_POSITIVE = 0x7FFFFFFF
# Bytes of a record in a batch beside its key and value.
_RECORD_OVERHEAD = 8


@lru_cache(maxsize=65_536)
def murmur2(data: bytes) -> int:
    """The 32 bit murmur2 hash of `data` with Kafka's seed, as an unsigned number.

    Keys repeat, and the hash costs a microsecond and more, so the last ones are kept.
    """
    length = len(data)
    h = _SEED ^ length
    whole = length & ~3
    for start in range(0, whole, 4):
        k = int.from_bytes(data[start : start + 4], "little") * _M & _MASK
        k ^= k >> 24
        h = (h * _M & _MASK) ^ (k * _M & _MASK)
    if length != whole:
        h ^= int.from_bytes(data[whole:], "little")
        h = h * _M & _MASK
    h ^= h >> 13
    h = h * _M & _MASK
    return h ^ (h >> 15)


def partition_for_key(key: bytes, partition_count: int) -> int:
    """The partition of a record with a key: the hash without its sign, modulo the partitions."""
    return (murmur2(key) & _POSITIVE) % partition_count


class TopicPartitioner(Protocol):
    """Chooses partitions for the records of one topic."""

    def renew(self, count: int, available: Sequence[int]) -> None:
        """Take over what metadata says: number of partitions, and which of them have a leader."""
        ...

    def choose(self, key: bytes | None, value: bytes | None, /) -> int:
        """The partition of a record."""
        ...


class StickyPartitioner:
    """Kafka's own way: by key, or sticking to a partition for `batch.size` bytes (KIP-794)."""

    __slots__ = (
        "_available",
        "_bytes",
        "_count",
        "_current",
        "_ignore_keys",
        "_loads",
        "_rng",
        "_sticky_bytes",
    )

    def __init__(
        self,
        rng: Rng,
        sticky_bytes: int,
        *,
        ignore_keys: bool = False,
        loads: Callable[[Sequence[int]], Sequence[int]] | None = None,
    ) -> None:
        """Stick for `sticky_bytes`; `loads` tells the queued batches of partitions, -1 for dead."""
        self._rng = rng
        # Bytes after which another partition is chosen: batch.size.
        self._sticky_bytes = max(1, sticky_bytes)
        self._ignore_keys = ignore_keys
        self._loads = loads
        self._count = 0
        self._available: Sequence[int] = ()
        self._current = -1
        # Bytes that went to the current partition since it was chosen.
        self._bytes = 0

    def renew(self, count: int, available: Sequence[int]) -> None:
        """As in `TopicPartitioner`: a partition that lost its leader is left at once."""
        self._count = count
        self._available = available or range(count)
        if self._current not in self._available:
            self._current = -1

    def choose(self, key: bytes | None, value: bytes | None, /) -> int:
        """As in `TopicPartitioner`."""
        if key is not None and not self._ignore_keys:
            if key.__class__ is not bytes:
                key = bytes(memoryview(key))
            return (murmur2(key) & _POSITIVE) % self._count
        if self._current < 0 or self._bytes >= self._sticky_bytes:
            self._bytes = 0
            self._current = self._another()
        self._bytes += _RECORD_OVERHEAD + len(value or b"")
        return self._current

    def _another(self) -> int:
        """A random partition with a leader, not the one just used if there are others."""
        choices = [partition for partition in self._available if partition != self._current]
        if not choices:
            return self._available[0]
        if self._loads is None:
            return choices[self._rng.randint(0, len(choices) - 1)]
        return self._by_load(choices, self._loads(choices))

    def _by_load(self, choices: list[int], loads: Sequence[int]) -> int:
        """One of `choices`, each as likely as its queue is shorter than the longest (KIP-794)."""
        longest = max(loads)
        steps = list(accumulate(longest + 1 - load if load >= 0 else 0 for load in loads))
        if not steps[-1]:
            # No broker takes anything: then none is better than another.
            return choices[self._rng.randint(0, len(choices) - 1)]
        drawn = self._rng.randint(1, steps[-1])
        return next(choice for choice, step in zip(choices, steps, strict=True) if drawn <= step)


class RoundRobinPartitioner:
    """Each record, whatever its key, to the next partition that has a leader."""

    __slots__ = ("_available", "_turn")

    def __init__(self, first: int = 0) -> None:
        self._available: Sequence[int] = ()
        self._turn = first

    def renew(self, count: int, available: Sequence[int]) -> None:
        """As in `TopicPartitioner`."""
        self._available = available or range(count)

    def choose(self, _key: bytes | None, _value: bytes | None, /) -> int:
        """As in `TopicPartitioner`."""
        chosen = self._available[self._turn % len(self._available)]
        self._turn += 1
        return chosen


class CallablePartitioner:
    """The user's own: `function(key, partitions, available)`, as kafka-python and aiokafka have it.

    `partitions` are all numbers of the topic, `available` those that have a leader.
    """

    __slots__ = ("_available", "_function", "_partitions")

    def __init__(
        self, function: Callable[[bytes | None, Sequence[int], Sequence[int]], int]
    ) -> None:
        self._function = function
        self._partitions: Sequence[int] = ()
        self._available: Sequence[int] = ()

    def renew(self, count: int, available: Sequence[int]) -> None:
        """As in `TopicPartitioner`."""
        self._partitions = range(count)
        self._available = available

    def choose(self, key: bytes | None, _value: bytes | None, /) -> int:
        """As in `TopicPartitioner`.

        Raises:
            ValueError: the function named no partition of the topic.
        """
        chosen = self._function(key, self._partitions, self._available)
        if isinstance(chosen, bool) or chosen not in self._partitions:
            raise ValueError(f"the partitioner chose {chosen!r}, not one of {self._partitions}")
        return int(chosen)
