"""The offsets that a search examines, and the order in which it does.

A search begins at a place and goes to the end, or it looks for the newest messages. Then it goes
back from the end in windows, because a log can only be read forwards.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from barnabas.client.errors import UnknownPartitionError
from barnabas.client.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from barnabas import aio
    from barnabas.console.forms import Fields
    from barnabas.console.search.zones import Zone

_INT64_MAX = 2**63 - 1
_PLACE = re.compile(r"(\d{1,9})-(\d{1,19})", re.ASCII)

# First offset and end (exclusive) by partition.
Ranges: TypeAlias = "dict[TopicPartition, tuple[int, int]]"


class Place(NamedTuple):
    """Where a search begins."""

    # "newest" and "before" go backwards, the others forwards.
    kind: Literal["newest", "before", "beginning", "at", "offset", "time"] = "newest"
    # The offset, or the time (ms since 1970).
    number: int = 0
    # For "at" and "before": the offset by partition, where another search ended.
    offsets: Mapping[int, int] = {}

    @property
    def is_newest(self) -> bool:
        """Whether the search goes backwards."""
        return self.kind in ("newest", "before")


def place_of(query: Fields, zone: Zone) -> Place:
    """Return the place in an address. An offset or a time alone is a place too.

    Raises:
        FormError: It is malformed.
    """
    if query.stripped("at"):
        return Place("at", offsets=parse_places(query.stripped("at")))
    if query.stripped("before"):
        return Place("before", offsets=parse_places(query.stripped("before")))
    kind = query.stripped("from")
    if kind in ("", "newest"):
        given = [name for name in ("offset", "time") if query.stripped(name)]
        kind = given[0] if given else "newest"
    match kind:
        case "beginning":
            return Place("beginning")
        case "offset":
            return Place("offset", query.number("offset"))
        case "time":
            moment = zone.moment_ms(query, "time")
            return Place("time", min(max(0, moment), _INT64_MAX))
        case _:
            return Place()


def parse_places(text: str) -> dict[int, int]:
    """Parse offsets by partition: PARTITION-OFFSET with dots between; malformed parts are left."""
    fitting = (_PLACE.fullmatch(part) for part in text.split("."))
    return {int(fits[1]): min(int(fits[2]), _INT64_MAX) for fits in fitting if fits}


def places_text(offsets: Mapping[int, int]) -> str:
    """Return the text that `parse_places` reads."""
    return ".".join(f"{number}-{offset}" for number, offset in sorted(offsets.items()))


async def read_partitions(
    consumer: aio.Consumer, topic: str, wanted: int | None
) -> tuple[list[TopicPartition], int]:
    """Return the partitions to read, the wanted one or all with leaders, and the number of all.

    Raises:
        UnknownPartitionError: The wanted partition does not exist.
    """
    found = {each.partition: each for each in await consumer.partitions_for(topic)}
    if wanted is not None:
        if wanted not in found:
            raise UnknownPartitionError(topic, wanted, len(found))
        return [TopicPartition(topic, wanted)], len(found)
    led = [TopicPartition(topic, n) for n, each in sorted(found.items()) if each.leader >= 0]
    return led, len(found)


async def offset_bounds(consumer: aio.Consumer, partitions: Iterable[TopicPartition]) -> Ranges:
    """Return the first offset and the end of each partition."""
    wanted = list(partitions)
    starts = await consumer.beginning_offsets(wanted)
    ends = await consumer.end_offsets(wanted)
    return {tp: (starts[tp], ends[tp]) for tp in wanted}


async def ranges_at(consumer: aio.Consumer, bounds: Ranges, place: Place) -> Ranges:
    """Return the part of the partitions that a search from a place examines."""
    match place.kind:
        case "before":
            return {
                tp: (first, min(max(place.offsets[tp.partition], first), end))
                for tp, (first, end) in bounds.items()
                if tp.partition in place.offsets
            }
        case "at":
            starts = {tp: place.offsets.get(tp.partition, end) for tp, (_, end) in bounds.items()}
        case "offset":
            starts = dict.fromkeys(bounds, place.number)
        case "time":
            found = await consumer.offsets_for_times(dict.fromkeys(bounds, place.number))
            ends = {tp: end for tp, (_, end) in bounds.items()}
            starts = {tp: ends[tp] if each is None else each.offset for tp, each in found.items()}
        case "newest" | "beginning":
            return bounds
    return {
        tp: (min(max(starts[tp], first), end), end)
        for tp, (first, end) in bounds.items()
        if tp in starts
    }


class Plan:
    """The offsets that a search still has to examine.

    Args:
        ranges: All offsets of the search.
        window: For the newest messages: number of offsets of a partition in one step. None: one
            step examines everything.
    """

    def __init__(self, ranges: Ranges, window: int | None) -> None:
        # Offsets of later steps.
        self._rest = {tp: each for tp, each in ranges.items() if each[0] < each[1]}
        self._window = window
        # Offsets of this step that are not examined yet.
        self.step: Ranges = {}
        self.total = _count(self._rest)

    @property
    def remaining(self) -> int:
        """Number of offsets that are not examined yet."""
        return _count(self._rest) + _count(self.step)

    def begin_step(self) -> bool:
        """Begin the next step unless one is unfinished; return whether there is anything left."""
        if not self.step:
            for tp, (start, end) in list(self._rest.items()):
                first = start if self._window is None else max(start, end - self._window)
                self.step[tp] = (first, end)
                if first > start:
                    self._rest[tp] = (start, first)
                else:
                    del self._rest[tp]
        return bool(self.step)

    def advance(self, left: Mapping[TopicPartition, int]) -> None:
        """Set the next offset of each partition of this step; others of the step are finished."""
        self.step = {
            tp: (left[tp], end) for tp, (_, end) in self.step.items() if left.get(tp, end) < end
        }

    def next_offsets(self) -> dict[int, int]:
        """Return where a further search continues, by partition; only partitions with a rest."""
        if self._window is None:
            return {tp.partition: start for tp, (start, _) in self.step.items()}
        return {tp.partition: end for tp, (_, end) in self._rest.items()}


def _count(ranges: Ranges) -> int:
    return sum(end - start for start, end in ranges.values())
