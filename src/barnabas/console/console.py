"""The parts of a running console, which its pages and changes use."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from starlette.responses import HTMLResponse, RedirectResponse

from barnabas.console.access.roles import Role
from barnabas.console.cluster_history import ClusterAccess, History
from barnabas.console.forms import query_fields
from barnabas.console.message_search import Tails
from barnabas.console.messages.formats import Decoders, Formats
from barnabas.console.messages.masking import Masks
from barnabas.console.messages.record_view import RecordView
from barnabas.console.messages.schema_decoding import SchemaDecoder
from barnabas.console.navigation import navigation
from barnabas.console.rendering import Renderer, assets
from barnabas.console.request_checks import Session, Sessions
from barnabas.runtime.clock import SystemClock
from barnabas.runtime.rng import SystemRng

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from starlette.applications import Starlette
    from starlette.requests import Request

    from barnabas.console.settings import ConsoleSettings

_SEARCHES_MAX = 2
_EXAMINATIONS_MAX = 2
_HASH_KEY_BYTES = 32


class Console:
    """One console for one cluster.

    Args:
        settings: What the command line gives.
        announce: Called with each new one-time password.
        prefix: The path below which the pages are, such as "/east"; "" if it is the only cluster.
    """

    def __init__(
        self, settings: ConsoleSettings, announce: Callable[[str], None], prefix: str = ""
    ) -> None:
        self.settings = settings
        self.prefix = prefix
        self.clock = SystemClock()
        rng = SystemRng()
        self.sessions = Sessions(self.clock, rng, settings.password, announce)
        self.assets = assets()
        self._renderer = Renderer(self.assets, prefix)
        registry = settings.registry
        schemas = None if registry is None else SchemaDecoder(registry, self.clock)
        self.decoders = Decoders(schemas, settings.formats)
        self.masks = Masks(settings.masks, rng.token(_HASH_KEY_BYTES))
        self.tails = Tails(self.clock)
        # Costly requests at once; others wait.
        self.searching = asyncio.Semaphore(_SEARCHES_MAX)
        self.examining = asyncio.Semaphore(_EXAMINATIONS_MAX)
        self.cluster = ClusterAccess(settings)
        self.history = History(self.cluster, settings)

    @contextlib.asynccontextmanager
    async def running(self, _app: Starlette) -> AsyncIterator[None]:
        """Take samples while the server runs (the lifespan of the application)."""
        sampling = asyncio.get_running_loop().create_task(self.history.run())
        if self.settings.has_login:
            self.sessions.announce_password()
        try:
            yield
        finally:
            sampling.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await sampling
            await self.history.close()
            await self.cluster.close()

    def session_of(self, request: Request) -> Session | None:
        """Return the session of the browser; None if it is not logged in."""
        return self.sessions.find(request.cookies.get(self.sessions.cookie))

    def record_view(self, request: Request) -> RecordView:
        """Return how the records of this request are shown: decoded by choice, and masked."""
        query = query_fields(request)
        reveal = query.has("reveal") and self.role(request) >= Role.ADMIN
        return RecordView(self.decoders, self.masks, Formats.of(query), reveal=reveal)

    def role(self, request: Request) -> Role:
        """Return what the user of the browser may do."""
        session = self.session_of(request)
        return Role.VIEWER if session is None or not self.settings.allow_changes else session.role

    def path(self, request: Request) -> str:
        """Return the path of a request without the prefix of the cluster."""
        return request.url.path.removeprefix(self.prefix) or "/"

    def redirect(self, page: str) -> RedirectResponse:
        """Return a redirect to a page, after a form.

        Args:
            page: Path and query, without the prefix of the cluster.
        """
        return RedirectResponse(self.prefix + page, 303)

    def page(
        self, request: Request, template: str, status: int = 200, **values: Any
    ) -> HTMLResponse:
        """Return a page.

        Args:
            template: Name of the template.
            status: Status of the response.
            values: Values for the template.
        """
        session = self.session_of(request)
        # A script that refreshes a page must not take the notices of another tab.
        is_opened = request.headers.get("sec-fetch-mode", "navigate") == "navigate"
        role = self.role(request)
        path = self.path(request)
        shared = {
            "path": path,
            "here": path + (f"?{request.url.query}" if request.url.query else ""),
            "navigation": navigation(request.app.state.entries, path, self.settings),
            "bootstrap": self.settings.bootstrap,
            "allow_changes": self.settings.allow_changes,
            "has_login": self.settings.has_login,
            "session": session,
            "role": role,
            "can_change": role >= Role.OPERATOR,
            "can_administer": role >= Role.ADMIN,
            "csrf": session.csrf if session is not None else "",
            "notices": session.take_notices() if session is not None and is_opened else [],
            "interval": self.history.interval,
            "sample_error": self.history.error,
        }
        return HTMLResponse(self._renderer.render(template, {**shared, **values}), status)


def console_of(request: Request) -> Console:
    """Return the console that handles a request."""
    found = request.app.state.console
    assert isinstance(found, Console)
    return found
