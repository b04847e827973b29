"""Finds the topics that the regular expressions of a group match, in slices (KIP-848).

A result becomes part of the group by its record. Kafka uses a thread for this; here each slice is a
turn of the event loop. The matches of an expression are kept until a topic is created, changed or
deleted, so that a shard matches each expression only once, for all of its groups.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.coordinator.group.consumer.matched_topics import Matched
from barnabas.coordinator.group.consumer.resolved_regex import ResolvedRegex
from barnabas.coordinator.group.refusal import RefusalError
from barnabas.coordinator.group.slices import GroupSlices
from barnabas.coordinator.runtime.coordinator_result import CoordinatorResult
from barnabas.protocol.errors import ErrorCode
from barnabas.settings.pattern import Pattern, PatternError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator

    from barnabas.coordinator.group.consumer.consumer_shard import ConsumerShard
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
