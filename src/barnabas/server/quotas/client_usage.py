"""Recent use of one quota by the clients that share a limit (Kafka: ClientSensors)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.metrics.measurements import SampledValues

if TYPE_CHECKING:
    from barnabas.server.quotas.rate import QuotaRate

# Time without a request after which the metrics of a client disappear, as in Kafka.
EXPIRY_MS = 3_600_000.0


class ClientUsage:
    """Rate and throttle times of one user, client id, or pair of both."""

    __slots__ = ("_throttle_times", "rate", "used_ms")

    def __init__(self, rate: QuotaRate) -> None:
        self.rate = rate
        # Time of the last request (monotonic, ms). The quota sets it.
        self.used_ms = 0.0
        # Throttle times of the last minute; None before the first one.
        self._throttle_times: SampledValues | None = None

    def record_throttle(self, throttle_ms: float, now_ms: float) -> None:
        """Count the throttle time of a response."""
        if self._throttle_times is None:
            self._throttle_times = SampledValues()
        self._throttle_times.record(throttle_ms, now_ms)

    def throttle_time(self, now_ms: float) -> float:
        """Return the average throttle time (ms) of the last minute, or NaN without one."""
        times = self._throttle_times
        average = None if times is None else times.average(now_ms)
        return float("nan") if average is None else average

    def is_idle(self, now_ms: float) -> bool:
        """Return whether the rate equals a new one."""
        return self.rate.is_idle(now_ms)

    def is_expired(self, now_ms: float) -> bool:
        """Return whether the last request is more than an hour ago."""
        return now_ms - self.used_ms > EXPIRY_MS
