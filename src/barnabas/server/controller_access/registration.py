"""Registration and heartbeats of the broker (Kafka's BrokerLifecycleManager; KIP-500, KIP-631).

A broker registers with a new incarnation id and is fenced at first. The controller unfences the
broker once its heartbeats show that it has caught up with the metadata.
"""

from __future__ import annotations

import logging
from enum import Enum, auto
from typing import TYPE_CHECKING

import msgspec

from barnabas.metadata.broker_registration import features_as
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.nodes import (
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    Feature,
    Listener,
)
from barnabas.server.startup.features import SUPPORTED_FEATURES
from barnabas.waiting.state_machine import StateMachine

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.protocol.messages.nodes import BrokerHeartbeatResponse, BrokerRegistrationResponse
    from barnabas.runtime.clock import Cancellable, Timer
    from barnabas.server.configs.endpoints import Endpoint
    from barnabas.server.controller_access.controller_access import ControllerAccess


_log = logging.getLogger(__name__)


class State(Enum):
    """State of a broker's registration."""

    # No request has been sent.
    NEW = auto()
    # The controller has not yet accepted the first registration.
    REGISTERING = auto()
    # The broker has an epoch, and opens its logs.
    REGISTERED = auto()
    # Heartbeats are sent. The controller has not unfenced this process yet.
    FENCED = auto()
    # The controller has unfenced this process at least once. It may have fenced it since.
    SERVING = auto()
    # The registration was removed while the broker runs. A request whose response is pending has to
    # end before the broker registers again.
    UNREGISTERED = auto()
    # The controller has not yet accepted a later registration.
    REGISTERING_AGAIN = auto()
    # The broker has a new epoch, and sends no heartbeats with it yet.
    REGISTERED_AGAIN = auto()
    # A controlled shutdown is in progress: heartbeats request it.
    LEAVING = auto()
    # No further requests are sent, and responses are ignored.
    STOPPED = auto()


class Event(Enum):
    """Event that changes the state."""

    # The broker server starts the registration.
    START = auto()
    # The controller accepts a registration.
    ACCEPTED = auto()
    # The broker server has opened the logs, so that heartbeats begin.
    LOGS_OPEN = auto()
    # A heartbeat response reports for the first time that the broker is not fenced.
    UNFENCED = auto()
    # The metadata no longer contains the broker.
    UNREGISTERED = auto()
    # The pending request of an unregistered broker has ended, so that the broker can register.
    REGISTER_AGAIN = auto()
    # The broker server begins a controlled shutdown.
    SHUT_DOWN = auto()
    # The broker server stops, or the controlled shutdown has ended.
    STOP = auto()


# Next state by event. An event that a state lacks cannot happen in it.
TRANSITIONS: dict[State, dict[Event, State]] = {
    State.NEW: {Event.START: State.REGISTERING},
    State.REGISTERING: {Event.ACCEPTED: State.REGISTERED},
    State.REGISTERED: {Event.LOGS_OPEN: State.FENCED},
    State.FENCED: {Event.UNFENCED: State.SERVING},
    State.SERVING: {Event.UNREGISTERED: State.UNREGISTERED, Event.SHUT_DOWN: State.LEAVING},
    State.UNREGISTERED: {
        Event.REGISTER_AGAIN: State.REGISTERING_AGAIN,
        Event.SHUT_DOWN: State.LEAVING,
    },
    State.REGISTERING_AGAIN: {
        Event.ACCEPTED: State.REGISTERED_AGAIN,
        Event.UNREGISTERED: State.UNREGISTERED,
        Event.SHUT_DOWN: State.LEAVING,
    },
    State.REGISTERED_AGAIN: {
        Event.LOGS_OPEN: State.SERVING,
        Event.UNREGISTERED: State.UNREGISTERED,
        Event.SHUT_DOWN: State.LEAVING,
    },
    # The response to a registration that was sent before the shutdown may arrive late.
    State.LEAVING: {Event.ACCEPTED: State.LEAVING},
    State.STOPPED: {},
}
for _events in TRANSITIONS.values():
    _events[Event.STOP] = State.STOPPED


