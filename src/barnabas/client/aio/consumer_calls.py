"""How calls of the asyncio consumer begin, wait and end: one poll at a time, wake-ups, close."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from barnabas.client.consumer.consumer_calls import ConsumerCalls, outcome_of
from barnabas.client.consumer.errors import ConcurrentUseError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine

    from barnabas.client.aio.session import AsyncSession
    from barnabas.client.consumer.consumer_core import ConsumerCore
    from barnabas.client.consumer.consumer_iterator import ConsumerIterator
    from barnabas.client.consumer.lookups import Start
    from barnabas.client.errors import ClientError

__all__ = ["AsyncCalls"]

T = TypeVar("T")
_MS_PER_S = 1000.0


class AsyncCalls(ConsumerCalls):
    """All calls but polls may be under way side by side."""

    __slots__ = ("_is_polling", "_news", "_session")

    def __init__(
        self, session: AsyncSession, core: ConsumerCore, iterator: ConsumerIterator
    ) -> None:
        super().__init__(session.runtime.clock, core, iterator)
        self._session = session
        # Set when something happened; every wait ends.
        self._news = asyncio.Event()
        self._is_polling = False
        core.on_wake = self._news.set

    def _begin(self) -> None:
        self._session.check_usable()

    def _end(self) -> None:
        """Calls stand side by side: the end of one is nothing to the others."""

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
            await self._wait_for_news(self._wait_ms(left_ms))
        return clock.monotonic_ms() < deadline_ms

    async def _wait_for_news(self, limit_ms: float) -> None:
        self._news.clear()
        alarm = self._session.loop.call_later(limit_ms / _MS_PER_S, self._news.set)
        try:
            await self._news.wait()
        finally:
            alarm.cancel()

    async def until(self, predicate: Callable[[], bool], timeout: float | None, what: str) -> None:
        """Find positions until `predicate` holds.

        Raises:
            ClientTimeoutError: it does not within `timeout` seconds.
        """
        limit_ms = self._limit_ms(timeout)
        deadline_ms = self._clock.monotonic_ms() + limit_ms
        begun = self.closings
        has_time = True
        while not predicate():
            if not has_time:
                raise self._late(what, limit_ms)
            self._find_positions(begun)
            has_time = predicate() or await self.wait(deadline_ms)

    async def result(self, start: Start[T], what: str, timeout: float | None = None) -> T:
        """Start a call and await its end, or a wake-up.

        Args:
            start: starts the call.
            what: names it in the message of a time-out.
            timeout: seconds that the user gave; None for default.api.timeout.ms.

        Raises:
            ClientError: what it ended with.
            WakeupError: `wakeup` was called.
            ClientTimeoutError: it did not end in time.
        """
        outcomes: list[tuple[T | None, ClientError | None]] = []

        def on_done(result: T | None, error: ClientError | None) -> None:
            outcomes.append((result, error))
            self._news.set()

        begun = self.closings
        start(on_done)
        limit_ms = self._result_ms(timeout)
        deadline_ms = self._clock.monotonic_ms() + limit_ms
        while not outcomes:
            self._check_going(begun)
            left_ms = deadline_ms - self._clock.monotonic_ms()
            if left_ms <= 0:
                raise self._late(what, limit_ms)
            await self._wait_for_news(left_ms)
        return outcome_of(outcomes[0])

    # The end

    async def leave(self) -> None:
        """Give everything up.

        Raises:
            BaseException: what a callback of the user raised.
        """
        if not self._core.host.is_leaving:
            self._core.unsubscribe("the consumer unsubscribed", _nothing)
        await self.finish_leaving()
        self._raise_callback_error()

    def leave_now(self, tasks: Collection[object]) -> Coroutine[Any, Any, None] | None:
        """Give everything up without waiting for the coordinator's answer, which changes nothing.

        Args:
            tasks: callbacks of the user that are being awaited.

        Returns:
            What still has to be awaited, where a callback of the user has to be; None otherwise.

        Raises:
            BaseException: what a callback of the user raised.
        """
        core = self._core
        if core.host.is_leaving:
            return None
        core.unsubscribe("the consumer unsubscribed", _nothing)
        if core.host.is_leaving and tasks:
            return self.finish_leaving()
        core.end_subscription()
        self._raise_callback_error()
        return None

    async def finish_leaving(self) -> None:
        """Await the end of giving everything up; what a callback raised stays to be raised."""
        core = self._core
        deadline_ms = self._clock.monotonic_ms() + self._default_ms()
        await self._run_steps(lambda: not core.host.is_leaving, deadline_ms)
        if core.host.is_leaving:
            core.end_subscription()

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


def _nothing() -> None:
    """The end of a departure shows in the host."""
