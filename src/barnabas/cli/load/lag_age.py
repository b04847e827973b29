"""Lag of groups in seconds: the age of the oldest record that a group has not committed.

No API returns the timestamp of an offset, but ListOffsets returns the first offset at or after a
time. A bisection over ages finds the timestamp of a committed offset in eight rounds, within a
tenth. Each round asks for all partitions at once. This works with every broker, and reads no
records.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from barnabas.client.errors import ClientError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from barnabas.cli.admin.group_lag import GroupProgress
    from barnabas.client.facade import Client
    from barnabas.client.fetch.offset_lookups import ListedOffset
    from barnabas.client.topic_partition import TopicPartition

_MS_PER_S = 1000
# Ages of the bisection, from 0.1 s to more than 30 days, each a tenth longer than the one before.
_AGES_MS = tuple(round(100 * 1.1**step) for step in range(180))
_OLDEST = len(_AGES_MS) - 1


class _Position(NamedTuple):
    group: str
    partition: TopicPartition
    offset: int


class LagAges:
    """Finds ages, and remembers the timestamps of offsets that groups have not passed."""

    def __init__(self, client: Client, wall_s: Callable[[], float] = time.time) -> None:
        self._client = client
        self._wall_s = wall_s
        # Timestamp (ms) of the record at each position of the last call.
        self._timestamps: dict[_Position, int] = {}

    def use(self, client: Client) -> None:
        """Use another client of the same cluster from now on."""
        self._client = client

    def of_partitions(self, name: str, group: GroupProgress) -> dict[TopicPartition, float]:
        """Return the age (s) of the oldest uncommitted record of a group by partition.

        Only partitions with lag and a known age are present.
        """
        behind, now_ms = self._find({name: group})
        return {
            each.partition: max(0, now_ms - self._timestamps[each]) / _MS_PER_S
            for each in behind
            if each in self._timestamps
        }

    def by_topic(self, groups: Mapping[str, GroupProgress]) -> dict[str, dict[str, float | None]]:
        """Return the age (s) of the oldest uncommitted record by group and topic; 0 without lag.

        A topic whose lag is not known is left out. Its age is None if it cannot be found.
        """
        behind, now_ms = self._find(groups)
        ages: dict[str, dict[str, float | None]] = {
            name: {each.partition.topic: 0.0 for each in group.partitions if each.lag is not None}
            for name, group in groups.items()
        }
        for each in behind:
            topics, topic = ages[each.group], each.partition.topic
            known = topics[topic]
            if each not in self._timestamps:
                topics[topic] = None
            elif known is not None:
                age_s = max(0, now_ms - self._timestamps[each]) / _MS_PER_S
                topics[topic] = max(known, age_s)
        return ages

    def _find(self, groups: Mapping[str, GroupProgress]) -> tuple[list[_Position], int]:
        """Find the timestamps of all positions with lag; return these and the time (ms)."""
        behind = [
            _Position(name, each.partition, each.offset)
            for name, group in groups.items()
            for each in group.partitions
            if each.lag and each.offset is not None
        ]
        now_ms = round(self._wall_s() * _MS_PER_S)
        known = self._timestamps
        self._timestamps = {each: known[each] for each in behind if each in known}
        for layer in _layers(each for each in behind if each not in known):
            self._timestamps |= self._search(layer, now_ms)
        return behind, now_ms

    def _search(self, layer: list[_Position], now_ms: int) -> dict[_Position, int]:
        """Return the timestamps (ms) of positions in different partitions."""
        # The record is older than _AGES_MS[low - 1], and not older than _AGES_MS[high].
        limits = dict.fromkeys(layer, (0, _OLDEST))
        # The first record at or after each position that an answer has named.
        nearest: dict[_Position, ListedOffset] = {}
        while middle := {
            each: (low + high) // 2 for each, (low, high) in limits.items() if low < high
        }:
            found = self._first_at({p: now_ms - _AGES_MS[step] for p, step in middle.items()})
            if found is None:
                return {}
            for each, step in middle.items():
                listed = found[each.partition]
                if 0 <= listed.offset < each.offset:
                    # An earlier record is at most this old, so the record at the position is, too.
                    limits[each] = (limits[each][0], step)
                    continue
                if listed.offset >= each.offset:
                    # Later rounds ask for earlier times here, so they name earlier records.
                    nearest[each] = listed
                is_exact = listed.offset == each.offset
                limits[each] = (step, step) if is_exact else (step + 1, limits[each][1])
        return {
            each: nearest[each].timestamp
            # Retention may have deleted the record at the position, and those after it.
            if each in nearest and (nearest[each].offset == each.offset or low == _OLDEST)
            else now_ms - _AGES_MS[low]
            for each, (low, _) in limits.items()
        }

    def _first_at(
        self, times_ms: Mapping[_Position, int]
    ) -> dict[TopicPartition, ListedOffset] | None:
        """Return the first record at or after each time; None after an error."""
        try:
            return self._client.list_offsets({p.partition: at for p, at in times_ms.items()})
        except ClientError:
            return None


def oldest(ages: Mapping[str, float | None]) -> float | None:
    """Return the largest age of the topics of a group; None if one of them is not known."""
    known = [age for age in ages.values() if age is not None]
    return max(known, default=0.0) if len(known) == len(ages) else None


def _layers(positions: Iterable[_Position]) -> list[list[_Position]]:
    """Distribute positions of several groups so that no list has a partition twice."""
    layers: list[list[_Position]] = []
    taken: dict[TopicPartition, int] = {}
    for each in positions:
        index = taken.get(each.partition, 0)
        taken[each.partition] = index + 1
        if index == len(layers):
            layers.append([])
        layers[index].append(each)
    return layers
