"""Requests of a member to the coordinator of its group, and the times of its heartbeats (KIP-62).

`CoordinatorSearch` finds the coordinator; errors of requests show when it has changed. Timers of
the event loop send heartbeats while the user's code runs: one at a time, at an interval, with
backoff after errors.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.client.connections.connections import Call
from barnabas.client.errors import ClientError, broker_error
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.groups import HeartbeatRequest, HeartbeatResponse
from barnabas.waiting.state_machine import StateMachine

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from barnabas.client.connections.cluster import Cluster
    from barnabas.client.connections.lookups import Coordinators
    from barnabas.client.group.membership import GroupGeneration
    from barnabas.protocol.schema import Message
    from barnabas.runtime.clock import Cancellable


__all__ = [
    "HEARTBEAT_STATES",
    "CoordinatorSearch",
    "GroupCalls",
    "Heartbeat",
    "HeartbeatCallbacks",
    "HeartbeatEvent",
    "HeartbeatSchedule",
    "HeartbeatState",
]

# Retriable errors that do not mean that the coordinator has moved.
_COORDINATOR_IS_RIGHT = frozenset({ErrorCode.COORDINATOR_LOAD_IN_PROGRESS})


class CoordinatorSearch:
    """Searches for one group's coordinator, with one FindCoordinator request at a time.

    Args:
        cluster: Provides the timer of retries.
        coordinators: Caches the result.
        group: The group's id.
        on_found: Called when a search that `is_ready` started has succeeded or failed.
    """

    def __init__(
        self,
        cluster: Cluster,
        coordinators: Coordinators,
        group: str,
        on_found: Callable[[], None],
    ) -> None:
        self._coordinators = coordinators
        self._group = group
        self._on_found = on_found
        # Whether a request is in flight; there is at most one.
        self._is_in_flight = False
        # Delays the next request after a retriable error.
        self._retry = cluster.retry_timer()
        # Whether `stop` was called; this is final.
        self._stopped = False
        # An error that is not retriable, until `is_ready` raises it.
        self._error: ClientError | None = None

    def is_ready(self) -> bool:
        """Return whether the coordinator is known; start a search otherwise.

        Raises:
            ClientError: The last search failed with an error that is not retriable. The next call
                starts a new search.
        """
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        if self._coordinators.known(self._group) is not None:
            return True
        if not self._retry.is_scheduled:
            self._request()
        return self._coordinators.known(self._group) is not None

    def stop(self) -> None:
        """Stop searching."""
        self._stopped = True
        self._retry.cancel()

    def _request(self) -> None:
        if not self._is_in_flight and not self._stopped:
            self._is_in_flight = True
            self._coordinators.find(self._group, self._on_response)

    def _on_response(self, node_id: int | None, error: ClientError | None) -> None:
        self._is_in_flight = False
        if self._stopped:
            return
        if node_id is not None:
            self._retry.reset()
        elif error is not None and error.retriable:
            self._retry.retry(self._request)
            return
        else:
            self._error = error
        self._on_found()


class GroupCalls:
    """JoinGroup, SyncGroup, Heartbeat and LeaveGroup: requests with one top-level error code.

    Args:
        cluster: Reaches the brokers.
        coordinators: Finds the coordinator; its cache entry is discarded when an error shows that
            the coordinator has moved or is unreachable.
        group: The group's id.
    """

    def __init__(self, cluster: Cluster, coordinators: Coordinators, group: str) -> None:
        self._cluster = cluster
        self._coordinators = coordinators
        self._group = group

    @property
    def is_coordinator_known(self) -> bool:
        """Whether a call would be sent without a coordinator lookup."""
        return self._coordinators.known(self._group) is not None

    def call(
        self,
        api_key: ApiKey,
        build: Callable[[int], Message],
        on_done: Callable[[Any, ClientError | None], None],
        timeout_ms: float | None = None,
    ) -> None:
        """Send a request; `on_done` receives the response and the error for its error code."""

        def on_response(response: Any, error: ClientError | None) -> None:
            if response is not None and response.error_code:
                words = f"{api_key.name} of group {self._group}"
                detail = getattr(response, "error_message", None)
                error = broker_error(response.error_code, words, detail)
            if error is not None and _is_wrong(error):
                self._coordinators.forget(self._group)
            on_done(response, error)

        self._coordinators.call(self._group, api_key, build, on_response, timeout_ms)

    def call_on_general_connection(
        self,
        api_key: ApiKey,
        build: Callable[[int], Message],
        on_done: Callable[[Any, ClientError | None], None],
    ) -> None:
        """Send a request like `call`, but over the node's general connection.

        Requests that wait on the coordinator's connection do not delay it.
        """
        node_id = self._coordinators.known(self._group)
        assert node_id is not None
        self._cluster.call(node_id, Call(api_key, build, on_done))


def _is_wrong(error: ClientError) -> bool:
    """Return whether an error means that the coordinator may have moved."""
    return error.retriable and error.error_code not in _COORDINATOR_IS_RIGHT


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
