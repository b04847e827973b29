"""Metrics of the process: garbage collection pauses, lag of the loop, and long turns."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

from barnabas.metrics import names
from barnabas.metrics.family import MetricFamily, Summary
from barnabas.server.dispatch.request_statistics import Times
from barnabas.server.metrics.request_metrics import summary_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from barnabas.runtime.clock import Clock, Timer
    from barnabas.runtime.loop_watch import LoopWatch

_MS_PER_S = 1000.0
_CHECK_MS = 1000.0
_WALL = (("clock", "wall"),)
_CPU = (("clock", "cpu"),)


class ProcessMetrics:
    """Measures pauses and lags between `start` and `stop`, with one timer per second."""

    def __init__(self, clock: Clock, timer: Timer, watch: LoopWatch, version: str) -> None:
        self._clock = clock
        self._watch = watch
        self._timer = timer
        self._version = version
        # Durations (ms) of garbage collections, and lags (ms) of the loop's timer.
        self._pauses = Times()
        self._lags = Times()
        # Time (ms, monotonic) at which the current garbage collection began.
        self._pause_began_ms = 0.0
        # Time (ms, monotonic) at which the next check is due.
        self._due_ms = 0.0
        self._running = False

    def start(self) -> None:
        """Begin to measure."""
        self._running = True
        gc.callbacks.append(self._on_collection)
        self._arm()

    def stop(self) -> None:
        """Stop measuring."""
        if self._running:
            self._running = False
            gc.callbacks.remove(self._on_collection)

    def families(self) -> Iterator[MetricFamily]:
        """Yield the metrics, with times in seconds as is usual in Prometheus."""
        for name, times in ((names.GC_PAUSE, self._pauses), (names.LOOP_LAG, self._lags)):
            found = summary_of(times)
            in_seconds = {part: value / _MS_PER_S for part, value in found.quantiles.items()}
            summary = Summary(found.number, found.total / _MS_PER_S, in_seconds)
            yield MetricFamily(name, [((), summary)])
        watch = self._watch
        longest = (
            (_WALL, watch.longest_ms / _MS_PER_S),
            (_CPU, watch.longest_cpu_ms / _MS_PER_S),
        )
        yield MetricFamily(names.LOOP_LONGEST_TURN, longest)
        counts = ((_WALL, watch.long_turns), (_CPU, watch.long_cpu_turns))
        yield MetricFamily(names.LOOP_LONG_TURNS, counts)
        yield MetricFamily(names.BUILD_INFO, [((("version", self._version),), 1.0)])

    def _on_collection(self, phase: str, _info: Mapping[str, int]) -> None:
        now_ms = self._clock.monotonic_ms()
        if phase == "start":
            self._pause_began_ms = now_ms
        else:
            self._pauses.add(now_ms - self._pause_began_ms)

    def _arm(self) -> None:
        self._due_ms = self._clock.monotonic_ms() + _CHECK_MS
        self._timer.call_later(_CHECK_MS, self._check)

    def _check(self) -> None:
        if self._running:
            self._lags.add(max(0.0, self._clock.monotonic_ms() - self._due_ms))
            self._arm()
