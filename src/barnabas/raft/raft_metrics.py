"""What Kafka's KafkaRaftMetrics measures: elections, commits, records appended and fetched."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from barnabas.metrics.sampled import SampledValues
from barnabas.raft.roles import (
    Candidate,
    Follower,
    Leader,
    Prospective,
    Resigned,
    Unattached,
)

if TYPE_CHECKING:
    from barnabas.raft.core import RaftCore
    from barnabas.runtime.clock import Clock

_NO_VOTE = -1


class RaftMetrics:
    """Told by the driver; looked at when somebody asks."""

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
        # Of each value: records per second, ms per record, ms.
        self.append_rate = SampledValues()
        self.fetch_rate = SampledValues()
        self.commit_latency = SampledValues()
        self.election_latency = SampledValues()
        # When this replica first wanted the election that is under way; None while none is.
        self._election_start_ms: float | None = None
        # As leader, what is not committed: (end offset, when it was appended, how many records).
        self._waiting: deque[tuple[int, float, int]] = deque()
        # Time spent in the driver since somebody last asked how idle it is.
        self._busy_ms = 0.0
        self._looked_ms = clock.monotonic_ms()

    def on_role(self, core: RaftCore) -> None:
        """The replica has entered a role."""
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
        """As leader, records were written up to there."""
        now_ms = self._clock.monotonic_ms()
        self.append_rate.record(count, now_ms)
        self._waiting.append((end_offset, now_ms, count))

    def on_fetched(self, count: int) -> None:
        """As follower, records were written."""
        self.fetch_rate.record(count, self._clock.monotonic_ms())

    def on_high_watermark(self, offset: int) -> None:
        """All below is committed."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= offset:
            _, appended_ms, count = waiting.popleft()
            now_ms = self._clock.monotonic_ms()
            self.commit_latency.record((now_ms - appended_ms) / count, now_ms)

    def on_busy(self, since_ms: float) -> None:
        """The driver was at work since then."""
        self._busy_ms += self._clock.monotonic_ms() - since_ms

    def take_idle_ratio(self) -> float:
        """The share of the time since the last call in which the driver had nothing to do."""
        now_ms = self._clock.monotonic_ms()
        elapsed_ms, self._looked_ms = now_ms - self._looked_ms, now_ms
        busy_ms, self._busy_ms = self._busy_ms, 0.0
        return max(0.0, 1.0 - busy_ms / elapsed_ms) if elapsed_ms > 0 else 1.0


def state_name(core: RaftCore) -> str:
    """The role, by Kafka's word for it."""
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
