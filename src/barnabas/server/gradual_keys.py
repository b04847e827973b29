"""Keys of this broker that may at most double, or halve, at once (Kafka: DynamicThreadPool).

Who writes a zero too many does not start a thousand processes: it takes as many steps as it takes.
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

    from barnabas.server.cluster_view import ClusterView
    from barnabas.server.dynamic_config import DynamicBrokerConfig
    from barnabas.server.parts import NodeParts

GRADUAL = (CLEANER_THREADS, NUM_REPLICA_FETCHERS)


def gradual_keys(parts: NodeParts) -> GradualKeys | None:
    """Those of this broker; None on controllers, which take configs of any broker."""
    if parts.alters_any_broker:
        return None
    return GradualKeys(parts.dynamic_config, parts.cluster)


class GradualKeys:
    """What holds of the keys on this broker, and what would after a change."""

    __slots__ = ("_cluster", "_dynamic")

    def __init__(self, dynamic: DynamicBrokerConfig, cluster: ClusterView) -> None:
        self._dynamic = dynamic
        self._cluster = cluster

    def check(self, resource: str, changes: Mapping[str, str | None]) -> None:
        """Refuse a change that is too large.

        Args:
            resource: this broker's name, or that of all brokers.
            changes: keys and their new values; None for those that go.

        Raises:
            Refusal: INVALID_REQUEST. Of what is no number the controller says so.
        """
        for name in GRADUAL:
            if name not in changes:
                continue
            before = self._dynamic.current.integer(name)
            after = self._after(name, resource, changes[name])
            if after is not None and not before // 2 <= after <= before * 2:
                raise Refusal(
                    ErrorCode.INVALID_REQUEST,
                    f"{name} is {before}, and may be half as many to twice as many at once,"
                    f" not {after}",
                )

    def _after(self, name: str, resource: str, text: str | None) -> int | None:
        """What will hold: the broker's own before that of all, and that before the start's."""
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
