"""The server's side of one connection: requests in, responses out in the order of the requests.

A request gets a `ResponseSlot` when it is taken up; it may be answered at once, or much later when
it had to wait, while later requests of the same connection are already worked on. A slot that is
answered holds its answer until all slots before it are answered.

A peer that sends faster than it is served, or does not read its answers, is read from no more
until that changes: that bounds what a connection can make us keep. Requests that came in the same
read are put off, in their order.

The requests of one connection get a share of each turn of the loop, and one request at least. Those
that are left are put off to the next turn, so that other connections are served in between.
"""

from __future__ import annotations

import logging
from collections import deque
from math import inf
from struct import Struct
from typing import TYPE_CHECKING

import msgspec

from barnabas.network.framed_protocol import FramedHandler
from barnabas.network.response_slot import ResponseSlot
from barnabas.protocol.protocol_error import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.network.frame_budget import FrameBudget
    from barnabas.network.response_slot import ResponseTimes
    from barnabas.runtime.clock import Clock
    from barnabas.runtime.sockets import Chunk, Stream
    from barnabas.runtime.timer import Cancellable, Timer

_log = logging.getLogger(__name__)

FRAME_BYTES_MAX = 100 * 1024 * 1024
# What the requests of one connection that came together get of a turn; the last one may be longer.
SHARE_MS = 2.0


class ConnectionLimits(msgspec.Struct, frozen=True):
    """What one connection may ask of us."""

    # `socket.request.max.bytes`.
    frame_bytes_max: int = FRAME_BYTES_MAX
    # Requests taken up and not answered; reading stops there and goes on at half of it.
    in_flight_max: int = 128
    # Answers held back behind an earlier one that still waits.
    held_bytes_max: int = 4 * 1024 * 1024
    # Large requests that are taken up and not answered: what they say is kept meanwhile.
    waiting_bytes_max: int = 16 * 1024 * 1024


class ConnectionDoors(msgspec.Struct, frozen=True):
    """What all connections of a broker share."""

    clock: Clock
    timer: Timer
    receive_buffer: bytearray
    # Of requests that have not arrived in full; None without a limit.
    frame_budget: FrameBudget | None = None


class ConnectionStatistics(msgspec.Struct, frozen=True):
    """A snapshot."""

    requests: int
    in_flight: int
    held_bytes: int
    buffered_bytes: int
    bytes_in: int
    bytes_out: int
    paused: bool


# Reasons not to read, any of them suffices. Plain numbers: an enum's `&` costs 300 ns per request.
_IN_FLIGHT = 1
_HELD = 2
_UNWRITABLE = 4
_MUTED = 8
_CLOSING = 16
_THROTTLED = 32
# Requests that were put off have not been taken up again.
_PUT_OFF = 64
# One request is worked on over several turns; those behind it may depend on it.
_WORKING = 128
# The budget of unfinished requests is used up.
_MEMORY = 256
# Large requests wait for their answers.
_LARGE = 512
# A request above this size counts among them.
_LARGE_BYTES = 64 * 1024
# In front of a request that was put off: its size, and when all of it had been received.
_PUT_OFF_HEAD = Struct(">id")
# Requests that wait are the reason; the connection's end would not be seen.
_WAITING = _IN_FLIGHT | _HELD | _WORKING | _LARGE
# Between two looks whether the peer of such a connection is still there.
_PEER_CHECK_MS = 1_000.0


class _Sending(msgspec.Struct):
    """A write of which the kernel has taken a part."""

    # Bytes of the connection up to its end.
    end_bytes: int
    written_ms: float
    responses: list[ResponseTimes]


