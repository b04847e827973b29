"""The states of a broker and their transitions (Kafka's BrokerControlState, KIP-631)."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.metadata.broker_registration import BrokerRegistration
    from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest


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
