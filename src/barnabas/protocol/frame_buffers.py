"""Buffers for frames that are larger than a receive buffer, used again and again.

A fresh buffer of megabytes is zeroed, and each of its pages is a fault, at every answer anew: that
took a quarter of a consumer's time. The connections of one client therefore take turns with a few,
which have grown to the size of its answers.
"""

from __future__ import annotations

from bisect import insort

__all__ = ["FrameBuffers"]


class FrameBuffers:
    """Spare buffers of the connections of one client.

    Args:
        kept_bytes_max: what is given back beyond this is freed.
        trusted_bytes: how large a fresh buffer may be on the word of a frame's length alone.
    """

    __slots__ = ("_kept_bytes", "_kept_bytes_max", "_spare", "_trusted_bytes")

    def __init__(self, kept_bytes_max: int = 16 << 20, trusted_bytes: int = 4 << 20) -> None:
        self._kept_bytes_max = kept_bytes_max
        self._trusted_bytes = trusted_bytes
        # Smallest first.
        self._spare: list[memoryview] = []
        self._kept_bytes = 0

    @property
    def kept_bytes(self) -> int:
        """Bytes of the buffers that nobody uses now."""
        return self._kept_bytes

    def take(self, frame_bytes: int, arrived_bytes: int) -> memoryview:
        """A buffer for a frame that says to be `frame_bytes` long, with room for more than arrived.

        It may be longer than the frame, and shorter too: if so large a one is not there, it is made
        no larger than trusted, or than twice of what has arrived.
        """
        needed = min(frame_bytes, max(self._trusted_bytes, 2 * arrived_bytes))
        for index, buffer in enumerate(self._spare):
            if len(buffer) >= needed:
                self._kept_bytes -= len(buffer)
                return self._spare.pop(index)
        # In eighths of a power of two, so that one serves frames of about its size.
        step = 1 << max(0, needed.bit_length() - 3)
        return memoryview(bytearray(-(-needed // step) * step))

    def give_back(self, buffer: memoryview) -> None:
        """Take a buffer back that nobody looks at any more."""
        self._kept_bytes += len(buffer)
        insort(self._spare, buffer, key=len)
        while self._kept_bytes > self._kept_bytes_max:
            # The smaller ones are the quicker made anew.
            self._kept_bytes -= len(self._spare.pop(0))
