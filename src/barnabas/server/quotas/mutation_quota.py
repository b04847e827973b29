"""Quota of controller mutations: partitions created and deleted per second (KIP-599).

Each user and client id has a token bucket. While the bucket is overdrawn, requests of versions that
know THROTTLING_QUOTA_EXCEEDED are rejected. Requests of older versions are served, and their
clients are throttled afterwards.
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


class MutationAllowance:
    """Mutation quota of one request, which the controller uses up."""

    __slots__ = ("_bucket", "_clock", "_rate", "_recorded_ms", "_strict", "_wait_ms")

    def __init__(self, bucket: TokenBucket, rate: float, strict: bool, clock: Clock) -> None:
        self._bucket = bucket
        self._rate = rate
        self._strict = strict
        self._clock = clock
        self._wait_ms = 0.0
        self._recorded_ms = 0.0

    def take(self, partitions: int) -> bool:
        """Return whether this many partitions may be created or deleted; count them if so."""
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
        """Return how long (ms) the client still has to wait."""
        waited_ms = self._clock.monotonic_ms() - self._recorded_ms
        return max(0, round(min(self._wait_ms, THROTTLE_MS_MAX) - waited_ms))


class MutationQuota:
    """Token buckets of all clients that have a limit."""

    __slots__ = ("_buckets", "_clock", "_limits", "_windows")

    def __init__(self, clock: Clock, windows: QuotaWindows) -> None:
        self._clock = clock
        self._windows = windows
        self._limits = QuotaLimits(ClientQuotasImage(), KEY)
        self._buckets: UsedRecently[tuple[str, str], TokenBucket] = UsedRecently(self._is_full)

    @property
    def has_limits(self) -> bool:
        """Whether any client has a limit."""
        return len(self._limits) > 0

    def set_limits(self, image: ClientQuotasImage) -> None:
        """Apply the limits of a new image. The buckets keep their tokens."""
        self._limits = QuotaLimits(image, KEY)
        if not self.has_limits:
            self._buckets.clear()

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
        """Return whether the bucket equals a new one, because it was not used for all windows."""
        return now_ms - bucket._last_ms > self._windows.count * self._windows.size_ms
