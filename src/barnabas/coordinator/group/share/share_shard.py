"""The share groups of one state partition, with their configuration and dependencies."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from barnabas.coordinator.group.configs.kind_configs import ShareGroupConfig
from barnabas.coordinator.group.group_kind import KindShard
from barnabas.coordinator.group.share.share_group import ShareGroup

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.coordinator.group.configs.group_type_settings import GroupTypeSettings
    from barnabas.coordinator.group.group_kind import GroupDependencies

# The name that Kafka writes for topic ids that no longer exist.
_UNKNOWN_NAME = "<UNKNOWN>"


class ShareShard(KindShard[ShareGroup, ShareGroupConfig]):
    """The share groups of one shard."""

    replaces_classic: ClassVar[bool] = False

    __slots__ = ("_write_timeout_ms",)

    def __init__(
        self,
        settings: GroupTypeSettings[ShareGroupConfig],
        dependencies: GroupDependencies,
        write_timeout_ms: int,
    ) -> None:
        super().__init__(ShareGroup, settings, dependencies)
        # offsets.commit.timeout.ms.
        self._write_timeout_ms = write_timeout_ms

    # Configuration.

    @property
    def initialize_retry_ms(self) -> int:
        """Time after which an initialization without a result is repeated."""
        return max(self.config.group_share_initialize_retry_interval_ms, self._write_timeout_ms)

    # Topics.

    def names_of(self, topic_ids: Iterable[bytes]) -> dict[bytes, str]:
        """Return the names of topics; Kafka's placeholder for topics that do not exist."""
        return {each: self.topics.topic_name(each) or _UNKNOWN_NAME for each in topic_ids}
