"""Choice of a record's partition, by the partitioner that `partitioner.class` names.

Kafka's own partitioners have the same effect here under the names of their Java classes. Any other
class of Java is refused: the records would be in other partitions than those of a Java producer.

The murmur2 hash of a key gives the same partition as Kafka's Java client. Records without a key
stay with one partition for `batch.size` bytes (KIP-480, KIP-794). Then the partitioner picks
another one at random; partitions with few pending batches are more likely, because their leader is
fast.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Protocol

from barnabas.client.errors import ClientConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.client.config import ClientConfig
    from barnabas.runtime.rng import Rng

__all__ = [
    "PARTITIONERS",
    "CallablePartitioner",
    "RoundRobinPartitioner",
    "StickyPartitioner",
    "TopicPartitioner",
    "check_partitioner",
    "murmur2",
    "partition_for_key",
    "partitioner_for_topic",
]

_M = 0x5BD1E995
_SEED = 0x9747B28C
_MASK = 0xFFFFFFFF
_POSITIVE = 0x7FFFFFFF
# Bytes of a record in a batch besides its key and value.
_RECORD_OVERHEAD = 8
_DEFAULT = ""
_ROUND_ROBIN = "round_robin"
# Kafka's default partitioner, as with partitioner.ignore.keys=true.
_WITHOUT_KEYS = "uniform_sticky"
_JAVA = "org.apache.kafka.clients.producer"
# What a name stands for. Kafka 4 has `RoundRobinPartitioner` only, but files of older clients have
# the others too.
PARTITIONERS = {
    "": _DEFAULT,
    "default": _DEFAULT,
    "sticky": _DEFAULT,
    "murmur2_random": _DEFAULT,
    "round_robin": _ROUND_ROBIN,
    f"{_JAVA}.RoundRobinPartitioner": _ROUND_ROBIN,
    f"{_JAVA}.UniformStickyPartitioner": _WITHOUT_KEYS,
    f"{_JAVA}.internals.DefaultPartitioner": _DEFAULT,
}


def murmur2(data: bytes) -> int:
    """Return the 32 bit murmur2 hash of `data` with Kafka's seed, as an unsigned integer."""
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


@lru_cache(maxsize=65_536)
def partition_for_key(key: bytes, partition_count: int) -> int:
    """Return the partition of a key: the hash without its sign bit, modulo the partitions.

    Keys repeat and a hash takes about a microsecond, so recent results are cached.
    """
    return (murmur2(key) & _POSITIVE) % partition_count


class TopicPartitioner(Protocol):
    """Chooses the partition of each record of one topic."""

    @property
    def is_by_key(self) -> bool:
        """Whether a record with a key always goes to the same partition, until `renew`."""
        ...

    def renew(self, count: int, available: Sequence[int]) -> None:
        """Apply new metadata: the number of partitions, and which of them have a leader."""
        ...

    def choose(self, key: bytes | None, value: bytes | None, /) -> int:
        """Return the partition of a record."""
        ...


class StickyPartitioner:
    """Kafka's default: by key, or the same partition for `batch.size` bytes (KIP-794)."""

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
        """Create the partitioner.

        Args:
            rng: source of random numbers.
            sticky_bytes: bytes after which another partition is chosen.
            ignore_keys: whether records with a key are treated as records without one.
            loads: returns the number of pending batches of each given partition, -1 for a
                partition whose leader is unavailable. None disables adaptive partitioning.
        """
        self._rng = rng
        # Bytes after which another partition is chosen: batch.size.
        self._sticky_bytes = max(1, sticky_bytes)
        self._ignore_keys = ignore_keys
        self._loads = loads
        self._count = 0
        self._available: Sequence[int] = ()
        # Partition that records without a key go to; -1 if none is chosen.
        self._current = -1
        # Bytes sent to the current partition since it was chosen.
        self._bytes = 0

    @property
    def is_by_key(self) -> bool:
        """See `TopicPartitioner`."""
        return not self._ignore_keys

    def renew(self, count: int, available: Sequence[int]) -> None:
        """See `TopicPartitioner`. A partition without a leader is no longer used."""
        self._count = count
        self._available = available or range(count)
        if self._current not in self._available:
            self._current = -1

    def choose(self, key: bytes | None, value: bytes | None, /) -> int:
        """See `TopicPartitioner`."""
        if key is not None and not self._ignore_keys:
            if key.__class__ is not bytes:
                key = bytes(memoryview(key))
            return partition_for_key(key, self._count)
        if self._current < 0 or self._bytes >= self._sticky_bytes:
            self._bytes = 0
            self._current = self._random_partition()
        self._bytes += _RECORD_OVERHEAD + len(value or b"")
        return self._current

    def _random_partition(self) -> int:
        """Return a random partition with a leader; not the current one if there are others."""
        choices = [partition for partition in self._available if partition != self._current]
        if not choices:
            return self._available[0]
        if self._loads is None:
            return choices[self._rng.randint(0, len(choices) - 1)]
        return self._by_load(choices, self._loads(choices))

    def _by_load(self, choices: list[int], loads: Sequence[int]) -> int:
        """Return one of `choices`; a shorter queue makes a partition more likely (KIP-794)."""
        longest = max(loads)
        steps = list(accumulate(longest + 1 - load if load >= 0 else 0 for load in loads))
        if not steps[-1]:
            # No leader is available, so all partitions are equal.
            return choices[self._rng.randint(0, len(choices) - 1)]
        drawn = self._rng.randint(1, steps[-1])
        return next(choice for choice, step in zip(choices, steps, strict=True) if drawn <= step)


