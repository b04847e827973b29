"""Measures how long single turns of the event loop take, and logs the turns that are too long.

While one turn lasts, no other connection is served. The code that runs on the loop compares the
time at its end with `due_ms`, and calls `look` when that time has passed; so the usual cost is one
comparison, and the CPU clock (0.7 µs) is read at most 200 times a second.

The loop does not tell when a turn ends: `loop.time` of uvloop is the time now. So while there is
work, a mark goes round in the queue of `call_soon`, which the loop empties once a turn: the time
between two marks is one turn. The mark leaves the queue when no look came for a turn.

Two clocks are kept apart. By the wall clock, a turn is also long when the machine was busy with
another process, or when a disk blocked a call. By the CPU time of the loop's thread, only our own
computation counts: tests and campaigns judge by that one.

A collection of garbage runs within whatever allocates at that moment. Its time is logged apart, so
that the request or callback is not blamed for it.

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
# The CPU clock is read so often at most: the CPU time of a turn is exact within this.
LOOK_MS = 5.0
# A log line for each long turn, but no more often than this.
_LOG_MS = 1000.0
_MS_PER_S = 1000.0
# Collections of garbage that are remembered; one turn seldom has more.
_COLLECTIONS = 32

_log = logging.getLogger(__name__)


class LoopWatch:
    """Counts long turns of one loop; idle until `begin`."""

    __slots__ = (
        "_call_soon",
        "_collecting_since_ms",
        "_collections",
        "_cpu_ms",
        "_cpu_seen_ms",
        "_has_counted",
        "_has_counted_cpu",
        "_has_looked",
        "_is_marking",
        "_logged_ms",
        "_looked_ms",
        "_now_ms",
        "_turn_began_ms",
        "_turn_cpu_ms",
        "_worst",
        "_worst_ms",
        "due_ms",
        "long_cpu_turns",
        "long_turns",
        "longest_cpu_ms",
        "longest_ms",
    )

    def __init__(
        self,
        now_ms: Callable[[], float],
        cpu_ms: Callable[[], float],
        call_soon: Callable[[Callable[[], None]], object],
    ) -> None:
        """Store the clocks.

        Args:
            now_ms: the monotonic clock.
            cpu_ms: CPU time of the thread that runs the loop.
            call_soon: queue a callback for the next turn of the loop.
        """
        self._now_ms = now_ms
        self._cpu_ms = cpu_ms
        self._call_soon = call_soon
        # `look` is to be called once the monotonic clock is past this time.
        self.due_ms = inf
        # Turns over LONG_TURN_MS, and the longest turn, by the wall clock and by CPU time.
        self.long_turns = 0
        self.longest_ms = 0.0
        self.long_cpu_turns = 0
        self.longest_cpu_ms = 0.0
        # Whether the mark is in the queue, and whether `look` was called since it was put there.
        self._is_marking = False
        self._has_looked = False
        # The current turn, while the mark is in the queue: its start, the CPU time it has used, and
        # the callback that took longest, without the time of others within it.
        self._turn_began_ms = 0.0
        self._turn_cpu_ms = 0.0
        self._worst_ms = 0.0
        self._worst: tuple[Any, str | None] = ("", None)
        self._has_counted = False
        self._has_counted_cpu = False
        self._cpu_seen_ms = 0.0
        # Time of the last look.
        self._looked_ms = -inf
        self._logged_ms = -inf
        # The last collections of garbage: when each ended, and how long it took.
        self._collections: deque[tuple[float, float]] = deque(maxlen=_COLLECTIONS)
        self._collecting_since_ms = 0.0

    def begin(self) -> None:
        """Start to measure: the process serves requests from now on."""
        gc.callbacks.append(self._on_collection)
        self._cpu_seen_ms = self._cpu_ms()
        self.due_ms = self._now_ms() + LOOK_MS

    def end(self) -> None:
        """Measure no more; does nothing without `begin`."""
        self.due_ms = inf
        if self._on_collection in gc.callbacks:
            gc.callbacks.remove(self._on_collection)

    def run(self, callback: Callable[..., object], *arguments: Any) -> None:
        """Call `callback` and look at the time that it took."""
        began_ms = self._now_ms()
        callback(*arguments)
        now_ms = self._now_ms()
        if now_ms > self.due_ms:
            self.look(now_ms, began_ms, callback)

    def look(
        self, now_ms: float, began_ms: float, source: object, client: str | None = None
    ) -> None:
        """Measure the current turn.

        Args:
            now_ms: the time now.
            began_ms: when the callback or request began that ends now.
            source: its name, or the callback itself.
            client: the client id and address of a request.
        """
        if not self._is_marking:
            self._is_marking = True
            self._open_turn(began_ms)
            self._call_soon(self._mark)
        self._has_looked = True
        cpu_ms = self._cpu_ms()
        turn_ms = now_ms - self._turn_began_ms
        # At most LOOK_MS of it was used before this turn.
        self._turn_cpu_ms = min(self._turn_cpu_ms + cpu_ms - self._cpu_seen_ms, turn_ms)
        self._cpu_seen_ms = cpu_ms
        self.due_ms = now_ms + LOOK_MS
        # A request that is served within a callback has been looked at before.
        own_ms = now_ms - max(began_ms, self._looked_ms)
        self._looked_ms = now_ms
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
        """End a turn; called by the loop once a turn while there is work."""
        if self._has_looked:
            self._has_looked = False
            self._open_turn(self._now_ms())
            self._call_soon(self._mark)
        else:
            self._is_marking = False

    def _on_collection(self, phase: str, _info: Mapping[str, int]) -> None:
        """Note a collection of garbage; called by the interpreter before and after it."""
        now_ms = self._now_ms()
        if phase == "start":
            self._collecting_since_ms = now_ms
        else:
            self._collections.append((now_ms, now_ms - self._collecting_since_ms))

    def _count(self, now_ms: float, turn_ms: float) -> None:
        """Count and log a long turn, each once by either clock."""
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
            collected_ms = sum(
                each_ms for ended_ms, each_ms in self._collections if ended_ms > self._turn_began_ms
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

    __slots__ = ()

    def begin(self) -> None:
        """Leave `due_ms` at infinity."""


def loop_watch(loop: asyncio.AbstractEventLoop) -> LoopWatch:
    """Make the watch of a loop that the calling thread runs."""
    return LoopWatch(
        lambda: time.monotonic() * _MS_PER_S,
        lambda: time.thread_time() * _MS_PER_S,
        loop.call_soon,
    )


def unused_watch() -> LoopWatch:
    """Make a watch that measures nothing: for simulated loops, and for those of clients."""
    return _UnusedWatch(lambda: 0.0, lambda: 0.0, lambda _: None)


def _name_of(source: object) -> str:
    if isinstance(source, str):
        return source
    inner = getattr(source, "func", source)
    name = getattr(inner, "__qualname__", None)
    return str(name) if name else type(inner).__qualname__