_NO_EPOCH = -1
# States after the first unfencing and before the stop. The broker may lead partitions in these
# states, so that a stop begins with a controlled shutdown.
_ADMITTED = (State.SERVING, State.UNREGISTERED, State.REGISTERING_AGAIN, State.REGISTERED_AGAIN)
# Delay between heartbeats until the broker is unfenced, and between retries of a shutdown.
_RETRY_MS = 20
# Delay before a rejected registration is retried: the previous incarnation may have a session.
_REFUSED_RETRY_MS = 100
# Results of a shutdown heartbeat after which a retry can succeed.
_RETRIABLE = (ErrorCode.NONE, ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT)


class ShutdownLimits(msgspec.Struct, frozen=True):
    """Timeouts of a controlled shutdown."""

    # Limit of the whole controlled shutdown.
    ms_max: int = 1_000
    # Limit without a successful response of the controller.
    silence_ms_max: int = 1_000
    # Delay between heartbeats during the shutdown.
    retry_ms: int = 0


class Registrant(msgspec.Struct, frozen=True):
    """The broker's data for registrations and heartbeats."""

    node_id: int
    cluster_id: str
    # 16 random bytes, new in each start of the process.
    incarnation_id: bytes
    # Advertised endpoints.
    endpoints: list[Endpoint]
    rack: str | None
    # Ids of the data directories that were online at the start.
    directories: list[bytes]
    heartbeat_interval_ms: int
    # Returns the ids of the directories that have failed since the start (KIP-858).
    offline_directories: Callable[[], list[bytes]] = list
    # Returns the ids of the directories that take no new partitions (KIP-1066); None while the
    # metadata.version of the cluster has no such directories.
    cordoned_directories: Callable[[], list[bytes] | None] = list
    shutdown: ShutdownLimits = ShutdownLimits()


class _Pending(Enum):
    """The request whose response is pending. There is at most one."""

    NONE = auto()
    REGISTRATION = auto()
    HEARTBEAT = auto()
    # A heartbeat with outdated data. The next heartbeat is sent immediately after its response.
    OUTDATED_HEARTBEAT = auto()


