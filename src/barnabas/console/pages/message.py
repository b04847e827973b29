"""One message: in full, all versions of its key, and the difference from another message."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.exceptions import HTTPException
from starlette.responses import StreamingResponse
from starlette.routing import Route

from barnabas.cli.log.record_contents import record_content
from barnabas.client.topic_partition import TopicPartition
from barnabas.console.access.users import Role
from barnabas.console.console import console_of
from barnabas.console.differences import diff_records
from barnabas.console.forms import FormError, query_fields
from barnabas.console.messages.decoded import FULL_BYTES, KEY, VALUE
from barnabas.console.messages.formats import FORMATS, Formats
from barnabas.console.messages.key_versions import Versions, VersionSearch
from barnabas.console.messages.one_record import Fate, fate_of, read_record, transactional_id_of
from barnabas.console.rendering import attachment
from barnabas.console.search.ranges import offset_bounds
from barnabas.console.search.streams import read_spool
from barnabas.console.search.zones import zone_of
from barnabas.console.tables import Column, tabulate
from barnabas.runtime.spool import Spool

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from starlette.requests import Request
    from starlette.responses import Response

    from barnabas.client.facade import Client
    from barnabas.client.fetch.record_set import ConsumerRecord
    from barnabas.console.console import Console
    from barnabas.console.forms import Fields
    from barnabas.console.messages.decoded import ShownBytes
    from barnabas.console.messages.one_record import Reading
    from barnabas.console.messages.record_view import RecordView, ShownMessage

_MS_PER_S = 1000
_VERSIONS_MAX = 50
# How long a client may take to read the bytes of a key or a value (s).
_DOWNLOAD_S = 600.0


class _Place(NamedTuple):
    """The place that an address names."""

    topic: str
    partition: int
    offset: int

    @property
    def tp(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of an address."""
        return self._asdict()


def _place(query: Fields, prefix: str = "") -> _Place:
    return _Place(
        query.required("topic"), query.number(f"{prefix}partition"), query.number(f"{prefix}offset")
    )


async def _read(console: Console, place: _Place) -> Reading:
    """Return the record at a place, whatever its transaction."""
    seconds = console.settings.timeout

    def load(client: Client) -> Reading:
        return read_record(client, place.tp, place.offset, seconds)

    return await console.cluster.call_once(
        load, {"isolation.level": "read_uncommitted"}, console.settings.timeout * _MS_PER_S
    )


async def _transaction(console: Console, place: _Place, reading: Reading) -> tuple[Fate, str]:
    """Return what became of the record's transaction, and the transactional id if it is known."""
    batch = reading.batch
    if batch is None or not batch.is_transactional:
        return Fate.NONE, ""
    seconds = console.settings.timeout

    def load(client: Client) -> tuple[Fate, str]:
        fate = fate_of(client, place.tp, reading, seconds)
        return fate, transactional_id_of(client, batch.producer_id)

    return await console.cluster.call_once(
        load, {"isolation.level": "read_committed"}, console.settings.timeout * _MS_PER_S
    )


def _choices(request: Request, view: RecordView, topic: str) -> dict[str, Any]:
    """Return what all pages of records need: the zone of times, and the choice of formats."""
    console, query = console_of(request), query_fields(request)
    can_reveal = console.masks.of(topic).can_reveal and console.role_of(request) >= Role.ADMIN
    return {
        "formats": FORMATS,
        "chosen": Formats.of(query),
        "zone": zone_of(request, query),
        "kept": view.choices,
        "can_reveal": can_reveal,
        "is_revealing": view.is_revealing,
        "is_masked": bool(view.masks(topic)),
    }


class _Header(NamedTuple):
    """A header of a message."""

    # Its place among the headers, from 1.
    number: int
    name: str
    value: ShownBytes


_HEADER_COLUMNS: tuple[Column[_Header], ...] = (
    Column("name", "Name", lambda row: row.name),
    Column("number", "Number", lambda row: row.number, "number", hint="The place in the message"),
    Column("value", "Value", lambda row: row.value.text, style="value"),
)


async def show_message(request: Request) -> Response:
    """Show one message in full, up to a limit, with its batch and its transaction."""
    console, place = console_of(request), _place(query_fields(request))
    view = console.record_view(request)
    async with console.searching:
        reading = await _read(console, place)
        fate, transactional_id = await _transaction(console, place, reading)
    record, message, marker = reading.record, None, None
    headers: list[_Header] = []
    if record is not None:
        await view.look_up([record])
        [message] = await view.show_all([record], FULL_BYTES)
        headers = [_Header(number, *each) for number, each in enumerate(message.headers, 1)]
        marker = record_content(record, "plain", is_control=True) if reading.marker else None
    return console.page(
        request,
        "message.html",
        200 if message else 404,
        **place.fields,
        reading=reading,
        batch=reading.batch,
        fate=fate,
        transactional_id=transactional_id,
        message=message,
        marker=marker,
        headers=tabulate(request, _HEADER_COLUMNS, headers, sort="number", prefix="headers."),
        **_choices(request, view, place.topic),
    )


async def _versions(
    request: Request, place: _Place, record: ConsumerRecord, before: int, most: int
) -> Versions:
    """Return the versions of a record's key before an offset."""
    console = console_of(request)
    is_open = query_fields(request).has("uncommitted")
    isolation = "read_uncommitted" if is_open else "read_committed"
    async with contextlib.aclosing(console.jobs.reader(isolation)) as reader:
        [start, end] = (await offset_bounds(reader.consumer, [place.tp]))[place.tp]
        search = VersionSearch(reader, console.clock, console.settings.versions, most)
        return await search.run(place.tp, record, start, min(before, end))


