"""The common part of clients and servers: splits input into frames, writes once per turn.

Frames are views into one receive buffer that all connections of an event loop share. A view is
released when the handler returns, so that a late access raises an error instead of reading another
connection's bytes. Handlers copy the data they keep. Views are writable, since storage patches
offsets in place.

The output of one turn is collected and written together. Output produced while processing received
frames is written at the end of the receive call, and other output in the next turn. A server's
connection writes earlier if no more output can follow.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import inf
from typing import TYPE_CHECKING

from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.frame import FrameSplitter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.protocol.frame import FrameBuffers, FrameMemory
    from barnabas.runtime.clock import Timer
    from barnabas.runtime.sockets import Chunk, Stream

RECEIVE_BUFFER_BYTES = 512 * 1024


def new_receive_buffer(size: int = RECEIVE_BUFFER_BYTES) -> bytearray:
    """Return the receive buffer that all connections of an event loop share."""
    return bytearray(size)


class FramedHandler(ABC):
    """A stream handler for length-prefixed frames."""

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
        "collected",
        "get_buffer",
        "is_pipelined",
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
        # The transport calls this before each read.
        self.get_buffer = self._splitter.get_buffer
        # None before the connection is established and after it has closed.
        self._stream: Stream | None = None
        self._output: list[Chunk] = []
        # Whether `on_received` is running. It flushes the output at its end.
        self._receiving = False
        self._flush_due = False
        # End of the time share of the frames of one read, in monotonic ms. Infinity until a frame
        # is followed by another one in the same read.
        self._share_ends_ms = inf
        # Whether the current read has several frames, so that their work may be collected. Set by a
        # server's connection.
        self.is_pipelined = False
        # The collected work of earlier frames of the current read; None without any.
        self.collected: Callable[[], None] | None = None
        # Buffer size of a partially received frame, as last passed to `on_frame_memory`.
        self._frame_bytes = 0
        self.bytes_in = 0
        self.bytes_out = 0

    @abstractmethod
    def on_frame(self, frame: memoryview) -> None:
        """Handle one frame, without its length prefix. The view is invalid after this returns."""

    @abstractmethod
    def on_opened(self) -> None:
        """Handle the established connection."""

    @abstractmethod
    def on_malformed(self, error: ProtocolError) -> None:
        """Handle a protocol error of the peer. The connection is already being aborted."""

    def on_failed(self, error: Exception) -> bool:
        """Handle an error of the handler of a frame. Return False to raise the error."""
        return False

    def on_frame_memory(self, held_bytes: int) -> None:
        """Handle a changed buffer size of a partially received frame. 0: there is none."""
        return

    @abstractmethod
    def on_writable_changed(self, writable: bool) -> None:
        """Handle a write buffer that is too full, or that has room again."""

    @abstractmethod
    def on_lost(self, error: Exception | None) -> None:
        """Handle the end of the connection. This is the last call."""

    @property
    def is_open(self) -> bool:
        """Whether the connection is established and not closing."""
        return self._stream is not None and not self._stream.is_closing

    @property
    def peer(self) -> str:
        """The remote address, "host:port". "" when not connected."""
        return "" if self._stream is None else self._stream.peer

    @property
    def local(self) -> str:
        """The local address, "host:port". "" when not connected."""
        return "" if self._stream is None else self._stream.local

    def on_connected(self, stream: Stream) -> None:
        """Accept the stream. Called by the stream."""
        self._stream = stream
        self.on_opened()

    def on_received(self, count: int) -> None:
        """Handle all complete frames, then write the resulting output. Called by the stream.

        The frames stay in the receive buffer until their collected work is done.
        """
        self.bytes_in += count
        self._receiving = True
        self._share_ends_ms = inf
        try:
            for frame in self._splitter.received(count):
                self.on_frame(frame)
                stream = self._stream
                if stream is None or stream.is_closing:
                    return
        except ProtocolError as error:
            self.abort()
            self.on_malformed(error)
            return
        except Exception as error:
            if not self.on_failed(error):
                raise
            return
        finally:
            if self.is_pipelined:
                self.is_pipelined = False
                self.do_collected()
            self._receiving = False
        if self._output:
            self.flush_collected()
        if self._splitter.own_bytes or self._frame_bytes:
            if self._splitter.follows_frame and self._frame_bytes:
                # The frame that was incomplete is complete, and another one has begun.
                self._frame_bytes = 0
                self.on_frame_memory(0)
            self._note_partial_frame(self._splitter.own_bytes)

    def on_closed(self, error: Exception | None) -> None:
        """Discard the output and report the end. Called by the stream."""
        self._output.clear()
        self.on_lost(error)
        self._stream = None

    def send_chunks(self, chunks: Sequence[Chunk]) -> None:
        """Send the chunks after all previous output, in this turn or in the next one."""
        self._output.extend(chunks)
        self.flush_later()

    def flush_later(self) -> None:
        """Write the collected output at the end of the receive call, or in the next turn."""
        if not self._receiving and not self._flush_due:
            self._flush_due = True
            self._timer.call_soon(self._flush_now)

    def do_collected(self) -> None:
        """Do the collected work: the read ends, or the next frame may depend on the work."""
        work, self.collected = self.collected, None
        if work is not None:
            work()

    def flush(self) -> bool:
        """Write the collected output now. Return whether the kernel accepted all of it."""
        output = self._output
        if not output or self._stream is None:
            return True
        # Use a new list, since the stream may keep this one.
        self._output = []
        self.bytes_out += sum(map(len, output))
        return self._stream.write(output)

    def abort(self) -> None:
        """Close the connection immediately, without sending the remaining output."""
        if self._stream is not None:
            self._stream.abort()

    def flush_collected(self) -> None:
        """Write the output of one turn."""
        self.flush()

    def _note_partial_frame(self, own_bytes: int) -> None:
        """Wait for the missing bytes of a partially received frame, and report its memory."""
        if self._stream is not None:
            self._stream.receive_at_least(self._splitter.missing_bytes)
        if own_bytes != self._frame_bytes:
            self._frame_bytes = own_bytes
            self.on_frame_memory(own_bytes)

    def _flush_now(self) -> None:
        self._flush_due = False
        self.flush_collected()
