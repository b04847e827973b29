"""Limits of a server's connections, and the memory budget of partially received requests.

A request that does not arrive in one read is collected in a buffer of its connection. All these
buffers share a budget (Kafka: queued.max.request.bytes). When the budget is used up, connections
with large requests stop reading until others have finished. TCP flow control then slows their
peers.

Progress is guaranteed. One connection at a time may exceed the budget for a limited time: the
connection whose request has the fewest missing bytes. A connection is closed if its request has not
arrived within half a minute while others wait. By then most clients have timed out
(request.timeout.ms).
"""

from __future__ import annotations

from heapq import nsmallest
from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from barnabas.runtime.clock import Cancellable, Clock, Timer


# Buffers up to this size never wait: they may belong to a small request that arrives slowly.
FREE_BYTES = 64 * 1024
# Time in ms during which a connection may exceed the budget.
EXEMPT_MS = 5_000.0
# Maximum age in ms of a partially received request while other connections wait.
AGE_MAX_MS = 30_000.0
_CHECK_MS = 1_000.0
# Maximum number of connections that resume at once, since selecting them takes time.
_WOKEN_AT_ONCE = 8


class FrameHolder(Protocol):
    """A connection with a partially received request."""

    @property
    def missing_frame_bytes(self) -> int:
        """Number of missing bytes of the request."""
        ...

    def await_frame_memory(self) -> None:
        """Stop reading until `resume_frame`."""
        ...

    def resume_frame(self) -> None:
        """Continue reading."""
        ...

    def drop_frame(self, reason: str) -> None:
        """Close the connection and discard its partially received request."""
        ...


class _Unfinished(msgspec.Struct):
    """The share of one connection."""

    # Size of its buffer.
    held_bytes: int
    # Time of the first bytes of the request, in monotonic ms.
    began_ms: float
    is_waiting: bool = False


