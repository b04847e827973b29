"""Registration and heartbeats of the broker (Kafka's BrokerLifecycleManager; KIP-500, KIP-631).

A broker registers with a new incarnation id and is fenced at first. The controller unfences the
broker once its heartbeats show that it has caught up with the metadata.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from barnabas.metadata.broker_registration import features_as
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from barnabas.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    Feature,
    Listener,
)
from barnabas.server.startup.features import SUPPORTED_FEATURES

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatResponse
    from barnabas.protocol.messages.broker_registration import BrokerRegistrationResponse
    from barnabas.runtime.timer import Cancellable, Timer
    from barnabas.server.configs.endpoint import Endpoint
    from barnabas.server.controller_access.controller_access import ControllerAccess

_log = logging.getLogger(__name__)

_PLAINTEXT = 0
_NO_EPOCH = -1
# Delay between heartbeats until the broker is unfenced, and between retries of a shutdown.
_RETRY_MS = 20
# Delay before a rejected registration is retried: the previous incarnation may have a session.
_REFUSED_RETRY_MS = 100
# Results of a shutdown heartbeat after which a retry can succeed.
_MAY_PASS = (ErrorCode.NONE, ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT)


class Leaving(msgspec.Struct, frozen=True):
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
    # Returns the ids of the directories that take no new partitions (KIP-1066).
    cordoned_directories: Callable[[], list[bytes]] = list
    leaving: Leaving = Leaving()


class Registration:
    """Registers the broker and sends heartbeats until it is stopped."""

    __slots__ = (
        "_forwarding",
        "_has_begun",
        "_hurries",
        "_in_flight",
        "_limit",
        "_metadata_offset",
        "_on_let_go",
        "_on_registered",
        "_on_unfenced",
        "_previous_epoch",
        "_registers_again",
        "_registrant",
        "_silence",
        "_stopped",
        "_timer",
        "_timer_entry",
        "_unfenced",
        "epoch",
        "last_refusal",
    )

    def __init__(
        self,
        registrant: Registrant,
        forwarding: ControllerAccess,
        timer: Timer,
        metadata_offset: Callable[[], int],
        on_unfenced: Callable[[], None],
        on_registered: Callable[[int], None] | None = None,
    ) -> None:
        """Args:
        registrant: data for registrations and heartbeats.
        forwarding: access to the active controller.
        timer: runs the delays between requests.
        metadata_offset: returns the offset of the last metadata record that this broker has
            applied.
        on_unfenced: called once, when the controller first unfences this broker.
        on_registered: called with the broker epoch after each registration. The callee later calls
            `begin_heartbeats`. None: heartbeats begin immediately.
        """
        self._registrant = registrant
        self._forwarding = forwarding
        self._timer = timer
        self._metadata_offset = metadata_offset
        self._on_unfenced = on_unfenced
        self._on_registered = on_registered
        # Whether a registration or a heartbeat waits for its response.
        self._in_flight = False
        # Whether to send the next heartbeat immediately after the pending response.
        self._hurries = False
        # Whether to register again after the response to the pending heartbeat.
        self._registers_again = False
        # Whether `begin_heartbeats` was called. Never cleared.
        self._has_begun = False
        # Last error of the controller, NONE after a success. Prevents repeated log lines.
        self.last_refusal = ErrorCode.NONE
        # Broker epoch that the controller assigned; -1 before the first registration.
        self.epoch = _NO_EPOCH
        self._previous_epoch = _NO_EPOCH
        self._unfenced = False
        self._stopped = False
        self._timer_entry: Cancellable | None = None
        # Called when the controlled shutdown ends. None unless the broker is shutting down.
        self._on_let_go: Callable[[], None] | None = None
        self._limit: Cancellable | None = None
        self._silence: Cancellable | None = None

    def start(self, previous_epoch: int) -> None:
        """Register the broker, with retries until the controller accepts the registration.

        Args:
            previous_epoch: broker epoch at the last clean stop, -1 if unknown (KIP-966).
        """
        self._previous_epoch = previous_epoch
        self._register()

    def _register(self) -> None:
        me = self._registrant
        request = BrokerRegistrationRequest(
            broker_id=me.node_id,
            cluster_id=me.cluster_id,
            incarnation_id=me.incarnation_id,
            listeners=[
                Listener(
                    name=each.name, host=each.host, port=each.port, security_protocol=_PLAINTEXT
                )
                for each in me.endpoints
            ],
            features=features_as(Feature, SUPPORTED_FEATURES),
            rack=me.rack,
            log_dirs=me.directories,
            previous_broker_epoch=self._previous_epoch,
        )
        self._in_flight = True
        self._forwarding.send(request, self._on_registration)

    def begin_heartbeats(self) -> None:
        """Begin to send heartbeats, once the metadata is known and the logs are open."""
        if not self._stopped and self._on_let_go is None:
            self._has_begun = True
            self._heartbeat()

    def on_unregistered(self) -> None:
        """Register this broker again after it was unregistered while it runs.

        Apache Kafka has to be restarted in this case.
        """
        if self._stopped or self._on_let_go is not None or not self._unfenced:
            return
        _log.warning(
            "This broker was unregistered with epoch %d while it runs; it registers again. Stop it "
            "first if it is to leave the cluster",
            self.epoch,
        )
        if self._in_flight:
            self._registers_again = True
            return
        if self._timer_entry is not None:
            self._timer_entry.cancel()
        self._register()

    def heartbeat_now(self) -> None:
        """Send the next heartbeat immediately.

        Use this after a lost connection, because the controller would soon consider this broker
        dead. Also use it after a data directory has failed, to inform the controller without delay.
        """
        if self._stopped or not self._has_begun:
            return
        if self._in_flight:
            self._hurries = True
            return
        if self._timer_entry is not None:
            self._timer_entry.cancel()
        self._later(0, self._heartbeat)

    def stop(self) -> None:
        """Send no more heartbeats."""
        self._stopped = True
        if self._timer_entry is not None:
            self._timer_entry.cancel()

    def shut_down(self, on_let_go: Callable[[], None]) -> None:
        """Ask the controller to elect other leaders, then call `on_let_go`.

        The call is immediate if the broker was never unfenced. It always comes within a limited
        time, because a stop must end even if no controller responds.
        """
        if self._timer_entry is not None:
            self._timer_entry.cancel()
        if not self._unfenced or self._stopped:
            on_let_go()
            return
        self._on_let_go = on_let_go
        self._limit = self._timer.call_later(self._registrant.leaving.ms_max, self._let_go)
        self._await_word()
        if not self._in_flight:
            self._heartbeat()

    def _await_word(self) -> None:
        """Restart the limit for a silent controller: the last nodes to stop have no controller."""
        if self._silence is not None:
            self._silence.cancel()
        self._silence = self._timer.call_later(
            self._registrant.leaving.silence_ms_max, self._let_go
        )

    def _let_go(self) -> None:
        on_let_go, self._on_let_go = self._on_let_go, None
        for timer in (self._limit, self._silence):
            if timer is not None:
                timer.cancel()
        if on_let_go is not None:
            self.stop()
            on_let_go()

    def _on_registration(self, response: BrokerRegistrationResponse) -> None:
        self._in_flight = False
        if self._stopped:
            return
        if response.error_code:
            self._complain("the registration", ErrorCode.of(response.error_code))
            self._later(_REFUSED_RETRY_MS, self._register)
            return
        self.last_refusal = ErrorCode.NONE
        self.epoch = response.broker_epoch
        _log.info("Registered as broker %d with epoch %d", self._registrant.node_id, self.epoch)
        if self._on_registered is None:
            self.begin_heartbeats()
        else:
            self._on_registered(self.epoch)

    def _complain(self, what: str, error: ErrorCode) -> None:
        if error is ErrorCode.REQUEST_TIMED_OUT:
            # No controller was found, so the request was not rejected. `quorum_wait` reports this
            # case during a start.
            _log.info("No controller has taken %s in time", what)
        elif error is not self.last_refusal:
            self.last_refusal = error
            _log.warning("The controller refuses %s: %s", what, error.name)

    def _heartbeat(self) -> None:
        request = BrokerHeartbeatRequest(
            broker_id=self._registrant.node_id,
            broker_epoch=self.epoch,
            current_metadata_offset=self._metadata_offset(),
            want_fence=False,
            want_shut_down=self._on_let_go is not None,
            offline_log_dirs=self._registrant.offline_directories(),
            cordoned_log_dirs=self._registrant.cordoned_directories(),
        )
        self._in_flight = True
        self._forwarding.send(request, self._on_heartbeat)

    def _on_heartbeat(self, response: BrokerHeartbeatResponse) -> None:
        self._in_flight = False
        if self._stopped:
            return
        if self._registers_again and self._on_let_go is None:
            self._registers_again = False
            self._register()
            return
        if response.error_code:
            self._complain("a heartbeat", ErrorCode.of(response.error_code))
        else:
            self.last_refusal = ErrorCode.NONE
        if self._on_let_go is not None:
            self._on_shut_down_answer(response)
            return
        let_in = not response.error_code and not response.is_fenced
        if let_in and not self._unfenced:
            self._unfenced = True
            _log.info("The controller has let this broker in")
            self._on_unfenced()
        # After an unfenced broker gets an error (it was unregistered, for example), retry at the
        # normal interval.
        hurries = not let_in and not (response.error_code and self._unfenced)
        interval_ms = _RETRY_MS if hurries else self._registrant.heartbeat_interval_ms
        if self._hurries:
            self._hurries = False
            interval_ms = 0
        self._later(interval_ms, self._heartbeat)

    def _on_shut_down_answer(self, response: BrokerHeartbeatResponse) -> None:
        if response.should_shut_down or response.error_code not in _MAY_PASS:
            self._let_go()
            return
        retry_ms = self._registrant.leaving.retry_ms
        if response.error_code:
            # The error can be temporary, but an immediate retry would not help.
            retry_ms = max(retry_ms, _RETRY_MS)
        else:
            self._await_word()
        self._later(retry_ms, self._heartbeat)

    def _later(self, delay_ms: float, action: Callable[[], None]) -> None:
        self._timer_entry = self._timer.call_later(delay_ms, action)
