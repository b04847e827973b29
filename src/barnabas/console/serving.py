"""Runs the application on its address until it is stopped."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import uvicorn

from barnabas.console.application import make_application
from barnabas.console.console import Console
from barnabas.runtime.loop import new_loop

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.console.settings import ConsoleSettings

__all__ = ["serve"]

# Connections at once; further ones get 503.
_CONNECTIONS_MAX = 128
_END_S = 2


def serve(
    settings: ConsoleSettings,
    on_ready: Callable[[str], None],
    on_password: Callable[[str], None],
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
    settings: ConsoleSettings,
    on_ready: Callable[[str], None],
    on_password: Callable[[str], None],
) -> bool:
    console = Console(settings, on_password)
    config = uvicorn.Config(
        make_application(console),
        host=settings.host.strip("[]"),
        port=settings.port,
        http="h11",
        ws="none",
        lifespan="on",
        log_config=None,
        log_level=logging.WARNING,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        limit_concurrency=_CONNECTIONS_MAX,
        timeout_graceful_shutdown=_END_S,
    )
    server = _Server(config, on_ready)
    await server.serve()
    return server.was_ready


class _Server(uvicorn.Server):
    """A server that tells its address."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[str], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready
        self.was_ready = False

    async def startup(self, sockets: list[object] | None = None) -> None:  # type: ignore[override] # sockets are never given
        """Listen, then announce the address."""
        await super().startup()
        if self.started and not self.should_exit:
            self.was_ready = True
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            self._on_ready(f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/")
