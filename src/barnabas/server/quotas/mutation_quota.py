"""The quota of controller mutations: partitions made and deleted per second (KIP-599).

A token bucket per user and client id. Versions of the requests that know the error are refused
while the bucket is overdrawn; older ones are let through and wait afterwards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.metadata.client_quotas_image import ClientQuotasImage
from barnabas.server.quotas.limits import QuotaLimits
from barnabas.server.quotas.rate_quota import THROTTLE_MS_MAX
from barnabas.server.quotas.used_recently import UsedRecently

if TYPE_CHECKING:
    from barnabas.runtime.clock import Clock
    from barnabas.server.quotas.limits import QuotaLimit
    from barnabas.server.quotas.rate_quota import QuotaWindows

_MS_PER_S = 1000.0
KEY = "controller_mutation_rate"


class TokenBucket:
    """Tokens that come back at a rate, up to what all windows together allow (KIP-599)."""

    __slots__ = ("_last_ms", "_tokens", "_window_s")

    def __init__(self, windows: QuotaWindows, rate: float, now_ms: float) -> None:
        self._window_s = windows.count * windows.size_ms / _MS_PER_S
        self._tokens = rate * self._window_s
        self._last_ms = now_ms

    def tokens(self, rate: float, now_ms: float) -> float:
        """What is there; below zero: overdrawn."""
        came = rate * (now_ms - self._last_ms) / _MS_PER_S
        self._tokens = min(rate * self._window_s, self._tokens + came)
        self._last_ms = now_ms
        return self._tokens

    def take(self, amount: float, rate: float, now_ms: float) -> float:
        """Take tokens, also those that are not there; returns what is left."""
        self._tokens = self.tokens(rate, now_ms) - amount
        return self._tokens


class MutationAllowance:
    """What one request may still change."""

    __slots__ = ("_bucket", "_clock", "_rate", "_recorded_ms", "_strict", "_wait_ms")

    def __init__(self, bucket: TokenBucket, rate: float, strict: bool, clock: Clock) -> None:
        self._bucket = bucket
        self._rate = rate
        self._strict = strict
        self._clock = clock
        self._wait_ms = 0.0
        self._recorded_ms = 0.0

    def take(self, partitions: int) -> bool:
        """Whether so many partitions may be made or deleted; if so they are counted."""
        now_ms = self._clock.monotonic_ms()
        if self._strict:
            left = self._bucket.tokens(self._rate, now_ms)
            if left >= 0:
                self._bucket.take(partitions, self._rate, now_ms)
                return True
        else:
            left = self._bucket.take(partitions, self._rate, now_ms)
        if left < 0:
            self._wait_ms = -left / self._rate * _MS_PER_S
            self._recorded_ms = now_ms
        return not self._strict

    def throttle_ms(self) -> int:
        """How long the client still has to wait."""
        waited_ms = self._clock.monotonic_ms() - self._recorded_ms
        return max(0, round(min(self._wait_ms, THROTTLE_MS_MAX) - waited_ms))


class MutationQuota:
    """The buckets of all who have a limit."""

    __slots__ = ("_buckets", "_clock", "_limits", "_windows")

    def __init__(self, clock: Clock, windows: QuotaWindows) -> None:
        self._clock = clock
        self._windows = windows
        self._limits = QuotaLimits(ClientQuotasImage(), KEY)
        self._buckets: UsedRecently[tuple[str, str], TokenBucket] = UsedRecently(self._is_full)

    @property
    def has_limits(self) -> bool:
        """Whether anybody has one."""
        return len(self._limits) > 0

    def set_limits(self, image: ClientQuotasImage) -> None:
        """Take the limits of a new image; what was used stays counted."""
        self._limits = QuotaLimits(image, KEY)
        if not self.has_limits:
            self._buckets.clear()

    def allowance(self, user: str, client_id: str, strict: bool) -> MutationAllowance | None:
        """What a request may change; None without a limit.

        Args:
            strict: whether the request's version knows THROTTLING_QUOTA_EXCEEDED.
        """
        limit = self._limits.find(user, client_id)
        if limit is None:
            return None
        return MutationAllowance(self._bucket(limit), limit.value, strict, self._clock)

    def _bucket(self, limit: QuotaLimit) -> TokenBucket:
        sharers = (limit.user, limit.client_id)
        bucket = self._buckets.get(sharers)
        if bucket is None:
            now_ms = self._clock.monotonic_ms()
            bucket = TokenBucket(self._windows, limit.value, now_ms)
            self._buckets.add(sharers, bucket, now_ms)
        return bucket

    def _is_full(self, bucket: TokenBucket, now_ms: float) -> bool:
        """Whether a new bucket would hold no more: nothing was taken of late."""
        return now_ms - bucket._last_ms > self._windows.count * self._windows.size_ms
