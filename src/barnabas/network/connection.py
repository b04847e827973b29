"""The server's side of one connection: reads requests, writes responses in request order.

Each accepted request reserves a `ResponseSlot`. The response may come at once or later. Until then,
later requests of the connection wait (`request_order` has the exceptions). A response is held until
all slots before it have their responses.

The connection stops reading when a request has to wait, while the peer sends faster than its
requests are processed, and while the peer does not read its responses. This limits the memory per
connection. Requests that arrived in the same read are deferred, in their order.

In each turn of the event loop, the requests of one connection get a share of time, but at least one
request is processed. The remaining requests are deferred to the next turn, so that other
connections are served in between.
"""

from __future__ import annotations

import logging
from collections import deque
from math import inf
from typing import TYPE_CHECKING

from barnabas.network.connection_limits import ConnectionStatistics
from barnabas.network.framed_protocol import LENGTH_BYTES, FramedHandler
from barnabas.network.network_error import foreign_client
from barnabas.network.pause_reasons import (
    CLOSING,
    DEFERRED,
    HELD,
    IN_FLIGHT,
    LARGE,
    LARGE_BYTES,
    MEMORY,
    MUTED,
    ORDER,
    PEER_CHECK_MS,
    THROTTLED,
    UNWRITABLE,
    WAITING,
    WORKING,
)
from barnabas.network.request_order import (
    API_KEY_BYTES,
    DeferredFrames,
    ResponseSlot,
    SendTimes,
    group_of,
)
from barnabas.protocol.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.network.connection_limits import ConnectionDependencies, ConnectionLimits
    from barnabas.network.principal import Principal
    from barnabas.network.request_order import ResponseTimes
    from barnabas.runtime.clock import Cancellable
    from barnabas.runtime.sockets import Chunk, Stream

_log = logging.getLogger(__name__)

# Share of a turn for the requests of one connection. The last request may exceed it.
SHARE_MS = 2.0


