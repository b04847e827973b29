"""How calls of the asyncio consumer begin, wait and end: one poll at a time, wake-ups, close."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self, TypeVar

from barnabas.client.consumer.errors import ConcurrentUseError
from barnabas.client.errors import ClientClosedError, ClientError, ClientTimeoutError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from barnabas.client.aio.session import AsyncSession
    from barnabas.client.consumer.consumer_core import ConsumerCore
    from barnabas.client.consumer.consumer_iterator import ConsumerIterator
    from barnabas.client.consumer.lookups import Start

__all__ = ["AsyncCalls"]

T = TypeVar("T")
_MS_PER_S = 1000.0
# A wait is at least so long while the user's time is not over: whatever is due, nothing spins.
_SHORTEST_MS = 1.0


class AsyncCalls:
    """A context manager around every call; all but polls may be under way side by side."""

    __slots__ = ("_clock", "_core", "_is_polling", "_iterator", "_news", "_session", "closings")

    def __init__(
        self, session: AsyncSession, core: ConsumerCore, iterator: ConsumerIterator
    ) -> None:
        self._session = session
        self._core = core
        self._iterator = iterator
        self._clock = session.runtime.clock
        # Set when something happened; every wait ends.
        self._news = asyncio.Event()
        # Counts the calls of `close`: whatever waited before ends, and callbacks of its own go on.
        self.closings = 0
        self._is_polling = False
        core.on_wake = self._news.set

    def __enter__(self) -> Self:
        self._session.check_usable()
        self._iterator.settle()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        pass

    def wakeup(self) -> None:
        """Have a wait look at what it waits for; from any thread."""
        self._session.loop.call_soon_threadsafe(self._news.set)

    def begin_poll(self) -> None:
        """Be the only poll until `end_poll`.

        Raises:
            ConcurrentUseError: another task polls.
        """
        if self._is_polling:
            raise ConcurrentUseError("another task is in a poll of this consumer")
        self._is_polling = True

    def end_poll(self) -> None:
        """Let others poll."""
        self._is_polling = False

    # Waiting

    async def wait(self, deadline_ms: float) -> bool:
        """Wait until something happened; whether there is time left."""
        core, clock = self._core, self._clock
        left_ms = deadline_ms - clock.monotonic_ms()
        if core.is_awake or left_ms <= 0:
            # A turn of the loop for what is there already.
            await asyncio.sleep(0)
        else:
            due_ms = core.next_deadline_ms() - clock.monotonic_ms()
            await self._wait_for_news(min(left_ms, max(due_ms, _SHORTEST_MS)))
        return clock.monotonic_ms() < deadline_ms

    async def _wait_for_news(self, limit_ms: float) -> None:
        self._news.clear()
        alarm = self._session.loop.call_later(limit_ms / _MS_PER_S, self._news.set)
        try:
            await self._news.wait()
        finally:
            alarm.cancel()

    def check_open(self, begun: int) -> None:
        """Raise if `close` was called since `closings` was `begun`."""
        if self.closings != begun:
            raise ClientClosedError("the consumer was closed during the call")

    async def until(self, predicate: Callable[[], bool], timeout: float | None, what: str) -> None:
        """Find positions until `predicate` holds.

        Raises:
            ClientTimeoutError: it does not within `timeout` seconds.
        """
        config_ms = self._session.config.default_api_timeout_ms
        limit_ms = config_ms if timeout is None else timeout * _MS_PER_S
        deadline_ms = self._clock.monotonic_ms() + limit_ms
        begun = self.closings
        has_time = True
        while not predicate():
            if not has_time:
                raise ClientTimeoutError(f"{what} was not to be had within {limit_ms:.0f} ms")
            self._core.is_awake = False
            self._core.check_wakeup()
            self.check_open(begun)
            self._core.positions.update()
            has_time = predicate() or await self.wait(deadline_ms)

    async def result(self, start: Start[T]) -> T:
        """Start a call and await its end, or a wake-up.

        Raises:
            ClientError: what it ended with.
            WakeupError: `wakeup` was called.
        """
        outcomes: list[tuple[T | None, ClientError | None]] = []

        def on_done(result: T | None, error: ClientError | None) -> None:
            outcomes.append((result, error))
            self._news.set()

        begun = self.closings
        start(on_done)
        while not outcomes:
            self._core.check_wakeup()
            self.check_open(begun)
            self._news.clear()
            await self._news.wait()
        result, error = outcomes[0]
        if error is not None:
            raise error
        assert result is not None
        return result

    # The end

    async def leave(self) -> None:
        """Give everything up.

        Raises:
            BaseException: what a callback of the user raised.
        """
        ended: list[bool] = []
        self._core.unsubscribe("the consumer unsubscribed", lambda: ended.append(True))
        deadline_ms = self._clock.monotonic_ms() + self._session.config.default_api_timeout_ms
        await self._run_steps(lambda: bool(ended), deadline_ms)
        if not ended:
            self._core.end_subscription()
        self._raise_callback_error()

    async def _run_steps(self, predicate: Callable[[], bool], deadline_ms: float) -> None:
        """Let the group's steps go on until `predicate` holds or the time is over."""
        core = self._core
        while not predicate():
            core.is_awake = False
            core.host.go_on()
            left_ms = deadline_ms - self._clock.monotonic_ms()
            if predicate() or left_ms <= 0:
                return
            if not core.is_awake:
                await self._wait_for_news(left_ms)

    def _raise_callback_error(self) -> None:
        host = self._core.host
        error, host.callback_error = host.callback_error, None
        if error is not None:
            raise error

    async def close(self, timeout_ms: float) -> None:
        """End everything.

        Raises:
            BaseException: what a callback of the user raised.
        """
        if self._session.lifetime.is_closed or self._session.lifetime.is_forked or self.closings:
            return
        self.closings += 1
        self._news.set()
        core = self._core
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        ended: list[bool] = []
        try:
            self._iterator.settle()
            await self._run_steps(lambda: core.commits.is_idle, deadline_ms)
            core.begin_close(timeout_ms, lambda: ended.append(True))
            await self._run_steps(lambda: bool(ended), deadline_ms)
            core.commits.run_callbacks()
        finally:
            core.stop()
            await self._session.close()
        self._raise_callback_error()
