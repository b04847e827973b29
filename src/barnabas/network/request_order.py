"""The order of the requests of one connection: which ones wait, and the memory of those.

As in Kafka, a request is processed after the response to the previous request of its connection has
been made. Within two groups, requests may be processed while earlier ones of the same group wait:

- Produce behind Produce. The earlier one only waits for followers, and it is already in the log, so
  the order within each partition is the same. Waiting would cost a round trip of the followers per
  request.
- Requests of brokers to the controller. A broker sends independent requests of many clients on one
  connection. The broker itself keeps the order of each client's requests.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from barnabas.protocol.api_table import ApiKey

if TYPE_CHECKING:
    from barnabas.runtime.disk import Bytes

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

        The caller releases the view before the next frame is added.
        """
        size, received_ms = _HEADER.unpack_from(self._buffer, self._start)
        start = self._start + _HEADER.size
        self._start = start + size
        return memoryview(self._buffer)[start : start + size], received_ms
