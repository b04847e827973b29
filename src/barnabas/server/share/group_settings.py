"""The configuration of share groups on a leader: the group's, or the broker's default (KIP-932)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.metadata.configs_image import GROUP
from barnabas.metadata.group_configs import (
    DEAD_LETTER_TOPIC,
    GROUP_CONFIGS,
    ShareOffsetReset,
)
from barnabas.server.share.records.share_limits import ShareLimits
from barnabas.storage.results import FetchIsolation

if TYPE_CHECKING:
    from barnabas.server.cluster.cluster_view import ClusterView
    from barnabas.settings.definition import ParsedConfig

_DELIVERIES = "share.delivery.count.limit"
_LOCKS = "share.partition.max.record.locks"
_DURATION = "share.record.lock.duration.ms"
_RENEW = "share.renew.acknowledge.enable"
_ISOLATION = "share.isolation.level"
_RESET = "share.auto.offset.reset"


class ShareGroupSettings:
    """Looks up the current configuration of a group."""

    __slots__ = ("_cluster", "_defaults")

    def __init__(self, config: ParsedConfig, cluster: ClusterView) -> None:
        self._cluster = cluster
        # Values of groups without configs.
        self._defaults = ShareLimits(
            config.integer(f"group.{_DELIVERIES}"),
            config.integer(f"group.{_LOCKS}"),
            config.integer(f"group.{_DURATION}"),
        )

    def limits(self, group_id: str) -> ShareLimits:
        """Return the limits of a group."""
        configs = self._cluster.image.configs.get(GROUP, group_id)
        if not configs:
            return self._defaults
        defaults = self._defaults
        return ShareLimits(
            int(configs.get(_DELIVERIES, defaults.delivery_count_limit)),
            int(configs.get(_LOCKS, defaults.record_locks_max)),
            int(configs.get(_DURATION, defaults.lock_duration_ms)),
            configs.get(_RENEW, "true").lower() == "true",
            bool(configs.get(DEAD_LETTER_TOPIC)) and self._cluster.image.features.has_dead_letters,
        )

    def isolation(self, group_id: str) -> FetchIsolation:
        """Return up to which offset the group reads."""
        if self._text(group_id, _ISOLATION) == "read_committed":
            return FetchIsolation.TXN_COMMITTED
        return FetchIsolation.HIGH_WATERMARK

    def offset_reset(self, group_id: str) -> ShareOffsetReset:
        """Return where the group begins to read a partition."""
        return ShareOffsetReset.parse(self._text(group_id, _RESET))

    def _text(self, group_id: str, key: str) -> str:
        configs = self._cluster.image.configs.get(GROUP, group_id)
        return configs.get(key, str(GROUP_CONFIGS.key(key).default))
