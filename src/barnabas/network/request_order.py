"""The order of requests and responses of one connection, and the memory of requests that wait.

A request reserves a slot, since responses leave in the order of the requests. As in Kafka, a
request is processed after the response to the previous request of its connection has been made.
Within two groups, requests may be processed while earlier ones of the same group wait:

- Produce behind Produce. The earlier one only waits for followers, and it is already in the log, so
  the order within each partition is the same. Waiting would cost a round trip of the followers per
  request.
- Requests of brokers to the controller. A broker sends independent requests of many clients on one
  connection. The broker itself keeps the order of each client's requests.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Protocol

import msgspec

from barnabas.protocol.api_table import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.runtime.clock import Clock
    from barnabas.runtime.disk import Bytes
    from barnabas.runtime.sockets import Chunk, Stream


# Header of a deferred frame: its size, and the time when it was fully received.
_HEADER = Struct(">id")
API_KEY_BYTES = 2
# The size of deferred requests is counted in steps of this number of bytes.
_COUNTED_STEP_BYTES = 16 * 1024
# Group of a request that waits for all earlier ones, and for which all later ones wait.
_ALONE = 0
_PRODUCES, _OF_BROKERS = 1, 2
_MEMBERS = {
    _PRODUCES: (ApiKey.PRODUCE,),
    _OF_BROKERS: (
        ApiKey.ENVELOPE,
        ApiKey.ALTER_PARTITION,
        ApiKey.ALLOCATE_PRODUCER_IDS,
        ApiKey.ASSIGN_REPLICAS_TO_DIRS,
    ),
}
# Groups by the first bytes of a request.
_GROUPS = {key.to_bytes(API_KEY_BYTES): group for group, keys in _MEMBERS.items() for key in keys}


def group_of(frame: Bytes) -> int:
    """Return the group of a request, of which at least the API key is known; 0 for none."""
    return _GROUPS.get(bytes(frame[:API_KEY_BYTES]), _ALONE)


class DeferredFrames:
    """Received requests that are processed later, oldest first.

    They are copied into one buffer: an object per frame would take twenty times the size of a small
    frame.
    """

    __slots__ = ("_buffer", "_start", "counted_bytes")

    def __init__(self) -> None:
        # Frames with their headers. Those before _start are already processed.
        self._buffer = bytearray()
        self._start = 0
        # Size of the buffer for the budget, which is updated in steps.
        self.counted_bytes = 0

    @property
    def is_empty(self) -> bool:
        """Whether all frames have been taken."""
        return self._start == len(self._buffer)

    def add(self, frame: memoryview, received_ms: float) -> bool:
        """Copy a frame: the receive buffer is shared by all connections.

        Returns:
            Whether `counted_bytes` has changed.
        """
        self._buffer += _HEADER.pack(len(frame), received_ms)
        self._buffer += frame
        if len(self._buffer) - self.counted_bytes <= _COUNTED_STEP_BYTES:
            return False
        self.counted_bytes = len(self._buffer)
        return True

    def group_of_first(self) -> int:
        """Return the group of the oldest frame."""
        size, _ = _HEADER.unpack_from(self._buffer, self._start)
        start = self._start + _HEADER.size
        return group_of(self._buffer[start : start + min(size, API_KEY_BYTES)])

    def take(self) -> tuple[memoryview, float]:
        """Return the oldest frame, and the time when it was received.

        The caller releases the view, and its slices, before the next frame is added.
        """
        size, received_ms = _HEADER.unpack_from(self._buffer, self._start)
        start = self._start + _HEADER.size
        self._start = start + size
        return memoryview(self._buffer)[start : start + size], received_ms


class ResponseTimes(Protocol):
    """Receives the time between the creation of a response and its sending.

    A response that is sent at once causes neither call.
    """

    def on_released(self, held_ms: float) -> None:
        """Record the time for which earlier requests of the connection held the response."""
        ...

    def on_sent(self, send_ms: float) -> None:
        """Record the send time.

        The kernel has accepted the last byte, or the connection has ended.
        """
        ...


class _Sending(msgspec.Struct):
    """A write that the kernel has accepted only in part."""

    # Total bytes of the connection up to the end of this write.
    end_bytes: int
    written_ms: float
    responses: list[ResponseTimes]


class SendTimes:
    """Measures how long the kernel takes to accept the responses of one connection."""

    __slots__ = ("_clock", "_sending", "unwritten")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # Responses in the output buffer, to be written together.
        self.unwritten: list[ResponseTimes] = []
        # Writes that the kernel has accepted only in part, oldest first.
        self._sending: list[_Sending] = []

    def begin(self, end_bytes: int) -> None:
        """Begin to measure the unwritten responses, whose write ends at this byte."""
        self._sending.append(_Sending(end_bytes, self._clock.monotonic_ms(), self.unwritten))
        self.unwritten = []

    def count(self, sent_bytes: int) -> None:
        """Report the times of the writes within the first `sent_bytes` of the connection."""
        sending = self._sending
        while sending and sending[0].end_bytes <= sent_bytes:
            done = sending.pop(0)
            send_ms = self._clock.monotonic_ms() - done.written_ms
            for times in done.responses:
                times.on_sent(send_ms)

    def end(self, sent_bytes: int) -> None:
        """Report the times of all writes, since the connection has ended."""
        self.count(sent_bytes)
        self.unwritten.clear()


class SlotOwner(Protocol):
    """The connection of a slot."""

    @property
    def stream(self) -> Stream | None:
        """The underlying stream; None after the connection has closed."""
        ...

    def on_response(
        self, slot: ResponseSlot, chunks: Sequence[Chunk], times: ResponseTimes | None
    ) -> None:
        """Send the response, or hold it until earlier responses are sent."""
        ...


class ResponseSlot:
    """A reserved position of one response. It gets exactly one response."""

    __slots__ = (
        "_connection",
        "_on_client_gone",
        "chunks",
        "has_response",
        "held_since_ms",
        "times",
    )

    # A held response, the start of its wait in ms, and the receiver of its times. The connection
    # sets them.
    chunks: Sequence[Chunk]
    held_since_ms: float
    times: ResponseTimes | None

    def __init__(self, connection: SlotOwner) -> None:
        self._connection = connection
        # Whether `complete` or `skip` was called. Never reset.
        self.has_response = False
        # Called if the connection ends before the response. None after the response.
        self._on_client_gone: Callable[[], object] | None = None

    def on_client_gone(self, callback: Callable[[], object]) -> None:
        """Register a callback for the end of the connection before the response."""
        if not self.has_response:
            self._on_client_gone = callback
            if self._connection.stream is None:
                self.abandon()

    def abandon(self) -> None:
        """Cancel the operation behind this request, since the connection has ended."""
        # Break the reference cycle between a held response and its slot.
        self.times = None
        callback, self._on_client_gone = self._on_client_gone, None
        if callback is not None:
            callback()

    def complete(self, chunks: Sequence[Chunk], times: ResponseTimes | None = None) -> None:
        """Respond with a whole frame. It is dropped if the connection has ended.

        Args:
            chunks: the frame.
            times: receives the times if the response is not sent at once.
        """
        assert not self.has_response, "a request gets one response"
        self.has_response = True
        self._on_client_gone = None
        self._connection.on_response(self, chunks, times)

    def skip(self) -> None:
        """Release the slot without a response (acks=0)."""
        self.complete(())
