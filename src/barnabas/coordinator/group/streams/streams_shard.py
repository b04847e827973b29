"""The streams groups of a shard, with their configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from barnabas.coordinator.group.configs.kind_configs import StreamsGroupConfig
from barnabas.coordinator.group.group_kind import KindShard
from barnabas.coordinator.group.streams.streams_group import (
    StreamsConfigs,
    StreamsGroup,
    read_configs,
)

if TYPE_CHECKING:
    from barnabas.coordinator.group.configs.group_type_settings import GroupTypeSettings
    from barnabas.coordinator.group.group_kind import GroupDependencies


class StreamsShard(KindShard[StreamsGroup, StreamsGroupConfig]):
    """The streams groups of one shard."""

    too_large: ClassVar[str] = "The topology and the members take too much memory."

    __slots__ = ("_last_configs",)

    def __init__(
        self, settings: GroupTypeSettings[StreamsGroupConfig], dependencies: GroupDependencies
    ) -> None:
        super().__init__(StreamsGroup, settings, dependencies)
        # The configs that were read last.
        self._last_configs: StreamsConfigs | None = None

    def configs_of(self, group: StreamsGroup) -> StreamsConfigs:
        """Return the current configs of a group."""
        broker, own = self._settings.config, self._settings.overrides(group.group_id)
        known = group.configs
        if known is None or not known.is_of(broker, own):
            # Groups without own configs share the object.
            known = self._last_configs
            if known is None or not known.is_of(broker, own):
                known = self._last_configs = read_configs(self._settings, group.group_id, own)
            group.configs = known
        return known