class FrameBudget:
    """The budget that all connections of a process share.

    Args:
        bytes_max: limit on the total size of all buffers; at least the largest request.
        clock: gives the age of requests.
        timer: runs the periodic check.
    """

    __slots__ = (
        "_bytes_max",
        "_check",
        "_clock",
        "_exempt",
        "_exempt_until_ms",
        "_held_bytes",
        "_timer",
        "_unfinished",
        "_waiting",
        "is_full",
    )

    def __init__(self, bytes_max: int, clock: Clock, timer: Timer) -> None:
        self._bytes_max = bytes_max
        self._clock = clock
        self._timer = timer
        # Partially received requests, oldest first. Invariant: `_held_bytes` is the sum of their
        # sizes.
        self._unfinished: dict[FrameHolder, _Unfinished] = {}
        self._held_bytes = 0
        # Whether the budget is exceeded. Connections then read in small portions.
        self.is_full = False
        # Number of connections that wait for the budget.
        self._waiting = 0
        # The connection that may exceed the budget, and until when it may.
        self._exempt: FrameHolder | None = None
        self._exempt_until_ms = 0.0
        # Timer of the periodic check, while any connection waits.
        self._check: Cancellable | None = None

    @property
    def held_bytes(self) -> int:
        """Total size of all buffers."""
        return self._held_bytes

    @property
    def waiting(self) -> int:
        """Number of connections that do not read because of the budget."""
        return self._waiting

    def hold(self, holder: FrameHolder, held_bytes: int, *, may_wait: bool = True) -> None:
        """Update the buffer size of a connection.

        Args:
            holder: the connection.
            held_bytes: the new size. 0 when the request is complete or the connection has ended.
            may_wait: whether the connection reads, so that it may have to wait for memory.
        """
        share = self._unfinished.get(holder)
        if held_bytes == 0:
            if share is not None:
                self._forget(holder, share)
                self._wake()
            return
        if share is None:
            share = self._unfinished[holder] = _Unfinished(0, self._clock.monotonic_ms())
        self._held_bytes += held_bytes - share.held_bytes
        share.held_bytes = held_bytes
        self.is_full = self._held_bytes > self._bytes_max
        is_over = self.is_full and held_bytes > FREE_BYTES and holder is not self._exempt
        if is_over and may_wait:
            self._make_wait(holder, share)
            self._maybe_allow_excess()

    def _make_wait(self, holder: FrameHolder, share: _Unfinished) -> None:
        if share.is_waiting:
            return
        share.is_waiting = True
        self._waiting += 1
        holder.await_frame_memory()
        if self._check is None:
            self._check = self._timer.call_later(_CHECK_MS, self._check_ages)

    def _forget(self, holder: FrameHolder, share: _Unfinished) -> None:
        del self._unfinished[holder]
        self._held_bytes -= share.held_bytes
        self.is_full = self._held_bytes > self._bytes_max
        if share.is_waiting:
            self._waiting -= 1
        if holder is self._exempt:
            self._exempt = None

    def _wake(self) -> None:
        """Resume connections that fit into the budget, or else one that may exceed it."""
        room = self._bytes_max - self._held_bytes
        if room >= 0:
            # The budget is no longer exceeded.
            self._exempt = None
        if not self._waiting or (room < 0 and self._exempt is not None):
            return
        for holder, share in self._nearest_to_complete(_WOKEN_AT_ONCE):
            # A buffer grows at most to twice its size.
            room -= min(share.held_bytes, holder.missing_frame_bytes)
            if room < 0:
                break
            self._resume(holder, share)
        self._maybe_allow_excess()

    def _maybe_allow_excess(self) -> None:
        """Let the connection with the fewest missing bytes exceed the budget, one at a time."""
        if self._exempt is not None or not self._waiting:
            return
        ((holder, share),) = self._nearest_to_complete(1)
        self._exempt = holder
        self._exempt_until_ms = self._clock.monotonic_ms() + EXEMPT_MS
        self._resume(holder, share)

    def _nearest_to_complete(self, count: int) -> list[tuple[FrameHolder, _Unfinished]]:
        waiting = (each for each in self._unfinished.items() if each[1].is_waiting)
        return nsmallest(count, waiting, key=lambda each: each[0].missing_frame_bytes)

    def _resume(self, holder: FrameHolder, share: _Unfinished) -> None:
        share.is_waiting = False
        self._waiting -= 1
        holder.resume_frame()

    @property
    def _is_short(self) -> bool:
        return self._waiting > 0 and self.is_full

    def _drop(self, holder: FrameHolder) -> None:
        self._forget(holder, self._unfinished[holder])
        holder.drop_frame(
            "its large request arrived too slowly while the memory for requests was full"
        )

    def _check_ages(self) -> None:
        """Close connections that block others for too long."""
        self._check = None
        now_ms = self._clock.monotonic_ms()
        exempt = self._exempt
        if exempt is not None and self._is_short and now_ms >= self._exempt_until_ms:
            self._drop(exempt)
        while self._is_short:
            oldest, share = next(iter(self._unfinished.items()))
            if now_ms - share.began_ms < AGE_MAX_MS:
                break
            self._drop(oldest)
        self._wake()
        if self._waiting and self._check is None:
            self._check = self._timer.call_later(_CHECK_MS, self._check_ages)


FRAME_BYTES_MAX = 100 * 1024 * 1024


class ConnectionLimits(msgspec.Struct, frozen=True):
    """Limits of one connection."""

    # `socket.request.max.bytes`.
    frame_bytes_max: int = FRAME_BYTES_MAX
    # Accepted requests without a response. Reading stops at the limit and continues at half of it.
    in_flight_max: int = 128
    # Total size of responses that wait for an earlier response.
    held_bytes_max: int = 4 * 1024 * 1024
    # Total size of accepted large requests without a response, whose data stays in memory.
    waiting_bytes_max: int = 16 * 1024 * 1024


class ConnectionDependencies(msgspec.Struct, frozen=True):
    """The resources that all connections of a broker share."""

    clock: Clock
    timer: Timer
    receive_buffer: bytearray | memoryview
    # Budget for partially received requests; None without a limit.
    frame_budget: FrameBudget | None = None


class ConnectionStatistics(msgspec.Struct, frozen=True):
    """A snapshot of one connection's counters."""

    requests: int
    in_flight: int
    held_bytes: int
    buffered_bytes: int
    bytes_in: int
    bytes_out: int
    paused: bool
