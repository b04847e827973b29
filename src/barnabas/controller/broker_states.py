"""What a broker may do, and what it may do next (Kafka's BrokerControlState, KIP-631)."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.metadata.broker_registration import BrokerRegistration
    from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest


class BrokerState(Enum):
    """One of Kafka's four states."""

    # Leads nothing and is in no ISR.
    FENCED = "fenced"
    UNFENCED = "unfenced"
    # Gives its leaderships away, and waits until the others know.
    CONTROLLED_SHUTDOWN = "controlled shutdown"
    # May stop its process; fenced.
    SHUTDOWN_NOW = "shutdown now"

    @classmethod
    def of(cls, broker: BrokerRegistration) -> BrokerState:
        """The state of a registered broker."""
        if broker.fenced:
            return cls.FENCED
        return cls.CONTROLLED_SHUTDOWN if broker.in_controlled_shutdown else cls.UNFENCED

    @property
    def is_fenced(self) -> bool:
        """Whether the broker is told that it is fenced."""
        return self in (BrokerState.FENCED, BrokerState.SHUTDOWN_NOW)


def next_state(
    state: BrokerState,
    request: BrokerHeartbeatRequest,
    *,
    is_caught_up: bool,
    leads_anything: bool,
    others_know: bool,
) -> BrokerState:
    """The state after a heartbeat.

    Args:
        is_caught_up: the broker has read its own registration.
        leads_anything: it leads a partition.
        others_know: every live broker has read that it gave its leaderships away.
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
            return BrokerState.CONTROLLED_SHUTDOWN if leads_anything else BrokerState.SHUTDOWN_NOW
        case BrokerState.CONTROLLED_SHUTDOWN:
            if leads_anything or not others_know:
                return BrokerState.CONTROLLED_SHUTDOWN
            return BrokerState.SHUTDOWN_NOW
        case BrokerState.SHUTDOWN_NOW:
            return BrokerState.SHUTDOWN_NOW
