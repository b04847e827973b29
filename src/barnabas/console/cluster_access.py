"""Access to the cluster: blocking clients, each used by one thread at a time.

The functions that explain a cluster (`cli/why`, `cli/groups`, `cli/partitions`) take a blocking
client. A page runs them in a thread, so that the event loop stays free.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from barnabas import aio
from barnabas.client.facade import Client

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from barnabas.console.settings import ConsoleSettings

__all__ = ["ClusterAccess"]

T = TypeVar("T")
# Requests to the cluster at once; others wait.
_CLIENTS_MAX = 4
# Keys of a group member in a properties file do not apply to the console's readers.
_GROUP_KEYS = ("group.id", "group.instance.id", "group.protocol", "group.remote.assignor")
_FETCH_BYTES = 4 * 1024 * 1024
_PARTITION_BYTES = 1024 * 1024


class ClusterAccess:
    """Clients of one cluster for the requests of a console."""

    def __init__(self, settings: ConsoleSettings) -> None:
        self._bootstrap = settings.bootstrap
        self._config = dict(settings.client)
        self._limit_ms = settings.timeout * 1000
        self._slots = asyncio.Semaphore(_CLIENTS_MAX)
        # Open clients that no thread uses; at most `_CLIENTS_MAX`.
        self._idle: list[Client] = []
        self._is_closed = False

    @property
    def bootstrap(self) -> str:
        """The bootstrap servers."""
        return self._bootstrap

    @property
    def config(self) -> dict[str, str]:
        """The configuration of the clients, without the bootstrap servers."""
        return dict(self._config)

    async def call(self, load: Callable[[Client], T], limit_ms: float | None = None) -> T:
        """Run `load` with a client in a thread, and return its result.

        Args:
            load: The function.
            limit_ms: Limit for all its calls together; None for that of a page.

        Raises:
            ClientError: `load` raised it.
            TimeoutError: The calls of `load` took longer than the limit together.
        """
        async with self._slots:
            return await asyncio.to_thread(self._run, load, limit_ms or self._limit_ms)

    async def call_once(
        self, load: Callable[[Client], T], config: Mapping[str, str], limit_ms: float
    ) -> T:
        """Run `load` with a new client that has other settings and another limit."""

        def run() -> T:
            with Client(self._bootstrap, **{**self._config, **config}) as client:
                client.limit_total(limit_ms)
                return load(client)

        async with self._slots:
            return await asyncio.to_thread(run)

    def _run(self, load: Callable[[Client], T], limit_ms: float) -> T:
        client = self._idle.pop() if self._idle else Client(self._bootstrap, **self._config)
        client.limit_total(limit_ms)
        is_usable = False
        try:
            result = load(client)
            is_usable = True
            return result
        finally:
            # After an error the next request starts with new connections.
            if is_usable and not self._is_closed:
                self._idle.append(client)
            else:
                client.close()

    def consumer(self, **config: Any) -> aio.Consumer:
        """Return a consumer without a group, which reads small fetches and commits nothing."""
        own = {key: value for key, value in self._config.items() if key not in _GROUP_KEYS}
        limits = {
            "enable.auto.commit": "false",
            "auto.offset.reset": "earliest",
            "fetch.max.bytes": str(_FETCH_BYTES),
            "max.partition.fetch.bytes": str(_PARTITION_BYTES),
        }
        return aio.Consumer(bootstrap_servers=self._bootstrap, **{**own, **limits, **config})

    async def close(self) -> None:
        """Close the idle clients; those in use are closed after their call."""
        self._is_closed = True
        # A blocking client runs its own event loop, which this thread cannot while it runs one.
        await asyncio.to_thread(self._close_idle)

    def _close_idle(self) -> None:
        while self._idle:
            self._idle.pop().close()
