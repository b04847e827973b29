"""Keys whose value a request may at most double or halve (Kafka: DynamicThreadPool).

A typing error such as an additional zero therefore cannot start a thousand processes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.controller.result import Refusal
from barnabas.metadata.configs_image import ALL_BROKERS, BROKER
from barnabas.protocol.errors import ErrorCode
from barnabas.replication.config import NUM_REPLICA_FETCHERS
from barnabas.settings.key import ConfigError
from barnabas.storage.config import CLEANER_THREADS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.server.cluster.cluster_view import ClusterView
    from barnabas.server.configs.dynamic.dynamic_config import DynamicBrokerConfig

GRADUAL = (CLEANER_THREADS, NUM_REPLICA_FETCHERS)


class GradualKeys:
    """Limits of gradual keys, from the values on this broker before and after a change."""

    __slots__ = ("_cluster", "_dynamic")

    def __init__(self, dynamic: DynamicBrokerConfig, cluster: ClusterView) -> None:
        self._dynamic = dynamic
        self._cluster = cluster

    def check(self, resource: str, changes: Mapping[str, str | None]) -> None:
        """Check that the changes are not too large.

        Args:
            resource: name of the broker resource; empty for all brokers.
            changes: new values by key; None for deleted keys.

        Raises:
            Refusal: INVALID_REQUEST. The controller reports values that are not numbers.
        """
        for name in GRADUAL:
            if name not in changes:
                continue
            before = self._dynamic.current.integer(name)
            after = self._after(name, resource, changes[name])
            if after is not None and not before // 2 <= after <= before * 2:
                raise Refusal(
                    ErrorCode.INVALID_REQUEST,
                    f"{name} is {before}: one change may at most double or halve it, but the new"
                    f" value is {after}",
                )

    def _after(self, name: str, resource: str, text: str | None) -> int | None:
        """Return the value of a key on this broker after the change, or None for invalid text.

        The value of this broker overrides the value of all brokers, which overrides the properties
        file.
        """
        configs = self._cluster.image.configs
        for each in (str(self._dynamic.node_id), ALL_BROKERS):
            found = text if each == resource else configs.get(BROKER, each).get(name)
            if found is not None:
                try:
                    value = self._dynamic.current.definition.key(name).parse(found)
                except ConfigError:
                    return None
                assert isinstance(value, int), value
                return value
        return self._dynamic.static.integer(name)
