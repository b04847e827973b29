"""AlterConfigs (key 33, v0-2) and IncrementalAlterConfigs (key 44, v0-1): change configurations.

AlterConfigs replaces all values of a resource (KIP-133). IncrementalAlterConfigs sets, deletes or
appends single values (KIP-339, KIP-412). This broker checks and applies changes of its own
configuration. The active controller makes all other changes. No version adds a field.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from barnabas.controller.result import Refusal
from barnabas.metadata.configs.configs_image import BROKER
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from barnabas.protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse as IncrementalResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from barnabas.server.configs.dynamic.config_admin import (
    handle_legacy_locally,
    handle_locally,
    merge_results,
)
from barnabas.server.configs.dynamic.gradual_keys import GRADUAL, GradualKeys
from barnabas.server.configs.tls_config import DYNAMIC_TLS_KEYS, STORE_KEYS
from barnabas.settings.key import ConfigError, without_listener

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from barnabas.protocol.schema import Message
    from barnabas.server.cluster.cluster_view import ClusterView
    from barnabas.server.configs.dynamic.config_admin import Outcomes
    from barnabas.server.configs.dynamic.dynamic_config import DynamicBrokerConfig
    from barnabas.server.controller_access.controller_access import ControllerAccess
    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.handlers.dependencies import NodeDependencies
    from barnabas.server.listeners.node_sockets import NodeSockets


def alter_configs(dependencies: NodeDependencies) -> Handle:
    """Return the handler that replaces configurations."""
    forwarding = dependencies.forwarding
    node_id = dependencies.node_id
    limits = create_limits(dependencies)

    def handle_alter_configs(
        context: RequestContext, request: AlterConfigsRequest
    ) -> Message | None:
        """Forward the request. The response follows when the configurations are committed."""
        return context.after(
            handle_legacy_locally(node_id, request.resources, limits),
            partial(forward, context, request),
        )

    def forward(context: RequestContext, request: AlterConfigsRequest, outcomes: Outcomes) -> None:
        forward_changes(
            context,
            request,
            AlterConfigsResponse,
            AlterConfigsResourceResponse,
            forwarding,
            outcomes,
        )

    return handle_alter_configs


def incremental_alter_configs(dependencies: NodeDependencies) -> Handle:
    """Return the handler that changes single configuration values."""
    forwarding = dependencies.forwarding
    node_id = dependencies.node_id
    limits = create_limits(dependencies)

    def handle_incremental_alter_configs(
        context: RequestContext, request: IncrementalAlterConfigsRequest
    ) -> Message | None:
        """Apply the changes. The response follows when the configurations are committed."""
        own_changes = handle_locally(
            node_id,
            request.resources,
            validate_only=request.validate_only,
            checks=limits,
        )
        return context.after(own_changes, partial(forward, context, request))

    def forward(
        context: RequestContext, request: IncrementalAlterConfigsRequest, outcomes: Outcomes
    ) -> None:
        forward_changes(
            context,
            request,
            IncrementalAlterConfigsResponse,
            IncrementalResourceResponse,
            forwarding,
            outcomes,
        )

    return handle_incremental_alter_configs


class BrokerLimits:
    """The limits of gradual keys, and the checks of new key stores."""

    __slots__ = ("_gradual", "_tls")

    def __init__(self, dependencies: NodeDependencies) -> None:
        self._gradual = GradualKeys(dependencies.dynamic_config, dependencies.cluster)
        self._tls = TlsChanges(
            dependencies.dynamic_config, dependencies.cluster, dependencies.sockets
        )

    def check(self, resource: str, changes: Mapping[str, str | None]) -> None:
        """Raise Refusal for changes that this broker rejects."""
        self._gradual.check(resource, changes)
        self._tls.check(resource, changes)

    def removable(self, resource: str) -> list[str]:
        """Return the checked keys that a request removes if it replaces all keys."""
        return [*GRADUAL, *self._tls.current_keys(resource)]


class TlsChanges:
    """Checks that new key stores can be used before the controller accepts the change."""

    __slots__ = ("_cluster", "_dynamic", "_sockets")

    def __init__(
        self, dynamic: DynamicBrokerConfig, cluster: ClusterView, sockets: NodeSockets
    ) -> None:
        self._dynamic = dynamic
        self._cluster = cluster
        self._sockets = sockets

    def check(self, resource: str, changes: Mapping[str, str | None]) -> None:
        """Read the key stores of the configuration after the changes.

        Args:
            resource: name of the broker resource; empty for all brokers.
            changes: new values by key; None for deleted keys.

        Raises:
            Refusal: INVALID_REQUEST if a key store cannot be used, or belongs to all listeners.
        """
        for name, value in changes.items():
            if value is not None and name in STORE_KEYS:
                raise Refusal(
                    ErrorCode.INVALID_REQUEST,
                    f"{name} can only be changed for one listener: listener.name.NAME.{name}",
                )
        if resource != str(self._dynamic.node_id) or not self._sockets.tls:
            return
        if not any(without_listener(name) in DYNAMIC_TLS_KEYS for name in changes):
            return
        config, given = self._dynamic.with_changes(self._cluster.image, changes)
        try:
            for tls in self._sockets.tls.values():
                tls.check_change(config, given)
        except ConfigError as error:
            raise Refusal(ErrorCode.INVALID_REQUEST, str(error)) from error

    def current_keys(self, resource: str) -> list[str]:
        """Return the TLS keys that the resource has."""
        return [
            name
            for name in self._cluster.image.configs.get(BROKER, resource)
            if without_listener(name) in DYNAMIC_TLS_KEYS
        ]


def create_limits(dependencies: NodeDependencies) -> BrokerLimits | None:
    """Return the limits of this broker, or None on a controller, which accepts all changes."""
    if dependencies.alters_any_broker:
        return None
    return BrokerLimits(dependencies)


def forward_changes(
    context: RequestContext,
    request: Any,
    response_class: type[Any],
    result_class: type[Any],
    forwarding: ControllerAccess,
    outcomes: Outcomes,
) -> None:
    """Send the resources without an outcome to the controller, and respond for all of them.

    Args:
        context: the context of the request.
        request: an AlterConfigs or IncrementalAlterConfigs request.
        response_class: class of the API's response.
        result_class: class of the API's result for a resource.
        forwarding: sends requests to the active controller.
        outcomes: outcomes of the resources that are not forwarded.
    """

    def build(forwarded: list[Any]) -> Generator[None, None, Message]:
        responses = yield from merge_results(result_class, request.resources, outcomes, forwarded)
        response: Message = response_class(responses=responses)
        return response

    rest = [each for index, each in enumerate(request.resources) if index not in outcomes]
    if not rest:
        context.respond_in_slices(build([]))
        return
    forwarding.send(
        type(request)(resources=rest, validate_only=request.validate_only),
        lambda response: context.respond_in_slices(build(response.responses)),
        client_context=context,
    )
