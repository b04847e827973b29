"""The values of Kafka's KafkaRaftMetrics: elections, commits, records appended and fetched."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from barnabas.metrics.sampled import SampledValues
from barnabas.raft.core.roles import (
    Candidate,
    Follower,
    Leader,
    Prospective,
    Resigned,
    Unattached,
)

if TYPE_CHECKING:
    from barnabas.raft.core.raft_core import RaftCore
    from barnabas.runtime.clock import Clock

_NO_VOTE = -1


class RaftMetrics:
    """Measurements that the driver reports and that metrics read on request."""

    __slots__ = (
        "_appended",
        "_busy_ms",
        "_clock",
        "_election_start_ms",
        "_looked_ms",
        "_waiting",
        "append_rate",
        "commit_latency",
        "election_latency",
        "fetch_rate",
    )

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # Units: records per second (both rates), ms per record, ms.
        self.append_rate = SampledValues()
        self.fetch_rate = SampledValues()
        self.commit_latency = SampledValues()
        self.election_latency = SampledValues()
        # When this replica first entered the current election; None while there is none.
        self._election_start_ms: float | None = None
        # As leader, the uncommitted appends: (end offset, append time, number of records).
        self._waiting: deque[tuple[int, float, int]] = deque()
        # Time the driver was busy since `take_idle_ratio` was last called, ms.
        self._busy_ms = 0.0
        self._looked_ms = clock.monotonic_ms()

    def on_role(self, core: RaftCore) -> None:
        """Note that the replica has entered a role."""
        now_ms = self._clock.monotonic_ms()
        role = core.role
        if not isinstance(role, Leader):
            self._waiting.clear()
        if isinstance(role, Prospective | Candidate):
            if self._election_start_ms is None:
                self._election_start_ms = now_ms
        elif self._election_start_ms is not None and isinstance(role, Leader | Follower):
            self.election_latency.record(now_ms - self._election_start_ms, now_ms)
            self._election_start_ms = None

    def on_appended(self, end_offset: int, count: int) -> None:
        """As leader, note that `count` records were written up to `end_offset`."""
        now_ms = self._clock.monotonic_ms()
        self.append_rate.record(count, now_ms)
        self._waiting.append((end_offset, now_ms, count))

    def on_fetched(self, count: int) -> None:
        """As follower, note that `count` fetched records were written."""
        self.fetch_rate.record(count, self._clock.monotonic_ms())

    def on_high_watermark(self, offset: int) -> None:
        """Note that all records below `offset` are committed."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= offset:
            _, appended_ms, count = waiting.popleft()
            now_ms = self._clock.monotonic_ms()
            self.commit_latency.record((now_ms - appended_ms) / count, now_ms)

    def on_busy(self, since_ms: float) -> None:
        """Add the time since `since_ms` to the driver's busy time."""
        self._busy_ms += self._clock.monotonic_ms() - since_ms

    def take_idle_ratio(self) -> float:
        """Return the share of the time since the last call in which the driver was idle."""
        now_ms = self._clock.monotonic_ms()
        elapsed_ms, self._looked_ms = now_ms - self._looked_ms, now_ms
        busy_ms, self._busy_ms = self._busy_ms, 0.0
        return max(0.0, 1.0 - busy_ms / elapsed_ms) if elapsed_ms > 0 else 1.0


def state_name(core: RaftCore) -> str:
    """Return Kafka's name of the current role."""
    has_voted = core.voted_id != _NO_VOTE
    match core.role:
        case Leader():
            return "leader"
        case Candidate():
            return "candidate"
        case Resigned():
            return "resigned"
        case Follower():
            return "follower" if core.is_voter else "observer"
        case Prospective():
            return "prospective-voted" if has_voted else "prospective"
        case Unattached():
            if not core.is_voter:
                return "observer"
            return "unattached-voted" if has_voted else "unattached"
