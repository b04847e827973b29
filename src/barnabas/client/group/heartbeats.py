"""The times of a member's heartbeats, and the heartbeats of the classic protocol (KIP-62).

Timers of the event loop send them while the user's code runs: one at a time, at an interval, with
backoff after errors.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.groups import HeartbeatRequest, HeartbeatResponse
from barnabas.waiting.state_machine import StateMachine

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from barnabas.client.connections.cluster import Cluster
    from barnabas.client.errors import ClientError
    from barnabas.client.group.group_calls import GroupCalls
    from barnabas.client.group.membership import GroupGeneration
    from barnabas.protocol.schema import Message
    from barnabas.runtime.clock import Cancellable

__all__ = [
    "HEARTBEAT_STATES",
    "Heartbeat",
    "HeartbeatCallbacks",
    "HeartbeatEvent",
    "HeartbeatSchedule",
    "HeartbeatState",
]


class HeartbeatState(Enum):
    """State of a member's heartbeats."""

    STOPPED = auto()
    # The timer of the next heartbeat is running.
    WAITING = auto()
    # A heartbeat is in flight.
    IN_FLIGHT = auto()
    # A heartbeat is in flight; the next one follows directly after its response.
    IN_FLIGHT_URGENT = auto()


class HeartbeatEvent(Enum):
    """Events that change the state of a member's heartbeats."""

    STARTED = auto()
    SENT = auto()
    # The member has something to report.
    URGENT = auto()
    # A response or an error ended the heartbeat in flight.
    ENDED = auto()
    STOPPED = auto()


_S, _E = HeartbeatState, HeartbeatEvent
HEARTBEAT_STATES: Mapping[HeartbeatState, Mapping[HeartbeatEvent, HeartbeatState]] = {
    _S.STOPPED: {_E.STARTED: _S.WAITING, _E.STOPPED: _S.STOPPED},
    _S.WAITING: {_E.SENT: _S.IN_FLIGHT, _E.URGENT: _S.WAITING, _E.STOPPED: _S.STOPPED},
    _S.IN_FLIGHT: {
        _E.URGENT: _S.IN_FLIGHT_URGENT,
        _E.ENDED: _S.WAITING,
        _E.STOPPED: _S.STOPPED,
    },
    _S.IN_FLIGHT_URGENT: {
        _E.URGENT: _S.IN_FLIGHT_URGENT,
        _E.ENDED: _S.WAITING,
        _E.STOPPED: _S.STOPPED,
    },
}


