"""How calls of the blocking consumer begin, wait and end: one thread inside, wake-ups, close."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from barnabas.client.consumer.consumer_calls import ConsumerCalls, outcome_of
from barnabas.client.consumer.errors import ConcurrentUseError

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.client.consumer.consumer_core import ConsumerCore
    from barnabas.client.consumer.consumer_iterator import ConsumerIterator
    from barnabas.client.consumer.lookups import Start
    from barnabas.client.errors import ClientError
    from barnabas.client.session import Session

__all__ = ["BlockingCalls"]

T = TypeVar("T")


class BlockingCalls(ConsumerCalls):
    """Calls of callbacks nest."""

    __slots__ = ("_late_close_ms", "_session")

    def __init__(self, session: Session, core: ConsumerCore, iterator: ConsumerIterator) -> None:
        super().__init__(session.runtime.clock, core, iterator)
        self._session = session
        # Close when the outermost call ends: `close` came from within it.
        self._late_close_ms: float | None = None

    def _begin(self) -> None:
        self._session.check_usable()
        if not self._session.stepper.enter():
            raise ConcurrentUseError(
                "another thread is in a call of this consumer: one thread at a time may use it, "
                "only wakeup() and close() may come from elsewhere"
            )

    def _end(self) -> None:
        stepper = self._session.stepper
        stepper.leave()
        if self._late_close_ms is not None and not stepper.is_inside:
            self.close(self._late_close_ms)

    # Waiting

    def wait(self, deadline_ms: float, begun: int) -> bool:
        """Wait for news, or a `close` since `closings` was `begun`; whether there is time left."""
        core, clock = self._core, self._clock
        left_ms = deadline_ms - clock.monotonic_ms()
        limit_ms = self._wait_ms(left_ms) if left_ms > 0 else 0.0

        def is_disturbed() -> bool:
            return core.is_awake or core.is_wakeup_wanted or self.closings != begun

        self._session.stepper.run_until(is_disturbed, limit_ms)
        return clock.monotonic_ms() < deadline_ms

    def until(self, predicate: Callable[[], bool], timeout: float | None, what: str) -> None:
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
            has_time = predicate() or self.wait(deadline_ms, begun)

    def result(self, start: Start[T], what: str, timeout: float | None = None) -> T:
        """Start a call and wait for its end, or a wake-up.

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
        start(lambda result, error: outcomes.append((result, error)))
        limit_ms = self._result_ms(timeout)
        begun = self.closings

        def is_over() -> bool:
            return bool(outcomes) or self._core.is_wakeup_wanted or self.closings != begun

        self._session.stepper.run_until(is_over, limit_ms)
        if not outcomes:
            self._check_going(begun)
            raise self._late(what, limit_ms)
        return outcome_of(outcomes[0])

    def wakeup(self) -> None:
        """Have a wait look at what it waits for."""
        self._session.stepper.wake()

    # The end

    def leave(self) -> None:
        """Give everything up.

        Raises:
            BaseException: what a callback of the user raised.
        """
        ended: list[bool] = []
        self._core.unsubscribe("the consumer unsubscribed", lambda: ended.append(True))
        deadline_ms = self._clock.monotonic_ms() + self._default_ms()
        self._run_steps(lambda: bool(ended), deadline_ms)
        if not ended:
            self._core.end_subscription()
        self._raise_callback_error()

    def _run_steps(self, predicate: Callable[[], bool], deadline_ms: float) -> None:
        """Let the group's steps go on until `predicate` holds or the time is over."""
        core = self._core
        while not predicate():
            core.is_awake = False
            core.host.go_on()
            left_ms = deadline_ms - self._clock.monotonic_ms()
            if predicate() or left_ms <= 0:
                return
            self._session.stepper.run_until(lambda: core.is_awake or predicate(), left_ms)

    def close(self, timeout_ms: float) -> None:
        """End everything, from any thread.

        Raises:
            ConcurrentUseError: another thread did not leave its call within the time-out.
            BaseException: what a callback of the user raised.
        """
        session = self._session
        if session.lifetime.is_closed or session.lifetime.is_forked:
            session.close()
            return
        self.closings += 1
        if session.stepper.is_inside:
            self._late_close_ms = timeout_ms
            session.stepper.wake()
            return
        session.stepper.wake()
        if not session.stepper.enter(wait_ms=timeout_ms):
            raise ConcurrentUseError("close: another thread does not leave its call")
        try:
            if not session.lifetime.is_closed:
                self._close(timeout_ms)
        finally:
            session.stepper.leave()

    def _close(self, timeout_ms: float) -> None:
        core = self._core
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        ended: list[bool] = []
        try:
            self._iterator.settle()
            self._run_steps(lambda: core.commits.is_idle, deadline_ms)
            core.begin_close(timeout_ms, lambda: ended.append(True))
            self._run_steps(lambda: bool(ended), deadline_ms)
            core.commits.run_callbacks()
        finally:
            core.stop()
            self._session.close()
        self._raise_callback_error()
