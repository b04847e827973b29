"""A member's heartbeats, by timers of the loop, and the watch over the user who must poll (KIP-62).

Heartbeats go on while the user works. Once he has not polled for max.poll.interval.ms they end, and
the owner is told: it leaves the group, so that others go on with the partitions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.client.cluster import Cluster
    from barnabas.client.errors import ClientError
    from barnabas.client.group.group_calls import GroupCalls
    from barnabas.client.group.membership import GroupGeneration
    from barnabas.protocol.schema import Message
    from barnabas.runtime.timer import Cancellable

__all__ = ["Heartbeat", "HeartbeatOwner"]


class HeartbeatOwner(NamedTuple):
    """Who beats, and what he wants to hear."""

    # Who speaks at this moment.
    speaker: Callable[[], GroupGeneration]
    # An answer came for the generation that asked; None if all is well.
    on_answer: Callable[[ClientError | None, GroupGeneration], None]
    # The user has not polled for max.poll.interval.ms; heartbeats have ended.
    on_poll_missed: Callable[[], None]


class Heartbeat:
    """Beats between `start` and `stop`, one request at a time."""

    def __init__(self, cluster: Cluster, calls: GroupCalls, owner: HeartbeatOwner) -> None:
        config = cluster.config
        self._clock = cluster.runtime.clock
        self._timers = cluster.runtime.timer
        self._backoff = cluster.retry_backoff
        self._calls = calls
        self._owner = owner
        self._interval_ms = config.heartbeat_interval_ms
        self._poll_interval_ms = config.max_poll_interval_ms
        # A coordinator that does not answer for a session has nothing left to say about it.
        self._timeout_ms = min(config.request_timeout_ms, config.session_timeout_ms)
        # When the user polled last, monotonic.
        self._polled_ms = self._clock.monotonic_ms()
        self._next_ms = 0.0
        self._failures = 0
        # Counts starts and stops: answers to requests of an earlier one are not heard.
        self._era = 0
        self._is_running = False
        self._in_flight = False
        self._timer: Cancellable | None = None

    def note_poll(self) -> None:
        """The user polls."""
        self._polled_ms = self._clock.monotonic_ms()

    @property
    def poll_again_ms(self) -> float:
        """When the host should poll again at the latest while its user waits for records."""
        return self._polled_ms + min(self._interval_ms, self._poll_interval_ms / 2)

    def start(self) -> None:
        """Beat from now on; the first after one interval, for a join just ended."""
        self.stop()
        self._is_running = True
        self._failures = 0
        now_ms = self._clock.monotonic_ms()
        self._polled_ms = now_ms
        self._next_ms = now_ms + self._interval_ms
        self._arm()

    def stop(self) -> None:
        """Beat no more."""
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
