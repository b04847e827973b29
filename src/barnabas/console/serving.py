"""The web application with all its routes, served on its address until it is stopped.

uvicorn waits without a limit for the rest of a request, and refuses all further requests while it
has its maximum of connections. So here a request has a time limit. When there are too many
connections, one without a complete request is closed: the oldest of the address that has the most.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections import Counter
from http import HTTPStatus
from typing import TYPE_CHECKING, ClassVar

import click
import h11
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from barnabas.cli.load.metrics import MetricsError
from barnabas.client.errors import ClientError, UnknownTopicError
from barnabas.console.console import Console, console_of
from barnabas.console.forms import FormError, query_fields
from barnabas.console.pages import (
    access_changes,
    cluster,
    groups,
    messages,
    security,
    topic_changes,
    topics,
)
from barnabas.console.request_checks import RequestChecks
from barnabas.runtime.loop import new_loop, on_signal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from starlette.requests import Request

    from barnabas.console.settings import ConsoleSettings

_END_S = 2
# Connections at once. Above it, uvicorn responds with 503.
CONNECTIONS_MAX = 128


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
    config = uvicorn.Config(
        make_application(console),
        host=settings.host.strip("[]"),
        port=settings.port,
        http=BrowserConnection,
        ws="none",
        lifespan="on",
        log_config=None,
        log_level=logging.WARNING,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        limit_concurrency=CONNECTIONS_MAX,
        timeout_graceful_shutdown=_END_S,
    )
    server = _Server(config, on_ready, console.tails.end)
    await server.serve()
    return server.was_ready


class _Server(uvicorn.Server):
    """A server that tells its address, and for which a signal is a normal end.

    Args:
        config: The configuration of the server.
        on_ready: Called with the address.
        on_end: Called at a signal, before the server waits for its connections to end.
    """

    def __init__(
        self, config: uvicorn.Config, on_ready: Callable[[str], None], on_end: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._on_ready = on_ready
        self._on_end = on_end
        self.was_ready = False

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """End at SIGINT and SIGTERM; uvicorn itself would raise them again after the end."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            on_signal(loop, number, self._end)
        yield

    def _end(self) -> None:
        # A second signal does not wait for connections.
        self.force_exit = self.should_exit
        self.should_exit = True
        self._on_end()

    async def startup(self, sockets: list[object] | None = None) -> None:  # type: ignore[override] # sockets are never given
        """Listen, then announce the address."""
        await super().startup()
        if self.started and not self.should_exit:
            self.was_ready = True
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            self._on_ready(f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/")


class BrowserConnection(H11Protocol):
    """A connection whose requests have to arrive completely within a time limit."""

    # Time in seconds from the start of the connection, or from the first byte of a later request.
    request_s: ClassVar[float] = 20.0
    # Closes the connection; None while there is no incomplete request.
    _deadline: asyncio.TimerHandle | None = None
    # When the connection was made, by the clock of the loop.
    _began_s = 0.0

    @property
    def is_incomplete(self) -> bool:
        """Whether the client has not sent a complete request, or its next one."""
        return self.conn.their_state in (h11.IDLE, h11.SEND_BODY)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn
        """Start the time limit of the first request, and make room for the connection."""
        super().connection_made(transport)
        self._began_s = self.loop.time()
        self._follow()
        if len(self.connections) >= CONNECTIONS_MAX:
            self._close_another()

    def data_received(self, data: bytes) -> None:
        """Serve the request if it is complete."""
        super().data_received(data)
        self._follow()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the time limit."""
        super().connection_lost(exc)
        self._end_deadline()

    def _follow(self) -> None:
        """Start the time limit of an incomplete request, or end that of a complete one."""
        if not self.is_incomplete:
            self._end_deadline()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(self.request_s, self._abort)

    def _end_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _abort(self) -> None:
        self.transport.abort()

    def _close_another(self) -> None:
        others = [
            each
            for each in self.connections
            if isinstance(each, BrowserConnection) and each is not self and each.is_incomplete
        ]
        if not others:
            return
        ((host, _),) = Counter(each.host for each in others).most_common(1)
        oldest = min((each for each in others if each.host == host), key=lambda each: each._began_s)
        self.connections.discard(oldest)
        oldest._abort()

    @property
    def host(self) -> str:
        """The address of the client."""
        return "" if self.client is None else self.client[0]


_log = logging.getLogger(__name__)
_YEAR_S = 31_536_000


def make_application(console: Console) -> Starlette:
    """Return the ASGI application of a console."""
    pages = (cluster, topics, messages, groups, security, topic_changes, access_changes)
    routes = [route for page in pages for route in page.ROUTES]
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
