"""Quotas of users and client ids, and their application to requests (KIP-13, KIP-124, KIP-219).

A response is sent immediately and contains the throttle time. The connection is not read during
this time. Without any quota, no work is done. The quotas are in the metadata.

- Rates: bytes or request time in units per second (Kafka: ClientQuotaManager).
- Mutations: partitions created and deleted per second, on controllers (KIP-599). Each user and
  client id has a token bucket. While the bucket is overdrawn, requests of versions that know
  THROTTLING_QUOTA_EXCEEDED are rejected. Requests of older versions are served, and their clients
  are throttled afterwards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

from barnabas.metadata.configs_image import ClientQuotasImage
from barnabas.metrics.measurements import SampledValues
from barnabas.protocol.api_table import ApiKey
from barnabas.server.quotas.limits import QuotaLimits
from barnabas.server.quotas.rate import QuotaRate, QuotaWindows, UsedRecently, quota_windows

if TYPE_CHECKING:
    from barnabas.metadata.image import ClusterDelta, ClusterImage
    from barnabas.runtime.clock import Clock
    from barnabas.server.quotas.connection_quotas import ConnectionQuotas
    from barnabas.server.quotas.limits import QuotaLimit
    from barnabas.settings.definition import ParsedConfig


_MS_PER_S = 1000.0
_PERCENT_PER_MS = 100.0 / _MS_PER_S
_PRODUCE = int(ApiKey.PRODUCE)
_FETCH = int(ApiKey.FETCH)


U = TypeVar("U", bound="ClientUsage")


class CountedRequest(NamedTuple):
    """The part of a request that quotas count."""

    api_key: int
    # Name of the principal, without its type.
    user: str
    client_id: str
    request_bytes: int
    # Time of the loop that the request took.
    spent_ms: float


class ClientQuotas:
    """The produce, fetch, request and controller mutation quotas."""

    __slots__ = ("_exempt_times", "clock", "fetch", "is_active", "mutation", "produce", "request")

    def __init__(self, clock: Clock, config: ParsedConfig) -> None:
        self.clock = clock
        # Percentage of the loop's time for requests that no quota applies to.
        self._exempt_times = SampledValues()
        windows = quota_windows(config)
        self.produce = RateQuota("producer_byte_rate", clock, windows)
        self.fetch = RateQuota("consumer_byte_rate", clock, windows)
        # Percentage of the loop's time. The throttle time is at most one window.
        self.request = RateQuota("request_percentage", clock, windows, windows.size_ms)
        self.mutation = MutationQuota(
            clock,
            QuotaWindows(
                config.integer("controller.quota.window.num"),
                config.integer("controller.quota.window.size.seconds") * _MS_PER_S,
            ),
        )
        # Whether any quota is set. While it is False, requests check only this field.
        self.is_active = False

    def on_image(self, image: ClientQuotasImage) -> None:
        """Apply the limits of a new image."""
        kinds = (self.produce, self.fetch, self.request, self.mutation)
        for kind in kinds:
            kind.set_limits(image)
        self.is_active = any(kind.has_limits for kind in kinds)

    def record_request(self, request: CountedRequest, handler_wait_ms: int) -> int:
        """Count a request at its response, and return the throttle time of its client in ms.

        The larger of two throttle times counts, as in Kafka: that of the request quota, and that of
        the quota for the bytes or mutations of the request.

        Args:
            request: the request.
            handler_wait_ms: throttle time from the handler, of the fetch or mutation quota.
        """
        user, client_id = request.user, request.client_id
        wait_ms = self.request.record(user, client_id, request.spent_ms * _PERCENT_PER_MS)
        own: RateQuota | MutationQuota = self.mutation
        if request.api_key == _PRODUCE:
            own = self.produce
            handler_wait_ms = max(
                handler_wait_ms, own.record(user, client_id, request.request_bytes)
            )
        elif request.api_key == _FETCH:
            own = self.fetch
        if handler_wait_ms > wait_ms:
            own.record_throttle(user, client_id, handler_wait_ms)
            return handler_wait_ms
        if wait_ms > 0:
            self.request.record_throttle(user, client_id, wait_ms)
        return wait_ms

    def record_exempt(self, spent_ms: float) -> None:
        """Count the time of a request that no quota applies to."""
        self._exempt_times.record(spent_ms * _PERCENT_PER_MS, self.clock.monotonic_ms())

    def exempt_request_time(self) -> float:
        """Return the percentage of the loop's time for requests that no quota applies to."""
        return self._exempt_times.rate(self.clock.monotonic_ms())


# Maximum throttle time. A quota may be as low as 1e-300 per second.
THROTTLE_MS_MAX = 3_600_000.0


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
        return _without_expired(self._usage, self._clock.monotonic_ms())

    def _usage_of(self, limit: QuotaLimit, now_ms: float) -> ClientUsage:
        sharers = (limit.user, limit.client_id)
        usage = self._usage.get(sharers)
        if usage is None:
            usage = ClientUsage(QuotaRate(self._windows.count, self._windows.size_ms))
            self._usage.add(sharers, usage, now_ms)
        usage.used_ms = now_ms
        return usage


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


def _without_expired(
    used: UsedRecently[tuple[str, str], U], now_ms: float
) -> list[tuple[str, str, U]]:
    """Forget the clients without a request in the last hour, and return all others."""
    used.remove_if(lambda usage: usage.is_expired(now_ms))
    return [(user, client_id, usage) for (user, client_id), usage in used.items()]


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
        return _without_expired(self._usage, self._clock.monotonic_ms())

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


# Time without a request after which the metrics of a client disappear, as in Kafka.
EXPIRY_MS = 3_600_000.0


class QuotaFollower:
    """Passes quotas to their users. Listens to the metadata publisher."""

    __slots__ = ("_clients", "_connections")

    def __init__(self, clients: ClientQuotas, connections: ConnectionQuotas) -> None:
        self._clients = clients
        self._connections = connections

    def on_image(self, delta: ClusterDelta, image: ClusterImage) -> None:
        """Apply changed limits. The first image comes with a delta from an empty image."""
        if delta.client_quota_changes:
            self._clients.on_image(image.client_quotas)
            self._connections.on_image(image.client_quotas)
