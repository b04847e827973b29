"""One end of a simulated connection: bytes arrive with delays and in arbitrary pieces."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.runtime.clock import Timer
    from barnabas.runtime.sockets import Chunk, StreamHandler

# Bytes that the kernels of both hosts hold before they count as buffered by the sender.
WINDOW_BYTES = 256 * 1024
HIGH_WATER_BYTES = 1024 * 1024
LOW_WATER_BYTES = 256 * 1024


class Wire(Protocol):
    """The methods of the network that its streams use."""

    def carry(
        self, source: str, target: str, not_before_ms: float, arrive: Callable[[], None]
    ) -> float:
        """Schedule a delivery to `target`. Return its time of arrival (ms)."""
        ...

    def forget(self, stream: SimStream) -> None:
        """Forget a stream that has ended."""
        ...

    def draw_read_size(self, available: int) -> int:
        """Return a random number of bytes for one read, at most `available`."""
        ...

    def draw_pause_ms(self) -> float:
        """Return a random pause between two reads (ms)."""
        ...

    def draw_reset(self) -> bool:
        """Return whether this write resets its connection."""
        ...


class SimStream:
    """One end of a TCP connection. The network sets `other` when both ends exist."""

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
        "_receive_bytes",
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
        # Timer of the owning process: its callbacks stop when the process dies.
        self._timer = timer
        self._handler = handler
        # Name of the host of this end.
        self.host = host
        self.local = ""
        self.peer = ""
        self.other: SimStream | None = None
        self.is_closing = False
        # Bytes that have arrived but that the handler has not received.
        self._inbox = bytearray()
        # Whether the handler has paused reading.
        self._paused = False
        # From this number of bytes in the inbox on, the handler receives them.
        self._receive_bytes = 1
        # Whether a delivery to the handler is scheduled or running.
        self._delivering = False
        # Number of bytes written by this end that the handler of the other end has not received.
        self._unread_bytes = 0
        # The last notification of this end's handler.
        self._reported_writable = True
        # Called when the kernels have taken some of the buffered bytes; None: not watched.
        self._on_sent: Callable[[], None] | None = None
        # Time of the last scheduled arrival at the other end (ms); later data must not arrive
        # earlier.
        self._arrived_ms = 0.0
        # The close that arrived from the other end: a tuple with its error, which may be None.
        self._end: tuple[Exception | None] | None = None
        # Whether the handler knows that the connection is established, and that it has ended.
        self._opened = False
        self._ended = False

    @property
    def peer_certificate(self) -> None:
        """None, because a connection without TLS has no certificate."""
        return

    @property
    def buffered_bytes(self) -> int:
        """Number of bytes beyond the capacity of the kernels."""
        return max(0, self._unread_bytes - WINDOW_BYTES)

    @property
    def has_peer_ended(self) -> bool:
        """Whether the other end has closed the connection or was killed."""
        return self._end is not None or self._ended

    def write(self, chunks: Sequence[Chunk]) -> bool:
        """Send the chunks; read file slices during this call.

        Returns:
            Whether no bytes are buffered.
        """
        if self.is_closing:
            return False
        pieces = [_bytes(chunk) for chunk in chunks]
        if any(len(piece) < len(chunk) for piece, chunk in zip(pieces, chunks, strict=True)):
            self._abort_with(OSError(errno.EIO, "file truncated while it was sent"))
            return False
        data = b"".join(pieces)
        if not data:
            return not self.buffered_bytes
        if self._network.draw_reset():
            self._abort_with(ConnectionResetError(errno.ECONNRESET, "simulated reset"))
            return False
        self._unread_bytes += len(data)
        other = self._other()
        self._carry(lambda: other.arrive(data))
        self._report_writable()
        return not self.buffered_bytes

    def watch_output(self, on_sent: Callable[[], None]) -> None:
        """Call back each time the kernels take buffered bytes, until no bytes are buffered."""
        if self.buffered_bytes:
            self._on_sent = on_sent

    def receive_at_least(self, count: int) -> None:
        """Deliver bytes only when this number has arrived, as far as the kernel holds as many."""
        self._receive_bytes = min(max(1, count), WINDOW_BYTES // 2)
        if self._inbox:
            self._deliver_later()

    def pause_reading(self) -> None:
        """Stop reading; arriving bytes stay in the inbox."""
        self._paused = True

    def resume_reading(self) -> None:
        """Resume reading."""
        self._paused = False
        self._deliver_later()

    def close(self) -> None:
        """Close the connection after the written bytes."""
        if self.is_closing:
            return
        self.is_closing = True
        other = self._other()
        self._carry(lambda: other.end(None))
        self._end_later(None)

    def abort(self) -> None:
        """Close the connection now, without sending the remaining bytes."""
        self._abort_with(None)

    def connected(self) -> None:
        """Report the established connection to the handler (called by the network)."""
        self._timer.call_soon(self._open)

    def arrive(self, data: bytes) -> None:
        """Receive bytes from the other end."""
        if self.is_closing:
            # A kernel responds to bytes for a closed socket with a reset.
            self._carry(lambda: self._other().end(_reset()))
            return
        self._inbox += data
        self._deliver_later()

    def end(self, error: Exception | None) -> None:
        """Handle the close of the other end. A reset discards the bytes that were not read."""
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
        """Reset this end, as when the network breaks the connection."""
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

    def _abort_with(self, error: Exception | None) -> None:
        if self._ended:
            return
        if not self.is_closing:
            self.is_closing = True
            other = self._other()
            self._carry(lambda: other.end(_reset()))
        self._inbox.clear()
        self._end_later(error)

    def _end_later(self, error: Exception | None) -> None:
        def report() -> None:
            if not self._ended:
                self._ended = True
                self._network.forget(self)
                if self._opened:
                    self._handler.on_closed(error)

        self._timer.call_soon(report)

    def _deliver_later(self) -> None:
        if not self._delivering:
            self._delivering = True
            self._timer.call_later(self._network.draw_pause_ms(), self._deliver)

    def _deliver(self) -> None:
        """Perform one read of the event loop, with a random size."""
        self._delivering = False
        if self._paused or self.is_closing or not self._opened:
            return
        if self._has_enough:
            self._read_once()
        if self.is_closing or self._paused:
            return
        if self._has_enough:
            self._deliver_later()
        elif not self._inbox and self._end is not None:
            self.is_closing = True
            self._end_later(self._end[0])

    @property
    def _has_enough(self) -> bool:
        return len(self._inbox) >= (self._receive_bytes if self._end is None else 1)

    def _read_once(self) -> None:
        wanted = self._network.draw_read_size(len(self._inbox))
        buffer = memoryview(self._handler.get_buffer(wanted))
        count = min(wanted, len(buffer))
        assert count > 0, "an empty receive buffer"
        buffer[:count] = self._inbox[:count]
        del self._inbox[:count]
        self._other().on_read(count)
        self._handler.on_received(count)

    def on_read(self, count: int) -> None:
        """Handle that the other end's handler received `count` bytes of this end."""
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
