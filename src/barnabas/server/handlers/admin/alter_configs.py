"""AlterConfigs (key 33, v0-2) and IncrementalAlterConfigs (key 44, v0-1): change configurations.

AlterConfigs replaces all values of a resource (KIP-133). IncrementalAlterConfigs sets, deletes or
appends single values (KIP-339, KIP-412). This broker checks and applies changes of its own
configuration. The active controller makes all other changes. No version adds a field.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from barnabas.controller.result import Refusal
from barnabas.metadata.configs_image import BROKER
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from barnabas.protocol.messages.configs import (
    AlterConfigsResourceResponse as IncrementalResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from barnabas.server.configs.config_admin import (
    handle_legacy_locally,
    handle_locally,
    merge_results,
)
from barnabas.server.configs.dynamic_config import GRADUAL, GradualKeys
from barnabas.server.configs.link_settings import check_link_settings, check_links_kept
from barnabas.server.configs.tls_config import DYNAMIC_TLS_KEYS, STORE_KEYS
from barnabas.settings.key import ConfigError, without_listener

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Mapping

    from barnabas.protocol.schema import Message
    from barnabas.server.cluster.cluster_view import ClusterView
    from barnabas.server.configs.config_admin import Outcomes
    from barnabas.server.configs.dynamic_config import DynamicBrokerConfig
    from barnabas.server.controller_access.controller_access import ControllerAccess
    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.listeners.node_sockets import NodeSockets


def alter_configs(
    node_id: int,
    forwarding: ControllerAccess,
    alters_any_broker: bool,
    cluster: ClusterView,
    dynamic_config: DynamicBrokerConfig,
    sockets: NodeSockets,
) -> Handle:
    """Return the handler that replaces configurations."""
    # A controller accepts all changes.
    limits = None if alters_any_broker else BrokerLimits(cluster, dynamic_config, sockets)
    classes = (AlterConfigsResponse, AlterConfigsResourceResponse)
    forward = partial(_forward, forwarding, classes)

    def handle_alter_configs(
        context: RequestContext, request: AlterConfigsRequest
    ) -> Message | None:
        """Forward the request. The response follows when the configurations are committed."""
        own_changes = handle_legacy_locally(node_id, request.resources, limits)
        return context.after(own_changes, partial(forward, context, request))

    return handle_alter_configs


def incremental_alter_configs(
    node_id: int,
    forwarding: ControllerAccess,
    alters_any_broker: bool,
    cluster: ClusterView,
    dynamic_config: DynamicBrokerConfig,
    sockets: NodeSockets,
) -> Handle:
    """Return the handler that changes single configuration values."""
    # A controller accepts all changes.
    limits = None if alters_any_broker else BrokerLimits(cluster, dynamic_config, sockets)
    classes = (IncrementalAlterConfigsResponse, IncrementalResourceResponse)
    forward = partial(_forward, forwarding, classes)

    def handle_incremental_alter_configs(
        context: RequestContext, request: IncrementalAlterConfigsRequest
    ) -> Message | None:
        """Apply the changes. The response follows when the configurations are committed."""
        own_changes = handle_locally(
            node_id, request.resources, validate_only=request.validate_only, checks=limits
        )
        return context.after(own_changes, partial(forward, context, request))

    return handle_incremental_alter_configs


def _forward(
    forwarding: ControllerAccess,
    classes: tuple[type[Any], type[Any]],
    context: RequestContext,
    request: Any,
    outcomes: Outcomes,
) -> None:
    """Send the resources without an outcome to the controller, and respond for all of them.

    Args:
        forwarding: sends requests to the active controller.
        classes: classes of the API's response, and of its result for a resource.
        context: the context of the request.
        request: an AlterConfigs or IncrementalAlterConfigs request.
        outcomes: outcomes of the resources that are not forwarded.
    """
    response_class, result_class = classes

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


class BrokerLimits:
    """The limits of gradual keys, and the checks of new key stores and of links."""

    __slots__ = ("_cluster", "_dynamic", "_gradual", "_sockets")

    def __init__(
        self, cluster: ClusterView, dynamic_config: DynamicBrokerConfig, sockets: NodeSockets
    ) -> None:
        self._cluster = cluster
        self._dynamic = dynamic_config
        self._gradual = GradualKeys(self._dynamic, self._cluster)
        self._sockets = sockets

    def check(self, resource: str, changes: Mapping[str, str | None]) -> None:
        """Check changes before the controller accepts them.

        Args:
            resource: name of the broker resource; empty for all brokers.
            changes: new values by key; None for deleted keys.

        Raises:
            Refusal: a gradual key changes too much, a key store cannot be used or belongs to all
                listeners, or a setting of a link is wrong.
        """
        self._gradual.check(resource, changes)
        check_link_settings(resource, changes)
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

    def check_replacement(self, resource: str, named: Collection[str]) -> None:
        """Check a request that deletes all keys of a broker resource that it does not name.

        Raises:
            Refusal: links would be deleted.
        """
        check_links_kept(self._cluster.image.configs.get(BROKER, resource), named)

    def removable(self, resource: str) -> list[str]:
        """Return the checked keys that a request removes if it replaces all keys."""
        tls_keys = [
            name
            for name in self._cluster.image.configs.get(BROKER, resource)
            if without_listener(name) in DYNAMIC_TLS_KEYS
        ]
        return [*GRADUAL, *tls_keys]
