"""Begin, wait and end of the blocking consumer's calls: thread check, wake-ups and close."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from barnabas.client.consumer.calls.consumer_calls import ConsumerCalls, outcome_of
from barnabas.client.consumer.errors import ConcurrentUseError

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.client.consumer.calls.consumer_calls import ConsumerIterator
    from barnabas.client.consumer.calls.lookups import Start
    from barnabas.client.consumer.consumer_core import ConsumerCore
    from barnabas.client.errors import ClientError
    from barnabas.client.session.session import Session

__all__ = ["BlockingCalls"]

T = TypeVar("T")


class BlockingCalls(ConsumerCalls):
    """Entry, waiting and closing of the blocking consumer. Calls made by callbacks may nest."""

    __slots__ = ("_deferred_close_ms", "_session")

    def __init__(self, session: Session, core: ConsumerCore, iterator: ConsumerIterator) -> None:
        super().__init__(session.runtime.clock, core, iterator)
        self._session = session
        # The timeout (ms) of a `close` that was called inside another call, for example by a
        # callback. The outermost call closes the consumer when it ends. None if no close is
        # pending.
        self._deferred_close_ms: float | None = None

    def _begin(self) -> None:
        self._session.check_usable()
        if not self._session.stepper.enter():
            raise ConcurrentUseError(
                "another thread is in a call of this consumer: one thread at a time may use it, "
                "except for wakeup() and close()"
            )

    def _end(self) -> None:
        stepper = self._session.stepper
        stepper.leave()
        if self._deferred_close_ms is not None and not stepper.is_inside:
            self.close(self._deferred_close_ms)

    # Waiting

    def wait(self, deadline_ms: float, begun: int) -> bool:
        """Wait for an event, a wake-up or a `close`, until the deadline at the latest.

        Args:
            deadline_ms: The deadline on the monotonic clock.
            begun: The value of `closings` when the call began; a later `close` ends the wait.

        Returns:
            Whether there is time left before the deadline.
        """
        core, clock = self._core, self._clock
        left_ms = deadline_ms - clock.monotonic_ms()
        limit_ms = self._wait_ms(left_ms) if left_ms > 0 else 0.0

        def is_interrupted() -> bool:
            return core.is_awake or core.is_wakeup_wanted or self.closings != begun

        self._session.stepper.run_until(is_interrupted, limit_ms)
        return clock.monotonic_ms() < deadline_ms

    def until(self, predicate: Callable[[], bool], timeout: float | None, subject: str) -> None:
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
            has_time = predicate() or self.wait(deadline_ms, begun)

    def result(self, start: Start[T], subject: str, timeout: float | None = None) -> T:
        """Start a call and wait for its result.

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
        start(lambda result, error: outcomes.append((result, error)))
        limit_ms = self._result_ms(timeout)
        begun = self.closings

        def is_over() -> bool:
            return bool(outcomes) or self._core.is_wakeup_wanted or self.closings != begun

        self._session.stepper.run_until(is_over, limit_ms)
        if not outcomes:
            self._check_interrupted(begun)
            raise self._timeout_error(subject, limit_ms)
        return outcome_of(outcomes[0])

    def wakeup(self) -> None:
        """Make a waiting call check its condition again. Safe from any thread."""
        self._session.stepper.wake()

    # Closing

    def leave(self) -> None:
        """Give up all partitions and leave the group, within default.api.timeout.ms.

        Raises:
            BaseException: A callback of the user raised this exception.
        """
        ended: list[bool] = []
        self._core.unsubscribe("the consumer unsubscribed", lambda: ended.append(True))
        deadline_ms = self._clock.monotonic_ms() + self._default_ms()
        self._run_steps(lambda: bool(ended), deadline_ms)
        if not ended:
            self._core.end_subscription()
        self._raise_callback_error()

    def _run_steps(self, predicate: Callable[[], bool], deadline_ms: float) -> None:
        """Run pending steps of the membership until `predicate` holds or the deadline passes."""
        core = self._core
        while not predicate():
            core.is_awake = False
            core.host.run_scheduled()
            left_ms = deadline_ms - self._clock.monotonic_ms()
            if predicate() or left_ms <= 0:
                return
            self._session.stepper.run_until(lambda: core.is_awake or predicate(), left_ms)

    def close(self, timeout_ms: float) -> None:
        """Close the consumer, from any thread.

        If the current thread is inside a call of this consumer, the close takes place when that
        call ends.

        Raises:
            ConcurrentUseError: Another thread did not leave its call within the timeout.
            BaseException: A callback of the user raised this exception.
        """
        session = self._session
        if session.lifetime.is_closed or session.lifetime.is_forked:
            session.close()
            return
        self.closings += 1
        if session.stepper.is_inside:
            self._deferred_close_ms = timeout_ms
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
            self._iterator.give_back_unseen()
            self._run_steps(lambda: core.commits.is_idle, deadline_ms)
            core.begin_close(timeout_ms, lambda: ended.append(True))
            self._run_steps(lambda: bool(ended), deadline_ms)
            core.commits.run_callbacks()
        finally:
            core.stop()
            self._session.close()
        self._raise_callback_error()