class HeartbeatSchedule:
    """Calls `send` for each heartbeat, between `start` and `stop`.

    Args:
        cluster: Provides clock, timers and backoff.
        send: Sends a heartbeat. The sender passes the era that it receives to `accept` when the
            heartbeat has ended.
    """

    def __init__(self, cluster: Cluster, send: Callable[[int], None]) -> None:
        self._clock = cluster.runtime.clock
        self._timers = cluster.runtime.timer
        self._send = send
        # Counts consecutive failed heartbeats and determines the backoff.
        self._retry = cluster.retry_timer()
        self._machine = StateMachine("heartbeats", HeartbeatState.STOPPED, HEARTBEAT_STATES)
        # Incremented by `stop`; the ends of heartbeats of earlier eras are ignored.
        self._era = 0
        # When the last heartbeat was sent (ms, monotonic clock); None before the first.
        self._sent_ms: float | None = None
        # Timer of the next heartbeat. Invariant: not None exactly in state WAITING.
        self._timer: Cancellable | None = None

    @property
    def state(self) -> HeartbeatState:
        """The current state."""
        return self._machine.state

    @property
    def has_sent(self) -> bool:
        """Whether a heartbeat was ever sent."""
        return self._sent_ms is not None

    def start(self, delay_ms: float) -> None:
        """Start a new era; the first heartbeat follows after `delay_ms`."""
        self.stop()
        self._machine.on(HeartbeatEvent.STARTED)
        self._retry.reset()
        self._wait(delay_ms)

    def stop(self) -> None:
        """Send no further heartbeats, and ignore the end of the one in flight."""
        self._era += 1
        self._machine.on(HeartbeatEvent.STOPPED)
        self._cancel()

    def send_soon(self) -> None:
        """Send a heartbeat as soon as none is in flight, unless a backoff is active."""
        self._machine.on(HeartbeatEvent.URGENT)
        if self.state is HeartbeatState.WAITING and not self._retry.failures:
            self._cancel()
            self._wait(0.0)

    def accept(self, era: int) -> bool:
        """Return whether the end of a heartbeat of that era must be handled."""
        return era == self._era

    def on_success(self, interval_ms: float) -> None:
        """Schedule the next heartbeat `interval_ms` after the last one, or at once if urgent."""
        self._retry.reset()
        assert self._sent_ms is not None, "a heartbeat ended before the first was sent"
        elapsed_ms = self._clock.monotonic_ms() - self._sent_ms
        is_urgent = self.state is HeartbeatState.IN_FLIGHT_URGENT
        self._machine.on(HeartbeatEvent.ENDED)
        self._wait(0.0 if is_urgent else max(0.0, interval_ms - elapsed_ms))

    def on_failure(self, min_delay_ms: float = 0.0) -> None:
        """Schedule the next heartbeat after the backoff, and at least after `min_delay_ms`."""
        backoff_ms = self._retry.next_delay_ms()
        assert backoff_ms is not None, "heartbeats are repeated without a timeout"
        self._machine.on(HeartbeatEvent.ENDED)
        self._wait(max(backoff_ms, min_delay_ms))

    def _wait(self, delay_ms: float) -> None:
        assert self.state is HeartbeatState.WAITING, self.state
        assert self._timer is None, "the next heartbeat is scheduled already"
        self._timer = self._timers.call_later(delay_ms, self._on_timer)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timer(self) -> None:
        self._timer = None
        self._machine.on(HeartbeatEvent.SENT)
        self._sent_ms = self._clock.monotonic_ms()
        self._send(self._era)


class HeartbeatCallbacks(NamedTuple):
    """The callbacks of the membership that sends heartbeats."""

    # Returns the current member and generation.
    generation: Callable[[], GroupGeneration]
    # Called with the error of a response, or None, and the generation of the request.
    on_response: Callable[[ClientError | None, GroupGeneration], None]


class Heartbeat:
    """Sends heartbeats between `start` and `stop`, one request at a time."""

    def __init__(self, cluster: Cluster, calls: GroupCalls, callbacks: HeartbeatCallbacks) -> None:
        config = cluster.config
        self._calls = calls
        self._callbacks = callbacks
        self._interval_ms = config.heartbeat_interval_ms
        # After session.timeout.ms the session is over, so a later response is useless.
        self._timeout_ms = min(config.request_timeout_ms, config.session_timeout_ms)
        self._schedule = HeartbeatSchedule(cluster, self._send)

    def start(self) -> None:
        """Start sending heartbeats after a join; the first follows after one interval."""
        self._schedule.start(self._interval_ms)

    def stop(self) -> None:
        """Stop sending heartbeats, and ignore the response to the one in flight."""
        self._schedule.stop()

    def _send(self, era: int) -> None:
        generation = self._callbacks.generation()

        def build(_version: int) -> Message:
            return HeartbeatRequest(
                group_id=generation.group_id,
                generation_id=generation.generation_id,
                member_id=generation.member_id,
                group_instance_id=generation.instance_id,
            )

        def on_response(_response: HeartbeatResponse | None, error: ClientError | None) -> None:
            if not self._schedule.accept(era):
                return
            if error is None or error.error_code is ErrorCode.REBALANCE_IN_PROGRESS:
                self._schedule.on_success(self._interval_ms)
            else:
                self._schedule.on_failure()
            self._callbacks.on_response(error, generation)

        self._calls.call(ApiKey.HEARTBEAT, build, on_response, self._timeout_ms)
