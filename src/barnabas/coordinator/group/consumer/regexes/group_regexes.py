"""Regular expressions in the subscriptions of a group (KIP-848)."""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING

from barnabas.coordinator.group.consumer.consumer_records import (
    epoch_record,
    regex_record,
    regex_tombstone,
)
from barnabas.coordinator.group.consumer.regexes.regex_resolution import (
    RegexResolver,
    compile_regex,
)
from barnabas.coordinator.group.consumer.resolved_regex import UNRESOLVED

if TYPE_CHECKING:
    from barnabas.coordinator.group.consumer.consumer_group import ConsumerGroup
    from barnabas.coordinator.group.consumer.consumer_shard import ConsumerShard
    from barnabas.coordinator.group.consumer.heartbeats.heartbeating import Heartbeating
    from barnabas.coordinator.group.consumer.members.consumer_member import ConsumerMember
    from barnabas.coordinator.group.consumer.resolved_regex import ResolvedRegex
    from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord

# Minimum time between two resolutions of a group, in ms.
_RESOLUTION_INTERVAL_MS = 10_000
_REFRESH_MS = 0x7FFF_FFFF


class RegexChange(Enum):
    """How a heartbeat changes the regular expression of its member."""

    NONE = auto()
    # The topics of the new expression are not known yet.
    UPDATED = auto()
    # The topics are known: the target assignment can follow at once.
    RESOLVED = auto()


class GroupRegexes:
    """The regular expressions of the groups of one shard."""

    __slots__ = ("_resolver", "_shard")

    def __init__(self, shard: ConsumerShard) -> None:
        self._shard = shard
        self._resolver = RegexResolver(shard, self._on_resolved)

    def update(
        self,
        group: ConsumerGroup,
        before: ConsumerMember,
        after: ConsumerMember,
        heartbeat: Heartbeating,
    ) -> RegexChange:
        """Start to resolve expressions if that is due. Raises RefusalError for an invalid one."""
        old, new = before.subscribed_topic_regex, after.subscribed_topic_regex
        change, is_needed = RegexChange.NONE, False
        if old != new:
            change = RegexChange.UPDATED
            if old and group.regex_subscribers(old) == 1:
                heartbeat.records.append(regex_tombstone(group.group_id, old))
            if new and not group.regex_subscribers(new):
                compile_regex(new)
                is_needed = True
            elif not new or new in group.resolved:
                change = RegexChange.RESOLVED
        if is_needed or group.regexes():
            self._maybe_resolve(group, (old, new), is_needed, heartbeat)
        return change

    def _maybe_resolve(
        self,
        group: ConsumerGroup,
        change: tuple[str, str],
        is_needed: bool,
        heartbeat: Heartbeating,
    ) -> None:
        last = next(iter(group.resolved.values()), UNRESOLVED)
        now_ms = self._shard.clock.wall_ms()
        if heartbeat.is_allowed is None or self._resolver.is_running(group.group_id):
            return
        if last is not UNRESOLVED and now_ms <= last.timestamp + _RESOLUTION_INTERVAL_MS:
            return
        old, new = change
        regexes = set(group.regexes())
        if old != new:
            if old and group.regex_subscribers(old) == 1:
                regexes.discard(old)
            if new:
                regexes.add(new)
        refresh_ms = self._shard.config.group_consumer_regex_refresh_interval_ms
        is_needed = (
            is_needed
            or len(regexes) != len(group.resolved)
            or last.version < self._shard.new_topics_version
            or last.timestamp + refresh_ms < now_ms
        )
        if is_needed and regexes:
            self._resolver.start(group.group_id, sorted(regexes), heartbeat.is_allowed)

    def _on_resolved(
        self, group_id: str, found: dict[str, ResolvedRegex]
    ) -> list[CoordinatorRecord]:
        """Return the records of the results. Raise the group epoch if other topics match."""
        group = self._shard.groups.find(group_id)
        if group is None:
            return []
        records: list[CoordinatorRecord] = []
        kept = {regex: each for regex, each in found.items() if group.regex_subscribers(regex)}
        is_bumped = False
        for regex, each in kept.items():
            known = group.resolved.get(regex, UNRESOLVED)
            is_bumped = is_bumped or known.topics != each.topics
            records.append(regex_record(group_id, regex, each))
        if is_bumped:
            names = group.subscribed_names_if(kept)
            metadata_hash = self._shard.hashes.of_topics(names)
            epoch = group.group_epoch + 1
            records.append(epoch_record(group_id, epoch, metadata_hash))
            self._shard.metrics.consumer_rebalances += 1
            group.note_refresh(self._shard.clock.wall_ms() + _REFRESH_MS, epoch)
        return records
