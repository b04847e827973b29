"""All quotas of clients, and how a request's answer is held to them (KIP-13, KIP-124, KIP-219).

An answer leaves at once and says how long its client has to be silent; the connection is not read
from for that time. Nothing of this is done while nobody has a quota.
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
    """One of each kind."""

    __slots__ = ("fetch", "is_active", "mutation", "produce", "request")

    def __init__(self, clock: Clock, config: ParsedConfig) -> None:
        windows = quota_windows(config)
        self.produce = RateQuota("producer_byte_rate", clock, windows)
        self.fetch = RateQuota("consumer_byte_rate", clock, windows)
        # In percent of the loop's time; nobody waits longer than one window for it.
        self.request = RateQuota("request_percentage", clock, windows, windows.size_ms)
        self.mutation = MutationQuota(
            clock,
            QuotaWindows(
                config.integer("controller.quota.window.num"),
                config.integer("controller.quota.window.size.seconds") * _MS_PER_S,
            ),
        )
        # Whether anybody has a quota: the one thing looked at per request while nobody has.
        self.is_active = False

    def on_image(self, image: ClientQuotasImage) -> None:
        """Hold clients to the limits of a new image from now on."""
        kinds = (self.produce, self.fetch, self.request, self.mutation)
        for kind in kinds:
            kind.set_limits(image)
        self.is_active = any(kind.has_limits for kind in kinds)

    def record_request(
        self, api_key: int, user: str, client_id: str, request_bytes: int, spent_ms: float
    ) -> int:
        """Count a request that is being answered; returns for how many ms its client has to wait.

        The bytes of a fetch are counted by its handler, which answers with none when over quota.
        """
        wait_ms = self.request.record(user, client_id, spent_ms * _PERCENT_PER_MS)
        if api_key == _PRODUCE:
            wait_ms = max(wait_ms, self.produce.record(user, client_id, request_bytes))
        return wait_ms
