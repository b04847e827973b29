"""Regular expressions of consumer groups: changes by heartbeats, and their resolution in slices.

A result becomes part of the group by its record. Kafka uses a thread for this; here each slice is a
turn of the event loop. The matches of an expression are kept until a topic is created, changed or
deleted, so that a shard matches each expression only once, for all of its groups.
"""

from __future__ import annotations

import logging
from enum import Enum, auto
from typing import TYPE_CHECKING

from barnabas.coordinator.group.consumer.consumer_group import UNRESOLVED, ResolvedRegex
from barnabas.coordinator.group.consumer.consumer_records import (
    epoch_record,
    regex_record,
    regex_tombstone,
)
from barnabas.coordinator.group.consumer.consumer_shard import Matched
from barnabas.coordinator.group.group_base import RefusalError
from barnabas.coordinator.group.targets import GroupSlices
from barnabas.coordinator.runtime.coordinator_record import CoordinatorResult
from barnabas.protocol.errors import ErrorCode
from barnabas.settings.pattern import Pattern, PatternError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator

    from barnabas.coordinator.group.consumer.consumer_group import ConsumerGroup, ConsumerMember
    from barnabas.coordinator.group.consumer.consumer_shard import ConsumerShard
    from barnabas.coordinator.group.consumer.heartbeats import ConsumerHeartbeat
    from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord

    Matches = Callable[[str], bool]
    # The results by expression.
    Resolution = Generator[None, None, dict[str, ResolvedRegex]]


_log = logging.getLogger(__name__)


class RegexResolver:
    """Resolves the expressions of the groups of one shard."""

    __slots__ = ("_shard", "_slices")

    def __init__(
        self,
        shard: ConsumerShard,
        on_resolved: Callable[[str, dict[str, ResolvedRegex]], list[CoordinatorRecord]],
    ) -> None:
        self._shard = shard
        self._slices: GroupSlices[dict[str, ResolvedRegex]] = GroupSlices(
            "consumer-regexes",
            shard.timers,
            shard.clock,
            # Gets the group id and the results; returns the records.
            lambda group_id, found: CoordinatorResult(None, on_resolved(group_id, found)),
        )

    def is_running(self, group_id: str) -> bool:
        """Whether the expressions of the group are being resolved."""
        return self._slices.is_running(group_id)

    def start(
        self, group_id: str, regexes: Collection[str], is_allowed: Callable[[str], bool]
    ) -> None:
        """Resolve the expressions of a group. One resolution per group runs at a time."""
        self._slices.start(group_id, self._resolve(group_id, regexes, is_allowed))

    def _resolve(
        self, group_id: str, regexes: Collection[str], is_allowed: Callable[[str], bool]
    ) -> Resolution:
        """Return the results. Yield after each expression and each topic."""
        matched = yield from self._match(group_id, regexes)
        # The oldest version, so that new topics are noticed whichever expression is compared.
        version = min(each.version for each in matched.values())
        found: dict[str, ResolvedRegex] = {}
        for regex, each in matched.items():
            allowed: list[str] = []
            for topic in each.names:
                if is_allowed(topic):
                    allowed.append(topic)
                yield
            found[regex] = ResolvedRegex(frozenset(allowed), version, self._shard.clock.wall_ms())
        return found

    def _match(
        self, group_id: str, regexes: Collection[str]
    ) -> Generator[None, None, dict[str, Matched]]:
        """Return the matches of expressions: those that are kept, and new ones."""
        # A list of names, since the image may change between slices.
        version, names = self._shard.topics.version(), list(self._shard.topics.topic_names())
        changes = self._shard.matched_topics.topic_changes
        matched: dict[str, Matched] = {}
        expressions: list[tuple[Matches, list[str]]] = []
        for regex in regexes:
            kept = self._shard.matched_topics.find(regex)
            matched[regex] = kept or Matched(version, [])
            if kept is None:
                try:
                    expressions.append((compile_regex(regex), matched[regex].names))
                except RefusalError as error:
                    # A record of another broker; the expressions of our clients were checked.
                    _log.warning(
                        "Cannot compile a regular expression: group=%s error=%s", group_id, error
                    )
            yield
        for topic in names if expressions else ():
            for is_match, found in expressions:
                if is_match(topic):
                    found.append(topic)
                yield
        if changes == self._shard.matched_topics.topic_changes:
            for regex, each in matched.items():
                self._shard.matched_topics.add(regex, each)
        return matched


def compile_regex(regex: str) -> Matches:
    """Return a function that matches whole names. Raises RefusalError for an invalid expression."""
    try:
        return Pattern(regex).matches
    except PatternError as error:
        message = f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {error}."
        raise RefusalError(ErrorCode.INVALID_REGULAR_EXPRESSION, message) from None


# Minimum time between two resolutions of a group, in ms.
_RESOLUTION_INTERVAL_MS = 10_000


class RegexChange(Enum):
    """The change of a member's regular expression by a heartbeat."""

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
        heartbeat: ConsumerHeartbeat,
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
        heartbeat: ConsumerHeartbeat,
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
        refresh_ms = self._shard.config.integer("group.consumer.regex.refresh.interval.ms")
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
            group.compared_epoch = epoch
        return records
