"""All client quotas, and their application to requests (KIP-13, KIP-124, KIP-219).

A response is sent immediately and contains the throttle time. The connection is not read during
this time. Without any quota, no work is done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.metrics.sampled import SampledValues
from barnabas.protocol.api_table import ApiKey
from barnabas.server.quotas.mutation_quota import MutationQuota
from barnabas.server.quotas.rate_quota import QuotaWindows, RateQuota, quota_windows

if TYPE_CHECKING:
    from barnabas.metadata.configs_image import ClientQuotasImage
    from barnabas.runtime.clock import Clock
    from barnabas.settings.definition import ParsedConfig

_MS_PER_S = 1000.0
_PERCENT_PER_MS = 100.0 / _MS_PER_S
_PRODUCE = int(ApiKey.PRODUCE)
_FETCH = int(ApiKey.FETCH)


class CountedRequest(NamedTuple):
    """What quotas count of a request."""

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
