"""The part that both ends of a connection share: frames in, one write per turn out.

Frames are views into one receive buffer that all connections of a loop share. They are released
when the handler returns, so that late use raises instead of reading another connection's bytes;
whoever keeps something copies it. Views are writable: storage patches offsets in place.

Output of one turn is collected and written at once: at the end of the receive call when that is
where it comes from, or before if nothing can be added to it, else in the next turn.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import inf
from typing import TYPE_CHECKING

from barnabas.protocol.frame import FrameSplitter
from barnabas.protocol.protocol_error import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.protocol.frame import FrameMemory
    from barnabas.protocol.frame_buffers import FrameBuffers
    from barnabas.runtime.sockets import Chunk, Stream
    from barnabas.runtime.timer import Timer

RECEIVE_BUFFER_BYTES = 512 * 1024


def new_receive_buffer(size: int = RECEIVE_BUFFER_BYTES) -> bytearray:
    """The buffer to share among all connections of a loop."""
    return bytearray(size)


class FramedHandler(ABC):
    """A stream handler that speaks length-prefixed frames."""

    __slots__ = (
        "_flush_due",
        "_frame_bytes",
        "_output",
        "_receiving",
        "_share_ends_ms",
        "_splitter",
        "_stream",
        "_timer",
        "bytes_in",
        "bytes_out",
        "get_buffer",
    )

    def __init__(
        self,
        timer: Timer,
        receive_buffer: bytearray,
        frame_bytes_max: int,
        large_buffers: FrameBuffers | None = None,
        frame_memory: FrameMemory | None = None,
    ) -> None:
        self._timer = timer
        self._splitter = FrameSplitter(frame_bytes_max, receive_buffer, large_buffers, frame_memory)
        # Called by the transport itself, once per read.
        self.get_buffer = self._splitter.get_buffer
        # None before the connection stands and after it closed.
        self._stream: Stream | None = None
        self._output: list[Chunk] = []
        # True within on_received, which flushes at its end.
        self._receiving = False
        self._flush_due = False
        # When the frames of one read have had their share of the turn (monotonic ms); infinity
        # until a frame turns out to have others behind it.
        self._share_ends_ms = inf
        # Size of the buffer of an unfinished frame, as `on_frame_memory` was told.
        self._frame_bytes = 0
        self.bytes_in = 0
        self.bytes_out = 0

    @abstractmethod
    def on_frame(self, frame: memoryview) -> None:
        """One frame without its length; the view dies when this returns."""

    @abstractmethod
    def on_opened(self) -> None:
        """The connection stands."""

    @abstractmethod
    def on_malformed(self, error: ProtocolError) -> None:
        """The peer does not speak frames, or they are absurd; the connection is being aborted."""

    def on_frame_memory(self, held_bytes: int) -> None:  # noqa: ARG002
        """The buffer of an unfinished frame has changed its size; 0 without one."""
        return

    @abstractmethod
    def on_writable_changed(self, writable: bool) -> None:
        """The stream has too much buffered, or has room again."""

    @abstractmethod
    def on_lost(self, error: Exception | None) -> None:
        """The connection is over; the last call."""

    @property
    def is_open(self) -> bool:
        """Whether the connection stands and is not being closed."""
        return self._stream is not None and not self._stream.is_closing

    @property
    def peer(self) -> str:
        """The other end, "host:port"; "" when not connected."""
        return "" if self._stream is None else self._stream.peer

    @property
    def local(self) -> str:
        """This end, "host:port"; "" when not connected."""
        return "" if self._stream is None else self._stream.local

    def on_connected(self, stream: Stream) -> None:
        """From the stream."""
        self._stream = stream
        self.on_opened()

    def on_received(self, count: int) -> None:
        """From the stream: hand out all complete frames, then write what they gave rise to."""
        self.bytes_in += count
        self._receiving = True
        self._share_ends_ms = inf
        try:
            for frame in self._splitter.received(count):
                self.on_frame(frame)
                if not self.is_open:
                    return
        except ProtocolError as error:
            self.abort()
            self.on_malformed(error)
            return
        finally:
            self._receiving = False
        if self._output:
            self.flush_collected()
        if self._splitter.own_bytes != self._frame_bytes:
            self._frame_bytes = self._splitter.own_bytes
            self.on_frame_memory(self._frame_bytes)

    def on_closed(self, error: Exception | None) -> None:
        """From the stream."""
        self._output.clear()
        self.on_lost(error)
        self._stream = None

    def send_chunks(self, chunks: Sequence[Chunk]) -> None:
        """Send after all that was sent before, within this turn or in the next."""
        self._output.extend(chunks)
        if not self._receiving and not self._flush_due:
            self._flush_due = True
            self._timer.call_soon(self._flush_now)

    def flush(self) -> bool:
        """Write what is collected now; returns whether the kernel has taken all of it."""
        output = self._output
        if not output or self._stream is None:
            return True
        # A fresh list, since the stream may keep this one.
        self._output = []
        self.bytes_out += sum(map(len, output))
        return self._stream.write(output)

    def abort(self) -> None:
        """Cut the connection."""
        if self._stream is not None:
            self._stream.abort()

    def flush_collected(self) -> None:
        """Write what a whole turn has collected."""
        self.flush()

    def _flush_now(self) -> None:
        self._flush_due = False
        self.flush_collected()
