"""Base of all blocking clients: a private event loop, the cluster, and ways to wait.

There is no thread: the loop runs while a call waits. Ctrl-C interrupts any wait. A session belongs
to the process that created it, and only one thread at a time may use it. Its `Waiter` waits for
calls that complete by callback.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from barnabas.client.connections.cluster import Cluster
from barnabas.client.connections.lookups import Coordinators
from barnabas.client.errors import ClientError, ClientTimeoutError, NoBrokersError
from barnabas.client.session.lifetime import Lifetime
from barnabas.runtime.stepper import LoopStepper

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from barnabas.client.config import ClientConfig
    from barnabas.client.retries import OnDone


__all__ = ["Session", "Waiter", "await_broker"]

K = TypeVar("K")
T = TypeVar("T")
# Added to the timeout of the call itself, so that its own error arrives first.
_GRACE_MS = 5_000.0


class Waiter:
    """Converts calls with a callback to blocking calls.

    Args:
        stepper: runs the event loop.
        check_usable: raises if the client may no longer be used.
        timeout_ms: the timeout that every call enforces itself (`default.api.timeout.ms`).
    """

    def __init__(
        self, stepper: LoopStepper, check_usable: Callable[[], None], timeout_ms: float
    ) -> None:
        self._stepper = stepper
        # Raises if the client may no longer be used.
        self.check_usable = check_usable
        self._limit_ms = timeout_ms + _GRACE_MS
        # Remaining time of all calls together (ms): `limit_total` sets it, each wait subtracts its
        # duration; None: no such limit. It may become negative, since a wait can end late.
        self._remaining_ms: float | None = None
        # The argument of `limit_total` (ms), for the error message.
        self._total_ms = 0.0
        # Called once, when a call takes longer than this time (ms); None: no notice, or done.
        self._on_long_wait: Callable[[], None] | None = None
        self._notice_ms = 0.0

    def notify_long_wait(self, after_ms: float, on_long_wait: Callable[[], None]) -> None:
        """Call `on_long_wait` at the first call that is not complete after `after_ms`."""
        self._notice_ms, self._on_long_wait = after_ms, on_long_wait

    def limit_total(self, timeout_ms: float) -> None:
        """Limit the duration of all further calls together.

        When the limit is reached, calls raise a plain TimeoutError, which is not a ClientError:
        code that treats the error of a single call as a result must not hide the limit.

        Args:
            timeout_ms: the sum of the durations of all calls (ms). Time between calls does not
                count.
        """
        self._remaining_ms = self._total_ms = timeout_ms

    def wait(self, start: Callable[[OnDone[T]], None], operation: str) -> T:
        """Start a call and run the loop until its end.

        Raises:
            ClientError: the call failed.
            TimeoutError: the limit of all calls together was reached.
        """
        found = self.wait_all({operation: start})[operation]
        if isinstance(found, ClientError):
            raise found
        return found

    def wait_all(self, starts: Mapping[K, Callable[[OnDone[T]], None]]) -> dict[K, T | ClientError]:
        """Start calls in parallel and wait for all; return each one's result or error.

        Raises:
            TimeoutError: the limit of all calls together was reached.
            ClientError: another thread, or a caller of this callback, waits already.
        """
        self.check_usable()
        self._check_idle()
        self._check_limit()
        outcomes: dict[K, T | ClientError] = {}
        for key, start in starts.items():
            start(_store_outcome(outcomes, key))
        complete = len(starts)
        if not self._run_with_notice(lambda: len(outcomes) == complete):
            for key in starts:
                late = f"{key} did not end within default.api.timeout.ms"
                outcomes.setdefault(key, ClientTimeoutError(late))
        return {key: outcomes[key] for key in starts}

    def _run_with_notice(self, is_done: Callable[[], bool]) -> bool:
        on_long_wait = self._on_long_wait
        if on_long_wait is None:
            return self.run_until(is_done, self._limit_ms)
        if self.run_until(is_done, self._notice_ms):
            return True
        self._on_long_wait = None
        on_long_wait()
        return self.run_until(is_done, self._limit_ms - self._notice_ms)

    def run_until(self, is_done: Callable[[], bool], timeout_ms: float) -> bool:
        """Run the loop until `is_done()` holds; return False if the timeout passed first.

        Raises:
            TimeoutError: the limit of all calls together was reached.
            ClientError: another thread, or a caller of this callback, waits already.
        """
        self.check_usable()
        self._check_idle()
        if self._remaining_ms is None:
            return self._stepper.run_until(is_done, timeout_ms)
        self._check_limit()
        clock = self._stepper.runtime.clock
        started_ms = clock.monotonic_ms()
        is_complete = self._stepper.run_until(is_done, min(self._remaining_ms, timeout_ms))
        self._remaining_ms -= clock.monotonic_ms() - started_ms
        if not is_complete:
            self._check_limit()
        return is_complete

    def _check_idle(self) -> None:
        """Raise before a call starts that could not wait for its end."""
        if self._stepper.is_running:
            raise ClientError(
                "another call of this client is not complete: use one client for each thread, "
                "and call no blocking method in a callback"
            )

    def _check_limit(self) -> None:
        if self._remaining_ms is not None and self._remaining_ms <= 0:
            raise TimeoutError(f"the calls together took longer than {self._total_ms:.0f} ms")

    def pause(self, delay_ms: float) -> None:
        """Wait for `delay_ms`; network events are processed in the meantime."""
        self._stepper.run_until(lambda: False, delay_ms)


def _store_outcome(outcomes: dict[K, T | ClientError], key: K) -> OnDone[T]:
    def on_done(result: T | None, error: ClientError | None) -> None:
        if error is not None:
            outcomes[key] = error
        else:
            assert result is not None, key
            outcomes[key] = result

    return on_done


class Session:
    """Connections and their event loop, shared by all clients that use them.

    Args:
        config: the parsed configuration.
        kind: names the client in the error of a call after `close`.
    """

    def __init__(self, config: ClientConfig, kind: str = "client") -> None:
        self.config = config
        self.lifetime = Lifetime(kind)
        # Raises an error if the session is closed or belongs to another process.
        self.check_usable = self.lifetime.check
        self.stepper = LoopStepper()
        self.runtime = self.stepper.runtime
        self.cluster = Cluster(self.runtime, config)
        self.coordinators = Coordinators(self.cluster)
        self.waiter = Waiter(self.stepper, self.check_usable, config.default_api_timeout_ms)

    def check_idle(self) -> None:
        """Raise unless the loop may run now; at the end of a program, daemon threads may run it.

        Raises:
            ClientError: A thread is in a call of the client.
        """
        if self.stepper.is_running:
            raise ClientError("another thread is in a call of the client")

    def close(self) -> None:
        """Close all connections and the loop; does nothing when repeated or in a forked child."""
        if self.lifetime.end():
            self.cluster.close()
            self.stepper.close()


def await_broker(
    session: Session,
    timeout_ms: float,
    notice_ms: float,
    on_notice: Callable[[NoBrokersError], None],
) -> None:
    """Run the event loop until a broker responds.

    Args:
        session: the client's session.
        timeout_ms: how long to wait, in ms.
        notice_ms: after how many ms to report that no broker has responded yet.
        on_notice: called once at that time, with the results of the connection attempts.

    Raises:
        NoBrokersError: no broker responded in time.
    """
    session.check_usable()
    cluster = session.cluster
    timer = session.runtime.timer
    responded = False
    retry = cluster.retry_timer()

    def attempt() -> None:
        cluster.refresh((), on_done)

    def on_done(_none: None, error: ClientError | None) -> None:
        nonlocal responded
        if error is None or not error.retriable:
            # An error from a broker proves that it is reachable; the next call reports it.
            responded = True
            return
        retry.retry(attempt)

    def notice() -> None:
        if not responded:
            on_notice(_no_brokers_error(session, notice_ms))

    notice_timer = timer.call_later(notice_ms, notice)
    try:
        attempt()
        session.stepper.run_until(lambda: responded, timeout_ms)
    finally:
        notice_timer.cancel()
    if not responded:
        raise _no_brokers_error(session, timeout_ms)


def _no_brokers_error(session: Session, elapsed_ms: float) -> NoBrokersError:
    """Return the error of the last connection attempts, or a timeout if no attempt has ended."""
    if session.cluster.outage is not None:
        return session.cluster.outage
    addresses = [f"{host}:{port}" for host, port in session.config.bootstrap_servers]
    reason = f"no response within {elapsed_ms:.0f} ms"
    return NoBrokersError(addresses, [(addresses[0], reason)])
