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
from barnabas.coordinator.runtime.coordinator_result import CoordinatorResult
from barnabas.protocol.errors import ErrorCode
from barnabas.settings.pattern import Pattern, PatternError
from barnabas.waiting.steps import Unfinished, run_slice

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator

    from barnabas.coordinator.group.consumer.consumer_shard import ConsumerShard
    from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord

    Matches = Callable[[str], bool]
    # The results by expression.
    Resolution = Generator[None, None, dict[str, ResolvedRegex]]

_log = logging.getLogger(__name__)

# Duration of a slice, in ms.
_SLICE_MS = 2


class RegexResolver:
    """Resolves the expressions of the groups of one shard."""

    __slots__ = ("_on_resolved", "_running", "_shard")

    def __init__(
        self,
        shard: ConsumerShard,
        on_resolved: Callable[[str, dict[str, ResolvedRegex]], list[CoordinatorRecord]],
    ) -> None:
        self._shard = shard
        # Gets the group id and the results; returns the records.
        self._on_resolved = on_resolved
        # Groups whose expressions are being resolved.
        self._running: set[str] = set()

    def is_running(self, group_id: str) -> bool:
        """Whether the expressions of the group are being resolved."""
        return group_id in self._running

    def start(
        self, group_id: str, regexes: Collection[str], is_allowed: Callable[[str], bool]
    ) -> None:
        """Resolve the expressions of a group. One resolution per group runs at a time."""
        self._running.add(group_id)
        self._schedule(group_id, self._resolve(group_id, regexes, is_allowed))

    def _schedule(self, group_id: str, steps: Resolution) -> None:
        self._shard.timers.schedule(
            ("consumer-regexes", group_id), 0, lambda: self._slice(group_id, steps)
        )

    def _slice(self, group_id: str, steps: Resolution) -> CoordinatorResult[None]:
        if group_id not in self._running:
            # The retry of a slice that failed. The next heartbeat starts another resolution.
            return CoordinatorResult(None)
        self._running.discard(group_id)
        found = run_slice(steps, self._shard.clock, _SLICE_MS)
        if isinstance(found, Unfinished):
            self._running.add(group_id)
            self._schedule(group_id, steps)
            return CoordinatorResult(None)
        return CoordinatorResult(None, self._on_resolved(group_id, found))

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
