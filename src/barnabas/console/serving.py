"""Runs the application on its address until it is stopped."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from typing import TYPE_CHECKING

import uvicorn

from barnabas.console.application import make_application
from barnabas.console.connections import CONNECTIONS_MAX, BrowserConnection
from barnabas.console.console import Console
from barnabas.runtime.loop import new_loop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from barnabas.console.settings import ConsoleSettings

__all__ = ["serve"]

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
            loop.add_signal_handler(number, self._end)
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
