"""States of a broker's registration, and the events that change them (Kafka's BrokerState)."""

from __future__ import annotations

from enum import Enum, auto

__all__ = ["TRANSITIONS", "Event", "State", "next_state"]


class State(Enum):
    """Where a broker is between the start and the stop of its registration."""

    # Nothing has been sent.
    NEW = auto()
    # The first registration has no accepting response yet.
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
    # The second or a later registration has no accepting response yet.
    REGISTERING_AGAIN = auto()
    # The broker has a new epoch, and sends no heartbeats with it yet.
    REGISTERED_AGAIN = auto()
    # Heartbeats ask for a controlled shutdown.
    LEAVING = auto()
    # Nothing more is sent, and responses are ignored.
    STOPPED = auto()


class Event(Enum):
    """What changes the state."""

    # The owner starts the registration.
    START = auto()
    # The controller accepts a registration.
    ACCEPTED = auto()
    # The owner has opened the logs, and lets heartbeats begin.
    LOGS_OPEN = auto()
    # A heartbeat's response says for the first time that the broker is not fenced.
    UNFENCED = auto()
    # The metadata no longer has the broker.
    UNREGISTERED = auto()
    # No response is pending, so that a removed broker can register again.
    REGISTER_AGAIN = auto()
    # The owner begins a controlled shutdown.
    SHUT_DOWN = auto()
    # The owner stops, or the controlled shutdown has ended.
    STOP = auto()


# Next state by event. An event that a state lacks cannot happen in it: `next_state` asserts that.
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


def next_state(state: State, event: Event) -> State:
    """Return the state after an event, and assert that the event can happen in `state`."""
    events = TRANSITIONS[state]
    assert event in events, f"{event.name} cannot happen in {state.name}"
    return events[event]
