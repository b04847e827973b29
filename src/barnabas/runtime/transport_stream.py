"""A byte stream that sends by asyncio's transport, on systems without `writev`.

This is the stream of clients on Windows, whose event loops cannot watch a descriptor. Each piece of
the output is copied, which costs more than the direct writes of `LoopStream`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from barnabas.runtime.loop_stream import IN_MEMORY, LoopStream, copy_slice

if TYPE_CHECKING:
    import asyncio
    from collections import deque
    from collections.abc import Sequence

    from barnabas.runtime.sockets import Chunk

# Small chunks are joined up to about this size.
PIECE_BYTES = 64 * 1024


class TransportStream(LoopStream):
    """A TCP connection whose transport gets one piece of the queue at a time.

    The piece stays at the head of the queue until the kernel has taken all of it. Therefore the
    queue has all bytes that the kernel has not taken, as in `LoopStream`.
    """

    __slots__ = ("_is_sending",)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the stream; called by the event loop."""
        # The transport then calls `resume_writing` as soon as it has sent a piece.
        cast("asyncio.Transport", transport).set_write_buffer_limits(high=0)
        # Whether the transport has the head of the queue.
        self._is_sending = False
        super().connection_made(transport)

    def resume_writing(self) -> None:
        """Send the next piece; called by the event loop."""
        if self._watched_fd < 0:
            return
        self._on_writable()
        if self._queue and not self._is_sending:
            # The handler has written while it was told that the queue is empty.
            self._loop.call_soon(self.resume_writing)

    def _wrote_at_once(self, chunks: Sequence[Chunk]) -> bool:
        return False

    def _send_queued(self) -> None:
        transport = self._transport
        assert transport is not None
        while queue := self._queue:
            if not self._is_sending:
                queue.appendleft(_next_piece(queue))
                self._is_sending = True
                transport.write(cast("bytes", queue[0]))
            if transport.is_closing() or transport.get_write_buffer_size():
                raise BlockingIOError
            self._is_sending = False
            self._queued_bytes -= len(queue.popleft())

    def _watch(self) -> None:
        self._watched_fd = self._fd

    def _unwatch(self) -> None:
        self._watched_fd = -1


def _next_piece(queue: deque[Chunk]) -> bytes:
    """Remove chunks from the head of the queue, and return their joined bytes."""
    parts = []
    size = 0
    while queue and size < PIECE_BYTES:
        chunk = queue.popleft()
        parts.append(chunk if isinstance(chunk, IN_MEMORY) else copy_slice(chunk))
        size += len(chunk)
    return b"".join(parts)
