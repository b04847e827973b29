"""Quotas of users and client ids in units per second (Kafka: ClientQuotaManager)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from barnabas.metadata.configs_image import ClientQuotasImage
from barnabas.server.quotas.client_usage import ClientUsage
from barnabas.server.quotas.limits import QuotaLimits
from barnabas.server.quotas.rate import QuotaRate
from barnabas.server.quotas.used_recently import UsedRecently

if TYPE_CHECKING:
    from barnabas.runtime.clock import Clock
    from barnabas.server.quotas.limits import QuotaLimit
    from barnabas.settings.definition import ParsedConfig

_MS_PER_S = 1000.0
# Maximum throttle time. A quota may be as low as 1e-300 per second.
THROTTLE_MS_MAX = 3_600_000.0


class QuotaWindows(msgspec.Struct, frozen=True):
    """Number and size (ms) of windows: `quota.window.num` and `quota.window.size.seconds`."""

    count: int
    size_ms: float


def quota_windows(config: ParsedConfig) -> QuotaWindows:
    """Return the windows of client and connection quotas."""
    return QuotaWindows(
        config.integer("quota.window.num"), config.integer("quota.window.size.seconds") * _MS_PER_S
    )


class RateQuota:
    """One kind of quota: bytes produced, bytes fetched, or time."""

    __slots__ = ("_clock", "_limits", "_throttle_ms_max", "_usage", "_windows", "key", "throttled")

    def __init__(
        self,
        key: str,
        clock: Clock,
        windows: QuotaWindows,
        throttle_ms_max: float = THROTTLE_MS_MAX,
    ) -> None:
        self.key = key
        self._clock = clock
        self._windows = windows
        self._throttle_ms_max = throttle_ms_max
        self._limits = QuotaLimits(ClientQuotasImage(), key)
        # Usage by (user, client id) of the shared limit.
        self._usage: UsedRecently[tuple[str, str], ClientUsage] = UsedRecently(ClientUsage.is_idle)
        # Number of requests above the limit since the start.
        self.throttled = 0

    @property
    def has_limits(self) -> bool:
        """Whether any client has a limit."""
        return len(self._limits) > 0

    def set_limits(self, image: ClientQuotasImage) -> None:
        """Apply the limits of a new image. Earlier use still counts."""
        self._limits = QuotaLimits(image, self.key)
        if not self.has_limits:
            self._usage.clear()

    def record(self, user: str, client_id: str, value: float) -> int:
        """Count use, and return the throttle time of the client in ms."""
        limit = self._limits.find(user, client_id)
        if limit is None:
            return 0
        now_ms = self._clock.monotonic_ms()
        rate = self._usage_of(limit, now_ms).rate
        rate.record(value, now_ms)
        wait_ms = rate.throttle_ms(limit.value, now_ms)
        if wait_ms <= 0:
            return 0
        self.throttled += 1
        return round(min(wait_ms, self._throttle_ms_max))

    def unrecord(self, user: str, client_id: str, value: float) -> None:
        """Subtract use that was counted but did not happen."""
        limit = self._limits.find(user, client_id)
        if limit is not None:
            now_ms = self._clock.monotonic_ms()
            self._usage_of(limit, now_ms).rate.record(-value, now_ms)

    def record_throttle(self, user: str, client_id: str, throttle_ms: int) -> None:
        """Count the throttle time of a response for the average of the client."""
        limit = self._limits.find(user, client_id)
        if limit is not None:
            now_ms = self._clock.monotonic_ms()
            self._usage_of(limit, now_ms).record_throttle(throttle_ms, now_ms)

    def largest_use(self, user: str, client_id: str) -> float | None:
        """Return the largest use that all windows together allow, or None without a limit."""
        limit = self._limits.find(user, client_id)
        if limit is None:
            return None
        return limit.value * (self._windows.count - 1) * self._windows.size_ms / _MS_PER_S

    def usage(self) -> list[tuple[str, str, ClientUsage]]:
        """Return user, client id and usage of the clients that have a limit.

        Forget the clients without a request in the last hour.
        """
        now_ms = self._clock.monotonic_ms()
        self._usage.remove_if(lambda usage: usage.is_expired(now_ms))
        return [(user, client_id, usage) for (user, client_id), usage in self._usage.items()]

    def _usage_of(self, limit: QuotaLimit, now_ms: float) -> ClientUsage:
        sharers = (limit.user, limit.client_id)
        usage = self._usage.get(sharers)
        if usage is None:
            usage = ClientUsage(QuotaRate(self._windows.count, self._windows.size_ms))
            self._usage.add(sharers, usage, now_ms)
        usage.used_ms = now_ms
        return usage
