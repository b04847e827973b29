"""Forwarding of requests to the active controller (KIP-590).

If the active controller is in this process, forwarding is a function call. Otherwise the request
goes over the network: requests of this node unchanged, requests of clients in envelopes. The caller
does not see the difference. After elections, lost connections and NOT_CONTROLLER errors the request
is retried until it times out.

Heartbeats have a separate connection, so that other requests cannot delay them. When this
connection closes, the controller knows that the process of the node has ended.
"""

from __future__ import annotations

import logging
from collections import deque
from types import GeneratorType
from typing import TYPE_CHECKING, Any

import msgspec

from barnabas.controller.apis import refuse_request
from barnabas.controller.result import Refusal
from barnabas.protocol.api_keys import api_row
from barnabas.protocol.errors import ErrorCode, ProtocolError, error_counter
from barnabas.runtime.line_limit import LineLimit
from barnabas.server.controller_access.controller_channel import ChannelSettings, ControllerChannel
from barnabas.server.dispatch.envelope import unwrap_response, wrap_request
from barnabas.waiting.steps import run_in_slices

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.controller.result import MutationLimit
    from barnabas.network.channel import ChannelDependencies
    from barnabas.network.network_error import NetworkError
    from barnabas.protocol.schema import Message
    from barnabas.raft.listener import CommittedBatch, LeaderAndEpoch, LoadedSnapshot
    from barnabas.runtime.clock import Cancellable
    from barnabas.runtime.rng import Rng
    from barnabas.server.controller_access.controller_access import LocalController
    from barnabas.server.controller_access.controller_channel import ControllerAddress
    from barnabas.server.dispatch.request import RequestContext
    from barnabas.settings.definition import ParsedConfig
    from barnabas.waiting.timing_wheel import WheelEntry


_log = logging.getLogger(__name__)

# Maximum number of pending requests. Further requests are rejected.
_WAITING_MAX = 10_000
# Maximum size of the pending requests of clients.
_WAITING_BYTES_MAX = 64 << 20
# Maximum number of requests in flight on the connection. Responses arrive in order.
_IN_FLIGHT_MAX = 64
# Delay between attempts to find the controller.
_RETRY_MS = 20.0
_NO_CONTROLLER = "no active controller accepted the request in time"
_CODES = max(ErrorCode) + 2


class ForwardingDependencies(msgspec.Struct, frozen=True):
    """Dependencies that all `Forwarding` objects of a node share."""

    channel: ChannelDependencies
    rng: Rng
    # Returns the active controller; None if it is unknown or in this process.
    find_controller: Callable[[], ControllerAddress | None]
    # The controller of this process, or None.
    local: LocalController | None


class _Attempt:
    """A request and its retries, until its response."""

    __slots__ = ("client_context", "deadline", "is_done", "mutations", "on_done", "request")

    def __init__(
        self,
        request: Message,
        on_done: Callable[[Any], None],
        mutations: MutationLimit | None,
        client_context: RequestContext | None,
    ) -> None:
        self.request = request
        self.on_done = on_done
        self.mutations = mutations
        self.client_context = client_context
        # Timeout of the request. Cancelled when the request is done.
        self.deadline: WheelEntry | None = None
        # Whether a response was passed on or the request was abandoned. Never reset.
        self.is_done = False

    @property
    def size(self) -> int:
        """Bytes of a client's request; 0 for requests of this node."""
        return 0 if self.client_context is None else self.client_context.request_bytes

    def abandon(self) -> None:
        """Stop retrying, because the client has disconnected or the response is being built."""
        self.is_done = True
        if self.deadline is not None:
            self.deadline.cancel()

    def finish(self, response: Any) -> None:
        """Pass on the response, unless the request is already done."""
        if not self.is_done:
            self.abandon()
            self.on_done(response)


