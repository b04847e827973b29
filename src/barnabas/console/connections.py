"""Connections of browsers, with limits for requests that do not arrive completely.

uvicorn waits without a limit for the rest of a request, and refuses all further requests while it
has its maximum of connections. So here a request has a time limit. When there are too many
connections, one without a complete request is closed: the oldest of the address that has the most.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    import asyncio

__all__ = ["CONNECTIONS_MAX", "BrowserConnection"]

# Connections at once. Above it, uvicorn responds with 503.
CONNECTIONS_MAX = 128


class BrowserConnection(H11Protocol):
    """A connection whose requests have to arrive completely within a time limit."""

    # Time in seconds from the start of the connection, or from the first byte of a later request.
    request_s: ClassVar[float] = 20.0
    # Closes the connection; None while there is no incomplete request.
    _deadline: asyncio.TimerHandle | None = None
    # When the connection was made, by the clock of the loop.
    _began_s = 0.0

    @property
    def is_incomplete(self) -> bool:
        """Whether the client has not sent a complete request, or its next one."""
        return self.conn.their_state in (h11.IDLE, h11.SEND_BODY)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn
        """Start the time limit of the first request, and make room for the connection."""
        super().connection_made(transport)
        self._began_s = self.loop.time()
        self._follow()
        if len(self.connections) >= CONNECTIONS_MAX:
            self._close_another()

    def data_received(self, data: bytes) -> None:
        """Serve the request if it is complete."""
        super().data_received(data)
        self._follow()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the time limit."""
        super().connection_lost(exc)
        self._end_deadline()

    def _follow(self) -> None:
        """Start the time limit of an incomplete request, or end that of a complete one."""
        if not self.is_incomplete:
            self._end_deadline()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(self.request_s, self._abort)

    def _end_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _abort(self) -> None:
        self.transport.abort()

    def _close_another(self) -> None:
        others = [
            each
            for each in self.connections
            if isinstance(each, BrowserConnection) and each is not self and each.is_incomplete
        ]
        if not others:
            return
        ((host, _),) = Counter(each.host for each in others).most_common(1)
        oldest = min((each for each in others if each.host == host), key=lambda each: each._began_s)
        self.connections.discard(oldest)
        oldest._abort()

    @property
    def host(self) -> str:
        """The address of the client."""
        return "" if self.client is None else self.client[0]
