"""Quota of controller mutations: partitions created and deleted per second (KIP-599).

Each user and client id has a token bucket. While the bucket is overdrawn, requests of versions that
know THROTTLING_QUOTA_EXCEEDED are rejected. Requests of older versions are served, and their
clients are throttled afterwards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.metadata.configs_image import ClientQuotasImage
from barnabas.server.quotas.client_usage import ClientUsage
from barnabas.server.quotas.limits import QuotaLimits
from barnabas.server.quotas.rate import QuotaRate
from barnabas.server.quotas.rate_quota import THROTTLE_MS_MAX
from barnabas.server.quotas.used_recently import UsedRecently

if TYPE_CHECKING:
    from barnabas.runtime.clock import Clock
    from barnabas.server.quotas.limits import QuotaLimit
    from barnabas.server.quotas.rate_quota import QuotaWindows

_MS_PER_S = 1000.0
KEY = "controller_mutation_rate"


class TokenBucket:
    """Token bucket that refills at a rate, up to the total of all windows (KIP-599)."""

    __slots__ = ("_last_ms", "_tokens", "_window_s")

    def __init__(self, windows: QuotaWindows, rate: float, now_ms: float) -> None:
        self._window_s = windows.count * windows.size_ms / _MS_PER_S
        self._tokens = rate * self._window_s
        self._last_ms = now_ms

    def tokens(self, rate: float, now_ms: float) -> float:
        """Refill the bucket and return its tokens. A negative number means that it is overdrawn."""
        came = rate * (now_ms - self._last_ms) / _MS_PER_S
        self._tokens = min(rate * self._window_s, self._tokens + came)
        self._last_ms = now_ms
        return self._tokens

    def take(self, amount: float, rate: float, now_ms: float) -> float:
        """Remove tokens, even if the bucket is overdrawn, and return the remaining tokens."""
        self._tokens = self.tokens(rate, now_ms) - amount
        return self._tokens


class MutationUsage(ClientUsage):
    """Recent mutations of one user, client id, or pair of both, and the tokens that are left."""

    __slots__ = ("bucket",)

    def __init__(self, windows: QuotaWindows, rate: float, now_ms: float) -> None:
        super().__init__(QuotaRate(windows.count, windows.size_ms))
        self.bucket = TokenBucket(windows, rate, now_ms)


class MutationAllowance:
    """Mutation quota of one request, which the controller uses up."""

    __slots__ = ("_clock", "_limit", "_quota", "_recorded_ms", "_strict", "_wait_ms")

    def __init__(self, quota: MutationQuota, limit: QuotaLimit, strict: bool, clock: Clock) -> None:
        self._quota = quota
        self._limit = limit
        self._strict = strict
        self._clock = clock
        self._wait_ms = 0.0
        self._recorded_ms = 0.0

    def take(self, partitions: int) -> bool:
        """Return whether this many partitions may be created or deleted; count them if so."""
        now_ms = self._clock.monotonic_ms()
        usage, rate = self._quota.usage_of(self._limit), self._limit.value
        left = usage.bucket.tokens(rate, now_ms)
        is_taken = left >= 0 or not self._strict
        if is_taken:
            usage.rate.record(partitions, now_ms)
            after = usage.bucket.take(partitions, rate, now_ms)
            if not self._strict:
                left = after
        if left < 0:
            self._wait_ms = -left / rate * _MS_PER_S
            self._recorded_ms = now_ms
        return is_taken

    def throttle_ms(self) -> int:
        """Return how long (ms) the client still has to wait."""
        waited_ms = self._clock.monotonic_ms() - self._recorded_ms
        return max(0, round(min(self._wait_ms, THROTTLE_MS_MAX) - waited_ms))


class MutationQuota:
    """Token buckets of all clients that have a limit."""

    __slots__ = ("_clock", "_limits", "_usage", "_windows")

    def __init__(self, clock: Clock, windows: QuotaWindows) -> None:
        self._clock = clock
        self._windows = windows
        self._limits = QuotaLimits(ClientQuotasImage(), KEY)
        # Usage by (user, client id) of the shared limit. Only the active controller counts use.
        self._usage: UsedRecently[tuple[str, str], MutationUsage] = UsedRecently(self._is_full)

    @property
    def has_limits(self) -> bool:
        """Whether any client has a limit."""
        return len(self._limits) > 0

    def set_limits(self, image: ClientQuotasImage) -> None:
        """Apply the limits of a new image. The buckets keep their tokens."""
        self._limits = QuotaLimits(image, KEY)
        if not self.has_limits:
            self._usage.clear()

    def allowance(self, user: str, client_id: str, strict: bool) -> MutationAllowance | None:
        """Return the mutation quota of a request, or None without a limit.

        Args:
            user: principal of the client.
            client_id: client id of the client.
            strict: whether the version of the request knows THROTTLING_QUOTA_EXCEEDED.
        """
        limit = self._limits.find(user, client_id)
        if limit is None:
            return None
        return MutationAllowance(self, limit, strict, self._clock)

    def record_throttle(self, user: str, client_id: str, throttle_ms: int) -> None:
        """Count the throttle time of a response for the average of the client."""
        limit = self._limits.find(user, client_id)
        if limit is not None:
            self.usage_of(limit).record_throttle(throttle_ms, self._clock.monotonic_ms())

    def usage(self) -> list[tuple[str, str, MutationUsage]]:
        """Return user, client id and usage of the clients that have a limit.

        Forget the clients without a request in the last hour.
        """
        now_ms = self._clock.monotonic_ms()
        self._usage.remove_if(lambda usage: usage.is_expired(now_ms))
        return [(user, client_id, usage) for (user, client_id), usage in self._usage.items()]

    def tokens(self, user: str, client_id: str, usage: MutationUsage) -> float | None:
        """Return the tokens of an entry of `usage`, or None if its clients have no limit now."""
        limit = self._limits.find(user, client_id)
        return (
            None if limit is None else usage.bucket.tokens(limit.value, self._clock.monotonic_ms())
        )

    def usage_of(self, limit: QuotaLimit) -> MutationUsage:
        """Return the usage of the clients that share a limit; add it at the first use."""
        sharers = (limit.user, limit.client_id)
        usage = self._usage.get(sharers)
        now_ms = self._clock.monotonic_ms()
        if usage is None:
            usage = MutationUsage(self._windows, limit.value, now_ms)
            self._usage.add(sharers, usage, now_ms)
        usage.used_ms = now_ms
        return usage

    def _is_full(self, usage: MutationUsage, now_ms: float) -> bool:
        """Return whether the usage equals a new one, because it was not used for all windows."""
        return now_ms - usage.used_ms > self._windows.count * self._windows.size_ms
