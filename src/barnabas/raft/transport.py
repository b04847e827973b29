"""How a replica reaches the others: declared here, made by who has a network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.raft.messages import Message, Request
    from barnabas.raft.replica_key import Address


class TransportStatistics(msgspec.Struct, frozen=True):
    """Counts since the start, but for the connections that are open."""

    connections: int = 0
    connections_created: int = 0
    requests: int = 0
    responses: int = 0


class RaftTransport(Protocol):
    """Sends without waiting; what comes of a request is handed to the driver."""

    def start(self, receive: Callable[[Message], None]) -> None:
        """Hand each response, or `RequestFailed`, to `receive`; called once, before `send`."""
        ...

    def send(self, destination: int, address: Address | None, request: Request) -> None:
        """Send to a voter, the leader or a bootstrap server; `address` is where it listens now."""
        ...

    def statistics(self) -> TransportStatistics:
        """What was done so far."""
        ...

    def close(self) -> None:
        """Send no more."""
        ...


class NoTransport:
    """For a voter that is alone: it never sends."""

    __slots__ = ()

    def start(self, receive: Callable[[Message], None]) -> None:
        """Nothing will come."""

    def send(self, destination: int, address: Address | None, request: Request) -> None:
        """Sending is a broken invariant."""
        raise AssertionError(f"a lone voter sends {request} to {destination} at {address}")

    def statistics(self) -> TransportStatistics:
        """Nothing was."""
        return TransportStatistics()

    def close(self) -> None:
        """Nothing is open."""