class Connection(FramedHandler):
    """One client's connection, on the server."""

    __slots__ = (
        "_clock",
        "_deferred",
        "_frame_budget",
        "_group",
        "_held_bytes",
        "_is_peer_gone",
        "_is_processing_scheduled",
        "_large",
        "_large_bytes",
        "_limits",
        "_on_closed",
        "_paused",
        "_peer_check",
        "_send_times",
        "_slots",
        "_throttle_timer",
        "_throttled_until_ms",
        "_turn_ms",
        "_works",
        "client_id",
        "id",
        "last_activity_ms",
        "login",
        "login_due_ms",
        "malformed",
        "on_request",
        "principal",
        "queued_ms",
        "requests",
        "session",
    )

    def __init__(
        self,
        connection_id: int,
        dependencies: ConnectionDependencies,
        limits: ConnectionLimits,
        on_request: Callable[[Connection, memoryview], None],
        on_closed: Callable[[Connection, Exception | None], None],
    ) -> None:
        """Create the connection of one client.

        Args:
            connection_id: the id of the connection.
            dependencies: resources that all connections of the broker share.
            limits: limits of this connection.
            on_request: called with each frame. It `reserve()`s a slot for each accepted request.
            on_closed: called once when the connection has ended.
        """
        super().__init__(
            dependencies.timer,
            dependencies.receive_buffer,
            limits.frame_bytes_max,
            frame_memory=dependencies.frame_budget,
        )
        self.id = connection_id
        self._clock = dependencies.clock
        self._frame_budget = dependencies.frame_budget
        self._limits = limits
        # The owner may replace it.
        self.on_request = on_request
        self._on_closed = on_closed
        # Slots of requests without a sent response, oldest first.
        self._slots: deque[ResponseSlot] = deque()
        self._held_bytes = 0
        self._send_times = SendTimes(dependencies.clock)
        # Sizes of large requests without a response, and their sum.
        self._large: dict[ResponseSlot, int] = {}
        self._large_bytes = 0
        # Number of accepted requests.
        self.requests = 0
        self._paused = 0
        # Number of `begin_work` calls without their `end_work`.
        self._works = 0
        # Whether a call of `_process_deferred` is scheduled for the next turn.
        self._is_processing_scheduled = False
        # None if there are no deferred requests.
        self._deferred: DeferredFrames | None = None
        # Group of the requests in `_slots`, see `request_order`. Undefined without slots.
        self._group = 0
        # When the last request that others waited for got its response, in monotonic ms.
        self._turn_ms = 0.0
        self._throttle_timer: Cancellable | None = None
        # Whether the peer has closed the connection, while deferred requests are still processed.
        self._is_peer_gone = False
        # Timer of the next check of the peer, while a reason of WAITING applies.
        self._peer_check: Cancellable | None = None
        self._throttled_until_ms = 0.0
        # Arrival time of the current or last request.
        self.last_activity_ms = dependencies.clock.monotonic_ms()
        # Time in ms between its full arrival and the start of its processing.
        self.queued_ms = 0.0
        # The protocol error that ended the connection, or None.
        self.malformed: str | None = None
        # The server's state of this connection, such as the client software.
        self.session: object = None
        # The client id of the first request, and the identity of the client; None until known.
        self.client_id: str | None = None
        self.principal: Principal | None = None
        # State of the authentication, and the time by which it has to be complete (monotonic ms).
        self.login: object = None
        self.login_due_ms = inf

    @property
    def stream(self) -> Stream | None:
        """The underlying stream; None after the connection has closed."""
        return self._stream

    def reserve(self) -> ResponseSlot:
        """Reserve the slot of the current request. Responses are sent in the order of the slots."""
        slot = ResponseSlot(self)
        self._slots.append(slot)
        if len(self._slots) >= self._limits.in_flight_max:
            self._pause(IN_FLIGHT)
        return slot

    def limit_frames(self, frame_bytes_max: int) -> None:
        """Reject larger frames from now on, for example before the client is authenticated."""
        self._splitter.max_frame_bytes = frame_bytes_max

    def unlimit_frames(self) -> None:
        """Accept frames up to the limit of the configuration again."""
        self._splitter.max_frame_bytes = self._limits.frame_bytes_max

    def close(self) -> None:
        """Accept no more requests, and close after all accepted requests have their responses."""
        self._pause(CLOSING)
        self._maybe_close()

    def mute(self) -> None:
        """Stop reading until `unmute`, for example during authentication."""
        self._pause(MUTED)

    def unmute(self) -> None:
        """Continue reading."""
        self._resume(MUTED)

    def begin_work(self) -> None:
        """Accept no further request until `end_work`: the current request takes several turns."""
        self._works += 1
        self._pause(WORKING)

    def end_work(self) -> None:
        """Undo one `begin_work`. After the last one, accept requests again."""
        assert self._works > 0, "end_work without begin_work"
        self._works -= 1
        if not self._works:
            self._resume(WORKING)

    def throttle(self, duration_ms: float) -> None:
        """Stop reading for this duration, since the client exceeds its quota (KIP-219)."""
        until_ms = self._clock.monotonic_ms() + duration_ms
        self._throttled_until_ms = max(self._throttled_until_ms, until_ms)
        if self._throttle_timer is None:
            self._pause(THROTTLED)
            self._throttle_timer = self._timer.call_later(duration_ms, self._maybe_end_throttle)

    @property
    def is_throttled(self) -> bool:
        """Whether the quota currently delays the client."""
        return bool(self._paused & THROTTLED)

    @property
    def read_ms(self) -> float:
        """Time of the current read, if it has several frames; in monotonic ms."""
        return self._share_ends_ms - SHARE_MS

    def idle_ms(self) -> float:
        """Return the time since the last received request, in ms. 0 while a request is pending."""
        if self._slots:
            return 0.0
        return self._clock.monotonic_ms() - self.last_activity_ms

    def statistics(self) -> ConnectionStatistics:
        """Return a snapshot of the counters."""
        return ConnectionStatistics(
            requests=self.requests,
            in_flight=len(self._slots),
            held_bytes=self._held_bytes,
            buffered_bytes=0 if self._stream is None else self._stream.buffered_bytes,
            bytes_in=self.bytes_in,
            bytes_out=self.bytes_out,
            paused=bool(self._paused),
        )

    def on_opened(self) -> None:
        """Apply a mute that was requested before the connection was established."""
        if self._paused and self._stream is not None:
            self._stream.pause_reading()

    def on_frame(self, frame: memoryview) -> None:
        """Process or defer a request.

        Requests that follow `close()` in the same read are ignored.
        """
        if self._paused or (self._slots and self._must_wait(group_of(frame))):
            self._keep_for_later(frame)
            return
        now_ms = self._clock.monotonic_ms()
        if now_ms > self._share_ends_ms:
            self._pause(DEFERRED)
            self._keep_for_later(frame)
            self._schedule_deferred()
            return
        self.requests += 1
        self.last_activity_ms = now_ms
        if self._share_ends_ms != inf:
            # The share started with the read in which this request arrived.
            self.queued_ms = now_ms - (self._share_ends_ms - SHARE_MS)
        else:
            self.queued_ms = 0.0
            if self._splitter.has_more:
                self._share_ends_ms = now_ms + SHARE_MS
                self.is_pipelined = True
        self.on_request(self, frame)
        if self._slots and (len(self._slots) == 1 or len(frame) > LARGE_BYTES):
            self._note_pending(frame)

    def on_malformed(self, error: ProtocolError) -> None:
        """Remember the error; `on_closed` follows."""
        # Store the text only: a traceback would refer to this connection.
        self.malformed = foreign_client(self._splitter.refused_start) or str(error)

    def on_failed(self, error: Exception) -> bool:
        """Close the connection after an error in a request: no other client is affected.

        A failed assertion is raised: it ends the process.
        """
        if isinstance(error, AssertionError):
            return False
        _log.error("Request failed, connection closed: client=%s", self.peer, exc_info=error)
        self.abort()
        return True

    def on_frame_memory(self, held_bytes: int) -> None:
        """Update the budget. Leave a large request in the kernel until its turn comes."""
        if held_bytes > LARGE_BYTES and self._slots and not self._paused:
            start = self._splitter.unfinished_start(LENGTH_BYTES + API_KEY_BYTES)
            self._must_wait(group_of(start[LENGTH_BYTES:]))
        self._report_memory()

    @property
    def missing_frame_bytes(self) -> int:
        """Number of bytes of the partially received request that have not arrived."""
        return self._splitter.missing_bytes

    def await_frame_memory(self) -> None:
        """Stop reading until the budget has room for the request."""
        self._pause(MEMORY)

    def resume_frame(self) -> None:
        """Continue reading, since the budget has room again."""
        self._resume(MEMORY)

    def drop_frame(self, reason: str) -> None:
        """Close the connection, whose partially received request blocks other connections."""
        _log.warning("Connection closed: client=%s reason=%s", self.peer, reason)
        self.abort()

    def on_writable_changed(self, writable: bool) -> None:
        """Stop reading while the peer does not read its responses."""
        if writable:
            self._resume(UNWRITABLE)
        else:
            self._pause(UNWRITABLE)

    def on_lost(self, error: Exception | None) -> None:
        """Drop unsent responses, cancel pending operations and notify the owner."""
        if self._frame_budget is not None:
            self._frame_budget.hold(self, 0)
        self._abandon_pending()
        self._send_times.end(self.bytes_out)
        self._deferred = None
        for timer in (self._throttle_timer, self._peer_check):
            if timer is not None:
                timer.cancel()
        self._throttle_timer = self._peer_check = None
        self._on_closed(self, error)

    def on_response(
        self, slot: ResponseSlot, chunks: Sequence[Chunk], times: ResponseTimes | None
    ) -> None:
        """Send the response, or hold it until earlier responses are sent. Called by the slot."""
        slots = self._slots
        if not slots:
            # The connection has ended, and all slots are abandoned.
            return
        if self._large:
            self._large_bytes -= self._large.pop(slot, 0)
        if slots[0] is not slot:
            if not self._is_peer_gone:
                self._hold(slot, chunks, times)
            return
        slots.popleft()
        self._output.extend(chunks)
        if slots and slots[0].has_response:
            self._release_held()
        if slots or (self._receiving and (self._splitter.has_more or self._deferred)):
            if times is not None:
                self._send_times.unwritten.append(times)
            if not self._receiving:
                self.flush_later()
        else:
            # No other response of this turn can be added: send it before the turn's other work.
            is_sent = self.flush()
            if times is not None and not is_sent:
                self._send_times.unwritten.append(times)
            if self._send_times.unwritten:
                self._note_written(is_sent)
        if self._paused:
            self._maybe_resume()
            self._maybe_close()

    def _hold(
        self, slot: ResponseSlot, chunks: Sequence[Chunk], times: ResponseTimes | None
    ) -> None:
        """Hold a response until earlier responses are sent."""
        slot.chunks = chunks
        slot.held_since_ms = self._clock.monotonic_ms()
        slot.times = times
        self._held_bytes += sum(map(len, chunks))
        if self._held_bytes > self._limits.held_bytes_max:
            self._pause(HELD)

    def _release_held(self) -> None:
        """Add the held responses whose predecessors are sent to the output."""
        slots = self._slots
        while slots and slots[0].has_response:
            released = slots.popleft()
            times, released.times = released.times, None
            if times is not None:
                times.on_released(self._clock.monotonic_ms() - released.held_since_ms)
                self._send_times.unwritten.append(times)
            self._held_bytes -= sum(map(len, released.chunks))
            self._output.extend(released.chunks)

    def flush_collected(self) -> None:
        """Write the output of one turn."""
        is_sent = self.flush()
        if self._send_times.unwritten:
            self._note_written(is_sent)

    def _note_written(self, is_sent: bool) -> None:
        """Start to measure the send time of the written responses, unless they are sent already."""
        if is_sent or self._stream is None:
            self._send_times.unwritten.clear()
            return
        self._send_times.begin(self.bytes_out)
        self._stream.watch_output(self._on_output_sent)

    def _on_output_sent(self) -> None:
        if self._stream is not None:
            self._send_times.count(self.bytes_out - self._stream.buffered_bytes)

    def _maybe_resume(self) -> None:
        if self._paused & IN_FLIGHT and len(self._slots) <= self._limits.in_flight_max // 2:
            self._resume(IN_FLIGHT)
        if self._paused & HELD and self._held_bytes <= self._limits.held_bytes_max // 2:
            self._resume(HELD)
        if self._paused & LARGE and self._large_bytes <= self._limits.waiting_bytes_max // 2:
            self._resume(LARGE)
        if self._paused & ORDER and not self._slots:
            self._turn_ms = self._clock.monotonic_ms()
            self._resume(ORDER)

    def _abandon_pending(self) -> None:
        """Cancel the pending operations, whose responses are not needed."""
        slots, self._slots = self._slots, deque()
        for slot in slots:
            slot.abandon()
        self._held_bytes = self._large_bytes = 0
        self._large.clear()

    def _must_wait(self, group: int) -> bool:
        """Return whether the next request waits for responses. Do the collected work if it may.

        Args:
            group: the group of the next request, see `request_order`.
        """
        if group and group == self._group:
            return False
        self.do_collected()
        if self._is_peer_gone:
            self._abandon_pending()
        if not self._slots:
            return False
        self._pause(ORDER)
        return True

    def _note_pending(self, frame: memoryview) -> None:
        """Remember the group of a request without a response. Pause at the limit of large ones."""
        self._group = group_of(frame)
        size = len(frame)
        if size > LARGE_BYTES and not self._slots[-1].has_response:
            self._large[self._slots[-1]] = size
            self._large_bytes += size
            if self._large_bytes > self._limits.waiting_bytes_max:
                self._pause(LARGE)

    def _maybe_close(self) -> None:
        if self._paused & CLOSING and not self._slots and self._stream is not None:
            self.flush_collected()
            self._stream.close()

    def _pause(self, reason: int) -> None:
        was_reading = not self._paused
        self._paused |= reason
        if was_reading and self._stream is not None:
            self._stream.pause_reading()
        if reason & WAITING and self._peer_check is None:
            self._peer_check = self._timer.call_later(PEER_CHECK_MS, self._check_peer)

    def _check_peer(self) -> None:
        """Find out whether the peer has closed, which a paused stream does not report.

        Then deferred requests are processed, for example a LeaveGroup behind a JoinGroup. They wait
        for no response. After that the stream reports the end.
        """
        self._peer_check = None
        if not self._paused & WAITING or self._stream is None:
            return
        if not self._stream.has_peer_ended:
            self._peer_check = self._timer.call_later(PEER_CHECK_MS, self._check_peer)
        elif self._deferred is None:
            self.abort()
        else:
            self._is_peer_gone = True
            self._abandon_pending()
            self._maybe_resume()
            self._maybe_close()

    def _resume(self, reason: int) -> None:
        if not self._paused & reason:
            return
        self._paused &= ~reason
        if self._paused == DEFERRED:
            # In a separate turn, since the caller may be processing a request.
            self._schedule_deferred()
        elif not self._paused and self._stream is not None:
            self._stream.resume_reading()
            if reason != MEMORY:
                self._report_memory()

    def _report_memory(self) -> None:
        """Tell the budget how much memory the unprocessed requests take.

        A connection that does not read waits for no memory: others get it first.
        """
        if self._frame_budget is not None:
            counted = 0 if self._deferred is None else self._deferred.counted_bytes
            held_bytes = self._frame_bytes + counted
            self._frame_budget.hold(self, held_bytes, may_wait=not self._paused)

    def _keep_for_later(self, frame: memoryview) -> None:
        if self._paused & CLOSING:
            return
        deferred = self._deferred
        if deferred is None:
            deferred = self._deferred = DeferredFrames()
        self._paused |= DEFERRED
        received_ms = self._share_ends_ms - SHARE_MS
        if received_ms == inf:
            received_ms = self._clock.monotonic_ms()
        if deferred.add(frame, received_ms):
            self._report_memory()

    def _schedule_deferred(self) -> None:
        if not self._is_processing_scheduled:
            self._is_processing_scheduled = True
            self._timer.call_soon(self._process_deferred)

    def _process_deferred(self) -> None:
        """Process deferred requests like those of a read: work and responses are collected."""
        self._is_processing_scheduled = False
        self._receiving = True
        try:
            self._process_share()
        finally:
            self.is_pipelined = False
            self.do_collected()
            self._share_ends_ms = inf
            self._receiving = False
        if self._output and self.is_open:
            self.flush_collected()

    def _process_share(self) -> None:
        """Process deferred requests until the share is used up or the connection pauses again."""
        share_ends_ms = self._clock.monotonic_ms() + SHARE_MS
        while self._paused == DEFERRED and self.is_open:
            deferred = self._deferred
            assert deferred is not None, "a pause for deferred requests without one"
            if self._clock.monotonic_ms() > share_ends_ms:
                self._schedule_deferred()
                return
            if self._slots and self._must_wait(deferred.group_of_first()):
                return
            frame, received_ms = deferred.take()
            if deferred.is_empty:
                self._deferred = None
                self._resume(DEFERRED)
            elif not self.is_pipelined:
                self.is_pipelined = True
                # The local time of collected requests begins when the first one may be processed.
                self._share_ends_ms = max(received_ms, self._turn_ms) + SHARE_MS
            with frame:
                self._process(frame, received_ms)

    def _process(self, frame: memoryview, received_ms: float) -> None:
        self.requests += 1
        self.last_activity_ms = self._clock.monotonic_ms()
        # The wait for responses to earlier requests is not a time in the queue, as in Kafka.
        self.queued_ms = self.last_activity_ms - max(received_ms, self._turn_ms)
        try:
            self.on_request(self, frame)
        except ProtocolError as error:
            self.abort()
            self.on_malformed(error)
        except Exception as error:
            if not self.on_failed(error):
                raise
        if self._slots:
            self._note_pending(frame)

    def _maybe_end_throttle(self) -> None:
        left_ms = self._throttled_until_ms - self._clock.monotonic_ms()
        if left_ms > 0:
            self._throttle_timer = self._timer.call_later(left_ms, self._maybe_end_throttle)
        else:
            self._throttle_timer = None
            self._resume(THROTTLED)
