"""Checks of key stores that are changed while the broker runs (KIP-226)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.controller.result import Refusal
from barnabas.metadata.configs_image import BROKER
from barnabas.protocol.errors import ErrorCode
from barnabas.server.configs.tls_config import DYNAMIC_TLS_KEYS, STORE_KEYS
from barnabas.settings.key import ConfigError, without_listener

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.server.cluster.cluster_view import ClusterView
    from barnabas.server.configs.dynamic.dynamic_config import DynamicBrokerConfig
    from barnabas.server.listeners.node_sockets import NodeSockets


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