class Connection(FramedHandler):
    """One client's connection, on the server."""

    __slots__ = (
        "_clock",
        "_frame_budget",
        "_held_bytes",
        "_large",
        "_large_bytes",
        "_limits",
        "_on_closed",
        "_on_request",
        "_paused",
        "_peer_check",
        "_put_off",
        "_put_off_start",
        "_sending",
        "_slots",
        "_take_is_due",
        "_throttle_timer",
        "_throttled_until_ms",
        "_unwritten",
        "_works",
        "id",
        "last_activity_ms",
        "malformed",
        "queued_ms",
        "requests",
        "session",
    )

    def __init__(
        self,
        connection_id: int,
        doors: ConnectionDoors,
        limits: ConnectionLimits,
        on_request: Callable[[Connection, memoryview], None],
        on_closed: Callable[[Connection, Exception | None], None],
    ) -> None:
        """`on_request` gets each frame and must `reserve()` a slot for each that it takes up."""
        super().__init__(
            doors.timer,
            doors.receive_buffer,
            limits.frame_bytes_max,
            frame_memory=doors.frame_budget,
        )
        self.id = connection_id
        self._clock = doors.clock
        self._frame_budget = doors.frame_budget
        self._limits = limits
        self._on_request = on_request
        self._on_closed = on_closed
        # Requests without an answer, or with one that waits for an earlier; oldest first.
        self._slots: deque[ResponseSlot] = deque()
        self._held_bytes = 0
        # Responses in the output that is collected for one write.
        self._unwritten: list[ResponseTimes] = []
        # Writes that the kernel has not taken in full, oldest first.
        self._sending: deque[_Sending] = deque()
        # Sizes of large requests that wait for their answers, and their sum.
        self._large: dict[ResponseSlot, int] = {}
        self._large_bytes = 0
        # Taken up so far.
        self.requests = 0
        self._paused = 0
        # Calls of `begin_work` without their `end_work`.
        self._works = 0
        # Whether `_take_put_off` is to be called in the next turn.
        self._take_is_due = False
        # Frames that came in one read with the request that made us pause, with their lengths, as
        # one copy: an object for each of many small ones would take twenty times their size.
        # Up to _put_off_start they have been taken up. None for none.
        self._put_off: bytearray | None = None
        self._put_off_start = 0
        self._throttle_timer: Cancellable | None = None
        # Set while a look at the peer is due, because of _WAITING.
        self._peer_check: Cancellable | None = None
        self._throttled_until_ms = 0.0
        # Requests that are worked on in turns.
        self._works = 0
        # When the request that is being handled, or the last one, came.
        self.last_activity_ms = doors.clock.monotonic_ms()
        # How long that request waited for its turn after all of it had been received.
        self.queued_ms = 0.0
        # What the peer sent that is no frame, if that ended the connection.
        self.malformed: str | None = None
        # The server's own state of this connection: principal, client software, and so on.
        self.session: object = None

    @property
    def stream(self) -> Stream | None:
        """The stream below; None once closed."""
        return self._stream

    def reserve(self) -> ResponseSlot:
        """The slot of the request that is being handled; slots are answered in this order."""
        slot = ResponseSlot(self)
        self._slots.append(slot)
        if len(self._slots) >= self._limits.in_flight_max:
            self._pause(_IN_FLIGHT)
        return slot

    def close(self) -> None:
        """Take up no more requests; close when all that were taken up are answered."""
        self._pause(_CLOSING)
        self._maybe_close()

    def mute(self) -> None:
        """Read nothing until `unmute`: the peer is over its quota, or being authenticated."""
        self._pause(_MUTED)

    def unmute(self) -> None:
        """Read again."""
        self._resume(_MUTED)

    def begin_work(self) -> None:
        """Take up no further request until `end_work`: one is worked on over several turns."""
        self._works += 1
        self._pause(_WORKING)

    def end_work(self) -> None:
        """Undo one `begin_work`; after the last one, take up requests again."""
        assert self._works > 0, "end_work without begin_work"
        self._works -= 1
        if not self._works:
            self._resume(_WORKING)

    def throttle(self, duration_ms: float) -> None:
        """Read nothing for so long: the peer is over its quota (KIP-219)."""
        until_ms = self._clock.monotonic_ms() + duration_ms
        self._throttled_until_ms = max(self._throttled_until_ms, until_ms)
        if self._throttle_timer is None:
            self._pause(_THROTTLED)
            self._throttle_timer = self._timer.call_later(duration_ms, self._maybe_end_throttle)

    @property
    def is_throttled(self) -> bool:
        """Whether the peer has to wait for its quota."""
        return bool(self._paused & _THROTTLED)

    def idle_ms(self) -> float:
        """How long nothing has been received; 0 while a request waits for its answer."""
        if self._slots:
            return 0.0
        return self._clock.monotonic_ms() - self.last_activity_ms

    def statistics(self) -> ConnectionStatistics:
        """A snapshot."""
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
        """Whoever muted it before it stood meant it."""
        if self._paused and self._stream is not None:
            self._stream.pause_reading()

    def on_frame(self, frame: memoryview) -> None:
        """A request. What follows `close()` in the same read is not taken up."""
        if self._paused:
            self._keep_for_later(frame)
            return
        now_ms = self._clock.monotonic_ms()
        if now_ms > self._share_ends_ms:
            self._pause(_PUT_OFF)
            self._keep_for_later(frame)
            self._take_soon()
            return
        self.requests += 1
        self.last_activity_ms = now_ms
        if self._share_ends_ms != inf:
            # The share began when the read did, in which this request came too.
            self.queued_ms = now_ms - (self._share_ends_ms - SHARE_MS)
        else:
            self.queued_ms = 0.0
            if self._splitter.has_more:
                self._share_ends_ms = now_ms + SHARE_MS
        size = len(frame)
        self._on_request(self, frame)
        if size > _LARGE_BYTES:
            self._note_large(size)

    def on_malformed(self, error: ProtocolError) -> None:
        """Remember why; `on_closed` follows."""
        # Without the traceback, which leads back to this connection.
        self.malformed = str(error)

    def on_frame_memory(self, held_bytes: int) -> None:
        """Count an unfinished request, which may have to wait."""
        if self._frame_budget is not None:
            self._frame_budget.hold(self, held_bytes)

    @property
    def missing_frame_bytes(self) -> int:
        """How much of an unfinished request has not arrived."""
        return self._splitter.missing_bytes

    def await_frame_memory(self) -> None:
        """Read nothing until there is room for more of the request."""
        self._pause(_MEMORY)

    def resume_frame(self) -> None:
        """There is room: read again."""
        self._resume(_MEMORY)

    def drop_frame(self, reason: str) -> None:
        """Close the connection, whose unfinished request holds others up."""
        _log.warning("Connection of %s closed: %s", self.peer, reason)
        self.abort()

    def on_writable_changed(self, writable: bool) -> None:
        """A peer that does not read its answers may not ask for more."""
        if writable:
            self._resume(_UNWRITABLE)
        else:
            self._pause(_UNWRITABLE)

    def on_lost(self, error: Exception | None) -> None:
        """Answers to come are dropped, and what waits to make them is canceled."""
        if self._frame_budget is not None:
            self._frame_budget.hold(self, 0)
        slots, self._slots = self._slots, deque()
        for slot in slots:
            slot.abandon()
        self._count_sent(self.bytes_out)
        self._unwritten.clear()
        self._held_bytes = 0
        self._large.clear()
        self._put_off = None
        for timer in (self._throttle_timer, self._peer_check):
            if timer is not None:
                timer.cancel()
        self._throttle_timer = self._peer_check = None
        self._on_closed(self, error)

    def on_answered(
        self,
        slot: ResponseSlot,
        chunks: Sequence[Chunk],
        times: ResponseTimes | None,
    ) -> None:
        """Send the response, or hold it back until earlier ones have left; called by its slot."""
        slots = self._slots
        if not slots:
            # The connection is gone, and with it everybody's slots.
            return
        if self._large:
            self._large_bytes -= self._large.pop(slot, 0)
        if slots[0] is not slot:
            self._hold(slot, chunks, times)
            return
        slots.popleft()
        if chunks:
            self.send_chunks(chunks)
        if slots and slots[0].is_answered:
            self._release_held()
        if self._receiving and not self._splitter.has_more:
            # No other answer of this turn is to be awaited: this one leaves before whatever is
            # still to be done for its request.
            is_sent = self.flush()
            if not is_sent and times is not None:
                self._unwritten.append(times)
            if self._unwritten:
                self._note_written(is_sent)
        elif times is not None:
            self._unwritten.append(times)
        if self._paused:
            self._maybe_resume()
            self._maybe_close()

    def _hold(
        self,
        slot: ResponseSlot,
        chunks: Sequence[Chunk],
        times: ResponseTimes | None,
    ) -> None:
        """Keep an answer until those before it have left."""
        slot.chunks = chunks
        slot.held_since_ms = self._clock.monotonic_ms()
        slot.times = times
        self._held_bytes += sum(map(len, chunks))
        if self._held_bytes > self._limits.held_bytes_max:
            self._pause(_HELD)

    def _release_held(self) -> None:
        """Send the answers that no earlier request holds back any more."""
        slots = self._slots
        ready: list[Chunk] = []
        while slots and slots[0].is_answered:
            released = slots.popleft()
            times, released.times = released.times, None
            if times is not None:
                times.on_released(self._clock.monotonic_ms() - released.held_since_ms)
                self._unwritten.append(times)
            self._held_bytes -= sum(map(len, released.chunks))
            ready.extend(released.chunks)
        if ready:
            self.send_chunks(ready)

    def flush_collected(self) -> None:
        """Write what a whole turn has collected."""
        is_sent = self.flush()
        if self._unwritten:
            self._note_written(is_sent)

    def _note_written(self, is_sent: bool) -> None:
        """Measure how long the responses of a write take to leave, unless they have left."""
        if is_sent or self._stream is None:
            self._unwritten.clear()
            return
        now_ms = self._clock.monotonic_ms()
        self._sending.append(_Sending(self.bytes_out, now_ms, self._unwritten))
        self._unwritten = []
        self._stream.watch_output(self._on_output_sent)

    def _on_output_sent(self) -> None:
        if self._stream is not None:
            self._count_sent(self.bytes_out - self._stream.buffered_bytes)

    def _count_sent(self, sent_bytes: int) -> None:
        """Count the writes that end within the first `sent_bytes` of the connection."""
        sending = self._sending
        while sending and sending[0].end_bytes <= sent_bytes:
            done = sending.popleft()
            send_ms = self._clock.monotonic_ms() - done.written_ms
            for times in done.responses:
                times.on_sent(send_ms)

    def _maybe_resume(self) -> None:
        if self._paused & _IN_FLIGHT and len(self._slots) <= self._limits.in_flight_max // 2:
            self._resume(_IN_FLIGHT)
        if self._paused & _HELD and self._held_bytes <= self._limits.held_bytes_max // 2:
            self._resume(_HELD)
        if self._paused & _LARGE and self._large_bytes <= self._limits.waiting_bytes_max // 2:
            self._resume(_LARGE)

    def _note_large(self, size: int) -> None:
        """A large request has been taken up: pause while too much of that kind waits."""
        if not self._slots or self._slots[-1].is_answered:
            return
        self._large[self._slots[-1]] = size
        self._large_bytes += size
        if self._large_bytes > self._limits.waiting_bytes_max:
            self._pause(_LARGE)

    def _maybe_close(self) -> None:
        if self._paused & _CLOSING and not self._slots and self._stream is not None:
            self.flush_collected()
            self._stream.close()

    def _pause(self, reason: int) -> None:
        was_reading = not self._paused
        self._paused |= reason
        if was_reading and self._stream is not None:
            self._stream.pause_reading()
        if reason & _WAITING and self._peer_check is None:
            self._peer_check = self._timer.call_later(_PEER_CHECK_MS, self._check_peer)

    def _check_peer(self) -> None:
        """Close a connection that waits for answers for which its peer no longer waits.

        Nothing is read from it, so that the stream would not tell of its end.
        """
        self._peer_check = None
        if not self._paused & _WAITING or self._stream is None:
            return
        if self._stream.has_peer_ended:
            self.abort()
        else:
            self._peer_check = self._timer.call_later(_PEER_CHECK_MS, self._check_peer)

    def _resume(self, reason: int) -> None:
        if not self._paused & reason:
            return
        self._paused &= ~reason
        if self._paused == _PUT_OFF:
            # In a turn of its own: whoever resumes may be in the midst of a request.
            self._take_soon()
        elif not self._paused and self._stream is not None:
            self._stream.resume_reading()

    def _keep_for_later(self, frame: memoryview) -> None:
        if self._paused & _CLOSING:
            return
        if self._put_off is None:
            self._put_off = bytearray()
            self._put_off_start = 0
        self._paused |= _PUT_OFF
        # A copy, since the receive buffer is another connection's in the next turn.
        received_ms = self._share_ends_ms - SHARE_MS
        if received_ms == inf:
            received_ms = self._clock.monotonic_ms()
        self._put_off += _PUT_OFF_HEAD.pack(len(frame), received_ms)
        self._put_off += frame

    def _take_soon(self) -> None:
        if not self._take_is_due:
            self._take_is_due = True
            self._timer.call_soon(self._take_put_off)

    def _take_put_off(self) -> None:
        """Take up what was put off: a share, or until there is a reason to pause again."""
        self._take_is_due = False
        share_ends_ms = self._clock.monotonic_ms() + SHARE_MS
        while self._paused == _PUT_OFF and self._put_off and self.is_open:
            if self._clock.monotonic_ms() > share_ends_ms:
                self._take_soon()
                return
            size, received_ms = _PUT_OFF_HEAD.unpack_from(self._put_off, self._put_off_start)
            start = self._put_off_start + _PUT_OFF_HEAD.size
            end = start + size
            self._put_off_start = end
            with memoryview(self._put_off) as put_off, put_off[start:end] as frame:
                if end == len(put_off):
                    self._put_off = None
                    self._resume(_PUT_OFF)
                self._take_up(frame, received_ms)

    def _take_up(self, frame: memoryview, received_ms: float) -> None:
        self.requests += 1
        self.last_activity_ms = self._clock.monotonic_ms()
        self.queued_ms = self.last_activity_ms - received_ms
        size = len(frame)
        try:
            self._on_request(self, frame)
        except ProtocolError as error:
            self.abort()
            self.on_malformed(error)
        if size > _LARGE_BYTES:
            self._note_large(size)

    def _maybe_end_throttle(self) -> None:
        left_ms = self._throttled_until_ms - self._clock.monotonic_ms()
        if left_ms > 0:
            self._throttle_timer = self._timer.call_later(left_ms, self._maybe_end_throttle)
        else:
            self._throttle_timer = None
            self._resume(_THROTTLED)
