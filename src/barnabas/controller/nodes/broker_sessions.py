"""Sessions and states of brokers at the controller.

Kafka: BrokerHeartbeatTracker has the time of each broker's last heartbeat, and BrokerControlState
(KIP-631) the states and their transitions.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Set as AbstractSet

    from barnabas.metadata.broker_registration import BrokerRegistration
    from barnabas.protocol.messages.nodes import BrokerHeartbeatRequest


# A timer may fire slightly before its deadline because of rounding, ms.
_SLACK_MS = 1.0


class BrokerSessions:
    """The sessions of all brokers. They exist only at the active controller."""

    __slots__ = ("_heartbeat_ms", "_own_id", "_suspected", "_timeout_ms")

    def __init__(self, timeout_ms: int, own_id: int) -> None:
        self._timeout_ms = timeout_ms
        # Id of the broker in this process, if there is one. Its session never ends.
        self._own_id = own_id
        # Time of the last heartbeat by broker id, monotonic ms. The entry is removed with the
        # session.
        self._heartbeat_ms: dict[int, float] = {}
        # Ids of unfenced brokers that may be dead. A heartbeat removes the broker from the set.
        self._suspected: set[int] = set()

    @property
    def suspected(self) -> AbstractSet[int]:
        """Unfenced brokers that may be dead. This is the live set, which changes over time.

        It has each broker without a heartbeat since this controller became active, and each broker
        whose heartbeat connection is lost. It also has each broker that was silent for half a
        session when the session of another broker ended.
        """
        return self._suspected

    def begin(self, broker_ids: Iterable[int], now_ms: float) -> None:
        """Start a full session for each of these brokers, when this controller becomes active."""
        self._heartbeat_ms = dict.fromkeys(broker_ids, now_ms)
        self._suspected.clear()
        self._suspected.update(self._heartbeat_ms)

    def touch(self, broker_id: int, now_ms: float) -> None:
        """Renew the broker's session after a heartbeat."""
        before_ms = self._heartbeat_ms.get(broker_id, now_ms)
        assert now_ms >= before_ms, f"heartbeats of broker {broker_id} at {before_ms}, {now_ms} ms"
        self._heartbeat_ms[broker_id] = now_ms
        self._suspected.discard(broker_id)

    def suspect(self, broker_id: int) -> None:
        """Mark the broker as possibly dead until its next heartbeat."""
        self._suspected.add(broker_id)

    def suspect_silent(self, now_ms: float) -> None:
        """Mark every other broker that was silent for half a session or more as possibly dead."""
        for broker_id, last_ms in self._heartbeat_ms.items():
            if last_ms + self._timeout_ms / 2 <= now_ms and broker_id != self._own_id:
                self._suspected.add(broker_id)

    def end(self, broker_id: int) -> None:
        """End the session of a broker that is gone, or that has registered again."""
        self._heartbeat_ms.pop(broker_id, None)

    def is_valid(self, broker_id: int, now_ms: float) -> bool:
        """Return whether another process with that id may be alive."""
        last_ms = self._heartbeat_ms.get(broker_id)
        if last_ms is None or broker_id == self._own_id:
            # An earlier process with this node's id is dead, because this process has its
            # directories.
            return False
        return now_ms < last_ms + self._timeout_ms

    def is_own(self, broker_id: int) -> bool:
        """Return whether this is the broker in this process."""
        return broker_id == self._own_id

    def expired(self, now_ms: float) -> list[int]:
        """Return the brokers whose sessions have ended, the longest silent first."""
        silent = [
            (last_ms, broker_id)
            for broker_id, last_ms in self._heartbeat_ms.items()
            if last_ms + self._timeout_ms <= now_ms + _SLACK_MS and broker_id != self._own_id
        ]
        return [broker_id for _, broker_id in sorted(silent)]

    def next_deadline(self) -> float | None:
        """Return when the next session of another broker ends, monotonic ms.

        The result is None if there is no session of another broker.
        """
        last_ms = [at for broker_id, at in self._heartbeat_ms.items() if broker_id != self._own_id]
        return min(last_ms) + self._timeout_ms if last_ms else None

    def renew(self, now_ms: float) -> None:
        """Restart every session, because this process did not read heartbeats for some time."""
        self._heartbeat_ms = dict.fromkeys(self._heartbeat_ms, now_ms)


class BrokerState(Enum):
    """The state of a broker, as in Kafka."""

    # Leads no partition and is in no ISR.
    FENCED = "fenced"
    UNFENCED = "unfenced"
    # Moves its leaderships to other brokers, and waits until those have read the changes.
    CONTROLLED_SHUTDOWN = "controlled shutdown"
    # May stop its process, and is fenced.
    SHUTDOWN_NOW = "shutdown now"

    @classmethod
    def of(cls, broker: BrokerRegistration) -> BrokerState:
        """Return the state of a registered broker."""
        if broker.fenced:
            return cls.FENCED
        return cls.CONTROLLED_SHUTDOWN if broker.in_controlled_shutdown else cls.UNFENCED

    @property
    def is_fenced(self) -> bool:
        """Whether the heartbeat response reports the broker as fenced."""
        return self in (BrokerState.FENCED, BrokerState.SHUTDOWN_NOW)


def next_state(
    state: BrokerState,
    request: BrokerHeartbeatRequest,
    *,
    is_caught_up: bool,
    leads_any_partition: bool,
    others_are_caught_up: bool,
) -> BrokerState:
    """Return the state after a heartbeat.

    Args:
        state: the state before the heartbeat.
        request: the heartbeat, in which the broker may request to be fenced or shut down.
        is_caught_up: whether the broker has read its own registration.
        leads_any_partition: whether it leads a partition.
        others_are_caught_up: whether every live broker has read the changes of its leaderships.
    """
    match state:
        case BrokerState.FENCED:
            if request.want_shut_down:
                return BrokerState.SHUTDOWN_NOW
            may_enter = is_caught_up and not request.want_fence
            return BrokerState.UNFENCED if may_enter else BrokerState.FENCED
        case BrokerState.UNFENCED:
            if request.want_fence:
                wants_both = request.want_shut_down
                return BrokerState.SHUTDOWN_NOW if wants_both else BrokerState.FENCED
            if not request.want_shut_down:
                return BrokerState.UNFENCED
            return (
                BrokerState.CONTROLLED_SHUTDOWN if leads_any_partition else BrokerState.SHUTDOWN_NOW
            )
        case BrokerState.CONTROLLED_SHUTDOWN:
            if leads_any_partition or not others_are_caught_up:
                return BrokerState.CONTROLLED_SHUTDOWN
            return BrokerState.SHUTDOWN_NOW
        case BrokerState.SHUTDOWN_NOW:
            return BrokerState.SHUTDOWN_NOW
