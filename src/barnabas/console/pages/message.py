"""One message in full."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.routing import Route

from barnabas.client.topic_partition import TopicPartition
from barnabas.console.console import console_of
from barnabas.console.forms import query_fields
from barnabas.console.messages.decoded import FULL_BYTES
from barnabas.console.search.ranges import offset_bounds

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response


async def show_message(request: Request) -> Response:
    """Show one message in full, up to a limit."""
    console, query = console_of(request), query_fields(request)
    topic, number, offset = (
        query.required("topic"),
        query.number("partition"),
        query.number("offset"),
    )
    tp = TopicPartition(topic, number)
    record = None
    async with console.searching, console.cluster.consumer() as consumer:
        [start, end] = (await offset_bounds(consumer, [tp]))[tp]
        if start <= offset < end:
            consumer.assign([tp])
            consumer.seek(tp, offset)
            timeout = console.settings.timeout
            record = next(iter(await consumer.poll(timeout, max_records=1)), None)
    message = None
    if record is not None:
        view = console.record_view(request)
        await view.look_up([record])
        message = view.show(record, FULL_BYTES)
    return console.page(
        request,
        "message.html",
        200 if message else 404,
        topic=topic,
        partition=number,
        offset=offset,
        start=start,
        end=end,
        message=message,
    )


ROUTES = [Route("/message", show_message)]
