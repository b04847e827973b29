"""The web application with all its routes, served on its address until it is stopped."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import click
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route

from barnabas.cli.load.metrics import MetricsError
from barnabas.client.errors import ClientError, ClientTimeoutError, NoBrokersError
from barnabas.console.absent import absent_text
from barnabas.console.access.audit import AuditError, AuditLog
from barnabas.console.access.sessions import Session
from barnabas.console.access.users import acting_user
from barnabas.console.cluster_access import ClusterDownError
from barnabas.console.connect.rest import ConnectError
from barnabas.console.console import RELOAD_S, console_of
from barnabas.console.forms import FormError
from barnabas.console.frame import Announcements, frame_of
from barnabas.console.missing_rights import missing_right, status_of
from barnabas.console.pages import (
    access_changes,
    audit,
    cluster,
    clusters,
    configs,
    connect,
    connect_changes,
    examinations,
    group_changes,
    groups,
    links,
    login,
    message,
    messages,
    nodes,
    pipelines,
    produce,
    quotas,
    reassignments,
    resend,
    rights,
    schema_changes,
    schemas,
    security,
    tokens,
    topic_changes,
    topic_settings,
    topics,
    transactions,
)
from barnabas.console.record_process import RecordPages
from barnabas.console.request_checks import RequestChecks
from barnabas.console.site import Site
from barnabas.console.terminal import show_warnings
from barnabas.runtime.loop import new_loop
from barnabas.runtime.web_server import AnnouncingServer, server_config
from barnabas.serializers.errors import RegistryError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from starlette.requests import Request
    from starlette.routing import BaseRoute
    from starlette.types import ASGIApp, Receive, Scope, Send

    from barnabas.console.frame import Frame
    from barnabas.console.navigation import Entry
    from barnabas.console.settings import ConsoleSettings


# Thresholds of the garbage collector, as those of a broker, but with more full collections: closed
# clients leave cycles. With 10,000 topics, a response has 60,000 objects and a sample several times
# as many. Python's own thresholds would collect them all at each page.
_GC_THRESHOLDS = (10_000, 2, 50)


def serve(
    settings: ConsoleSettings,
    on_ready: Callable[[str], None],
    on_password: Callable[[str], None],
    on_notice: Callable[[str], None],
) -> bool:
    """Serve until SIGINT or SIGTERM.

    Args:
        settings: What the command line gives.
        on_ready: Called with the address (a URL) when the console accepts requests.
        on_password: Called with each new one-time password.
        on_notice: Called when the brokers of a cluster begin or stop to respond.

    Returns:
        Whether the server could listen on the address.

    Raises:
        OSError: The audit log cannot be opened.
    """
    collect_rarely()
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(_serve(settings, on_ready, Announcements(on_password, on_notice)))


def collect_rarely() -> None:
    """Set up the garbage collector of a process that serves the console."""
    # Imported objects live forever, so freeze excludes them from collections.
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)


async def _serve(
    settings: ConsoleSettings, on_ready: Callable[[str], None], announce: Announcements
) -> bool:
    site = Site(settings, announce)
    config = server_config(make_application(site), settings.host, settings.port)
    server = AnnouncingServer(config, on_ready, site.end)
    await server.serve()
    return server.was_ready


_YEAR_S = 31_536_000
_CLUSTER_PAGES: tuple[Any, ...] = (
    *(cluster, examinations, topics, topic_settings, reassignments, topic_changes, configs),
    links,
    *(messages, message, resend, produce),
    *(groups, group_changes, pipelines),
    *(connect, connect_changes, schemas, schema_changes),
    *(nodes, transactions),
    *(security, rights, access_changes, quotas, tokens, audit, login),
)
_FRONT_PAGES: tuple[Any, ...] = (clusters, audit, login)
# Pages that show records: a process of its own serves their GET requests.
_RECORD_PAGES: tuple[Any, ...] = (messages, message, resend)


def make_application(site: Site) -> Starlette:
    """Return the ASGI application of a console."""
    records = RecordPages(site.settings, serving_records)
    site.closing.append(records.close)
    passed_on = _record_routes()
    routes = [
        Route(each.path, records, methods=["GET"]) if each in passed_on else each
        for each in _routes(_CLUSTER_PAGES)
    ]
    application = _site_application(
        site,
        routes,
        front=_routes(_FRONT_PAGES),
        assets=[Route("/static/{name}", _send_asset)],
        middleware=[Middleware(RequestChecks, site=site)],
    )
    application.router.lifespan_context = site.running
    application.state.consoles = site.consoles
    return application


def _site_application(
    site: Site,
    routes: Sequence[BaseRoute],
    *,
    front: Sequence[BaseRoute] = (),
    assets: Sequence[BaseRoute] = (),
    middleware: Sequence[Middleware] = (),
) -> Starlette:
    """Return the application of all pages, and tell the frames their entries.

    Args:
        site: The consoles.
        routes: The pages of each cluster.
        front: The pages of no cluster, if there are several clusters.
        assets: The files of the pages.
        middleware: What is around all pages.
    """
    for each in site.consoles:
        each.entries = _entries(_CLUSTER_PAGES)
    if site.front is site.consoles[0]:
        return _application(site.front, [*routes, *assets], middleware)
    site.front.entries = _entries([clusters])
    mounts = [Mount(each.prefix, _application(each, routes)) for each in site.consoles]
    return _application(site.front, [*front, *assets, *mounts], middleware)


def _ignore(_password: str) -> None:
    """Announce nothing: users log in at the console itself."""


@contextlib.asynccontextmanager
async def serving_records(settings: ConsoleSettings) -> AsyncIterator[ASGIApp]:
    """Run the pages of records in the child process; yields their application."""
    show_warnings()
    # The console itself writes the audit log.
    site = Site(settings, Announcements(_ignore), lambda _path, clock: AuditLog(None, clock))
    application = _site_application(site, _record_routes())
    loop = asyncio.get_running_loop()
    probes = [loop.create_task(each.cluster.probe_forever()) for each in site.consoles]

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        session = scope["session"]
        if isinstance(session, Session) and settings.login.acts_as_user:
            acting_user.set(session.user.account)
        await application(scope, receive, send)

    try:
        yield serve
    finally:
        for each in probes:
            each.cancel()
        await asyncio.gather(*probes, return_exceptions=True)
        await asyncio.gather(*(each.close() for each in site.consoles), return_exceptions=True)


def _routes(pages: Sequence[Any]) -> list[Route]:
    return [route for page in pages for route in page.ROUTES]


def _record_routes() -> list[Route]:
    """Return the routes that the process of records serves."""
    return [each for each in _routes(_RECORD_PAGES) if "GET" in (each.methods or ())]


def _entries(pages: Sequence[Any]) -> list[Entry]:
    return [entry for page in pages for entry in getattr(page, "NAVIGATION", ())]


def _application(
    frame: Frame, routes: Sequence[BaseRoute], middleware: Sequence[Middleware] = ()
) -> Starlette:
    """Return the application of the pages below one prefix."""
    application = Starlette(
        routes=list(routes),
        middleware=middleware,
        exception_handlers={
            HTTPException: _show_refusal,
            FormError: _show_form_error,
            click.UsageError: _show_form_error,
            ClientError: _show_client_error,
            ConnectError: _show_service_error,
            RegistryError: _show_service_error,
            MetricsError: _show_client_error,
            AuditError: _show_audit_error,
            TimeoutError: _show_timeout,
            ClientDisconnect: _show_nothing,
            Exception: _show_bug,
        },
    )
    application.state.frame = frame
    return application


async def _send_asset(request: Request) -> Response:
    asset = frame_of(request).assets.get(request.path_params["name"])
    if asset is None:
        raise HTTPException(404)
    headers = {
        "cache-control": f"public, max-age={_YEAR_S}, immutable",
        "vary": "accept-encoding",
    }
    if "gzip" in request.headers.get("accept-encoding", ""):
        headers["content-encoding"] = "gzip"
        return Response(asset.compressed, media_type=asset.type, headers=headers)
    return Response(asset.content, media_type=asset.type, headers=headers)


def _problem(
    request: Request, status: int, text: str, advice: str = "", right: str = ""
) -> Response:
    return frame_of(request).page(
        request,
        "problem.html",
        status,
        title=HTTPStatus(status).phrase,
        text=text,
        advice=advice,
        right=right,
    )


async def _show_refusal(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _problem(request, error.status_code, error.detail)


async def _show_form_error(request: Request, error: Exception) -> Response:
    text = error.message if isinstance(error, click.UsageError) else str(error)
    return _problem(request, 400, text)


_ADVICE = "The page Doctor examines the addresses and the cluster."


async def _show_client_error(request: Request, error: Exception) -> Response:
    status = status_of(error) if isinstance(error, ClientError) else 502
    if status in (400, 403, 404):
        text = absent_text(error, request) or str(error)
        return _problem(request, status, text, right=missing_right(error, request))
    if isinstance(error, ClusterDownError):
        return _last_page(request, error) or _show_outage(request)
    is_late = isinstance(error, ClientTimeoutError | NoBrokersError)
    return (_last_page(request, error) if is_late else None) or _problem(
        request, status, str(error), _ADVICE
    )


async def _show_service_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, (ConnectError, RegistryError))
    return _problem(request, 404 if error.status == HTTPStatus.NOT_FOUND else 502, str(error))


async def _show_audit_error(request: Request, error: Exception) -> Response:
    return _problem(request, 503, str(error))


def _show_outage(request: Request) -> Response:
    """Show what is tried and since when; the banner of all pages says it."""
    return frame_of(request).page(request, "outage.html", 503, reload_s=RELOAD_S)


async def _show_timeout(request: Request, error: Exception) -> Response:
    seconds = frame_of(request).settings.timeout
    text = f"the brokers did not answer all requests within {seconds:g} s"
    return _last_page(request, error) or _problem(request, 504, text, _ADVICE)


def _last_page(request: Request, error: Exception) -> Response | None:
    """Return the page as it was shown before the brokers stopped responding."""
    return console_of(request).last_page(request, str(error))


async def _show_nothing(_request: Request, _error: Exception) -> Response:
    # The connection is closed, so the response is dropped.
    return Response(status_code=400)


async def _show_bug(_request: Request, _error: Exception) -> Response:
    # The server logs the traceback.
    return PlainTextResponse("the console failed; its terminal shows the error\n", 500)
