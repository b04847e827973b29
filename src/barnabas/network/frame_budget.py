"""The memory of requests that have not arrived in full (Kafka: queued.max.request.bytes).

A request that does not arrive in one read is collected in a buffer of its connection. All these
buffers together have a budget. When it is used up, connections whose request is large are not read
from until others have finished: their peers feel it through their windows.

This never comes to a standstill. One connection at a time may exceed the budget, the one that lacks
the least, for a limited time. A request that has not arrived within half a minute while others wait
costs its sender the connection; a usual client has given up by then (request.timeout.ms).
"""

from __future__ import annotations

from heapq import nsmallest
from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from barnabas.runtime.clock import Clock
    from barnabas.runtime.timer import Cancellable, Timer

# Requests up to this size do not wait: they could not be told apart from a slow small one.
FREE_BYTES = 64 * 1024
# How long a connection may exceed the budget.
LOAN_MS = 5_000.0
# How old an unfinished request may become while others wait.
AGE_MAX_MS = 30_000.0
_CHECK_MS = 1_000.0
# Connections that one that has finished lets go on at most: looking for them takes time.
_WOKEN_AT_ONCE = 8


class FrameHolder(Protocol):
    """A connection with an unfinished request."""

    @property
    def missing_frame_bytes(self) -> int:
        """How much of the request has not arrived."""
        ...

    def await_frame_memory(self) -> None:
        """Do not read until `resume_frame`."""
        ...

    def resume_frame(self) -> None:
        """Read again."""
        ...

    def drop_frame(self, reason: str) -> None:
        """Close the connection; its unfinished request is lost."""
        ...


class _Unfinished(msgspec.Struct):
    """One connection's share."""

    # Size of its buffer.
    held_bytes: int
    # When the request began to arrive.
    began_ms: float
    is_waiting: bool = False


class FrameBudget:
    """Shared by all connections of a process.

    Args:
        bytes_max: what the buffers may hold together; at least the largest request.
    """

    __slots__ = (
        "_borrower",
        "_bytes_max",
        "_check",
        "_clock",
        "_held_bytes",
        "_loan_ends_ms",
        "_timer",
        "_unfinished",
        "_waiting",
        "is_full",
    )

    def __init__(self, bytes_max: int, clock: Clock, timer: Timer) -> None:
        self._bytes_max = bytes_max
        self._clock = clock
        self._timer = timer
        # In the order in which the requests began. Invariant: `_held_bytes` is the sum of theirs.
        self._unfinished: dict[FrameHolder, _Unfinished] = {}
        self._held_bytes = 0
        # Whether that is more than there should be: little is read at a time then.
        self.is_full = False
        # How many of them wait.
        self._waiting = 0
        # The one that may exceed the budget, and until when.
        self._borrower: FrameHolder | None = None
        self._loan_ends_ms = 0.0
        # Set while any waits.
        self._check: Cancellable | None = None

    @property
    def held_bytes(self) -> int:
        """What all buffers hold together."""
        return self._held_bytes

    @property
    def waiting(self) -> int:
        """Connections that are not read from because of the budget."""
        return self._waiting

    def hold(self, holder: FrameHolder, held_bytes: int) -> None:
        """The buffer of a connection has changed its size.

        Args:
            held_bytes: its new size; 0 once the request is complete or the connection has ended.
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
        if self.is_full and held_bytes > FREE_BYTES and holder is not self._borrower:
            self._make_wait(holder, share)
            self._maybe_lend()

    def _make_wait(self, holder: FrameHolder, share: _Unfinished) -> None:
        if share.is_waiting:
            return
        share.is_waiting = True
        self._waiting += 1
        holder.await_frame_memory()
        if self._check is None:
            self._check = self._timer.call_later(_CHECK_MS, self._look)

    def _forget(self, holder: FrameHolder, share: _Unfinished) -> None:
        del self._unfinished[holder]
        self._held_bytes -= share.held_bytes
        self.is_full = self._held_bytes > self._bytes_max
        if share.is_waiting:
            self._waiting -= 1
        if holder is self._borrower:
            self._borrower = None

    def _wake(self) -> None:
        """Let those go on for which there is room now, at least one."""
        room = self._bytes_max - self._held_bytes
        if room >= 0:
            # No connection exceeds it any more.
            self._borrower = None
        if not self._waiting or (room < 0 and self._borrower is not None):
            return
        for holder, share in self._lacking_least(_WOKEN_AT_ONCE):
            # A buffer doubles at most.
            room -= min(share.held_bytes, holder.missing_frame_bytes)
            if room < 0:
                break
            self._resume(holder, share)
        self._maybe_lend()

    def _maybe_lend(self) -> None:
        """Let the one that lacks the least exceed the budget, if none does yet."""
        if self._borrower is not None or not self._waiting:
            return
        ((holder, share),) = self._lacking_least(1)
        self._borrower = holder
        self._loan_ends_ms = self._clock.monotonic_ms() + LOAN_MS
        self._resume(holder, share)

    def _lacking_least(self, count: int) -> list[tuple[FrameHolder, _Unfinished]]:
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
        holder.drop_frame("its large request came too slowly while the memory for requests is full")

    def _look(self) -> None:
        """Close connections that hold the others up."""
        self._check = None
        now_ms = self._clock.monotonic_ms()
        borrower = self._borrower
        if borrower is not None and self._is_short and now_ms >= self._loan_ends_ms:
            self._drop(borrower)
        while self._is_short:
            oldest, share = next(iter(self._unfinished.items()))
            if now_ms - share.began_ms < AGE_MAX_MS:
                break
            self._drop(oldest)
        self._wake()
        if self._waiting and self._check is None:
            self._check = self._timer.call_later(_CHECK_MS, self._look)
