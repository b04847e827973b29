"""One end of a simulated connection: bytes arrive late and cut into arbitrary pieces."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.runtime.sockets import Chunk, StreamHandler
    from barnabas.runtime.timer import Timer

# What the kernels of both sides hold before a sender notices.
WINDOW_BYTES = 256 * 1024
HIGH_WATER_BYTES = 1024 * 1024
LOW_WATER_BYTES = 256 * 1024


class Wire(Protocol):
    """The network, as far as its streams know it."""

    def carry(
        self, source: str, target: str, not_before_ms: float, arrive: Callable[[], None]
    ) -> float:
        """Let something travel; returns the moment of its arrival."""
        ...

    def forget(self, stream: SimStream) -> None:
        """A stream has ended."""
        ...

    def draws_read_size(self, available: int) -> int:
        """How much one read gets."""
        ...

    def draws_pause_ms(self) -> float:
        """Time between two reads."""
        ...

    def draws_reset(self) -> bool:
        """Whether this write meets a reset."""
        ...


class SimStream:
    """A TCP connection's end. `other` is set by the network when both ends exist."""

    __slots__ = (
        "_arrived_ms",
        "_delivering",
        "_end",
        "_ended",
        "_handler",
        "_inbox",
        "_network",
        "_on_sent",
        "_opened",
        "_paused",
        "_reported_writable",
        "_timer",
        "_unread_bytes",
        "host",
        "is_closing",
        "local",
        "other",
        "peer",
    )

    def __init__(self, network: Wire, timer: Timer, handler: StreamHandler, host: str) -> None:
        self._network = network
        # The owning process's: what is called through it dies with the process.
        self._timer = timer
        self._handler = handler
        # Name of the host that this end is on.
        self.host = host
        self.local = ""
        self.peer = ""
        self.other: SimStream | None = None
        self.is_closing = False
        # Bytes that came and were not handed to the handler.
        self._inbox = bytearray()
        self._paused = False
        self._delivering = False
        # What this end wrote and the other end's handler has not got.
        self._unread_bytes = 0
        self._reported_writable = True
        # Called when the kernels have taken some of what is buffered; None if nobody asked for it.
        self._on_sent: Callable[[], None] | None = None
        # Nothing may arrive at the other end before what was sent earlier.
        self._arrived_ms = 0.0
        # The other end's close that arrived: its error, in a tuple since None is one.
        self._end: tuple[Exception | None] | None = None
        # True once the handler was told of the connection, and of its end.
        self._opened = False
        self._ended = False

    @property
    def buffered_bytes(self) -> int:
        """Beyond what the kernels hold."""
        return max(0, self._unread_bytes - WINDOW_BYTES)

    @property
    def has_peer_ended(self) -> bool:
        """Whether the other end has closed or is gone."""
        return self._end is not None or self._ended

    def write(self, chunks: Sequence[Chunk]) -> bool:
        """Send; slices are read now."""
        if self.is_closing:
            return False
        pieces = [_bytes(chunk) for chunk in chunks]
        if any(len(piece) < len(chunk) for piece, chunk in zip(pieces, chunks, strict=True)):
            self._cut(OSError(errno.EIO, "file cut while it was sent"))
            return False
        data = b"".join(pieces)
        if not data:
            return not self.buffered_bytes
        if self._network.draws_reset():
            self._cut(ConnectionResetError(errno.ECONNRESET, "simulated reset"))
            return False
        self._unread_bytes += len(data)
        other = self._other()
        self._carry(lambda: other.arrive(data))
        self._report_writable()
        return not self.buffered_bytes

    def watch_output(self, on_sent: Callable[[], None]) -> None:
        """Call back when the kernels have taken some of what is buffered, until none is left."""
        if self.buffered_bytes:
            self._on_sent = on_sent

    def pause_reading(self) -> None:
        """Leave in the inbox what comes."""
        self._paused = True

    def resume_reading(self) -> None:
        """Go on."""
        self._paused = False
        self._deliver_later()

    def close(self) -> None:
        """End after what was written."""
        if self.is_closing:
            return
        self.is_closing = True
        other = self._other()
        self._carry(lambda: other.end(None))
        self._end_later(None)

    def abort(self) -> None:
        """End now."""
        self._cut(None)

    def connected(self) -> None:
        """The connection stands (called by the network)."""
        self._timer.call_soon(self._open)

    def arrive(self, data: bytes) -> None:
        """Bytes of the other end are here."""
        if self.is_closing:
            # As a kernel answers bytes for a closed socket.
            self._carry(lambda: self._other().end(_reset()))
            return
        self._inbox += data
        self._deliver_later()

    def end(self, error: Exception | None) -> None:
        """The other end is gone. A reset takes with it what was not read yet."""
        if self._end is not None or self.is_closing:
            return
        self._end = (error,)
        if not self._opened:
            return
        if error is not None:
            self._inbox.clear()
            self.is_closing = True
            self._end_later(error)
        else:
            self._deliver_later()

    def reset(self) -> None:
        """The network breaks the connection: both ends see it, each in its time."""
        self.end(_reset())

    def _open(self) -> None:
        self._opened = True
        self._handler.on_connected(self)
        if self._end is not None and self._end[0] is not None and not self.is_closing:
            self.is_closing = True
            self._end_later(self._end[0])
        else:
            self._deliver_later()

    def _other(self) -> SimStream:
        assert self.other is not None
        return self.other

    def _carry(self, arrive: Callable[[], None]) -> None:
        self._arrived_ms = self._network.carry(
            self.host, self._other().host, self._arrived_ms, arrive
        )

    def _cut(self, error: Exception | None) -> None:
        if self._ended:
            return
        if not self.is_closing:
            self.is_closing = True
            other = self._other()
            self._carry(lambda: other.end(_reset()))
        self._inbox.clear()
        self._end_later(error)

    def _end_later(self, error: Exception | None) -> None:
        def tell() -> None:
            if not self._ended:
                self._ended = True
                self._network.forget(self)
                if self._opened:
                    self._handler.on_closed(error)

        self._timer.call_soon(tell)

    def _deliver_later(self) -> None:
        if not self._delivering:
            self._delivering = True
            self._timer.call_later(self._network.draws_pause_ms(), self._deliver)

    def _deliver(self) -> None:
        """One read of the loop: a piece of what is there, of a size from the seed."""
        self._delivering = False
        if self._paused or self.is_closing or not self._opened:
            return
        if self._inbox:
            self._read_once()
        if self.is_closing or self._paused:
            return
        if self._inbox:
            self._deliver_later()
        elif self._end is not None:
            self.is_closing = True
            self._end_later(self._end[0])

    def _read_once(self) -> None:
        wanted = self._network.draws_read_size(len(self._inbox))
        buffer = memoryview(self._handler.get_buffer(wanted))
        count = min(wanted, len(buffer))
        assert count > 0, "an empty receive buffer"
        buffer[:count] = self._inbox[:count]
        del self._inbox[:count]
        self._other().on_read(count)
        self._handler.on_received(count)

    def on_read(self, count: int) -> None:
        """The other end's handler took `count` of what this end wrote."""
        self._unread_bytes -= count
        if not self._reported_writable:
            self._timer.call_soon(self._report_writable)
        if self._on_sent is not None:
            self._timer.call_soon(self._report_sent)

    def _report_sent(self) -> None:
        on_sent = self._on_sent
        if on_sent is None or self.is_closing:
            return
        if not self.buffered_bytes:
            self._on_sent = None
        on_sent()

    def _report_writable(self) -> None:
        if self.is_closing:
            return
        if self._reported_writable and self.buffered_bytes > HIGH_WATER_BYTES:
            self._reported_writable = False
            self._handler.on_writable_changed(False)
        elif not self._reported_writable and self.buffered_bytes <= LOW_WATER_BYTES:
            self._reported_writable = True
            self._handler.on_writable_changed(True)


def _bytes(chunk: Chunk) -> bytes:
    if isinstance(chunk, bytes | bytearray | memoryview):
        return bytes(chunk)
    return chunk.read()


def _reset() -> ConnectionResetError:
    return ConnectionResetError(errno.ECONNRESET, "connection reset by peer")
