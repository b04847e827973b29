"""Waits for the first broker that responds, and reports early when no broker does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.client.errors import NoBrokersError

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.client.errors import ClientError
    from barnabas.client.session.session import Session

__all__ = ["await_broker"]


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