class Registration:
    """Registers the broker and sends heartbeats until it is stopped."""

    def __init__(
        self,
        broker: Registrant,
        controller: ControllerAccess,
        timer: Timer,
        metadata_offset: Callable[[], int],
        on_unfenced: Callable[[], None],
        on_registered: Callable[[int], None] | None = None,
    ) -> None:
        """Create the registration.

        Args:
            broker: data for registrations and heartbeats.
            controller: access to the active controller.
            timer: runs the delays between requests.
            metadata_offset: returns the offset of the last metadata record that this broker has
                applied.
            on_unfenced: called once, when the controller first unfences this broker.
            on_registered: called with the broker epoch after each registration. The callee later
                calls `begin_heartbeats`. None: heartbeats begin immediately.
        """
        self._broker = broker
        self._controller = controller
        self._timer = timer
        self._metadata_offset = metadata_offset
        self._on_unfenced = on_unfenced
        self._on_registered = on_registered
        self._machine = StateMachine("registration", State.NEW, TRANSITIONS)
        # Set when a request is sent, NONE again when its response arrives.
        self._pending = _Pending.NONE
        # Last error of the controller, NONE after a success. Prevents repeated log lines.
        self.last_refusal = ErrorCode.NONE
        # Broker epoch of the last accepted registration; -1 before the first. It only grows.
        self.epoch = _NO_EPOCH
        # Broker epoch at the last clean stop, sent with each registration; -1 if unknown.
        self._previous_epoch = _NO_EPOCH
        # Delay before the next request. Obsolete while a response is pending.
        self._timer_entry: Cancellable | None = None
        # Called once when the controlled shutdown ends. Set only in LEAVING.
        self._on_left: Callable[[], None] | None = None
        # Limits of the controlled shutdown as a whole, and without a response. Set only in LEAVING.
        self._shutdown_timer: Cancellable | None = None
        self._silence_timer: Cancellable | None = None

    # -- called by the broker server ----------------------------------------------------------

    def start(self, previous_epoch: int) -> None:
        """Register the broker, with retries until the controller accepts the registration.

        Args:
            previous_epoch: broker epoch at the last clean stop, -1 if unknown (KIP-966).
        """
        if self._machine.state is State.STOPPED:
            # The node was stopped while the logs were opened.
            return
        self._machine.on(Event.START)
        self._previous_epoch = previous_epoch
        self._send_registration()

    def begin_heartbeats(self) -> None:
        """Begin to send heartbeats, once the metadata is known and the logs are open."""
        if self._machine.state in (State.REGISTERED, State.REGISTERED_AGAIN):
            self._machine.on(Event.LOGS_OPEN)
            self._send_heartbeat()

    def on_unregistered(self) -> None:
        """Register this broker again after it was unregistered while it runs.

        Apache Kafka has to be restarted in this case.
        """
        if self._machine.state not in _ADMITTED or self._machine.state is State.UNREGISTERED:
            return
        self._machine.on(Event.UNREGISTERED)
        _log.warning(
            "Broker unregistered while it runs, registering again: id=%d epoch=%d. To remove a "
            "broker, stop it first",
            self._broker.node_id,
            self.epoch,
        )
        if self._pending is _Pending.NONE:
            self._register_again()

    def heartbeat_now(self) -> None:
        """Send the next heartbeat immediately, if heartbeats have begun.

        Use this after a lost connection, because the controller would soon fence this broker. Also
        use it after a data directory has failed, to inform the controller without delay.
        """
        if self._machine.state not in (State.FENCED, State.SERVING, State.LEAVING):
            return
        if self._pending is _Pending.HEARTBEAT:
            self._pending = _Pending.OUTDATED_HEARTBEAT
        elif self._pending is _Pending.NONE:
            self._schedule(0, self._send_heartbeat)

    def shut_down(self, on_left: Callable[[], None]) -> None:
        """Request a controlled shutdown from the controller, then call `on_left`.

        `on_left` is called immediately if the broker was never unfenced. Otherwise it is called
        within a limited time, because a stop must end even if no controller responds.
        """
        if self._machine.state not in _ADMITTED:
            self.stop()
            on_left()
            return
        self._machine.on(Event.SHUT_DOWN)
        self._cancel_timer()
        self._on_left = on_left
        limits = self._broker.shutdown
        self._shutdown_timer = self._timer.call_later(limits.ms_max, self._end_shutdown)
        self._restart_silence_timer()
        if self._pending is _Pending.NONE:
            self._send_heartbeat()

    def stop(self) -> None:
        """Send no further requests, and ignore pending responses."""
        self._machine.on(Event.STOP)
        self._cancel_timer()

    # -- registration -------------------------------------------------------------------------

    def _register_again(self) -> None:
        self._machine.on(Event.REGISTER_AGAIN)
        self._cancel_timer()
        self._send_registration()

    def _send_registration(self) -> None:
        broker = self._broker
        request = BrokerRegistrationRequest(
            broker_id=broker.node_id,
            cluster_id=broker.cluster_id,
            incarnation_id=broker.incarnation_id,
            listeners=[
                Listener(
                    name=each.name,
                    host=each.host,
                    port=each.port,
                    security_protocol=each.security_protocol,
                )
                for each in broker.endpoints
            ],
            features=features_as(Feature, SUPPORTED_FEATURES),
            rack=broker.rack,
            log_dirs=broker.directories,
            previous_broker_epoch=self._previous_epoch,
        )
        self._begin_request(_Pending.REGISTRATION)
        self._controller.send(request, self._on_registration_response)

    def _on_registration_response(self, response: BrokerRegistrationResponse) -> None:
        if not self._is_response_current():
            return
        if response.error_code:
            self._report_refusal("the registration", ErrorCode.of(response.error_code))
            self._schedule(_REFUSED_RETRY_MS, self._send_registration)
            return
        self._machine.on(Event.ACCEPTED)
        self.last_refusal = ErrorCode.NONE
        self.epoch = response.broker_epoch
        _log.info("Broker registered: id=%d epoch=%d", self._broker.node_id, self.epoch)
        if self._machine.state is State.LEAVING:
            self._send_heartbeat()
        elif self._on_registered is None:
            self.begin_heartbeats()
        else:
            self._on_registered(self.epoch)

    def _is_response_current(self) -> bool:
        """End the pending request, and return whether its response is still relevant.

        If the broker was unregistered in the meantime, the response is ignored and the next
        registration is sent.
        """
        self._pending = _Pending.NONE
        if self._machine.state is State.UNREGISTERED:
            self._register_again()
            return False
        return self._machine.state is not State.STOPPED

    def _report_refusal(self, request_name: str, error: ErrorCode) -> None:
        if error is ErrorCode.REQUEST_TIMED_OUT:
            # The request timed out before it reached a controller. During a start, `QuorumWait`
            # logs a warning in this case.
            _log.info("No controller responded to %s in time", request_name)
        elif error is not self.last_refusal:
            self.last_refusal = error
            _log.warning("Controller rejected %s: error=%s", request_name, error.name)

    # -- heartbeats ---------------------------------------------------------------------------

    def _send_heartbeat(self) -> None:
        broker = self._broker
        request = BrokerHeartbeatRequest(
            broker_id=broker.node_id,
            broker_epoch=self.epoch,
            current_metadata_offset=self._metadata_offset(),
            want_fence=False,
            want_shut_down=self._machine.state is State.LEAVING,
            offline_log_dirs=broker.offline_directories(),
            cordoned_log_dirs=broker.cordoned_directories(),
        )
        self._begin_request(_Pending.HEARTBEAT)
        self._controller.send(request, self._on_heartbeat_response)

    def _on_heartbeat_response(self, response: BrokerHeartbeatResponse) -> None:
        was_outdated = self._pending is _Pending.OUTDATED_HEARTBEAT
        if not self._is_response_current():
            return
        if response.error_code:
            self._report_refusal("a heartbeat", ErrorCode.of(response.error_code))
        else:
            self.last_refusal = ErrorCode.NONE
        if self._machine.state is State.LEAVING:
            self._continue_shutdown(response)
            return
        is_unfenced = not response.error_code and not response.is_fenced
        is_first = is_unfenced and self._machine.state is State.FENCED
        if is_first:
            self._machine.on(Event.UNFENCED)
            _log.info("Broker unfenced: id=%d epoch=%d", self._broker.node_id, self.epoch)
        # Errors while serving are retried at the normal interval: the broker was unregistered, for
        # example.
        is_urgent = not is_unfenced and not (
            response.error_code and self._machine.state is State.SERVING
        )
        interval_ms = _RETRY_MS if is_urgent else self._broker.heartbeat_interval_ms
        self._schedule(0 if was_outdated else interval_ms, self._send_heartbeat)
        if is_first:
            self._on_unfenced()

    # -- controlled shutdown ------------------------------------------------------------------

    def _continue_shutdown(self, response: BrokerHeartbeatResponse) -> None:
        if response.should_shut_down or response.error_code not in _RETRIABLE:
            self._end_shutdown()
            return
        retry_ms = self._broker.shutdown.retry_ms
        if response.error_code:
            # The error can be temporary, but an immediate retry would not help.
            retry_ms = max(retry_ms, _RETRY_MS)
        else:
            self._restart_silence_timer()
        self._schedule(retry_ms, self._send_heartbeat)

    def _restart_silence_timer(self) -> None:
        """Restart the limit without a response. The last nodes that stop have no controller."""
        if self._silence_timer is not None:
            self._silence_timer.cancel()
        limit_ms = self._broker.shutdown.silence_ms_max
        self._silence_timer = self._timer.call_later(limit_ms, self._end_shutdown)

    def _end_shutdown(self) -> None:
        on_left, self._on_left = self._on_left, None
        for timer in (self._shutdown_timer, self._silence_timer):
            if timer is not None:
                timer.cancel()
        if on_left is not None:
            self.stop()
            on_left()

    # -- shared steps -------------------------------------------------------------------------

    def _begin_request(self, request: _Pending) -> None:
        assert self._pending is _Pending.NONE, (
            f"{self._pending.name} is pending in {self._machine.state}"
        )
        self._pending = request

    def _schedule(self, delay_ms: float, action: Callable[[], None]) -> None:
        self._cancel_timer()
        self._timer_entry = self._timer.call_later(delay_ms, action)

    def _cancel_timer(self) -> None:
        if self._timer_entry is not None:
            self._timer_entry.cancel()
            self._timer_entry = None