class Forwarding:
    """Sends requests to the active controller, in this process or on another node."""

    def __init__(
        self,
        dependencies: ForwardingDependencies,
        settings: ChannelSettings,
        on_connection_lost: Callable[[], None] | None = None,
    ) -> None:
        """Create without a connection.

        Args:
            dependencies: dependencies that all `Forwarding` objects of this node share.
            settings: client id and timeouts of the connection.
            on_connection_lost: called when an established connection is lost.
        """
        self._dependencies = dependencies
        self._settings = settings
        self._timer = dependencies.channel.timer
        self._line_limit = LineLimit(dependencies.channel.clock, _log, "Rejected envelopes", 1)
        self._channel = ControllerChannel(
            dependencies.channel, settings, dependencies.rng, self._pump, self._on_lost
        )
        self._on_connection_lost = on_connection_lost
        # Pending requests in order of arrival. A retried request goes to the end.
        self._waiting: deque[_Attempt] = deque()
        # Sum of the sizes of the requests in `_waiting`.
        self._waiting_bytes = 0
        # Timer of the next attempt to find the controller. None if none is scheduled.
        self._retry: Cancellable | None = None
        # Whether `close` was called. Never reset.
        self._is_closed = False
        # Functions that count the errors of a response, by response class.
        self._counters: dict[type[Message], Callable[[Message, list[int]], None]] = {}

    def send(
        self,
        request: Message,
        on_done: Callable[[Any], None],
        mutations: MutationLimit | None = None,
        client_context: RequestContext | None = None,
    ) -> None:
        """See `ControllerAccess.send`."""
        attempt = _Attempt(request, on_done, mutations, client_context)
        if client_context is not None:
            client_context.on_client_gone(attempt.abandon)
        if self._is_full or self._is_closed:
            self._give_up(attempt)
            return
        local = self._dependencies.local
        if local is not None and local.is_active:
            self._call(local, attempt)
            return
        self._add_deadline(attempt)
        self._enqueue(attempt)
        self._pump()

    def on_leader_change(self) -> None:
        """Connect to the new leader of the quorum, if known, and send the pending requests."""
        local = self._dependencies.local
        found = self._dependencies.find_controller()
        if found is not None and not self._is_closed:
            self._channel.connect_to(found)
        elif self._is_closed or (local is not None and local.is_active):
            self._channel.connect_to(None)
        # Otherwise the leader is unknown for now. Keep the connection: the old controller may still
        # be active and would fence this node after a disconnect.
        self._pump()

    @property
    def reaches_controller(self) -> bool:
        """Whether a request would be sent now: the controller is in this process or connected."""
        local = self._dependencies.local
        return (local is not None and local.is_active) or self._channel.is_ready

    def close(self) -> None:
        """Reject the pending requests and disconnect."""
        self._is_closed = True
        self._channel.close()
        waiting, self._waiting = self._waiting, deque()
        self._waiting_bytes = 0
        for attempt in waiting:
            self._give_up(attempt)

    # -- sending ------------------------------------------------------------------------------

    def _pump(self) -> None:
        """Send the pending requests while the controller can take them."""
        local = self._dependencies.local
        while self._waiting:
            if self._waiting[0].is_done:
                self._dequeue()
            elif local is not None and local.is_active:
                self._call(local, self._dequeue())
            elif self._channel.is_ready and self._channel.in_flight < _IN_FLIGHT_MAX:
                self._transmit(self._dequeue())
            else:
                self._arm()
                return

    @property
    def _is_full(self) -> bool:
        too_large = self._waiting_bytes >= _WAITING_BYTES_MAX
        return too_large or len(self._waiting) >= _WAITING_MAX

    def _enqueue(self, attempt: _Attempt) -> None:
        self._waiting.append(attempt)
        self._waiting_bytes += attempt.size

    def _dequeue(self) -> _Attempt:
        attempt = self._waiting.popleft()
        self._waiting_bytes -= attempt.size
        return attempt

    def _arm(self) -> None:
        """Schedule a retry: the quorum may not report that a leader has a new address."""
        if self._retry is None:
            self._retry = self._timer.call_later(_RETRY_MS, self._on_retry)

    def _on_retry(self) -> None:
        self._retry = None
        if not self._is_closed:
            self.on_leader_change()

    def _call(self, local: LocalController, attempt: _Attempt) -> None:
        def on_response(response: Any) -> None:
            self._on_response(attempt, response)

        local.send(attempt.request, on_response, attempt.mutations, attempt.client_context)

    def _transmit(self, attempt: _Attempt) -> None:
        request, client_context = attempt.request, attempt.client_context
        key = request.__api_key__
        preferred = api_row(key).last_version if client_context is None else client_context.version
        version = self._channel.version_of(key, preferred)
        if version is None:
            message = "the controller does not support this API"
            self._refuse(attempt, ErrorCode.UNSUPPORTED_VERSION, message)
            return

        def on_channel_response(response: Any, error: NetworkError | None) -> None:
            if error is not None:
                _log.debug("Request to the controller failed, retrying: error=%s", error)
                self._retry_request(attempt)
            elif client_context is None:
                self._on_response(attempt, response)
            else:
                self._on_envelope(attempt, version, response)

        try:
            if client_context is None:
                self._channel.send(request, version, on_channel_response)
            else:
                self._channel.send(
                    wrap_request(request, version, client_context), 0, on_channel_response
                )
        except ProtocolError as error:
            self._refuse(attempt, ErrorCode.UNSUPPORTED_VERSION, str(error))

    def _on_envelope(self, attempt: _Attempt, version: int, envelope: Any) -> None:
        if envelope.error_code == ErrorCode.NOT_CONTROLLER:
            self._retry_request(attempt)
        elif envelope.error_code != ErrorCode.NONE or envelope.response_data is None:
            error = ErrorCode.of(envelope.error_code)
            if self._line_limit.allows(error.name):
                _log.warning("Envelope rejected by the controller: error=%s", error.name)
            self._refuse(attempt, error, error.message)
        else:
            try:
                response = unwrap_response(attempt.request, version, envelope.response_data)
            except ProtocolError as error:
                _log.warning("Response of the controller cannot be decoded: error=%s", error)
                self._refuse(attempt, ErrorCode.UNKNOWN_SERVER_ERROR, "")
                return
            self._on_response(attempt, response)

    def _on_response(self, attempt: _Attempt, response: Any) -> None:
        if self._has_not_controller_error(response):
            self._retry_request(attempt)
        else:
            attempt.finish(response)
            self._pump()

    def _retry_request(self, attempt: _Attempt) -> None:
        if attempt.is_done:
            return
        if self._is_closed or self._is_full:
            self._give_up(attempt)
            return
        if attempt.deadline is None:
            self._add_deadline(attempt)
        self._enqueue(attempt)
        self._arm()

    # -- timeout and errors -------------------------------------------------------------------

    def _add_deadline(self, attempt: _Attempt) -> None:
        own_ms: int = getattr(attempt.request, "timeout_ms", 0)
        limit_ms = self._settings.request_timeout_ms
        wheel = self._dependencies.channel.wheel
        delay_ms = own_ms if own_ms > 0 else limit_ms
        attempt.deadline = wheel.add(delay_ms, lambda: self._give_up(attempt))

    def _give_up(self, attempt: _Attempt) -> None:
        self._refuse(attempt, ErrorCode.REQUEST_TIMED_OUT, _NO_CONTROLLER)

    def _refuse(self, attempt: _Attempt, error: ErrorCode, message: str) -> None:
        refused = refuse_request(attempt.request, Refusal(error, message))
        if not isinstance(refused, GeneratorType):
            attempt.finish(refused)
        elif not attempt.is_done:
            attempt.abandon()
            run_in_slices(
                refused, self._dependencies.channel.clock, self._timer.call_soon, attempt.on_done
            )

    def _on_lost(self) -> None:
        if self._on_connection_lost is not None and not self._is_closed:
            self._on_connection_lost()

    def _has_not_controller_error(self, response: Message) -> bool:
        """Return whether any error code in the response is NOT_CONTROLLER."""
        count = self._counters.get(type(response))
        if count is None:
            count = self._counters[type(response)] = error_counter(type(response))
        codes = [0] * _CODES
        count(response, codes)
        return codes[ErrorCode.NOT_CONTROLLER] > 0


