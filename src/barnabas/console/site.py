"""All pages of a console: those of its cluster, or of several clusters and a list of them."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from barnabas.console.access.audit import AuditLog
from barnabas.console.console import Console
from barnabas.console.frame import Announcements, Frame, Shared

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from starlette.applications import Starlette

    from barnabas.console.settings import ConsoleSettings
    from barnabas.runtime.clock import Clock


class Site:
    """The frames of a console.

    Args:
        settings: What the command line gives.
        announce: What the console tells its terminal.
        open_audit: Opens the audit log.

    Raises:
        OSError: The audit log cannot be opened.
    """

    def __init__(
        self,
        settings: ConsoleSettings,
        announce: Announcements,
        open_audit: Callable[[str | None, Clock], AuditLog] = AuditLog,
    ) -> None:
        self.settings = settings
        self.shared = shared = Shared(settings, announce, open_audit)
        self.consoles = [
            Console(shared, settings.of_cluster(each), each.name) for each in settings.clusters
        ] or [Console(shared, settings)]
        # Called at the end, before the consoles are closed.
        self.closing: list[Callable[[], Awaitable[None]]] = []
        # The frame at "/": that of the only cluster, or the one with the list of clusters.
        self.front: Frame = Frame(shared, settings) if settings.clusters else self.consoles[0]

    def frame_of(self, path: str) -> Frame:
        """Return the frame of the page of a path."""
        name = path.split("/", 2)[1] if path.startswith("/") else ""
        found = (each for each in self.consoles if each.name and each.name == name)
        return next(found, self.front)

    @contextlib.asynccontextmanager
    async def running(self, _app: Starlette) -> AsyncIterator[None]:
        """Observe the clusters while the server runs (the lifespan of the application)."""
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(each.run()) for each in self.consoles]
        if self.settings.has_login and self.settings.login.has_password:
            self.shared.sessions.announce_password()
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.gather(*(close() for close in self.closing))
            await asyncio.gather(*(each.close() for each in self.consoles))
            self.shared.audit.close()

    def end(self) -> None:
        """End what would keep connections open: the following of new messages."""
        for each in self.consoles:
            each.streams.end()