class _Version(NamedTuple):
    """A message of a key."""

    message: ShownMessage
    # The offset of the version before; None if it is not in the list.
    before: int | None
    is_newest: bool
    fate: Fate | None


_VERSION_COLUMNS: tuple[Column[_Version], ...] = (
    Column("offset", "Offset", lambda row: row.message.offset),
    Column("time", "Time", lambda row: row.message.timestamp, style="time"),
    Column("difference", "Difference"),
    Column("size", "Size", lambda row: row.message.value.size, numeric=True),
    Column("value", "Value", lambda row: row.message.value.text, style="value"),
)


async def show_versions(request: Request) -> Response:
    """Show the messages of the same key in the partition, the newest first."""
    console, query = console_of(request), query_fields(request)
    place, view = _place(query), console.record_view(request)
    async with console.searching:
        reading = await _read(console, place)
        record = _required(reading, place)
        found = None
        if record.key is not None and not reading.marker:
            before = query.number("before", reading.end)
            found = await _versions(request, place, record, before, _VERSIONS_MAX)
    records = [record, *(found.records if found else ())]
    await view.look_up(records)
    shown, *versions = await view.show_all(records)
    fates = found.fates if found else {}
    rows = [
        _Version(
            each,
            versions[number + 1].offset if number + 1 < len(versions) else None,
            number == 0 and not query.stripped("before"),
            fates.get(each.offset),
        )
        for number, each in enumerate(versions)
    ]
    return console.page(
        request,
        "message_versions.html",
        **place.fields,
        key=shown.key,
        found=found,
        table=tabulate(request, _VERSION_COLUMNS, rows, sort="-offset", prefix="versions."),
        is_uncommitted=query.has("uncommitted"),
        **_choices(request, view, place.topic),
    )


async def show_difference(request: Request) -> Response:
    """Show two messages of a topic line by line: by default, with the version before."""
    console, query = console_of(request), query_fields(request)
    place, view = _place(query), console.record_view(request)
    async with console.searching:
        after = _required(await _read(console, place), place)
        if query.stripped("other_offset"):
            other = _place(query, "other_")
            before: ConsumerRecord | None = _required(await _read(console, other), other)
        else:
            before = await _version_before(request, place, after)
    found: dict[str, Any] = {"before": None, "parts_found": []}
    if before is not None:
        await view.look_up([before, after])
        decoded = await view.decode_all([before, after])
        parts = await asyncio.to_thread(diff_records, *decoded)
        found = {"before": decoded[0].shown(), "parts_found": parts}
    return console.page(
        request,
        "message_difference.html",
        **place.fields,
        after=after,
        **found,
        **_choices(request, view, place.topic),
    )


async def _version_before(
    request: Request, place: _Place, record: ConsumerRecord
) -> ConsumerRecord | None:
    if record.key is None:
        return None
    found = await _versions(request, place, record, record.offset, 1)
    return found.records[0] if found.records else None


async def download_part(request: Request) -> Response:
    """Send the bytes of a key or a value, unless a mask hides a part of them.

    A value can have 50 MB, so it is read in a turn of large reads. The turn ends before the client
    reads.
    """
    console, query = console_of(request), query_fields(request)
    place, view, part = _place(query), console.record_view(request), query.required("part")
    if part not in (KEY, VALUE):
        raise FormError(f"part must be {KEY} or {VALUE}, not {part!r}")
    console.streams.check()
    spool = Spool()
    async with console.jobs.large_reads.turn(), console.searching:
        await _read_part(console, place, view, part, spool)
    headers = attachment(f"{place.topic}-{place.partition}-{place.offset}.{part}")
    headers["content-length"] = str(spool.size)
    ends_ms = console.clock.monotonic_ms() + _DOWNLOAD_S * _MS_PER_S

    async def parts() -> AsyncGenerator[bytes]:
        with contextlib.closing(spool):
            async for piece in read_spool(spool, console.clock, ends_ms):
                yield piece

    return StreamingResponse(
        console.streams.counted(parts()), media_type="application/octet-stream", headers=headers
    )


async def _read_part(
    console: Console, place: _Place, view: RecordView, part: str, spool: Spool
) -> None:
    """Write the bytes of a key or a value to a spool, and forget them.

    Raises:
        HTTPException: There is no such record, or its part has no bytes to show.
    """
    record = _required(await _read(console, place), place)
    await view.look_up([record])
    [decoded] = await view.decode_all([record])
    data = (decoded.key if part == KEY else decoded.value).raw
    if data is None:
        raise HTTPException(
            403, f"the {part} is null, or a rule of the operator masks a part of it"
        )
    await asyncio.to_thread(spool.write, data)


def _required(reading: Reading, place: _Place) -> ConsumerRecord:
    """Return the record exactly at a place.

    Raises:
        HTTPException: There is none.
    """
    record = reading.record
    if record is None or record.offset != place.offset:
        raise HTTPException(404, f"{place.topic}:{place.partition} has no offset {place.offset}")
    return record


ROUTES = [
    Route("/message", show_message),
    Route("/message/versions", show_versions),
    Route("/message/difference", show_difference),
    Route("/message/raw", download_part),
]
