"""GetTelemetrySubscriptions (key 71, v0): tell a client which metrics to push (KIP-714).

This API is served only if a receiver is configured.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.connection import (
    GetTelemetrySubscriptionsResponse,
)
from barnabas.protocol.schema import ZERO_UUID
from barnabas.server.telemetry.client_telemetry import ACCEPTED_COMPRESSIONS
from barnabas.server.telemetry.pushing_client import pushing_client

if TYPE_CHECKING:
    from barnabas.protocol.messages.connection import (
        GetTelemetrySubscriptionsRequest,
    )
    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.handlers.dependencies import BrokerDependencies


def handler(dependencies: BrokerDependencies) -> Handle:
    """Return the handler that tells clients which metrics to push."""
    return GetTelemetrySubscriptionsHandler(dependencies).handle_get_telemetry_subscriptions


class GetTelemetrySubscriptionsHandler:
    """Assigns client instance ids, and returns the subscriptions that match a client."""

    __slots__ = ("_rng", "_telemetry")

    def __init__(self, dependencies: BrokerDependencies) -> None:
        assert dependencies.telemetry is not None
        self._telemetry = dependencies.telemetry
        self._rng = dependencies.rng

    def handle_get_telemetry_subscriptions(
        self, context: RequestContext, request: GetTelemetrySubscriptionsRequest
    ) -> GetTelemetrySubscriptionsResponse:
        """Return the client's subscription. Requests that are too early get an error.

        The error is THROTTLING_QUOTA_EXCEEDED.
        """
        instance_id = bytes(request.client_instance_id)
        if instance_id == ZERO_UUID:
            instance_id = self._rng.uuid()
        found = self._telemetry.get(instance_id, pushing_client(context, instance_id))
        if isinstance(found, ErrorCode):
            return GetTelemetrySubscriptionsResponse(
                error_code=found,
                client_instance_id=ZERO_UUID,
                subscription_id=0,
                accepted_compression_types=[],
                push_interval_ms=0,
                telemetry_max_bytes=0,
                delta_temporality=False,
                requested_metrics=[],
            )
        return GetTelemetrySubscriptionsResponse(
            error_code=ErrorCode.NONE,
            client_instance_id=instance_id,
            subscription_id=found.subscription_id,
            accepted_compression_types=list(ACCEPTED_COMPRESSIONS),
            push_interval_ms=found.push_interval_ms,
            telemetry_max_bytes=self._telemetry.max_bytes,
            delta_temporality=True,
            requested_metrics=list(found.metrics),
        )
