"""Metrics of a consumer, with the names of Kafka's consumer metrics.

Averages, maxima and rates cover the last 30 to 60 seconds: two windows of 30 s, like the defaults
of metrics.num.samples and metrics.sample.window.ms in Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.client.topic_partition import TopicPartition
    from barnabas.runtime.clock import Clock

__all__ = ["ConsumerMetrics"]

_WINDOW_MS = 30_000.0
_NAN = float("nan")
_MS_PER_S = 1000.0


class _Sampled:
    """Count, sum and maximum over the current window and the previous one."""

    __slots__ = ("_before", "_clock", "_now", "_since_ms")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since_ms = clock.monotonic_ms()
        # Count, sum and maximum of the current window, then of the previous one.
        self._now = (0, 0.0, _NAN)
        self._before = self._now

    def add(self, value: float) -> None:
        self._roll()
        count, total, top = self._now
        self._now = (count + 1, total + value, value if count == 0 else max(top, value))

    def _roll(self) -> None:
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._since_ms >= _WINDOW_MS:
            fresh = (0, 0.0, _NAN)
            self._before = self._now if now_ms - self._since_ms < 2 * _WINDOW_MS else fresh
            self._now = fresh
            self._since_ms = now_ms

    @property
    def average(self) -> float:
        self._roll()
        count = self._now[0] + self._before[0]
        return (self._now[1] + self._before[1]) / count if count else _NAN

    @property
    def maximum(self) -> float:
        self._roll()
        tops = [top for count, _, top in (self._now, self._before) if count]
        return max(tops, default=_NAN)

    @property
    def rate(self) -> float:
        """Sum per second."""
        self._roll()
        elapsed_ms = self._clock.monotonic_ms() - self._since_ms
        elapsed_ms += _WINDOW_MS if self._before[0] else 0.0
        return (self._now[1] + self._before[1]) * _MS_PER_S / max(elapsed_ms, _MS_PER_S)


class ConsumerMetrics:
    """Metrics that `ConsumerCore` records and `Consumer.metrics()` reports."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._between_polls = _Sampled(clock)
        self._idle_ratio = _Sampled(clock)
        self._fetch_latency = _Sampled(clock)
        self._records = _Sampled(clock)
        self._bytes = _Sampled(clock)
        self._commit_latency = _Sampled(clock)
        self.fetches_total = 0
        self.records_total = 0
        self.bytes_total = 0
        self.commits_total = 0
        # When the last poll began and ended (ms, monotonic clock). None before the first poll; the
        # end is also None during a poll.
        self._poll_began_ms: float | None = None
        self._poll_ended_ms: float | None = None

    def on_poll_begin(self) -> None:
        """Record the start of a poll."""
        now_ms = self._clock.monotonic_ms()
        began_ms, ended_ms = self._poll_began_ms, self._poll_ended_ms
        if began_ms is not None:
            self._between_polls.add(now_ms - began_ms)
            if ended_ms is not None and now_ms > began_ms:
                self._idle_ratio.add((ended_ms - began_ms) / (now_ms - began_ms))
        self._poll_began_ms = now_ms
        self._poll_ended_ms = None

    def on_poll_end(self) -> None:
        """Record the end of a poll."""
        self._poll_ended_ms = self._clock.monotonic_ms()

    def on_fetch(self, latency_ms: float) -> None:
        """Record a fetch response and its latency (ms)."""
        self.fetches_total += 1
        self._fetch_latency.add(latency_ms)

    def on_records(self, count: int, size: int) -> None:
        """Record records returned to the user, and their size as fetched (bytes)."""
        self.records_total += count
        self.bytes_total += size
        self._records.add(count)
        self._bytes.add(size)

    def on_commit(self, latency_ms: float) -> None:
        """Record a successful commit and its latency (ms)."""
        self.commits_total += 1
        self._commit_latency.add(latency_ms)

    def report(
        self, lags: Mapping[TopicPartition, int], assigned: int
    ) -> dict[str, dict[str, float]]:
        """Return all metrics by group name and metric name; each partition's lag has its own group.

        Args:
            lags: Lags in records, of the partitions whose lag is known.
            assigned: The number of assigned partitions, whether or not their lag is known.
        """
        began_ms = self._poll_began_ms
        since_ms = -_MS_PER_S if began_ms is None else self._clock.monotonic_ms() - began_ms
        found: dict[str, dict[str, float]] = {
            "consumer-metrics": {
                "time-between-poll-avg": self._between_polls.average,
                "time-between-poll-max": self._between_polls.maximum,
                "poll-idle-ratio-avg": self._idle_ratio.average,
                "last-poll-seconds-ago": since_ms // _MS_PER_S,
            },
            "consumer-fetch-manager-metrics": {
                "fetch-latency-avg": self._fetch_latency.average,
                "fetch-latency-max": self._fetch_latency.maximum,
                "fetch-total": self.fetches_total,
                "records-consumed-total": self.records_total,
                "records-consumed-rate": self._records.rate,
                "bytes-consumed-total": self.bytes_total,
                "bytes-consumed-rate": self._bytes.rate,
                "records-lag-max": max(lags.values(), default=_NAN),
            },
            "consumer-coordinator-metrics": {
                "assigned-partitions": assigned,
                "commit-latency-avg": self._commit_latency.average,
                "commit-latency-max": self._commit_latency.maximum,
                "commit-total": self.commits_total,
            },
        }
        for tp, lag in lags.items():
            found[f"consumer-fetch-manager-metrics.{tp}"] = {"records-lag": lag}
        return found
