"""Measures how long single turns of the event loop take, and logs turns that are too long.

No other connection is served during a turn. Code that runs on the loop compares the time at its end
with `due_ms`, and calls `check` when that time has passed. The usual cost is therefore one
comparison. The CPU clock, which takes 0.7 µs to read, is read at most 200 times a second.

The loop does not report the end of a turn: `loop.time` of uvloop is the current time. Therefore,
while there is work, a marker callback re-enters the queue of `call_soon`, which the loop empties
once a turn. The time between two markers is one turn. The marker stops after a turn without a call
of `check`.

Two clocks are used. By the wall clock, a turn is also long when another process used the machine,
or when a disk blocked a call. By the CPU time of the loop's thread, only our own computation
counts. Tests use the CPU time.

A garbage collection runs within an arbitrary allocation. Its time is logged separately, so that the
current request or callback is not held responsible for it.

Kafka has no counterpart, because its requests run on threads.
"""

from __future__ import annotations

import gc
import logging
import time
from collections import deque
from math import inf
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping

LONG_TURN_MS = 100.0
# Minimum interval between reads of the CPU clock. The CPU time of a turn is exact within this.
CHECK_INTERVAL_MS = 5.0
# Minimum interval between log lines about long turns.
_LOG_MS = 1000.0
_MS_PER_S = 1000.0
# Number of garbage collections that are remembered; one turn seldom has more.
_COLLECTIONS = 32

_log = logging.getLogger(__name__)


