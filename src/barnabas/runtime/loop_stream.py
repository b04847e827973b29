"""A byte stream over a transport of the event loop.

Reading uses the transport: `BufferedProtocol` puts received bytes into the handler's buffer.
Writing bypasses the transport and uses the descriptor directly. One `writev` sends all responses of
a turn without joining them, and file slices are sent with `sendfile`. One queue keeps the order
when the kernel's buffer is full.

Event loops do not allow watching a transport's descriptor. Therefore a duplicate is watched while
data is queued.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import sys
from collections import deque
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from barnabas.runtime.disk import FileSlice
from barnabas.runtime.system_calls import HAS_SENDFILE, IOV_MAX, has_peer_ended, send_file

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.runtime.disk import Bytes
    from barnabas.runtime.loop_watch import LoopWatch
    from barnabas.runtime.sockets import Chunk, Sliceable, StreamHandler


# Useful polls that pay for a vain one or a preemption, and those that are remembered.
VAIN_COST = 32
CREDIT_MAX = 128
# Useful polls between two looks at the preemptions, because a look is a system call.
LOOK_INTERVAL = 16
# Responses without polls after the credit is used up: the first time, and at most.
PAUSE_MIN = 64
PAUSE_MAX = 4096


class BusyPoll:
    """Polls the sockets for some microseconds after a response, instead of waiting in the kernel.

    A loop that waits in the kernel leaves its processor idle. Waking up an idle processor takes
    longer than serving a small request, above all on a virtual machine. Therefore, after a
    response, the loop asks its sockets again and again, until a request arrives or a time limit is
    reached.

    A poll is useful if a request arrives within the limit. Otherwise it is vain: it has only taken
    processor time from other processes. Each useful poll earns one credit, and each vain poll costs
    several. So does each preemption: the kernel has then given the processor to another process,
    which had to wait for this one. Without credit, the loop waits in the kernel after the next
    responses. The number of these responses doubles each time. So polling costs almost nothing if
    requests are rare, or if more processes are runnable than there are processors.
    """

    def __init__(
        self,
        now_ns: Callable[[], int],
        call_soon: Callable[[Callable[[], None]], object],
        limit_us: int,
        preemptions: Callable[[], int],
    ) -> None:
        """Store the limit.

        Args:
            now_ns: returns the monotonic time.
            call_soon: queues a callback for the next turn of the loop. While one is queued, the
                loop asks its sockets without waiting.
            limit_us: time after the last response in which the loop does not wait (µs).
            preemptions: returns how often the kernel has preempted this thread so far.
        """
        self._now_ns = now_ns
        self._call_soon = call_soon
        self._limit_ns = limit_us * 1000
        # Number of responses so far, and at the last look.
        self._sent = 0
        self._seen = 0
        # Whether a callback is queued, and the time at which this poll is vain.
        self._is_polling = False
        self._deadline_ns = 0
        self._credit = 0
        self._preemptions = preemptions
        # Number of preemptions at the last look, and useful polls until the next look.
        self._preempted = 0
        self._until_look = LOOK_INTERVAL
        # The next pause, and the number of responses at which the current one ends.
        self._pause = PAUSE_MIN
        self._resumes_at = 0

    def on_sent(self) -> None:
        """Begin to poll, because a response is sent in this turn."""
        self._sent += 1
        if not self._is_polling and self._sent >= self._resumes_at:
            self._is_polling = True
            self._call_soon(self._begin)

    def _begin(self) -> None:
        self._seen = self._sent
        self._preempted = self._preemptions()
        self._deadline_ns = self._now_ns() + self._limit_ns
        self._call_soon(self._poll)

    def _poll(self) -> None:
        """Look whether a request was answered since the last turn. The loop then asks again."""
        now_ns = self._now_ns()
        if self._sent != self._seen:
            self._seen = self._sent
            self._deadline_ns = now_ns + self._limit_ns
            if self._credit < CREDIT_MAX:
                self._credit += 1
            else:
                self._pause = PAUSE_MIN
            self._until_look -= 1
            if self._until_look <= 0:
                self._charge_preemptions()
                if self._credit < 0:
                    self._end()
                    return
        elif now_ns >= self._deadline_ns:
            self._credit -= VAIN_COST
            self._charge_preemptions()
            self._end()
            return
        self._call_soon(self._poll)

    def _charge_preemptions(self) -> None:
        self._until_look = LOOK_INTERVAL
        before, self._preempted = self._preempted, self._preemptions()
        self._credit -= VAIN_COST * (self._preempted - before)

    def _end(self) -> None:
        """Wait in the kernel again; without credit, also after the next responses."""
        self._is_polling = False
        if self._credit < 0:
            self._credit = 0
            self._resumes_at = self._sent + self._pause
            self._pause = min(2 * self._pause, PAUSE_MAX)


# From about this size on, sendfile is faster than a copy. 4 KiB take 11 µs with sendfile and 7 µs
# with a copy; 1 MiB takes 249 µs and 470 µs.
SENDFILE_MIN_BYTES = 16 * 1024
HIGH_WATER_BYTES = 1024 * 1024
LOW_WATER_BYTES = 256 * 1024
# Bounds of `receive_at_least`. Below the minimum, its system call costs more than it saves. The
# maximum is half of the receive buffer of a new connection, so that the peer can go on sending.
RECEIVE_MIN_BYTES = 1024
RECEIVE_MAX_BYTES = 64 * 1024
_IS_LINUX = sys.platform == "linux"
# A tuple, because a union expression would be created again for each call of isinstance.
IN_MEMORY = (bytes, bytearray, memoryview)
_IN_MEMORY_TYPES = frozenset(IN_MEMORY)


class TruncatedSliceError(OSError):
    """A file was truncated below a slice that is still to be sent.

    The frame cannot be completed, so the connection ends.
    """


class LoopStream(asyncio.BufferedProtocol):
    """A TCP connection on the loop, which calls its handler for each event."""

    __slots__ = (
        "_busy_poll",
        "_error",
        "_fd",
        "_handler",
        "_is_paused",
        "_loop",
        "_on_opened",
        "_on_sent",
        "_queue",
        "_queued_bytes",
        "_receive_bytes",
        "_transport",
        "_watched_fd",
        "_writable",
        "buffer_updated",
        "get_buffer",
        "is_closing",
        "local",
        "peer",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        handler: StreamHandler,
        on_opened: Callable[[LoopStream], bool] | None = None,
        busy_poll: BusyPoll | None = None,
    ) -> None:
        """Store the handler.

        Args:
            loop: the event loop.
            handler: receives the events of the connection.
            on_opened: may return False to close a connection that was established too late.
            busy_poll: told of each write, because the peer may soon send its next request.
        """
        self._loop = loop
        self._handler = handler
        self._on_opened = on_opened
        self._busy_poll = busy_poll
        # The transport calls the handler directly; a method in between would cost 50 ns a call.
        # mypy does not allow methods to be replaced on an instance.
        self.get_buffer = handler.get_buffer  # type: ignore[method-assign, assignment]  # see above
        self.buffer_updated = handler.on_received  # type: ignore[method-assign, assignment]  # see above
        self._transport: asyncio.Transport | None = None
        # The transport's descriptor; -1 before and after the connection, when the number may be
        # reused.
        self._fd = -1
        # A duplicate descriptor that is watched for room in the kernel's buffer; -1 if not watched.
        self._watched_fd = -1
        # Data that the kernel has not taken, in order; empty unless _watched_fd is set. An empty
        # deque takes 760 bytes, so an idle connection has none.
        self._queue: deque[Chunk] | None = None
        # Bytes in the queue. Invariant: 0 if nothing is queued.
        self._queued_bytes = 0
        # Called when the kernel has taken some of the queue; None if there is no callback.
        self._on_sent: Callable[[], None] | None = None
        # From this number of received bytes on, the kernel reports them (SO_RCVLOWAT).
        self._receive_bytes = 1
        # Whether the handler has stopped reading.
        self._is_paused = False
        # The last notification of the handler: false above HIGH_WATER_BYTES, true again at or
        # below LOW_WATER_BYTES.
        self._writable = True
        # Whether the stream is closed or about to close.
        self.is_closing = False
        # The failure that closes the stream; the handler receives it in `on_closed`.
        self._error: Exception | None = None
        self.peer = ""
        self.local = ""

    @property
    def peer_certificate(self) -> None:
        """None, because a connection without TLS has no certificate."""
        return

    @property
    def buffered_bytes(self) -> int:
        """Number of bytes written here that the kernel has not taken yet."""
        return self._queued_bytes

    @property
    def has_peer_ended(self) -> bool:
        """Whether the peer has closed, or the connection is broken.

        A paused transport does not read its descriptor, so this asks the kernel.
        """
        return self._fd < 0 or has_peer_ended(self._fd)

    def write(self, chunks: Sequence[Chunk]) -> bool:
        """Send chunks in order; data that the kernel does not take now waits in the queue."""
        if self.is_closing:
            return False
        if self._busy_poll is not None:
            self._busy_poll.on_sent()
        if self._watched_fd < 0 and self._wrote_at_once(chunks):
            return not self._queue
        self._enqueue(chunks, sum(map(len, chunks)))
        if self._watched_fd >= 0:
            self._report_writable()
            return False
        self._drain()
        return not self._queue

    def watch_output(self, on_sent: Callable[[], None]) -> None:
        """Call back when the kernel has taken some of the queue, until the queue is empty."""
        if self._queue:
            self._on_sent = on_sent

    def receive_at_least(self, count: int) -> None:
        """Let the kernel report received bytes only when this number has arrived, on Linux."""
        wanted = min(count, RECEIVE_MAX_BYTES) if count >= RECEIVE_MIN_BYTES else 1
        if wanted == self._receive_bytes or self._fd < 0 or not _IS_LINUX:
            return
        self._receive_bytes = wanted
        # Without this option, the kernel reports all bytes at once.
        assert self._transport is not None
        with suppress(OSError):
            self._transport.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_RCVLOWAT, wanted
            )

    def pause_reading(self) -> None:
        """Stop reading until `resume_reading`; the kernel buffers received bytes.

        A stream that is paused in `on_connected` may report received bytes once more.
        """
        if self._transport is not None and not self.is_closing:
            self._is_paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Start receiving again."""
        if self._transport is not None and not self.is_closing:
            self._is_paused = False
            self._transport.resume_reading()

    def _pause_again(self) -> None:
        """Stop the reading that event loops start after `connection_made`, even if it was paused.

        asyncio ignores a second pause, so the reading is resumed in between.
        """
        if self._is_paused and self._transport is not None and not self.is_closing:
            self._transport.resume_reading()
            self._transport.pause_reading()

    def close(self) -> None:
        """Send the queued data, then close."""
        if self.is_closing or self._transport is None:
            return
        self.is_closing = True
        if self._queue:
            self._transport.pause_reading()
        else:
            self._transport.close()

    def abort(self) -> None:
        """Close immediately."""
        if self._transport is None or self._fd < 0:
            return
        self.is_closing = True
        self._forget_queue()
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the stream; called by the event loop."""
        self._transport = cast("asyncio.Transport", transport)
        if self._on_opened is not None and not self._on_opened(self):
            self.is_closing = True
            self._transport.abort()
            return
        # The loop has set TCP_NODELAY and made the descriptor non-blocking.
        self._fd = transport.get_extra_info("socket").fileno()
        self.peer = _address(transport.get_extra_info("peername"))
        self.local = _address(transport.get_extra_info("sockname"))
        self._handler.on_connected(self)
        if self._is_paused:
            self._loop.call_soon(self._pause_again)

    def connection_lost(self, exc: Exception | None) -> None:
        """End the stream; called by the event loop while the descriptor is still open."""
        was_open = self._fd >= 0
        self._fd = -1
        self.is_closing = True
        self._forget_queue()
        if was_open:
            self._handler.on_closed(self._error or exc)
        del self.get_buffer, self.buffer_updated

    def eof_received(self) -> bool:
        """Send the queued data after the peer has stopped sending, then close."""
        if self._queue:
            self.close()
            return True
        return False

    def _wrote_at_once(self, chunks: Sequence[Chunk]) -> bool:
        """Send without the queue; returns False if nothing was sent this way.

        Usually nothing is queued, no slice is large, and the kernel takes all data.
        """
        if len(chunks) > IOV_MAX:
            return False
        try:
            in_memory = _gathered(chunks)
            if in_memory is None:
                return False
            size = sum(map(len, in_memory))
            sent = os.writev(self._fd, in_memory)
        except BlockingIOError:
            return False
        except OSError as error:
            self._fail(error)
            return True
        if sent < size:
            self._enqueue(_unsent(in_memory, sent), size - sent)
            self._watch()
            self._report_writable()
        return True

    def _enqueue(self, chunks: Sequence[Chunk], size: int) -> None:
        if self._queue is None:
            self._queue = deque(chunks)
        else:
            self._queue.extend(chunks)
        self._queued_bytes += size

    def _drain(self) -> None:
        try:
            self._send_queued()
        except BlockingIOError:
            self._watch()
        except OSError as error:
            self._fail(error)
            return
        self._report_writable()

    def _send_queued(self) -> None:
        """Send until the queue is empty.

        Raises:
            BlockingIOError: the kernel's buffer is full.
        """
        while queue := self._queue:
            head = queue[0]
            if isinstance(head, FileSlice) and _worth_sendfile(head):
                self._send_slice(queue, head)
            else:
                self._send_gathered(queue)

    def _send_slice(self, queue: deque[Chunk], head: FileSlice) -> None:
        sent = send_file(self._fd, head.file.fileno(), head.position, head.length)
        if sent == 0:
            raise TruncatedSliceError(errno.EIO, "file truncated while it was sent", head.file.path)
        self._queued_bytes -= sent
        queue.popleft()
        if sent < head.length:
            rest = FileSlice(head.file, head.position + sent, head.length - sent)
            queue.appendleft(rest)

    def _send_gathered(self, queue: deque[Chunk]) -> None:
        """Send all chunks before the next large file slice with one writev."""
        gathered: list[Bytes] = []
        while queue and len(gathered) < IOV_MAX:
            chunk = queue[0]
            if isinstance(chunk, IN_MEMORY):
                gathered.append(chunk)
            elif _worth_sendfile(chunk):
                break
            else:
                gathered.append(copy_slice(chunk))
            queue.popleft()
        try:
            sent = os.writev(self._fd, gathered)
        except OSError:
            queue.extendleft(reversed(gathered))
            raise
        self._queued_bytes -= sent
        left = sum(map(len, gathered)) - sent
        if left:
            queue.extendleft(reversed(_unsent(gathered, sent)))

    def _watch(self) -> None:
        if self._watched_fd < 0:
            try:
                self._watched_fd = os.dup(self._fd)
            except OSError as error:
                # No descriptor is free. Only this connection ends.
                self._fail(error)
                return
            self._loop.add_writer(self._watched_fd, self._on_writable)

    def _unwatch(self) -> None:
        if self._watched_fd >= 0:
            self._loop.remove_writer(self._watched_fd)
            os.close(self._watched_fd)
            self._watched_fd = -1

    def _on_writable(self) -> None:
        self._drain()
        on_sent = self._on_sent
        if on_sent is not None:
            if not self._queue:
                self._on_sent = None
            on_sent()
        if not self._queue and self._watched_fd >= 0:
            self._unwatch()
            if self.is_closing and self._transport is not None:
                self._transport.close()

    def _report_writable(self) -> None:
        if self._writable:
            if self._queued_bytes > HIGH_WATER_BYTES:
                self._writable = False
                self._handler.on_writable_changed(False)
        elif self._queued_bytes <= LOW_WATER_BYTES:
            self._writable = True
            if not self.is_closing:
                self._handler.on_writable_changed(True)

    def _fail(self, error: OSError) -> None:
        self._error = error
        self.abort()

    def _forget_queue(self) -> None:
        self._unwatch()
        self._queue = None
        self._queued_bytes = 0
        self._on_sent = None


class WatchedStream(LoopStream):
    """A stream whose handling of received data is measured by a loop watch.

    Connections of clients do not need it, because the dispatcher measures each request.
    """

    __slots__ = ()

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        handler: StreamHandler,
        watch: LoopWatch,
        on_opened: Callable[[LoopStream], bool] | None = None,
    ) -> None:
        super().__init__(loop, handler, on_opened)
        # mypy does not allow methods to be replaced on an instance.
        self.buffer_updated = partial(watch.run, handler.on_received)  # type: ignore[method-assign]  # see above


def copy_slice(chunk: Sliceable) -> bytes:
    """Return all bytes of a slice. Raises TruncatedSliceError if the file was truncated."""
    data = chunk.read()
    if len(data) < len(chunk):
        raise TruncatedSliceError(errno.EIO, "file truncated before it was sent")
    return data


def _gathered(chunks: Sequence[Chunk]) -> Sequence[Bytes] | None:
    """Return chunks in memory, with copies of small slices; None if a slice is for sendfile."""
    if _IN_MEMORY_TYPES.issuperset(map(type, chunks)):
        return chunks  # type: ignore[return-value]  # no chunk is a slice
    if any(map(_worth_sendfile, chunks)):
        return None
    return [each if isinstance(each, IN_MEMORY) else copy_slice(each) for each in chunks]


def _worth_sendfile(chunk: Chunk) -> bool:
    return (
        HAS_SENDFILE
        and isinstance(chunk, FileSlice)
        and chunk.length >= SENDFILE_MIN_BYTES
        and chunk.file.fileno() >= 0
    )


def _unsent(chunks: Sequence[Bytes], sent: int) -> list[Bytes]:
    for index, chunk in enumerate(chunks):
        if sent < len(chunk):
            return [memoryview(chunk)[sent:], *chunks[index + 1 :]]
        sent -= len(chunk)
    return []


def _address(name: Any) -> str:
    """Return a socket name as "host:port", with IPv6 hosts in brackets; "" if unknown."""
    if not isinstance(name, tuple):
        return ""
    host, port = name[0], name[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
