"""Messages of a topic: a search as a page, its progress, its results as a file, new messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, StreamingResponse
from starlette.routing import Route

from barnabas.client.errors import ClientError
from barnabas.console.absent import require_topic
from barnabas.console.access.users import Role
from barnabas.console.console import console_of
from barnabas.console.forms import Fields, FormError, query_fields
from barnabas.console.messages.formats import FORMATS
from barnabas.console.rendering import attachment
from barnabas.console.search import zones
from barnabas.console.search.columns import DEFAULT, Order, parse_columns
from barnabas.console.search.conditions import Conditions
from barnabas.console.search.downloads import Download, DownloadLimits
from barnabas.console.search.expressions import EXAMPLES, ExpressionError
from barnabas.console.search.file_formats import make_writer
from barnabas.console.search.jobs import Search, SearchJob, State, make_plan
from barnabas.console.search.ranges import place_of, places_text, read_partitions
from barnabas.console.search.scan import Scan
from barnabas.console.search.streams import Tail

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from starlette.requests import Request
    from starlette.responses import Response

    from barnabas.console.console import Console
    from barnabas.console.messages.reading import RecordReader
    from barnabas.console.search.columns import Column, Row
    from barnabas.console.search.zones import Zone

_RESULTS_DEFAULT = 50
# A search that has not found its topic within this time makes the page ask whether it exists.
_UNPLANNED_S = 0.2
_RESULTS_MAX = 500
# Fields of the address that do not change what is searched.
_SHOWN_ONLY = ("job", "do", "open", "have", "format", "sort")
# Values of the field `from`, and their names.
_SELECTED_PLACES = {
    "newest": "the newest",
    "beginning": "the beginning",
    "offset": "an offset",
    "time": "a time",
}


async def _wait(console: Console, job: SearchJob) -> None:
    """Wait for the messages of a page.

    Raises:
        ClientError: The topic does not exist, or the brokers do not respond.
    """
    page_seconds = console.settings.search.page_seconds
    await job.wait(min(page_seconds, _UNPLANNED_S))
    if job.is_running and job.plan is None:
        # The client looks for a topic that may be new for longer than a user should wait.
        try:
            await require_topic(console.cluster, job.search.topic)
        except ClientError:
            console.jobs.stop(job)
            raise
    await job.wait(max(0.0, page_seconds - _UNPLANNED_S))


async def show_messages(request: Request) -> Response:
    """Search a topic, and show what was found until now."""
    console, query = console_of(request), query_fields(request)
    try:
        zone = zones.zone_of(request, query)
        search = _search_of(request, query, zone)
    except FormError as error:
        if not query.stripped("topic"):
            raise
        return await _refused(request, query, str(error))
    job = _job_of(console, query, search)
    await _wait(console, job)
    problem = job.error if isinstance(job.error, ExpressionError) else None
    if problem is not None:
        # Nothing was searched, and the form keeps its choice of partitions.
        job.partition_count = await require_topic(console.cluster, search.topic)
    if job.error is not None and job.plan is None and problem is None:
        raise job.error
    if job.state in (State.DONE, State.FAILED) and not query.has("job"):
        console.jobs.forget(job)
    response = _page(request, query, job, zone, problem=problem)
    if query.has("zone"):
        zones.remember_zone(response, zone)
    return response


async def _refused(request: Request, query: Fields, reason: str) -> Response:
    """Return the form as it was sent, with what is wrong with it."""
    usual = Fields({"topic": query.stripped("topic")})
    search = _search_of(request, usual, zones.UTC_ZONE)
    job = SearchJob("", search, console_of(request).jobs)
    job.end(State.FAILED, reason)
    job.partition_count = await require_topic(console_of(request).cluster, search.topic)
    return _page(request, query, job, zones.UTC_ZONE, refusal=reason)


def _page(
    request: Request,
    query: Fields,
    job: SearchJob,
    zone: Zone,
    problem: ExpressionError | None = None,
    refusal: str = "",
) -> Response:
    """Return the form of the search with what was found.

    Args:
        request: The request.
        query: The fields of the form.
        job: The search.
        zone: The time zone of the page.
        problem: What is wrong with the filter; then nothing was searched.
        refusal: What is wrong with another field; then nothing was searched.
    """
    return console_of(request).page(
        request,
        "messages.html",
        400 if problem or refusal else 200,
        query=query,
        places=_SELECTED_PLACES,
        formats=FORMATS,
        examples=EXAMPLES,
        zones=zones.COMMON,
        problem=problem,
        refusal=refusal,
        default_columns=DEFAULT,
        **_shown(job, query, zone),
    )


async def show_found(request: Request) -> Response:
    """Return what a running search found until now, as a part of its page for a script.

    `have` is the version of the rows that the page shows; equal rows are not sent again.
    """
    console, query = console_of(request), query_fields(request)
    job = console.jobs.look_at(query.text("job"), _owner(request))
    if job is None:
        raise HTTPException(404, "this search is no longer kept")
    has_rows = query.text("have") != str(job.results.version)
    zone = zones.zone_of(request, query)
    shown = _shown(job, query, zone)
    can_change = console.role_of(request) >= Role.OPERATOR
    return HTMLResponse(
        console.fragment("messages_found.html", has_rows=has_rows, can_change=can_change, **shown)
    )


def _owner(request: Request) -> object:
    """Return whose searches a browser sees; what is masked depends on the role."""
    console = console_of(request)
    session = console.session_of(request)
    return None if session is None else session.csrf, console.role_of(request)


def _search_of(request: Request, query: Fields, zone: Zone) -> Search:
    """Return the search in an address.

    Raises:
        FormError: A field is malformed.
    """
    console = console_of(request)
    return Search(
        topic=query.required("topic"),
        partition=query.number("partition") if query.stripped("partition") else None,
        place=place_of(query, zone),
        conditions=Conditions.of(query),
        columns=tuple(parse_columns(query.stripped("columns") or DEFAULT)),
        limit=min(query.number("limit", _RESULTS_DEFAULT, least=1), _RESULTS_MAX),
        isolation="read_committed" if query.has("committed") else "read_uncommitted",
        view=console.record_view(request),
        owner=_owner(request),
        address={**dict(query.all_but(*_SHOWN_ONLY)), "zone": zone.name},
    )


def _job_of(console: Console, query: Fields, search: Search) -> SearchJob:
    """Return the job that the address names, else a new one."""
    job = console.jobs.look_at(query.text("job"), search.owner)
    if job is None or job.search.address != search.address:
        job = console.jobs.start(search)
        if job is None:
            raise HTTPException(503, "too many searches run: stop one of them")
    elif query.text("do") == "stop":
        console.jobs.stop(job)
    elif query.text("do") == "go":
        console.jobs.go_on(job)
    return job


def _shown(job: SearchJob, query: Fields, zone: Zone) -> dict[str, Any]:
    """Return the values of the template for the progress and the rows."""
    search = job.search

    def kept(*left_out: str, **changes: object) -> dict[str, object]:
        """Return the fields of the address for a link."""
        fields = dict(query.all_but("do", "have", "format", *left_out))
        return {**{name: value for name, value in fields.items() if value}, **changes}

    order = Order.of(query.stripped("sort"))
    further = places_text(job.next_offsets) if job.state is State.DONE else ""
    return {
        "topic": search.topic,
        "job": job,
        "columns": search.columns,
        "rows": order.sort(job.results.rows, search.columns),
        "order": order,
        "partition_count": job.partition_count,
        "is_newest": search.place.is_newest,
        "is_expanded": query.has("open"),
        "zone": zone,
        "kept": kept,
        "further": further,
        "with_column": _with_column(search.columns),
    }


def _with_column(columns: tuple[Column, ...]) -> Callable[..., str]:
    """Return a function of templates: the field `columns` with or without a column."""

    def changed(added: str = "", removed: str = "") -> str:
        names = [column.name for column in columns if column.name != removed]
        return ",".join([*names, added] if added else names)

    return changed


async def tail_messages(request: Request) -> Response:
    """Send new messages as server-sent events."""
    console, query = console_of(request), query_fields(request)
    zone = zones.zone_of(request, query)
    search = _search_of(request, query, zone)
    can_change = console.role_of(request) >= Role.OPERATOR

    def render(row: Row) -> str:
        return console.fragment(
            "messages_row.html",
            topic=search.topic,
            columns=search.columns,
            row=row,
            zone=zone,
            is_expanded=query.has("open"),
            can_change=can_change,
        )

    async def begin(reader: RecordReader) -> AsyncGenerator[bytes]:
        partitions, _ = await read_partitions(reader.consumer, search.topic, search.partition)
        tail = Tail(search, console.expressions, console.clock, render)
        return tail.events(reader, partitions, console.streams)

    # New messages come at any time, so that it cannot hold a turn while it waits for them.
    reader = console.jobs.reader(search.isolation, is_careful=False)
    parts = await _begin_stream(console, search, reader, begin)
    return StreamingResponse(parts, media_type="text/event-stream")


async def download_messages(request: Request) -> Response:
    """Send the results of a search as a file."""
    console, query = console_of(request), query_fields(request)
    zone = zones.zone_of(request, query)
    search = _search_of(request, query, zone)
    columns = search.columns if query.stripped("columns") else ()
    writer = make_writer(query.stripped("format") or "jsonl", columns, zone)
    download = Download(search, writer, console.clock, DownloadLimits())

    async def begin(reader: RecordReader) -> AsyncGenerator[bytes]:
        plan, _ = await make_plan(reader.consumer, search, console.settings.search.window)
        scan = Scan(reader, search.view, search.conditions, console.expressions)
        return download.parts(plan, scan)

    reader = console.jobs.reader(search.isolation)
    parts = await _begin_stream(console, search, reader, begin)
    headers = attachment(f"{search.topic}.{writer.suffix}")
    return StreamingResponse(parts, media_type=writer.media_type, headers=headers)


async def _begin_stream(
    console: Console, search: Search, reader: RecordReader, begin: Callable[[RecordReader], Any]
) -> AsyncGenerator[bytes]:
    """Return a stream that has a reader of its own; errors at its begin are raised here."""
    console.streams.check()
    if search.conditions.expression:
        await console.expressions.check(search.conditions.expression)
    try:
        parts = await begin(reader)
    except BaseException:
        await reader.aclose()
        raise
    return console.streams.counted(parts, reader)


ROUTES = [
    Route("/messages", show_messages),
    Route("/found", show_found),
    Route("/messages/tail", tail_messages),
    Route("/messages/download", download_messages),
]
