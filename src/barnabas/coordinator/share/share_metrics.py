"""The share coordinator's measurements: plain numbers, read when metrics are published."""

from __future__ import annotations

from barnabas.metrics.measurements import SampledValues


class ShareMetrics:
    """Measurements of all shards together, since the start."""

    __slots__ = ("write_times", "writes", "written")

    def __init__(self) -> None:
        # Number of share partitions that WriteShareGroupState was applied to, or whose leader epoch
        # a read has changed; and each of them as a 1, for the rate.
        self.writes = 0
        self.written = SampledValues()
        # Durations of WriteShareGroupState until the commit, in ms.
        self.write_times = SampledValues()

    def note_write(self, now_ms: float) -> None:
        """Count a write of one share partition."""
        self.writes += 1
        self.written.record(1, now_ms)
