"""Which connections have more output than their peer takes: the bound of requests without answers.

A request that is answered counts as in flight until then. A Produce with acks=0 has only the socket
to go by: it is done when the connection has no more buffered than the stream's low-water mark, as
with Kafka's client, where it is done when its last byte was written.
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
    """The network's door, with an eye on how full each outgoing connection is."""

    def __init__(self, sockets: Sockets) -> None:
        self._sockets = sockets
        # Those that stand: they come when connected and go when closed.
        self._watched: dict[StreamHandler, _Watched] = {}

    def listen(
        self,
        host: str,
        port: int,
        factory: Callable[[], StreamHandler],
        options: ListenOptions = USUAL_OPTIONS,
    ) -> Listening:
        """As the door it stands for."""
        return self._sockets.listen(host, port, factory, options)

    def connect(
        self,
        host: str,
        port: int,
        handler: StreamHandler,
        on_failed: Callable[[OSError], None],
        timeout_ms: float,
    ) -> Cancellable:
        """As the door it stands for."""
        watched = _Watched(handler, self._watched)
        return self._sockets.connect(host, port, watched, on_failed, timeout_ms)

    def when_drained(self, handler: StreamHandler, on_drained: Callable[[bool], None]) -> None:
        """Call `on_drained(True)` once the handler's connection has room, maybe at once.

        `on_drained(False)`: the connection ended before, and what was buffered is lost.
        """
        watched = self._watched.get(handler)
        if watched is None:
            on_drained(False)
        elif watched.writable:
            on_drained(True)
        else:
            watched.waiting.append(on_drained)


class _Watched:
    """Stands between a stream and its handler."""

    __slots__ = ("_handler", "_standing", "get_buffer", "on_received", "waiting", "writable")

    def __init__(self, handler: StreamHandler, standing: dict[StreamHandler, _Watched]) -> None:
        self._handler = handler
        self._standing = standing
        self.get_buffer = handler.get_buffer
        self.on_received = handler.on_received
        self.writable = True
        # Who waits for room, oldest first.
        self.waiting: list[Callable[[bool], None]] = []

    def on_connected(self, stream: Stream) -> None:
        self._standing[self._handler] = self
        self._handler.on_connected(stream)

    def on_writable_changed(self, writable: bool) -> None:
        self.writable = writable
        self._handler.on_writable_changed(writable)
        if writable:
            self._tell(drained=True)

    def on_closed(self, error: Exception | None) -> None:
        self._standing.pop(self._handler, None)
        self._handler.on_closed(error)
        self._tell(drained=False)

    def _tell(self, *, drained: bool) -> None:
        waiting, self.waiting = self.waiting, []
        for on_drained in waiting:
            on_drained(drained)
