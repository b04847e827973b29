"""Begin, wait and end of the asyncio consumer's calls: one poll at a time, wake-ups and close."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from barnabas.client.consumer.calls.consumer_calls import ConsumerCalls, outcome_of
from barnabas.client.consumer.errors import ConcurrentUseError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine

    from barnabas.client.aio.session import AsyncSession
    from barnabas.client.consumer.calls.consumer_calls import ConsumerIterator
    from barnabas.client.consumer.calls.lookups import Start
    from barnabas.client.consumer.consumer_core import ConsumerCore
    from barnabas.client.errors import ClientError

__all__ = ["AsyncCalls"]

T = TypeVar("T")
_MS_PER_S = 1000.0


class AsyncCalls(ConsumerCalls):
    """Entry, waiting and closing of the asyncio consumer. All calls except polls may overlap."""

    __slots__ = ("_event_occurred", "_is_polling", "_session")

    def __init__(
        self, session: AsyncSession, core: ConsumerCore, iterator: ConsumerIterator
    ) -> None:
        super().__init__(session.runtime.clock, core, iterator)
        self._session = session
        # Set at each event; every waiting call then checks its condition.
        self._event_occurred = asyncio.Event()
        # Whether a task is inside `poll`; set by `begin_poll`, cleared by `end_poll`.
        self._is_polling = False
        core.on_wake = self._event_occurred.set

    def _begin(self) -> None:
        self._session.check_usable()

    def _end(self) -> None:
        """Do nothing: calls may overlap, so the end of one does not affect the others."""

    def wakeup(self) -> None:
        """Make waiting calls check their conditions again. Safe from any thread."""
        self._session.loop.call_soon_threadsafe(self._event_occurred.set)

    def begin_poll(self) -> None:
        """Mark a poll as active until `end_poll`.

        Raises:
            ConcurrentUseError: Another task is inside `poll`.
        """
        if self._is_polling:
            raise ConcurrentUseError("another task is in a poll of this consumer")
        self._is_polling = True

    def end_poll(self) -> None:
        """Mark the poll as ended, so that other tasks may poll."""
        self._is_polling = False

    # Waiting

    async def wait(self, deadline_ms: float) -> bool:
        """Wait for an event until the deadline (ms, monotonic clock).

        Return whether time is left.
        """
        core, clock = self._core, self._clock
        left_ms = deadline_ms - clock.monotonic_ms()
        if core.is_awake or left_ms <= 0:
            # Let the event loop run once, to handle responses that have already arrived.
            await asyncio.sleep(0)
        else:
            await self._wait_for_event(self._wait_ms(left_ms))
        return clock.monotonic_ms() < deadline_ms

    async def _wait_for_event(self, limit_ms: float) -> None:
        self._event_occurred.clear()
        alarm = self._session.loop.call_later(limit_ms / _MS_PER_S, self._event_occurred.set)
        try:
            await self._event_occurred.wait()
        finally:
            alarm.cancel()

    async def until(
        self, predicate: Callable[[], bool], timeout: float | None, subject: str
    ) -> None:
        """Look up positions until `predicate` holds.

        Args:
            predicate: The condition to wait for.
            timeout: Seconds; None for default.api.timeout.ms.
            subject: The name of the awaited value, for the message of a timeout.

        Raises:
            WakeupError: `wakeup` was called.
            ClientClosedError: `close` was called.
            ClientTimeoutError: The predicate did not hold within the timeout.
        """
        limit_ms = self._limit_ms(timeout)
        deadline_ms = self._clock.monotonic_ms() + limit_ms
        begun = self.closings
        has_time = True
        while not predicate():
            if not has_time:
                raise self._timeout_error(subject, limit_ms)
            self._find_positions(begun)
            has_time = predicate() or await self.wait(deadline_ms)

    async def result(self, start: Start[T], subject: str, timeout: float | None = None) -> T:
        """Start a call and await its result.

        Args:
            start: Starts the call.
            subject: The name of the call, for the message of a timeout.
            timeout: Seconds that the user gave; None for default.api.timeout.ms.

        Raises:
            ClientError: The call failed with this error.
            WakeupError: `wakeup` was called.
            ClientTimeoutError: The call did not end within the timeout.
        """
        outcomes: list[tuple[T | None, ClientError | None]] = []

        def on_done(result: T | None, error: ClientError | None) -> None:
            outcomes.append((result, error))
            self._event_occurred.set()

        begun = self.closings
        start(on_done)
        limit_ms = self._result_ms(timeout)
        deadline_ms = self._clock.monotonic_ms() + limit_ms
        while not outcomes:
            self._check_interrupted(begun)
            left_ms = deadline_ms - self._clock.monotonic_ms()
            if left_ms <= 0:
                raise self._timeout_error(subject, limit_ms)
            await self._wait_for_event(left_ms)
        return outcome_of(outcomes[0])

    # Closing

    async def leave(self) -> None:
        """Give up all partitions and leave the group, within default.api.timeout.ms.

        Raises:
            BaseException: A callback of the user raised this exception.
        """
        if not self._core.host.is_leaving:
            self._core.unsubscribe("the consumer unsubscribed", _nothing)
        await self.finish_leaving()
        self._raise_callback_error()

    def leave_now(self, tasks: Collection[object]) -> Coroutine[Any, Any, None] | None:
        """Give up all partitions without waiting for the coordinator's response, which is not used.

        Args:
            tasks: Running `async def` callbacks of the user.

        Returns:
            A coroutine to await if callbacks of the user are still running; otherwise None.

        Raises:
            BaseException: A callback of the user raised this exception.
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
        """Wait until the consumer has left; `callback_error` keeps a callback's exception."""
        core = self._core
        deadline_ms = self._clock.monotonic_ms() + self._default_ms()
        await self._run_steps(lambda: not core.host.is_leaving, deadline_ms)
        if core.host.is_leaving:
            core.end_subscription()

    async def _run_steps(self, predicate: Callable[[], bool], deadline_ms: float) -> None:
        """Run pending steps of the membership until `predicate` holds or the deadline passes."""
        core = self._core
        while not predicate():
            core.is_awake = False
            core.host.run_scheduled()
            left_ms = deadline_ms - self._clock.monotonic_ms()
            if predicate() or left_ms <= 0:
                return
            if not core.is_awake:
                await self._wait_for_event(left_ms)

    async def close(self, timeout_ms: float) -> None:
        """Close the consumer; do nothing if it is closed or closing.

        Raises:
            BaseException: A callback of the user raised this exception.
        """
        if self._session.lifetime.is_closed or self._session.lifetime.is_forked or self.closings:
            return
        self.closings += 1
        self._event_occurred.set()
        core = self._core
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        ended: list[bool] = []
        try:
            self._iterator.give_back_unseen()
            await self._run_steps(lambda: core.commits.is_idle, deadline_ms)
            core.begin_close(timeout_ms, lambda: ended.append(True))
            await self._run_steps(lambda: bool(ended), deadline_ms)
            core.commits.run_callbacks()
        finally:
            core.stop()
            await self._session.close()
        self._raise_callback_error()


def _nothing() -> None:
    """Do nothing: `GroupHost.is_leaving` shows when the consumer has left."""
