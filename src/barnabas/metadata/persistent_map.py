"""An immutable map of many keys that shares most of its storage with the map it was made from.

A cluster may have 10,000 topics, and a change affects one of them. To copy a dictionary of all
topics takes 60 µs per change, twice per topic. Here the keys are in buckets, and a change copies
only the affected buckets. A hash trie would share more, but needs ten times the code.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Generic, TypeVar, cast
from zlib import crc32

V = TypeVar("V")
K = TypeVar("K", str, bytes)

_BUCKET_KEYS_MAX = 64
_FIRST_BUCKETS = 8
# Number of keys of a map whose lookups are shortened.
_FOUND_MAX = 1_024


def _hash_of(key: str | bytes) -> int:
    # Unlike hash(), this gives the same iteration order in every process.
    return crc32(key.encode() if isinstance(key, str) else key)


class PersistentMap(Mapping[K, V], Generic[K, V]):
    """An immutable mapping with str or bytes keys. The iteration order depends only on the keys."""

    __slots__ = ("_buckets", "_found", "_length")

    def __init__(self, items: Mapping[K, V] | None = None) -> None:
        self._buckets: tuple[dict[K, V], ...] = ({},) * _FIRST_BUCKETS
        self._length = 0
        # Keys that were looked up, and their values.
        self._found: dict[K, V] = {}
        if items:
            filled = self.evolve(items)
            self._buckets, self._length = filled._buckets, filled._length

    def __getitem__(self, key: K) -> V:
        buckets = self._buckets
        return buckets[_hash_of(key) & (len(buckets) - 1)][key]

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str | bytes) and self.get(cast("K", key)) is not None

    def get(self, key: K, default: V | None = None) -> V | None:  # type: ignore[override]  # two types only
        """Return the value of `key`, or `default`; raises no exception internally."""
        # Nearly every request looks up a topic.
        value = self._found.get(key)
        if value is not None:
            return value
        buckets = self._buckets
        # `_hash_of` inlined: a client may name thousands of topics that do not exist.
        hashed = crc32(key.encode() if isinstance(key, str) else key)
        value = buckets[hashed & (len(buckets) - 1)].get(key)
        if value is None:
            return default
        if len(self._found) < _FOUND_MAX:
            self._found[key] = value
        return value

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[K]:
        for bucket in self._buckets:
            yield from bucket

    def __repr__(self) -> str:
        return f"PersistentMap({dict(self)!r})"

    def with_changes(self, changes: Mapping[K, V | None]) -> PersistentMap[K, V]:
        """Return the map with `changes` applied; None removes a key. No changes return the map."""
        if not changes:
            return self
        return self.evolve(
            {key: value for key, value in changes.items() if value is not None},
            [key for key, value in changes.items() if value is None],
        )

    def evolve(self, changes: Mapping[K, V], removals: Iterable[K] = ()) -> PersistentMap[K, V]:
        """Return a new map with `changes` applied, and then without `removals`.

        Args:
            changes: new values, never None.
            removals: keys to remove; missing keys are ignored.
        """
        wanted = self._length + len(changes)
        buckets = self._spread(wanted)
        mask = len(buckets) - 1
        fresh: dict[int, dict[K, V]] = {}
        for key, value in changes.items():
            assert value is not None, key
            _own(buckets, fresh, _hash_of(key) & mask)[key] = value
        for key in removals:
            _own(buckets, fresh, _hash_of(key) & mask).pop(key, None)
        length = self._length
        for index, bucket in fresh.items():
            length += len(bucket) - len(buckets[index])
            buckets[index] = bucket
        changed: PersistentMap[K, V] = PersistentMap()
        changed._buckets, changed._length = tuple(buckets), length
        return changed

    def _spread(self, wanted: int) -> list[dict[K, V]]:
        """Return the buckets, rehashed into more buckets if `wanted` keys need them."""
        count = len(self._buckets)
        if wanted <= count * _BUCKET_KEYS_MAX:
            return list(self._buckets)
        while wanted > count * _BUCKET_KEYS_MAX:
            count *= 2
        buckets: list[dict[K, V]] = [{} for _ in range(count)]
        for bucket in self._buckets:
            for key, value in bucket.items():
                buckets[_hash_of(key) & (count - 1)][key] = value
        return buckets


def _own(buckets: list[dict[K, V]], fresh: dict[int, dict[K, V]], index: int) -> dict[K, V]:
    """Return the copy of bucket `index` that may be changed; the bucket is copied only once."""
    bucket = fresh.get(index)
    if bucket is None:
        bucket = fresh[index] = dict(buckets[index])
    return bucket
