"""The common part of clients and servers: splits input into frames, writes once per turn.

A frame is a 4-byte big-endian length, then that many bytes. Frames are views into one receive
buffer that all connections of an event loop share, so complete frames are not copied. A view is
released when the handler returns, so that a late access raises an error instead of reading another
connection's bytes. Handlers copy the data they keep. Views are writable, since storage patches
offsets in place.

Only a frame that is incomplete at the end of a read moves into its own buffer. The start of a small
frame moves back into the shared buffer when the next bytes have arrived behind its place, so one
read receives its rest and the next frames. A large frame stays in its own buffer, which grows with
the data that has arrived, so a forged length costs no memory. A client trusts its brokers and
receives large responses, so its connections share a few buffers (`FrameBuffers`).

The output of one turn is collected and written together. Output produced while processing received
frames is written at the end of the receive call, and other output in the next turn. A server's
connection writes earlier if no more output can follow.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from math import inf
from typing import TYPE_CHECKING, Protocol

from barnabas.protocol.errors import ProtocolError
from barnabas.runtime.system_calls import untouched_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from barnabas.network.frame_buffers import FrameBuffers
    from barnabas.runtime.clock import Timer
    from barnabas.runtime.sockets import Chunk, Stream

RECEIVE_BUFFER_BYTES = 512 * 1024
_unpack_length = struct.Struct(">i").unpack_from

# Size of the length prefix of a frame.
LENGTH_BYTES = 4
# First size of the buffer of a large incomplete frame. It doubles up to the size of the frame.
OWN_BYTES_MIN = 16 * 1024
# An incomplete frame up to this size is received into the shared buffer: to copy its start twice
# costs less than a read of its own.
_SMALL_FRAME_BYTES = 32 * 1024

# Size of one read while the memory for incomplete frames is used up.
_SMALL_READ_BYTES = 32 * 1024


def new_receive_buffer(size: int = RECEIVE_BUFFER_BYTES) -> memoryview:
    """Return the receive buffer that all connections of an event loop share."""
    return untouched_memory(size)


class FrameMemory(Protocol):
    """The memory for incomplete frames of all connections."""

    # Whether the memory is used up.
    is_full: bool


class FrameSplitter:
    """The receiving side of one connection.

    Args:
        max_frame_bytes: Longer frames are an error (`socket.request.max.bytes`).
        shared: Receive buffer that the splitters of one thread share. A splitter uses it only
            between `get_buffer` and the end of `received`.
        large: Pool of buffers for large frames; None: allocate each buffer.
        memory: While it is full, reads are small, because their data may have to be kept.
    """

    __slots__ = (
        "_filled",
        "_large",
        "_memory",
        "_own",
        "_own_end",
        "_shared_view",
        "_small_frame_bytes",
        "_small_view",
        "follows_frame",
        "has_more",
        "max_frame_bytes",
        "own_bytes",
        "refused_start",
    )

    def __init__(
        self,
        max_frame_bytes: int,
        shared: bytearray | memoryview | None = None,
        large: FrameBuffers | None = None,
        memory: FrameMemory | None = None,
    ) -> None:
        self.max_frame_bytes = max_frame_bytes
        self._shared_view = memoryview(bytearray(64 * 1024) if shared is None else shared)
        assert len(self._shared_view) >= 16
        self._small_view = self._shared_view[:_SMALL_READ_BYTES]
        self._small_frame_bytes = min(_SMALL_FRAME_BYTES, len(self._shared_view) // 2)
        self._large = large
        self._memory = memory
        # Start of an incomplete frame, including its length prefix; None between frames.
        # `_filled` bytes of it have arrived. `_own_end` is the end of the next read; 0 if the next
        # bytes are received into the shared buffer, because the frame is small or its length is
        # unknown.
        self._own: memoryview | None = None
        self._own_end = 0
        self._filled = 0
        # Size of the buffer of an incomplete frame (bytes); 0 between frames.
        self.own_bytes = 0
        # The first four bytes of the frame that caused the ProtocolError; empty before the error.
        self.refused_start = b""
        # Whether the incomplete frame began behind another one in the last read.
        self.follows_frame = False
        # While a frame is yielded: whether more bytes followed it in the same read.
        self.has_more = False

    @property
    def pending_bytes(self) -> int:
        """Number of bytes of the incomplete frame that have arrived."""
        return self._filled

    @property
    def missing_bytes(self) -> int:
        """Number of bytes of the incomplete frame that are missing; 0 if its length is unknown."""
        if self._own is None or self._filled < 4:
            return 0
        return 4 + self._checked_length(self._own) - self._filled

    def get_buffer(self, _size_hint: int = -1) -> memoryview:
        """Return the buffer for the next bytes; it is never empty."""
        view = self._shared_view
        if self._memory is not None and self._memory.is_full:
            view = self._small_view
        if self._own is None:
            return view
        if self._own_end:
            return self._own[self._filled : self._own_end]
        # Leave room for the start of a small incomplete frame.
        return view[self._filled :]

    def unfinished_start(self, size: int = LENGTH_BYTES) -> bytes:
        """Return the first bytes of the incomplete frame, or fewer if fewer have arrived."""
        return b"" if self._own is None else bytes(self._own[: min(size, self._filled)])

    def received(self, count: int) -> Iterator[memoryview]:
        """Process `count` new bytes in the last buffer; yield every complete frame.

        A frame is a view without its length prefix, and valid until the next frame is requested.
        The iterator must be exhausted before the next call of `get_buffer`.

        Raises:
            ProtocolError: A length is negative or above the limit. The stream cannot be continued.
        """
        own = self._own
        if own is None:
            return self._cut(self._shared_view, count)
        if self._own_end:
            return self._continue(count)
        filled = self._filled
        self._shared_view[:filled] = own
        self._forget_own()
        return self._cut(self._shared_view, filled + count)

    def _cut(self, view: memoryview, end: int) -> Iterator[memoryview]:
        """Yield the frames in the shared buffer and keep the remaining bytes."""
        position = 0
        while end - position >= 4:
            start = position + 4
            (length,) = _unpack_length(view, position)
            if not 0 <= length <= self.max_frame_bytes:
                raise self._length_error(view, position)
            stop = start + length
            if stop > end:
                break
            self.has_more = stop < end
            with view[start:stop] as frame:
                yield frame
            position = stop
        if position < end:
            self._keep(view[position:end])
            self.follows_frame = position > 0

    def _continue(self, count: int) -> Iterator[memoryview]:
        """Add `count` bytes to the incomplete frame; they never extend beyond its end."""
        own = self._own
        assert own is not None
        self.follows_frame = False
        self._filled += count
        whole = 4 + self._checked_length(own)
        if self._filled == whole:
            self._forget_own()
            self.has_more = False
            with own[4:whole] as frame:
                yield frame
            self._give_back(own)
        elif self._filled == self._own_end:
            self._own = self._copy_to_larger(own[: self._filled], whole)
            self._give_back(own)

    def _keep(self, left_over: memoryview) -> None:
        """Copy an incomplete frame out of the shared buffer, which other connections use next."""
        self._filled = len(left_over)
        if self._filled >= 4:
            whole = 4 + self._checked_length(left_over)
            if whole > self._small_frame_bytes:
                self._own = self._copy_to_larger(left_over, whole)
                return
        self._own = memoryview(bytearray(left_over))
        self.own_bytes = self._filled

    def _forget_own(self) -> None:
        self._own = None
        self._own_end = self._filled = self.own_bytes = 0

    def _copy_to_larger(self, arrived: memoryview, whole: int) -> memoryview:
        """Copy the start of a frame of `whole` bytes into a buffer that has room for more."""
        size = len(arrived)
        if self._large is not None and whole > OWN_BYTES_MIN:
            buffer = self._large.take(whole, size)
        else:
            buffer = memoryview(bytearray(min(whole, max(OWN_BYTES_MIN, 2 * size))))
        buffer[:size] = arrived
        self._own_end = min(whole, len(buffer))
        self.own_bytes = len(buffer)
        return buffer

    def _give_back(self, buffer: memoryview) -> None:
        if self._large is not None and len(buffer) > OWN_BYTES_MIN:
            self._large.give_back(buffer)

    def _checked_length(self, start: memoryview) -> int:
        length: int
        (length,) = _unpack_length(start)
        if not 0 <= length <= self.max_frame_bytes:
            raise self._length_error(start, 0)
        return length

    def _length_error(self, view: memoryview, position: int) -> ProtocolError:
        self.refused_start = start = bytes(view[position : position + 4])
        return ProtocolError(
            f"the length of a frame is {int.from_bytes(start, signed=True)} bytes; "
            f"at most {self.max_frame_bytes} are allowed"
        )


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
        receive_buffer: bytearray | memoryview,
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
