"""The interface through which a replica sends requests to other replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.raft.core.messages import Message, Request
    from barnabas.raft.voter_set import Address


class TransportStatistics(msgspec.Struct, frozen=True):
    """Counters since the start, except for `connections`, the number of open connections."""

    connections: int = 0
    connections_created: int = 0
    requests: int = 0
    responses: int = 0


class RaftTransport(Protocol):
    """Sends requests without blocking, and passes the results to the driver."""

    def start(self, receive: Callable[[Message], None]) -> None:
        """Set the callback for responses and `RequestFailed`; called once, before `send`."""
        ...

    def send(self, destination: int, address: Address | None, request: Request) -> None:
        """Send to a voter, the leader or a bootstrap server at `address`; None if it is unknown."""
        ...

    def statistics(self) -> TransportStatistics:
        """Return the current counters."""
        ...

    def close(self) -> None:
        """Close all connections. After this call no result is delivered."""
        ...


class NoTransport:
    """The transport of a lone voter, which never sends a request."""

    def start(self, receive: Callable[[Message], None]) -> None:
        """Ignore the callback, because there are no responses."""

    def send(self, destination: int, address: Address | None, request: Request) -> None:
        """Fail an assertion, because a lone voter never sends requests."""
        raise AssertionError(f"a lone voter sends {request} to {destination} at {address}")

    def statistics(self) -> TransportStatistics:
        """Return counters that are all zero."""
        return TransportStatistics()

    def close(self) -> None:
        """Do nothing, because there are no connections."""
