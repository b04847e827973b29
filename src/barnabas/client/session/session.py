"""Base of all blocking clients: a private event loop, the cluster, and ways to wait.

There is no thread: the loop runs while a call waits. Ctrl-C interrupts any wait. A session belongs
to the process that created it, and only one thread at a time may use it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from barnabas.client.connections.cluster import Cluster
from barnabas.client.connections.coordinators import Coordinators
from barnabas.client.errors import ClientError, NoBrokersError
from barnabas.client.session.lifetime import Lifetime
from barnabas.client.session.waiter import Waiter
from barnabas.runtime.stepper import LoopStepper

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.client.config import ClientConfig
    from barnabas.client.retries import OnDone

__all__ = ["Session", "await_broker"]

T = TypeVar("T")


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

    def wait(self, start: Callable[[OnDone[T]], None], operation: str) -> T:
        """Start a call and run the loop until its end; a timeout error contains `operation`.

        Raises:
            ClientError: the call failed.
        """
        return self.waiter.wait(start, operation)

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