class RoundRobinPartitioner:
    """Sends each record to the next partition that has a leader; ignores keys."""

    __slots__ = ("_available", "_turn")

    is_by_key = False

    def __init__(self, first: int = 0) -> None:
        self._available: Sequence[int] = ()
        self._turn = first

    def renew(self, count: int, available: Sequence[int]) -> None:
        """See `TopicPartitioner`."""
        self._available = available or range(count)

    def choose(self, _key: bytes | None, _value: bytes | None, /) -> int:
        """See `TopicPartitioner`."""
        chosen = self._available[self._turn % len(self._available)]
        self._turn += 1
        return chosen


class CallablePartitioner:
    """The user's `function(key, partitions, available)`, as in kafka-python and aiokafka.

    `partitions` holds all partition numbers of the topic, `available` those with a leader.
    """

    __slots__ = ("_available", "_function", "_partitions")

    is_by_key = False

    def __init__(
        self, function: Callable[[bytes | None, Sequence[int], Sequence[int]], int]
    ) -> None:
        self._function = function
        self._partitions: Sequence[int] = ()
        self._available: Sequence[int] = ()

    def renew(self, count: int, available: Sequence[int]) -> None:
        """See `TopicPartitioner`."""
        self._partitions = range(count)
        self._available = available

    def choose(self, key: bytes | None, _value: bytes | None, /) -> int:
        """See `TopicPartitioner`.

        Raises:
            ValueError: the function returned no partition of the topic.
        """
        chosen = self._function(key, self._partitions, self._available)
        if isinstance(chosen, bool) or chosen not in self._partitions:
            raise ValueError(f"the partitioner chose {chosen!r}, not one of {self._partitions}")
        return int(chosen)


def check_partitioner(config: ClientConfig) -> ClientConfig:
    """Return the configuration of a producer, whose partitioner is a known one.

    Other clients do not check the key: a file may be that of all clients of an application.

    Raises:
        ClientConfigError: The partitioner is neither a known name nor a function.
    """
    given = config.partitioner_class
    if given is None or callable(given) or (isinstance(given, str) and given in PARTITIONERS):
        return config
    key = config.spell("partitioner_class")
    names = ", ".join(filter(None, PARTITIONERS))
    raise ClientConfigError(
        f"{key}={given} is neither one of {names} nor a function of "
        f"(key, partitions, available). Classes of Java cannot be used: choose the partition in "
        f"the program"
    )


def partitioner_for_topic(
    config: ClientConfig, rng: Rng, loads: Callable[[Sequence[int]], Sequence[int]]
) -> TopicPartitioner:
    """Create a partitioner for the records of one topic.

    Args:
        config: The configuration of a producer, for which `check_partitioner` was called.
        rng: Source of random numbers.
        loads: Returns the number of pending batches of each given partition (KIP-794).
    """
    given = config.partitioner_class
    if callable(given):
        return CallablePartitioner(given)
    kind = PARTITIONERS[str(given or "")]
    if kind == _ROUND_ROBIN:
        return RoundRobinPartitioner(rng.randint(0, 0x7FFFFFFF))
    return StickyPartitioner(
        rng,
        config.batch_size,
        ignore_keys=config.partitioner_ignore_keys or kind == _WITHOUT_KEYS,
        loads=loads if config.partitioner_adaptive_partitioning_enable else None,
    )
