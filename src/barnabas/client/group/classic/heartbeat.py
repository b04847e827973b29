"""Heartbeats of a member, and supervision of the user's polls (KIP-62).

Timers of the event loop send heartbeats while the user's code runs. If the user does not poll for
max.poll.interval.ms, heartbeats stop and the owner is notified. The owner then leaves the group, so
that other members get the partitions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.client.connections.cluster import Cluster
    from barnabas.client.errors import ClientError
    from barnabas.client.group.group_calls import GroupCalls
    from barnabas.client.group.membership import GroupGeneration
    from barnabas.protocol.schema import Message
    from barnabas.runtime.timer import Cancellable

__all__ = ["Heartbeat", "HeartbeatOwner"]


class HeartbeatOwner(NamedTuple):
    """The callbacks of the membership that sends heartbeats."""

    # Returns the current member and generation.
    speaker: Callable[[], GroupGeneration]
    # Called with the error of a response, or None, and the generation of the request.
    on_answer: Callable[[ClientError | None, GroupGeneration], None]
    # Called when the user has not polled for max.poll.interval.ms, after heartbeats were stopped.
    on_poll_missed: Callable[[], None]


class Heartbeat:
    """Sends heartbeats between `start` and `stop`, one request at a time."""

    def __init__(self, cluster: Cluster, calls: GroupCalls, owner: HeartbeatOwner) -> None:
        config = cluster.config
        self._clock = cluster.runtime.clock
        self._timers = cluster.runtime.timer
        self._backoff = cluster.retry_backoff
        self._calls = calls
        self._owner = owner
        self._interval_ms = config.heartbeat_interval_ms
        self._poll_interval_ms = config.max_poll_interval_ms
        # After session.timeout.ms the session is over, so a later response is useless.
        self._timeout_ms = min(config.request_timeout_ms, config.session_timeout_ms)
        # When the user last polled (ms, monotonic clock).
        self._polled_ms = self._clock.monotonic_ms()
        # When the next heartbeat is due (ms, monotonic clock).
        self._next_ms = 0.0
        # Number of consecutive failed heartbeats.
        self._failures = 0
        # Incremented by `start` and `stop`; responses to earlier requests are ignored.
        self._era = 0
        # Whether heartbeats are sent: True between `start` and `stop`.
        self._is_running = False
        # Whether a heartbeat is in flight; there is at most one.
        self._in_flight = False
        self._timer: Cancellable | None = None

    def note_poll(self) -> None:
        """Record that the user polls."""
        self._polled_ms = self._clock.monotonic_ms()

    @property
    def poll_again_ms(self) -> float:
        """When the host must poll again while its user waits for records (ms, monotonic clock)."""
        return self._polled_ms + min(self._interval_ms, self._poll_interval_ms / 2)

    def start(self) -> None:
        """Start sending heartbeats after a join; the first follows after one interval."""
        self.stop()
        self._is_running = True
        self._failures = 0
        now_ms = self._clock.monotonic_ms()
        self._polled_ms = now_ms
        self._next_ms = now_ms + self._interval_ms
        self._arm()

    def stop(self) -> None:
        """Stop sending heartbeats."""
        self._era += 1
        self._is_running = self._in_flight = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        due_ms = self._polled_ms + self._poll_interval_ms
        if not self._in_flight:
            due_ms = min(due_ms, self._next_ms)
        if self._timer is not None:
            self._timer.cancel()
        delay_ms = max(0.0, due_ms - self._clock.monotonic_ms())
        self._timer = self._timers.call_later(delay_ms, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._polled_ms + self._poll_interval_ms:
            self.stop()
            self._owner.on_poll_missed()
            return
        if not self._in_flight and now_ms >= self._next_ms:
            self._send(now_ms)
        if self._is_running:
            self._arm()

    def _send(self, now_ms: float) -> None:
        self._in_flight = True
        self._next_ms = now_ms + self._interval_ms
        speaker = self._owner.speaker()
        era = self._era

        def build(_version: int) -> Message:
            return HeartbeatRequest(
                group_id=speaker.group_id,
                generation_id=speaker.generation_id,
                member_id=speaker.member_id,
                group_instance_id=speaker.instance_id,
            )

        def on_answer(_response: HeartbeatResponse | None, error: ClientError | None) -> None:
            if era != self._era:
                return
            self._in_flight = False
            if error is None or error.error_code is ErrorCode.REBALANCE_IN_PROGRESS:
                self._failures = 0
            else:
                self._failures += 1
                delay_ms = self._backoff.delay_ms(self._failures)
                self._next_ms = self._clock.monotonic_ms() + delay_ms
            self._owner.on_answer(error, speaker)
            if self._is_running:
                self._arm()

        self._calls.call(ApiKey.HEARTBEAT, build, on_answer, self._timeout_ms)
