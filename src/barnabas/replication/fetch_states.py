"""The partitions of one fetcher, in the order in which they are next to be asked for."""

from __future__ import annotations

import logging
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from barnabas.replication.fetch_state import FetchPhase, FetchState
    from barnabas.runtime.clock import Clock
    from barnabas.storage.topic_partition import TopicPartition

_log = logging.getLogger(__name__)


class FailedPartitions:
    """Partitions that no fetcher tries any more, until their leadership changes."""

    __slots__ = ("_partitions",)

    def __init__(self) -> None:
        # Ordered, for those who look.
        self._partitions: dict[TopicPartition, None] = {}

    def __len__(self) -> int:
        return len(self._partitions)

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._partitions)

    def add(self, key: TopicPartition) -> None:
        """It cannot go on."""
        self._partitions[key] = None

    def discard(self, keys: Iterable[TopicPartition]) -> None:
        """They are tried again, or are gone."""
        for key in keys:
            self._partitions.pop(key, None)


class FetchStates:
    """States by partition; whoever had data or an error goes to the back of the order.

    A partition is *settled* while it waits at the leader, in a fetch session, as it was asked for
    last; the others are *restless*. Only these are looked at before a fetch: with thousands of idle
    partitions looking at all would be most of what a follower does. Whoever changes a state calls
    `touch`.
    """

    __slots__ = ("_backoff_ms", "_clock", "_failed", "_restless", "_settled", "_states")

    def __init__(self, clock: Clock, backoff_ms: float, failed: FailedPartitions) -> None:
        self._clock = clock
        self._backoff_ms = backoff_ms
        self._failed = failed
        self._states: dict[TopicPartition, FetchState] = {}
        # Partitions to be looked at; also those that were given up, until the leader is told.
        self._restless: dict[TopicPartition, None] = {}
        # The others, least recently asked for first.
        self._settled: dict[TopicPartition, None] = {}

    def __len__(self) -> int:
        return len(self._states)

    def get(self, key: TopicPartition) -> FetchState | None:
        """Its state; None if it is not fetched here."""
        return self._states.get(key)

    def items(self) -> list[tuple[TopicPartition, FetchState]]:
        """All, in order; a copy."""
        return list(self._states.items())

    def put(self, key: TopicPartition, state: FetchState) -> None:
        """Take a partition on, behind the others, or with another state in its old place."""
        self._states[key] = state
        self.touch(key)

    def pop(self, key: TopicPartition) -> FetchState | None:
        """Give a partition up."""
        state = self._states.pop(key, None)
        if state is not None:
            self.touch(key)
        return state

    def touch(self, key: TopicPartition) -> None:
        """Its state has changed, or it is to be looked at for another reason."""
        self._settled.pop(key, None)
        self._restless[key] = None

    def touch_some(self, count: int) -> None:
        """Look again at those whose turn was longest ago."""
        for key in list(islice(self._settled, count)):
            self.touch(key)

    def settle(self, key: TopicPartition) -> None:
        """It is asked for as it is, or is forgotten; nothing more is to be said of it."""
        del self._restless[key]
        if key in self._states:
            self._settled[key] = None

    def restless(self) -> list[TopicPartition]:
        """Who is to be looked at; some may have been given up. A copy."""
        return list(self._restless)

    def move_to_end(self, key: TopicPartition) -> None:
        """It had its turn."""
        self._states[key] = self._states.pop(key)
        self._restless.pop(key, None)
        self.touch(key)

    def delay(self, keys: Iterable[TopicPartition]) -> None:
        """Leave them alone for `replica.fetch.backoff.ms`; who is delayed already stays so."""
        now_ms = self._clock.monotonic_ms()
        for key in keys:
            state = self._states.get(key)
            if state is not None and state.delayed_until_ms <= now_ms:
                state.delayed_until_ms = now_ms + self._backoff_ms
                self.move_to_end(key)

    def fail(self, key: TopicPartition) -> None:
        """Give it up until its leadership changes; the caller has told why."""
        self._states.pop(key, None)
        self._failed.add(key)

    def fail_unexpectedly(self, key: TopicPartition, occasion: str) -> None:
        """Give a partition up because of the exception that is being handled, and log it.

        Args:
            occasion: what was done when it was raised.
        """
        _log.exception(
            "%s: unexpected error while %s; it is fetched no more by this leadership", key, occasion
        )
        self.fail(key)

    def fence(self, key: TopicPartition, request_epoch: int) -> None:
        """The leader says that an epoch is over: failed if it is ours still, else delayed."""
        state = self._states.get(key)
        if state is None:
            return
        if state.current_leader_epoch == request_epoch:
            _log.info("%s: leader epoch %d is over, newer metadata will come", key, request_epoch)
            self.fail(key)
        else:
            self.delay([key])

    def in_phase(self, phase: FetchPhase) -> list[tuple[TopicPartition, FetchState]]:
        """Those whose turn it is: in that phase and not delayed."""
        now_ms = self._clock.monotonic_ms()
        return [
            (key, state)
            for key, state in self._unsettled()
            if state.phase is phase and state.delayed_until_ms <= now_ms
        ]

    def next_delay_ms(self) -> float | None:
        """How long until the first delayed one is due; None if none is delayed."""
        now_ms = self._clock.monotonic_ms()
        due = [
            state.delayed_until_ms
            for _, state in self._unsettled()
            if state.delayed_until_ms > now_ms
        ]
        return min(due) - now_ms if due else None

    def _unsettled(self) -> Iterator[tuple[TopicPartition, FetchState]]:
        for key in self._restless:
            state = self._states.get(key)
            if state is not None:
                yield key, state
