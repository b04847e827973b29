"""All client quotas, and their application to requests (KIP-13, KIP-124, KIP-219).

A response is sent immediately and contains the throttle time. The connection is not read during
this time. Without any quota none of this work is done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.api_table import ApiKey
from barnabas.server.quotas.mutation_quota import MutationQuota
from barnabas.server.quotas.rate_quota import QuotaWindows, RateQuota, quota_windows

if TYPE_CHECKING:
    from barnabas.metadata.client_quotas_image import ClientQuotasImage
    from barnabas.runtime.clock import Clock
    from barnabas.settings.definition import ParsedConfig

_MS_PER_S = 1000.0
_PERCENT_PER_MS = 100.0 / _MS_PER_S
_PRODUCE = int(ApiKey.PRODUCE)


class ClientQuotas:
    """The produce, fetch, request and controller mutation quotas."""

    __slots__ = ("fetch", "is_active", "mutation", "produce", "request")

    def __init__(self, clock: Clock, config: ParsedConfig) -> None:
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

    def record_request(
        self, api_key: int, user: str, client_id: str, request_bytes: int, spent_ms: float
    ) -> int:
        """Count a request at its response, and return the throttle time of its client in ms.

        The fetch handler counts the bytes of fetches. It sends an empty response above the quota.
        """
        wait_ms = self.request.record(user, client_id, spent_ms * _PERCENT_PER_MS)
        if api_key == _PRODUCE:
            wait_ms = max(wait_ms, self.produce.record(user, client_id, request_bytes))
        return wait_ms
