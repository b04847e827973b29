"""The parts that all asyncio classes of the client share: loop, cluster, waits and closing.

There is no thread and no task. The core works with callbacks on the event loop, and a call awaits a
future. A session belongs to the event loop and the process that created it.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from contextlib import suppress
from types import AsyncGeneratorType
from typing import TYPE_CHECKING, Self, TypeVar
from weakref import WeakMethod

from barnabas.client.connections.cluster import Cluster
from barnabas.client.connections.lookups import Coordinators
from barnabas.client.errors import (
    ClientClosedError,
    ClientError,
    ClientTimeoutError,
    RecordDeserializationError,
)
from barnabas.client.session.lifetime import AT_EXIT_S, BoundToProcess, ClosedByUser, Lifetime
from barnabas.runtime.loop import close_workers, system_runtime
from barnabas.serializers.lookups import SchemaLookup

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
    from types import TracebackType

    from barnabas.client.config import ClientConfig
    from barnabas.client.retries import OnDone
    from barnabas.client.session.plans import Until

__all__ = ["AsyncClosedByUser", "AsyncSession", "AsyncWithBlock", "Conditions"]

_log = logging.getLogger(__name__)
K = TypeVar("K")
T = TypeVar("T")
_WORKERS = 1
_MS_PER_S = 1000.0
# Added to the timeout that a call keeps itself, so that the call's own error arrives first.
_GRACE_MS = 5_000.0


class AsyncWithBlock(BoundToProcess, ABC):
    """Base of the asyncio client classes."""

    @abstractmethod
    async def close(self) -> None:
        """Close the object and free its resources."""

    async def _give_up(self) -> None:
        """Close the object after the block ended with an exception."""
        await self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        if error is None:
            await self.close()
        else:
            await self._give_up()


class AsyncClosedByUser(ClosedByUser):
    """Base of the asyncio clients."""

    @abstractmethod
    async def _end(self, timeout: float) -> None:
        """Deliver records for up to `timeout` seconds, abort a transaction, close connections.

        Raises:
            ClientError: Records were not delivered.
        """

    async def _on_end_of_loop(self) -> None:
        """Warn and end the client if it is open while `asyncio.run` shuts the loop down."""
        if not self._is_left_open:
            return
        self._warn_not_closed()
        if self._has_transaction:
            _log.warning("A transaction was not committed: client=%r", self)
        try:
            await self._end(AT_EXIT_S)
        except ClientError as error:
            _log.error("Records are lost: the event loop ended: client=%r error=%s", self, error)

    def _close_at_exit(self, timeout: float) -> None:
        """Report lost records: without its event loop the client cannot deliver them.

        Raises:
            ClientClosedError: There are undelivered records.
        """
        count = self._undelivered()
        if count:
            raise ClientClosedError(f"the event loop ended with {count} undelivered records")


async def _at_end_of_loop(close: WeakMethod[Callable[[], Awaitable[None]]]) -> AsyncGenerator[None]:
    """Close a client when its loop is shut down.

    An event loop closes the asynchronous generators that have begun while it still runs.
    """
    try:
        yield
    finally:
        method = close()
        if method is not None:
            await method()


class Conditions:
    """The conditions that asyncio calls wait for."""

    __slots__ = ("_loop", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        # The condition and the future of each waiting call. The result of the future is whether
        # `check` found that the condition holds.
        self._waiting: list[tuple[Callable[[], bool], asyncio.Future[bool]]] = []

    def check(self) -> None:
        """End the waits whose conditions hold; to be called at each event that may change one."""
        for condition, future in self._waiting:
            if not future.done() and condition():
                future.set_result(True)

    def check_soon(self) -> None:
        """Call `check` in the next turn of the event loop. Safe from any thread."""
        self._loop.call_soon_threadsafe(self.check)

    async def until(self, step: Until) -> bool:
        """Perform a step of a plan: wait for its condition.

        Returns:
            Whether the condition held at any time; another call may have changed it since.
        """
        holds = step.condition()
        if holds or step.limit_ms <= 0:
            # Let the event loop run once, to handle responses that have already arrived.
            await asyncio.sleep(0)
            return holds or step.condition()
        entry = (step.condition, self._loop.create_future())
        self._waiting.append(entry)
        alarm = self._loop.call_later(step.limit_ms / _MS_PER_S, _end_wait, entry[1])
        try:
            return await entry[1] or step.condition()
        finally:
            alarm.cancel()
            self._waiting.remove(entry)


def _end_wait(future: asyncio.Future[bool]) -> None:
    if not future.done():
        future.set_result(False)


class AsyncSession:
    """Connections on the running event loop, for one or several client objects.

    Args:
        config: The validated configuration.
        kind: The kind of client, for error messages.
        on_end_of_loop: A method that is awaited when `asyncio.run` shuts the loop down before
            `close`. The session keeps no reference to its object.

    Raises:
        ClientError: No event loop is running.
    """

    def __init__(
        self, config: ClientConfig, kind: str, on_end_of_loop: Callable[[], Awaitable[None]]
    ) -> None:
        self.config = config
        self._kind = kind
        self.lifetime = Lifetime(kind)
        try:
            self.loop = asyncio.get_running_loop()
        except RuntimeError:
            raise ClientError(
                f"the {kind} must be created where an event loop runs, inside an `async def`"
            ) from None
        self.conditions = Conditions(self.loop)
        self.runtime = system_runtime(self.loop, _WORKERS)
        self.cluster = Cluster(self.runtime, config)
        self.coordinators = Coordinators(self.cluster)
        generator = _at_end_of_loop(WeakMethod(on_end_of_loop))
        assert isinstance(generator, AsyncGeneratorType)
        # It is running while `on_end_of_loop` is awaited.
        self._end_of_loop = generator
        # Run it up to its `yield`.
        with suppress(StopIteration):
            self._end_of_loop.__anext__().send(None)

    async def look_up(self, error: RecordDeserializationError) -> None:
        """Run the lookup of a schema that a deserializer asked for, in a thread.

        Raises:
            RecordDeserializationError: The error itself, if it has another cause; or with the
                error of the lookup as its cause.
        """
        lookup = error.__cause__
        if not isinstance(lookup, SchemaLookup):
            raise error
        try:
            await self.loop.run_in_executor(None, lookup.run)
        except Exception as cause:
            raise RecordDeserializationError(
                error.partition, error.offset, error.what, cause
            ) from cause

    def check_usable(self) -> None:
        """Raise unless calls may be made now.

        Raises:
            ForkedClientError: The process was forked after the client was created.
            ClientClosedError: `close` was called.
            ClientError: The running event loop is not the one that the client was created on.
        """
        self.lifetime.check()
        if asyncio.get_running_loop() is not self.loop:
            raise ClientError(f"the {self._kind} belongs to another event loop")

    async def wait(
        self,
        start: Callable[[OnDone[T]], None],
        limit_ms: float | None = None,
        operation: str = "the call",
    ) -> T:
        """Start a call and await its result; cancellation does not stop the call itself.

        Args:
            start: Starts the call.
            limit_ms: Limit of the wait (ms), in case the call never ends. None means
                default.api.timeout.ms plus some seconds.
            operation: The name of the call, for the message of a timeout.

        Raises:
            ClientError: The call failed with this error.
            ClientTimeoutError: The call did not end within the limit.
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
            raise ClientTimeoutError(f"{operation} did not end within {limit_ms:.0f} ms") from None

    async def wait_all(
        self, starts: Mapping[K, Callable[[OnDone[T]], None]]
    ) -> dict[K, T | ClientError]:
        """Start several calls and await all of them; return the result or error of each by key."""
        outcomes = await asyncio.gather(
            *(self.wait(start, operation=str(key)) for key, start in starts.items()),
            return_exceptions=True,
        )
        found: dict[K, T | ClientError] = {}
        for key, outcome in zip(starts, outcomes, strict=True):
            if isinstance(outcome, BaseException) and not isinstance(outcome, ClientError):
                raise outcome
            found[key] = outcome
        return found

    async def close(self) -> None:
        """Close all connections; do nothing if the session is closed or in a forked child."""
        if not self.lifetime.end():
            return
        if not self._end_of_loop.ag_running:
            await self._end_of_loop.aclose()
        self.cluster.close()
        # The event loop closes the connections in its next turn.
        await asyncio.sleep(0)
        close_workers(self.runtime)
