"""Finds the topics that the regular expressions of a group match, in slices (KIP-848).

The expressions have RE2's syntax and its linear time. A result becomes part of the group by its
record. Kafka uses a thread for this; here each slice is a turn of the event loop.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from barnabas.coordinator.group.consumer.resolved_regex import ResolvedRegex
from barnabas.coordinator.group.refusal import RefusalError
from barnabas.coordinator.runtime.coordinator_result import CoordinatorResult
from barnabas.protocol.errors import ErrorCode
from barnabas.waiting.steps import UNFINISHED, run_slice

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator

    from barnabas.coordinator.group.topics_view import TopicsView
    from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord
    from barnabas.coordinator.runtime.shards.shard_timers import ShardTimers
    from barnabas.runtime.clock import Clock

    Matches = Callable[[str], bool]

_log = logging.getLogger(__name__)

# Limit on the memory of one compiled expression, in bytes.
_PATTERN_MEMORY = 1 << 20
# Duration of a slice, in ms.
_SLICE_MS = 2


class _Resolution(msgspec.Struct):
    """The resolution of the expressions of one group."""

    group_id: str
    # Offset of the metadata image whose topics are matched.
    version: int
    # Topics by expression.
    found: dict[str, set[str]]
    # Compiles and matches; yields after each expression and each match.
    steps: Generator[None, None, None]


class RegexResolver:
    """Resolves the expressions of the groups of one shard."""

    __slots__ = ("_clock", "_on_resolved", "_running", "_timers", "_topics")

    def __init__(
        self,
        topics: TopicsView,
        timers: ShardTimers,
        clock: Clock,
        on_resolved: Callable[[str, dict[str, ResolvedRegex]], list[CoordinatorRecord]],
    ) -> None:
        self._topics = topics
        self._timers = timers
        self._clock = clock
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
        found: dict[str, set[str]] = {regex: set() for regex in regexes}
        # A list of names, since the image may change between slices.
        names = list(self._topics.topic_names())
        steps = _resolve(group_id, found, names, is_allowed)
        self._running.add(group_id)
        self._schedule(_Resolution(group_id, self._topics.version(), found, steps))

    def _schedule(self, resolution: _Resolution) -> None:
        self._timers.schedule(
            ("consumer-regexes", resolution.group_id), 0, lambda: self._slice(resolution)
        )

    def _slice(self, resolution: _Resolution) -> CoordinatorResult[None]:
        if resolution.group_id not in self._running:
            # The retry of a slice that failed. The next heartbeat starts again.
            return CoordinatorResult(None)
        self._running.discard(resolution.group_id)
        if run_slice(resolution.steps, self._clock, _SLICE_MS) is UNFINISHED:
            self._running.add(resolution.group_id)
            self._schedule(resolution)
            return CoordinatorResult(None)
        now_ms = self._clock.wall_ms()
        found = {
            regex: ResolvedRegex(frozenset(topics), resolution.version, now_ms)
            for regex, topics in resolution.found.items()
        }
        return CoordinatorResult(None, self._on_resolved(resolution.group_id, found))


def _resolve(
    group_id: str,
    found: dict[str, set[str]],
    names: list[str],
    is_allowed: Callable[[str], bool],
) -> Generator[None, None, None]:
    """Add the matching topics to `found`. Yield after each step."""
    expressions: dict[str, Matches] = {}
    for regex in found:
        try:
            expressions[regex] = compile_regex(regex)
        except RefusalError as error:
            # A record of another broker; the expressions of our clients were checked.
            _log.warning("Cannot compile a regular expression: group=%s error=%s", group_id, error)
        yield
    for topic in names:
        for regex, is_match in expressions.items():
            if is_match(topic) and is_allowed(topic):
                found[regex].add(topic)
            yield


def compile_regex(regex: str) -> Matches:
    """Return a function that matches whole names. Raises RefusalError for an invalid expression."""
    # Imported at the first expression.
    import re2

    options = re2.Options()
    options.max_mem = _PATTERN_MEMORY
    options.log_errors = False
    try:
        expression = re2.compile(regex, options)
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        message = f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {text}."
        raise RefusalError(ErrorCode.INVALID_REGULAR_EXPRESSION, message) from None
    return lambda topic: expression.fullmatch(topic) is not None
