"""Messages of a topic: search, and new messages as they come."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException
from starlette.responses import StreamingResponse
from starlette.routing import Route

from barnabas.cli.common.output import moment_ms
from barnabas.client.errors import UnknownPartitionError
from barnabas.client.topic_partition import TopicPartition
from barnabas.console.console import console_of
from barnabas.console.forms import query_fields
from barnabas.console.message_search import Found, Match, MessageSearch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request
    from starlette.responses import Response

    from barnabas import aio
    from barnabas.console.forms import Fields

_RESULTS_DEFAULT = 50
_RESULTS_MAX = 500
# Maximum number of offsets per partition that a search for the newest records examines.
_NEWEST_WINDOW = 10_000
_INT64_MAX = 2**63 - 1
_PLACE = re.compile(r"(\d{1,9})-(\d{1,19})", re.ASCII)

Ranges = dict[TopicPartition, tuple[int, int]]


async def show_messages(request: Request) -> Response:
    """Search a topic, and show what was found."""
    console, query = console_of(request), query_fields(request)
    topic = query.required("topic")
    isolation = "read_uncommitted" if query.has("uncommitted") else "read_committed"
    limit = min(query.number("limit", _RESULTS_DEFAULT, least=1), _RESULTS_MAX)
    wanted, view = _match(query), console.record_view(request)
    async with (
        console.searching,
        console.cluster.consumer(**{"isolation.level": isolation}) as consumer,
    ):
        partitions = await _partitions(consumer, topic, query)
        bounds = await offset_bounds(consumer, partitions)
        is_newest = query.stripped("from") in ("", "newest") and not query.stripped("at")
        limits = console.settings.search
        window = min(_NEWEST_WINDOW, limits.records // max(1, len(bounds)))
        if wanted == Match():
            window = min(window, limit)
        ranges = await _ranges(consumer, bounds, query, max(1, window))
        search = MessageSearch(
            consumer, console.clock, limits, (wanted, view), limit, keep_newest=is_newest
        )
        found = await search.run(ranges)
        count = len(await consumer.partitions_for(topic))
    return console.page(
        request,
        "messages.html",
        topic=topic,
        partition_count=count,
        found=found,
        is_newest=is_newest,
        is_filtered=wanted != Match(),
        query=query,
        next_places=None if is_newest else _places(found),
        tail_fields=_tail_fields(query),
    )


async def tail_messages(request: Request) -> Response:
    """Send new messages as server-sent events."""
    console, query = console_of(request), query_fields(request)
    if console.tails.is_full:
        raise HTTPException(503, "too many browsers follow messages: stop one of them")
    topic, wanted = query.required("topic"), (_match(query), console.record_view(request))
    consumer = console.cluster.consumer(**{"isolation.level": "read_committed"})
    try:
        partitions = await _partitions(consumer, topic, query)
    except BaseException:
        await consumer.close()
        raise
    events = console.tails.events(consumer, partitions, wanted)
    return StreamingResponse(events, media_type="text/event-stream")


def _match(query: Fields) -> Match:
    name, _, value = query.stripped("header").partition("=")
    return Match(
        query.text("key").encode(),
        query.text("value").encode(),
        name.strip(),
        value.strip().encode(),
    )


async def _partitions(consumer: aio.Consumer, topic: str, query: Fields) -> list[TopicPartition]:
    """Return the partitions to read: the wanted one, or all that have leaders."""
    found = {each.partition: each for each in await consumer.partitions_for(topic)}
    word = query.stripped("partition")
    if word:
        number = query.number("partition")
        if number not in found:
            raise UnknownPartitionError(topic, number, len(found))
        return [TopicPartition(topic, number)]
    return [TopicPartition(topic, n) for n, each in sorted(found.items()) if each.leader >= 0]


async def offset_bounds(consumer: aio.Consumer, partitions: list[TopicPartition]) -> Ranges:
    """Return the first offset and the end of each partition."""
    starts = await consumer.beginning_offsets(partitions)
    ends = await consumer.end_offsets(partitions)
    return {tp: (starts[tp], ends[tp]) for tp in partitions}


async def _ranges(consumer: aio.Consumer, bounds: Ranges, query: Fields, window: int) -> Ranges:
    """Return the offsets to examine: from the place that the user chose to the end.

    Args:
        consumer: Looks up times.
        bounds: First offset and end of the partitions.
        query: The place.
        window: Number of offsets in each partition for the newest records.
    """
    places = _given_places(query)
    if places:
        starts = {tp: places.get(tp.partition, end) for tp, (_, end) in bounds.items()}
        return _within(starts, bounds)
    match query.stripped("from"):
        case "beginning":
            return bounds
        case "offset":
            offset = query.number("offset")
            return _within(dict.fromkeys(bounds, offset), bounds)
        case "time":
            moment = moment_ms(query.required("time"), "time")
            found = await consumer.offsets_for_times(dict.fromkeys(bounds, max(0, moment)))
            ends = {tp: end for tp, (_, end) in bounds.items()}
            starts = {tp: ends[tp] if each is None else each.offset for tp, each in found.items()}
            return _within(starts, bounds)
        case _:
            return _within({tp: end - window for tp, (_, end) in bounds.items()}, bounds)


def _within(starts: Mapping[TopicPartition, int], bounds: Ranges) -> Ranges:
    return {
        tp: (min(max(starts[tp], first), end), end)
        for tp, (first, end) in bounds.items()
        if tp in starts
    }


def _given_places(query: Fields) -> dict[int, int]:
    """Parse the places where the previous search ended: PARTITION-OFFSET with dots between."""
    found = {}
    for part in query.stripped("at").split("."):
        fits = _PLACE.fullmatch(part)
        if fits:
            found[int(fits[1])] = min(int(fits[2]), _INT64_MAX)
    return found


def _places(found: Found) -> str | None:
    """Return the places where the next search continues; None if everything was examined."""
    return ".".join(f"{n}-{offset}" for n, offset in sorted(found.rest.items())) or None


def _tail_fields(query: Fields) -> dict[str, Any]:
    names = ("topic", "partition", "key", "value", "header")
    return {name: query.text(name) for name in names if query.text(name)}


ROUTES = [
    Route("/messages", show_messages),
    Route("/messages/tail", tail_messages),
]
