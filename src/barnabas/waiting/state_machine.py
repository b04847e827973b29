"""A state that changes only by events, as a table of states and events allows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping
    from enum import Enum

S = TypeVar("S", bound="Enum")
E = TypeVar("E", bound="Enum")


def state_after(name: str, table: Mapping[S, Mapping[E, S]], state: S, event: E) -> S:
    """Return the state after an event; assert that the table allows the event in this state.

    Objects that exist in large numbers store their state themselves and call this function.
    """
    following = table[state].get(event)
    assert following is not None, f"{name}: event {event.name} is not allowed in state {state.name}"
    return following


class StateMachine(Generic[S, E]):
    """The current state and its table; only `on` changes the state.

    Args:
        name: Names the machine in the message of a failed assertion.
        initial: The first state.
        table: For each state the allowed events, and the state that follows each of them.
    """

    __slots__ = ("_name", "_state", "_table")

    def __init__(self, name: str, initial: S, table: Mapping[S, Mapping[E, S]]) -> None:
        self._name = name
        self._table = table
        # Moved by `on`. Invariant: a key of the table.
        self._state = initial

    @property
    def state(self) -> S:
        """The current state."""
        return self._state

    def allows(self, event: E) -> bool:
        """Return whether the event may happen in the current state."""
        return event in self._table[self._state]

    def on(self, event: E) -> None:
        """Change the state as the table says; assert that it has an entry for the event."""
        self._state = state_after(self._name, self._table, self._state, event)
