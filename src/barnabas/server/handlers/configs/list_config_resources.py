"""ListConfigResources (key 74, v0-1): list the resources with configurations (KIP-714, KIP-1142).

v0 lists only client metrics subscriptions. v1 takes resource types, and an empty list means all
types.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.metadata.configs_image import (
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    GROUP,
    TOPIC,
)
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.configs import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from barnabas.waiting.steps import gradually

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.handlers.dependencies import BrokerDependencies

_TYPES = (TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP)


def handler(dependencies: BrokerDependencies) -> Handle:
    """Return the handler that lists configuration resources."""
    return ListConfigResourcesHandler(dependencies).handle_list_config_resources


class ListConfigResourcesHandler:
    """Builds responses from the metadata image."""

    __slots__ = ("_cluster",)

    def __init__(self, dependencies: BrokerDependencies) -> None:
        self._cluster = dependencies.cluster

    def handle_list_config_resources(
        self, context: RequestContext, request: ListConfigResourcesRequest
    ) -> ListConfigResourcesResponse | None:
        """List the resources of the requested types. An unknown type is UNSUPPORTED_VERSION.

        Topics and brokers are listed even if they have no configuration values.
        """
        requested: Sequence[int] = request.resource_types or _TYPES
        if context.version == 0:
            requested = (CLIENT_METRICS,)
        if not set(requested) <= set(_TYPES):
            return ListConfigResourcesResponse(
                error_code=ErrorCode.UNSUPPORTED_VERSION, config_resources=[]
            )
        return context.in_slices(self._build_response(sorted(set(requested))))

    def _build_response(
        self, kinds: list[int]
    ) -> Generator[None, None, ListConfigResourcesResponse]:
        resources = yield from gradually(
            ConfigResource(resource_name=name, resource_type=kind)
            for kind in kinds
            for name in self._names(kind)
        )
        return ListConfigResourcesResponse(error_code=ErrorCode.NONE, config_resources=resources)

    def _names(self, kind: int) -> list[str]:
        image = self._cluster.image
        if kind == TOPIC:
            return list(image.topics.names())
        if kind in (BROKER, BROKER_LOGGER):
            return [str(broker_id) for broker_id in image.brokers]
        return [name for found, name, _ in image.configs if found == kind]
