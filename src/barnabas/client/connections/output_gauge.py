"""Detects connections whose output buffer is full, to bound requests without a response.

A request with a response counts as in flight until the response arrives. A Produce request with
acks=0 has no response. It is done when the buffered output is at most the stream's low-water mark;
in Kafka's client it is done when its last byte is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.runtime.sockets import USUAL_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.runtime.sockets import Listening, ListenOptions, Sockets, Stream, StreamHandler
    from barnabas.runtime.timer import Cancellable

__all__ = ["OutputGauge"]


class OutputGauge:
    """Wraps the sockets and observes how full each outgoing connection is."""

    def __init__(self, sockets: Sockets) -> None:
        self._sockets = sockets
        # Established connections: added when connected, removed when closed.
        self._watched: dict[StreamHandler, _Watched] = {}

    def listen(
        self,
        host: str,
        port: int,
        factory: Callable[[], StreamHandler],
        options: ListenOptions = USUAL_OPTIONS,
    ) -> Listening:
        """Listen as the wrapped sockets do."""
        return self._sockets.listen(host, port, factory, options)

    def connect(
        self,
        host: str,
        port: int,
        handler: StreamHandler,
        on_failed: Callable[[OSError], None],
        timeout_ms: float,
    ) -> Cancellable:
        """Connect as the wrapped sockets do, and observe the connection."""
        watched = _Watched(handler, self._watched)
        return self._sockets.connect(host, port, watched, on_failed, timeout_ms)

    def when_drained(self, handler: StreamHandler, on_drained: Callable[[bool], None]) -> None:
        """Call `on_drained(True)` when the handler's connection has room, possibly at once.

        `on_drained(False)` means that the connection is closed and buffered output is lost.
        """
        watched = self._watched.get(handler)
        if watched is None:
            on_drained(False)
        elif watched.writable:
            on_drained(True)
        else:
            watched.waiting.append(on_drained)


class _Watched:
    """Wraps a handler to observe its stream."""

    __slots__ = ("_connections", "_handler", "get_buffer", "on_received", "waiting", "writable")

    def __init__(self, handler: StreamHandler, connections: dict[StreamHandler, _Watched]) -> None:
        self._handler = handler
        self._connections = connections
        self.get_buffer = handler.get_buffer
        self.on_received = handler.on_received
        self.writable = True
        # Callbacks of requests that wait for room, oldest first.
        self.waiting: list[Callable[[bool], None]] = []

    def on_connected(self, stream: Stream) -> None:
        self._connections[self._handler] = self
        self._handler.on_connected(stream)

    def on_writable_changed(self, writable: bool) -> None:
        self.writable = writable
        self._handler.on_writable_changed(writable)
        if writable:
            self._report(drained=True)

    def on_closed(self, error: Exception | None) -> None:
        self._connections.pop(self._handler, None)
        self._handler.on_closed(error)
        self._report(drained=False)

    def _report(self, *, drained: bool) -> None:
        waiting, self.waiting = self.waiting, []
        for on_drained in waiting:
            on_drained(drained)