class LoopWatch:
    """Counts the long turns of one loop. It measures nothing before `begin`."""

    def __init__(
        self,
        now_ms: Callable[[], float],
        cpu_ms: Callable[[], float],
        call_soon: Callable[[Callable[[], None]], object],
    ) -> None:
        """Store the clocks.

        Args:
            now_ms: returns the monotonic time.
            cpu_ms: returns the CPU time of the thread that runs the loop.
            call_soon: queues a callback for the next turn of the loop.
        """
        self._now_ms = now_ms
        self._cpu_ms = cpu_ms
        self._call_soon = call_soon
        # `check` must be called once the monotonic clock has passed this time; infinite if
        # inactive.
        self.due_ms = inf
        # Number of turns over LONG_TURN_MS, and the longest turn: by wall clock and by CPU time.
        self.long_turns = 0
        self.longest_ms = 0.0
        self.long_cpu_turns = 0
        self.longest_cpu_ms = 0.0
        # Whether the marker is in the queue, and whether `check` was called since it was queued.
        self._is_marking = False
        self._has_measured = False
        # The current turn, while the marker is in the queue: its start, its CPU time, and the
        # callback that took longest, without the time of nested callbacks.
        self._turn_began_ms = 0.0
        self._turn_cpu_ms = 0.0
        self._worst_ms = 0.0
        self._worst: tuple[Any, str | None] = ("", None)
        self._has_counted = False
        self._has_counted_cpu = False
        self._cpu_seen_ms = 0.0
        # Time of the last call of `check`, and of the last log line.
        self._measured_ms = -inf
        self._logged_ms = -inf
        # The last garbage collections: (end, duration), ms.
        self._collections: deque[tuple[float, float]] = deque(maxlen=_COLLECTIONS)
        self._collecting_since_ms = 0.0

    def begin(self) -> None:
        """Start to measure, because the process serves requests from now on."""
        gc.callbacks.append(self._on_collection)
        self._cpu_seen_ms = self._cpu_ms()
        self.due_ms = self._now_ms() + CHECK_INTERVAL_MS

    def end(self) -> None:
        """Stop measuring; no effect without `begin`."""
        self.due_ms = inf
        if self._on_collection in gc.callbacks:
            gc.callbacks.remove(self._on_collection)

    def run(self, callback: Callable[..., object], *arguments: Any) -> None:
        """Call `callback`, and measure the turn if a measurement is due."""
        began_ms = self._now_ms()
        callback(*arguments)
        now_ms = self._now_ms()
        if now_ms > self.due_ms:
            self.check(now_ms, began_ms, callback)

    def check(
        self, now_ms: float, began_ms: float, source: object, client: str | None = None
    ) -> None:
        """Measure the current turn.

        Args:
            now_ms: the current time.
            began_ms: start of the callback or request that ends now.
            source: the callback, or the name of the request.
            client: the client id and address of a request.
        """
        if not self._is_marking:
            self._is_marking = True
            self._open_turn(began_ms)
            self._call_soon(self._mark)
        self._has_measured = True
        cpu_ms = self._cpu_ms()
        turn_ms = now_ms - self._turn_began_ms
        # At most CHECK_INTERVAL_MS of this CPU time was used before the turn began.
        self._turn_cpu_ms = min(self._turn_cpu_ms + cpu_ms - self._cpu_seen_ms, turn_ms)
        self._cpu_seen_ms = cpu_ms
        self.due_ms = now_ms + CHECK_INTERVAL_MS
        # A request within this callback has been measured already, so its time is excluded.
        own_ms = now_ms - max(began_ms, self._measured_ms)
        self._measured_ms = now_ms
        if own_ms > self._worst_ms:
            self._worst_ms = own_ms
            self._worst = (source, client)
        self.longest_ms = max(self.longest_ms, turn_ms)
        self.longest_cpu_ms = max(self.longest_cpu_ms, self._turn_cpu_ms)
        if turn_ms > LONG_TURN_MS:
            self._count(now_ms, turn_ms)

    def _open_turn(self, began_ms: float) -> None:
        self._turn_began_ms = began_ms
        self._turn_cpu_ms = self._worst_ms = 0.0
        self._has_counted = self._has_counted_cpu = False

    def _mark(self) -> None:
        """End a turn. The loop calls this once a turn while there is work."""
        if self._has_measured:
            self._has_measured = False
            self._open_turn(self._now_ms())
            self._call_soon(self._mark)
        else:
            self._is_marking = False

    def _on_collection(self, phase: str, _info: Mapping[str, int]) -> None:
        """Store the time of a garbage collection. Python calls this before and after it."""
        now_ms = self._now_ms()
        if phase == "start":
            self._collecting_since_ms = now_ms
        else:
            self._collections.append((now_ms, now_ms - self._collecting_since_ms))

    def _count(self, now_ms: float, turn_ms: float) -> None:
        """Count and log a long turn, at most once by each clock."""
        is_new = not self._has_counted
        if is_new:
            self._has_counted = True
            self.long_turns += 1
        is_ours = self._turn_cpu_ms > LONG_TURN_MS
        if is_ours and not self._has_counted_cpu:
            self._has_counted_cpu = is_new = True
            self.long_cpu_turns += 1
        if is_new and now_ms - self._logged_ms > _LOG_MS:
            self._logged_ms = now_ms
            source, client = self._worst
            # A copy, because a collection in any thread adds to the deque.
            collections = self._collections.copy()
            collected_ms = sum(
                each_ms for ended_ms, each_ms in collections if ended_ms > self._turn_began_ms
            )
            _log.log(
                logging.WARNING if is_ours else logging.INFO,
                "One turn of the event loop took too long: turn_ms=%.0f cpu_ms=%.0f gc_ms=%.0f "
                "by=%s by_ms=%.0f client=%s",
                turn_ms,
                self._turn_cpu_ms,
                collected_ms,
                _name_of(source),
                self._worst_ms,
                client,
            )


class _UnusedWatch(LoopWatch):
    """A watch that measures nothing."""

    def begin(self) -> None:
        """Leave `due_ms` at infinity."""


def loop_watch(loop: asyncio.AbstractEventLoop) -> LoopWatch:
    """Create the watch of a loop that the calling thread runs."""
    return LoopWatch(
        lambda: time.monotonic() * _MS_PER_S,
        lambda: time.thread_time() * _MS_PER_S,
        loop.call_soon,
    )


def unused_watch() -> LoopWatch:
    """Create a watch that measures nothing, for simulated loops and loops of clients."""
    return _UnusedWatch(lambda: 0.0, lambda: 0.0, lambda _: None)


def _name_of(source: object) -> str:
    if isinstance(source, str):
        return source
    inner = getattr(source, "func", source)
    name = getattr(inner, "__qualname__", None)
    return str(name) if name else type(inner).__qualname__
