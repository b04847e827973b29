"""The consumer groups of a shard: configuration, timers, and matches of regular expressions.

The topics that an expression matches are kept while the topics do not change. A resolution of a
group's expressions, or of another group's, uses them again.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from barnabas.coordinator.group.consumer.consumer_group import ConsumerGroup
from barnabas.coordinator.group.group_kind import RETRY_MS, KindShard, MemberTimers
from barnabas.protocol.primitives import uuid_to_string

if TYPE_CHECKING:
    from barnabas.coordinator.group.consumer.consumer_group import ConsumerMember
    from barnabas.coordinator.group.group_config import GroupSettings
    from barnabas.coordinator.group.group_kind import GroupDependencies
    from barnabas.coordinator.runtime.coordinator_record import CoordinatorResult


# Limits on the kept matches of a shard: expressions, and names of topics.
_KEPT_EXPRESSIONS_MAX = 1_000
_KEPT_NAMES_MAX = 50_000


class Matched(NamedTuple):
    """The topics that an expression matches, whether or not members may read them."""

    # Offset of the metadata image whose topics were matched.
    version: int
    names: list[str]


class MatchedTopics:
    """The matches of the most recently used expressions. They are valid for the current topics."""

    __slots__ = ("_by_regex", "_names_count", "topic_changes")

    def __init__(self) -> None:
        self._by_regex: OrderedDict[str, Matched] = OrderedDict()
        # Invariant: the number of names of all entries.
        self._names_count = 0
        # Number of `clear` calls. It only grows.
        self.topic_changes = 0

    def find(self, regex: str) -> Matched | None:
        """Return the matches of an expression, or None if they are unknown."""
        found = self._by_regex.get(regex)
        if found is not None:
            self._by_regex.move_to_end(regex)
        return found

    def add(self, regex: str, matched: Matched) -> None:
        """Keep the matches of an expression. Drop the least recently used ones above a limit."""
        self._drop(regex)
        self._by_regex[regex] = matched
        self._names_count += len(matched.names)
        while len(self._by_regex) > _KEPT_EXPRESSIONS_MAX or self._names_count > _KEPT_NAMES_MAX:
            self._drop(next(iter(self._by_regex)))

    def clear(self) -> None:
        """Drop all matches, because the topics have changed."""
        self.topic_changes += 1
        self._by_regex.clear()
        self._names_count = 0

    def _drop(self, regex: str) -> None:
        dropped = self._by_regex.pop(regex, None)
        if dropped is not None:
            self._names_count -= len(dropped.names)


class ConsumerShard(KindShard[ConsumerGroup]):
    """The consumer groups of one shard."""

    __slots__ = ("_rng", "matched_topics", "new_topics_version")

    def __init__(self, settings: GroupSettings, dependencies: GroupDependencies) -> None:
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


_JOIN, _SYNC = "consumer-join", "consumer-sync"


class ConsumerTimers(MemberTimers[ConsumerGroup]):
    """The timers of one shard. Members of the classic protocol have more of them."""

    __slots__ = ()

    def start_join(self, group_id: str, member: ConsumerMember) -> None:
        """Remove a member of the classic protocol unless it rejoins within its rebalance timeout.

        A timeout that runs already is not extended.
        """
        if not self._timers.is_scheduled((_JOIN, group_id, member.member_id)):
            self._start(_JOIN, group_id, member.member_id, member.rebalance_timeout_ms)

    def end_join(self, group_id: str, member_id: str) -> None:
        """Cancel the timeout of a member of the classic protocol that has rejoined."""
        self._timers.cancel((_JOIN, group_id, member_id))

    def start_sync(self, group_id: str, member_id: str, timeout_ms: float) -> None:
        """Remove a member of the classic protocol unless it sends SyncGroup within the timeout."""
        self._start(_SYNC, group_id, member_id, timeout_ms)

    def end_sync(self, group_id: str, member_id: str) -> None:
        """Cancel the timeout of a member of the classic protocol that has sent SyncGroup."""
        self._timers.cancel((_SYNC, group_id, member_id))

    def end(self, group_id: str, member_id: str) -> None:
        """Cancel all timeouts of a member that has left."""
        super().end(group_id, member_id)
        self.end_join(group_id, member_id)
        self.end_sync(group_id, member_id)

    def _start(self, name: str, group_id: str, member_id: str, timeout_ms: float) -> None:
        self._timers.schedule(
            (name, group_id, member_id),
            max(timeout_ms, 0),
            partial(self._on_classic_expired, name, group_id, member_id),
        )

    def _on_classic_expired(
        self, name: str, group_id: str, member_id: str
    ) -> CoordinatorResult[None]:
        def is_due(member: ConsumerMember) -> bool:
            return member.uses_classic_protocol

        def retry() -> None:
            self._start(name, group_id, member_id, RETRY_MS)

        return self.remove(group_id, member_id, f"{name} has timed out", is_due, retry)
