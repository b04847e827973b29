"""The web application with all its routes, served on its address until it is stopped."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING

import click
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from barnabas.cli.load.metrics import MetricsError
from barnabas.client.errors import ClientError, UnknownTopicError
from barnabas.console.console import Console, console_of
from barnabas.console.forms import FormError, query_fields
from barnabas.console.pages import (
    access_changes,
    cluster,
    groups,
    message,
    messages,
    security,
    topic_changes,
    topics,
)
from barnabas.console.request_checks import RequestChecks
from barnabas.runtime.loop import new_loop
from barnabas.runtime.web_server import AnnouncingServer, server_config

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request

    from barnabas.console.settings import ConsoleSettings


def serve(
    settings: ConsoleSettings, on_ready: Callable[[str], None], on_password: Callable[[str], None]
) -> bool:
    """Serve until SIGINT or SIGTERM.

    Args:
        settings: What the command line gives.
        on_ready: Called with the address (a URL) when the console accepts requests.
        on_password: Called with each new one-time password.

    Returns:
        Whether the server could listen on the address.
    """
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(_serve(settings, on_ready, on_password))


async def _serve(
    settings: ConsoleSettings, on_ready: Callable[[str], None], on_password: Callable[[str], None]
) -> bool:
    console = Console(settings, on_password)
    config = server_config(make_application(console), settings.host, settings.port)
    server = AnnouncingServer(config, on_ready, console.tails.end)
    await server.serve()
    return server.was_ready


_YEAR_S = 31_536_000


def make_application(console: Console) -> Starlette:
    """Return the ASGI application of a console."""
    pages = (
        cluster,
        topics,
        messages,
        message,
        groups,
        security,
        topic_changes,
        access_changes,
    )
    routes = [route for page in pages for route in page.ROUTES]
    entries = [entry for page in pages for entry in getattr(page, "NAVIGATION", ())]
    routes += [Route("/produce", _show_produce), Route("/static/{name}", _send_asset)]
    application = Starlette(
        routes=routes,
        middleware=[
            Middleware(RequestChecks, settings=console.settings, sessions=console.sessions)
        ],
        exception_handlers={
            HTTPException: _show_refusal,
            FormError: _show_form_error,
            click.UsageError: _show_form_error,
            ClientError: _show_client_error,
            MetricsError: _show_client_error,
            TimeoutError: _show_timeout,
            ClientDisconnect: _show_nothing,
            Exception: _show_bug,
        },
        lifespan=console.running,
    )
    application.state.console = console
    application.state.entries = entries
    return application


async def _show_produce(request: Request) -> Response:
    topic = query_fields(request).stripped("topic")
    return console_of(request).page(request, "produce.html", topic=topic)


async def _send_asset(request: Request) -> Response:
    asset = console_of(request).assets.get(request.path_params["name"])
    if asset is None:
        raise HTTPException(404)
    headers = {"cache-control": f"public, max-age={_YEAR_S}, immutable"}
    return Response(asset.content, media_type=asset.type, headers=headers)


def _problem(request: Request, status: int, text: str, advice: str = "") -> Response:
    return console_of(request).page(
        request, "problem.html", status, title=HTTPStatus(status).phrase, text=text, advice=advice
    )


async def _show_refusal(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _problem(request, error.status_code, error.detail)


async def _show_form_error(request: Request, error: Exception) -> Response:
    text = error.message if isinstance(error, click.UsageError) else str(error)
    return _problem(request, 400, text)


async def _show_client_error(request: Request, error: Exception) -> Response:
    is_missing = isinstance(error, UnknownTopicError)
    advice = "" if is_missing else "The page Doctor examines the addresses and the cluster."
    return _problem(request, 404 if is_missing else 502, str(error), advice)


async def _show_timeout(request: Request, _error: Exception) -> Response:
    seconds = console_of(request).settings.timeout
    text = f"the brokers did not answer all requests within {seconds:g} s"
    return _problem(request, 504, text, "The page Doctor examines the addresses and the cluster.")


async def _show_nothing(_request: Request, _error: Exception) -> Response:
    # The connection is closed, so the response is dropped.
    return Response(status_code=400)


async def _show_bug(_request: Request, _error: Exception) -> Response:
    # The server logs the traceback.
    return PlainTextResponse("the console failed; its terminal shows the error\n", 500)
