"""States of a broker's registration, and the events that change them (Kafka's BrokerState)."""

from __future__ import annotations

from enum import Enum, auto

__all__ = ["TRANSITIONS", "Event", "State"]


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
    State.SERVING: {
        Event.UNREGISTERED: State.UNREGISTERED,
        Event.SHUT_DOWN: State.LEAVING,
    },
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
