"""Heartbeats of a member under the classic protocol (KIP-62).

Timers of the event loop send them while the user's code runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.client.group.heartbeat_schedule import HeartbeatSchedule
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

__all__ = ["Heartbeat", "HeartbeatCallbacks"]


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
