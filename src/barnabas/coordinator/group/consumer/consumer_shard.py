"""The consumer groups of one state partition, with their configuration and dependencies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.coordinator.group.configs.consumer_config import ConsumerGroupConfig
from barnabas.coordinator.group.consumer.consumer_group import ConsumerGroup
from barnabas.coordinator.group.consumer.matched_topics import MatchedTopics
from barnabas.coordinator.group.group_kind import KindShard
from barnabas.protocol.primitives import uuid_to_string

if TYPE_CHECKING:
    from barnabas.coordinator.group.configs.group_type_settings import GroupTypeSettings
    from barnabas.coordinator.group.consumer.members.consumer_member import ConsumerMember
    from barnabas.coordinator.group.group_kind import GroupDependencies


class ConsumerShard(KindShard[ConsumerGroup, ConsumerGroupConfig]):
    """The consumer groups of one shard."""

    __slots__ = ("_rng", "matched_topics", "new_topics_version")

    def __init__(
        self, settings: GroupTypeSettings[ConsumerGroupConfig], dependencies: GroupDependencies
    ) -> None:
        super().__init__(ConsumerGroup, settings, dependencies)
        self._rng = dependencies.rng
        self.matched_topics = MatchedTopics()
        # Offset of the last metadata image with new topics. Older results of regular expressions
        # are outdated.
        self.new_topics_version = -1

    def new_member_id(self) -> str:
        """Return a random id for a client that has not chosen one."""
        return uuid_to_string(self._rng.uuid())

    # Configuration.

    def session_timeout_of(self, group: ConsumerGroup, member: ConsumerMember) -> int:
        """Return the session timeout of a member, its own one with the classic protocol."""
        if member.classic is not None:
            return member.classic.session_timeout_ms
        return self.session_timeout_ms(group.group_id)

    # Topics.

    def forget_matches(self, *, has_new: bool) -> None:
        """Forget which topics match regular expressions, since topics have changed.

        Args:
            has_new: whether there are new topics, which regular expressions may match.
        """
        self.matched_topics.clear()
        if has_new:
            self.new_topics_version = self.topics.version()