class ControllerChannels:
    """Connects to the active controller. Listens to the raft driver for leader changes."""

    def __init__(
        self,
        node_id: int,
        config: ParsedConfig,
        dependencies: ForwardingDependencies,
        on_heartbeats_lost: Callable[[], None],
    ) -> None:
        """Create both connections.

        Args:
            node_id: id of this node, for the client ids of the connections.
            config: the configuration of this node, for the timeouts.
            dependencies: dependencies of both connections.
            on_heartbeats_lost: called when an established heartbeat connection is lost.
        """
        name = f"barnabas-{node_id}"
        requests_ms = config.integer("controller.socket.timeout.ms")
        heartbeats_ms = config.integer("broker.session.timeout.ms") / 2
        self.requests = Forwarding(dependencies, ChannelSettings(f"{name}-requests", requests_ms))
        self.heartbeats = Forwarding(
            dependencies, ChannelSettings(f"{name}-heartbeats", heartbeats_ms), on_heartbeats_lost
        )

    def on_commit(self, batches: Sequence[CommittedBatch]) -> None:
        """Ignore committed records."""

    def on_snapshot(self, snapshot: LoadedSnapshot) -> None:
        """Ignore snapshots."""

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        """Connect to the new active controller."""
        self.requests.on_leader_change()
        self.heartbeats.on_leader_change()

    def close(self) -> None:
        """Disconnect. Pending requests get a timeout error."""
        self.requests.close()
        self.heartbeats.close()
