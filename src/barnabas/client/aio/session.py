"""What every asyncio face of the client stands on: the running loop, the cluster, ways to await.

No thread and no task: the core below works by callbacks on the loop, and a call awaits its future.
A session belongs to the loop, and the process, that made it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from barnabas.client.cluster import Cluster
from barnabas.client.coordinators import Coordinators
from barnabas.client.errors import ClientError, ClientTimeoutError
from barnabas.client.lifetime import Lifetime
from barnabas.runtime.loop import close_workers, system_runtime

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from barnabas.client.config import ClientConfig
    from barnabas.client.retrying import OnDone

__all__ = ["AsyncSession"]

K = TypeVar("K")
T = TypeVar("T")
_WORKERS = 1
_MS_PER_S = 1000.0
# Beyond the time-out that a call keeps itself: time for its own error to arrive.
_GRACE_MS = 5_000.0


class AsyncSession:
    """Connections on the running loop, for one face or for several over the same connections.

    Args:
        config: checked keys of the client.
        what: names the face in messages.

    Raises:
        ClientError: no loop is running.
    """

    def __init__(self, config: ClientConfig, what: str = "client") -> None:
        self.config = config
        self._what = what
        self.lifetime = Lifetime(what)
        try:
            self.loop = asyncio.get_running_loop()
        except RuntimeError:
            raise ClientError(
                f"the {what} is to be made where a loop runs: inside of an `async def`"
            ) from None
        self.runtime = system_runtime(self.loop, _WORKERS)
        self.cluster = Cluster(self.runtime, config)
        self.coordinators = Coordinators(self.cluster)

    def check_usable(self) -> None:
        """Raise unless calls may be made.

        Raises:
            ForkedClientError: the process was forked meanwhile.
            ClientClosedError: `close` was called.
            ClientError: another loop runs than the one it was made on.
        """
        self.lifetime.check()
        if asyncio.get_running_loop() is not self.loop:
            raise ClientError(f"the {self._what} belongs to another event loop")

    async def wait(
        self,
        start: Callable[[OnDone[T]], None],
        limit_ms: float | None = None,
        what: str = "the call",
    ) -> T:
        """Start a call and await its end; a cancelled wait leaves the call to end by itself.

        Args:
            start: starts the call.
            limit_ms: a limit for a call that does not end by itself, as every call has to; None
                for default.api.timeout.ms and some seconds.
            what: names the call in the message of a time-out.

        Raises:
            ClientError: what the call ended with.
            ClientTimeoutError: it did not end.
        """
        self.check_usable()
        future: asyncio.Future[T] = self.loop.create_future()

        def on_done(result: T | None, error: ClientError | None) -> None:
            if future.done():
                return
            if error is not None:
                future.set_exception(error)
            else:
                assert result is not None
                future.set_result(result)

        start(on_done)
        if limit_ms is None:
            limit_ms = self.config.default_api_timeout_ms + _GRACE_MS
        try:
            return await asyncio.wait_for(future, limit_ms / _MS_PER_S)
        except ClientError:
            raise
        except TimeoutError:
            raise ClientTimeoutError(f"{what} did not end within {limit_ms:.0f} ms") from None

    async def wait_all(
        self, starts: Mapping[K, Callable[[OnDone[T]], None]]
    ) -> dict[K, T | ClientError]:
        """Start calls at once and await all of them; each one's result or error."""
        outcomes = await asyncio.gather(
            *(self.wait(start, what=str(key)) for key, start in starts.items()),
            return_exceptions=True,
        )
        found: dict[K, T | ClientError] = {}
        for key, outcome in zip(starts, outcomes, strict=True):
            if isinstance(outcome, BaseException) and not isinstance(outcome, ClientError):
                raise outcome
            found[key] = outcome
        return found

    async def close(self) -> None:
        """Close all connections; again, or in a forked child, it does nothing."""
        if not self.lifetime.end():
            return
        self.cluster.close()
        # Connections are shut in the next turn of the loop.
        await asyncio.sleep(0)
        close_workers(self.runtime)
