"""How a replica reaches the others: declared here, made by who has a network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from barnabas.raft.messages import Message


class RaftTransport(Protocol):
    """Sends without waiting; what is lost is sent again by the core in its own time."""

    def send(self, destination: int, message: Message) -> None:
        """Send to a voter, or answer a replica that asked."""
        ...


class NoTransport:
    """For a voter that is alone: it never sends."""

    __slots__ = ()

    def send(self, destination: int, message: Message) -> None:
        """Sending is a broken invariant."""
        raise AssertionError(f"a lone voter sends {message} to {destination}")
