"""Quotas per second of users and client ids (Kafka: ClientQuotaManager)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from barnabas.metadata.client_quotas_image import ClientQuotasImage
from barnabas.server.quotas.limits import QuotaLimits
from barnabas.server.quotas.rate import QuotaRate
from barnabas.server.quotas.used_recently import UsedRecently

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.runtime.clock import Clock
    from barnabas.settings.definition import ParsedConfig

_MS_PER_S = 1000.0
# A quota may be as low as 1e-300 a second: what is over it is not waited for longer than this.
THROTTLE_MS_MAX = 3_600_000.0


class QuotaWindows(msgspec.Struct, frozen=True):
    """`quota.window.num` and `quota.window.size.seconds`, in ms."""

    count: int
    size_ms: float


def quota_windows(config: ParsedConfig) -> QuotaWindows:
    """The windows of the quotas of clients and of connections."""
    return QuotaWindows(
        config.integer("quota.window.num"), config.integer("quota.window.size.seconds") * _MS_PER_S
    )


class RateQuota:
    """One kind of quota: bytes produced, bytes fetched, or time."""

    __slots__ = ("_clock", "_limits", "_rates", "_throttle_ms_max", "_windows", "key", "throttled")

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
        # By (user, client id) that share a limit.
        self._rates: UsedRecently[tuple[str, str], QuotaRate] = UsedRecently(QuotaRate.is_idle)
        # Requests that went over the limit, since the start.
        self.throttled = 0

    @property
    def has_limits(self) -> bool:
        """Whether anybody has one."""
        return len(self._limits) > 0

    def set_limits(self, image: ClientQuotasImage) -> None:
        """Take the limits of a new image; what was used stays counted."""
        self._limits = QuotaLimits(image, self.key)
        if not self.has_limits:
            self._rates.clear()

    def record(self, user: str, client_id: str, value: float) -> int:
        """Count what was used; returns for how many ms the client has to wait."""
        limit = self._limits.find(user, client_id)
        if limit is None:
            return 0
        now_ms = self._clock.monotonic_ms()
        rate = self._rate(limit.user, limit.client_id, now_ms)
        rate.record(value, now_ms)
        wait_ms = rate.throttle_ms(limit.value, now_ms)
        if wait_ms <= 0:
            return 0
        self.throttled += 1
        return round(min(wait_ms, self._throttle_ms_max))

    def unrecord(self, user: str, client_id: str, value: float) -> None:
        """Take back what was counted and is not used after all."""
        limit = self._limits.find(user, client_id)
        if limit is not None:
            now_ms = self._clock.monotonic_ms()
            self._rate(limit.user, limit.client_id, now_ms).record(-value, now_ms)

    def largest_use(self, user: str, client_id: str) -> float | None:
        """What can be used at once without being over for longer than the windows reach."""
        limit = self._limits.find(user, client_id)
        if limit is None:
            return None
        return limit.value * (self._windows.count - 1) * self._windows.size_ms / _MS_PER_S

    def rates(self) -> Iterator[tuple[str, str, float]]:
        """User, client id and what they use per second; of those with a limit."""
        now_ms = self._clock.monotonic_ms()
        for (user, client_id), rate in self._rates.items():
            yield user, client_id, rate.measure(now_ms)[0]

    def _rate(self, user: str, client_id: str, now_ms: float) -> QuotaRate:
        sharers = (user, client_id)
        rate = self._rates.get(sharers)
        if rate is None:
            rate = QuotaRate(self._windows.count, self._windows.size_ms)
            self._rates.add(sharers, rate, now_ms)
        return rate
