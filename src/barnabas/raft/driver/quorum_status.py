"""The state of one replica for operators: its status, its metrics and its log lines.

DescribeQuorum returns the status (KIP-595, KIP-836, KIP-853). The metrics are those of Kafka's
KafkaRaftMetrics: elections, commits, records appended and fetched. Role changes are logged at level
INFO. A replica is in contact if it knows a leader that a majority of the voters follows.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING

import msgspec

from barnabas.metrics.measurements import SampledValues
from barnabas.raft.core.roles import (
    NEVER,
    Candidate,
    Follower,
    Leader,
    Prospective,
    ReplicaState,
    Resigned,
    Unattached,
)

if TYPE_CHECKING:
    from barnabas.raft.config import RaftConfig
    from barnabas.raft.core.raft_core import RaftCore
    from barnabas.raft.core.roles import Role
    from barnabas.raft.voter_set import Address, ReplicaKey
    from barnabas.runtime.clock import Clock


class ReplicaStatus(msgspec.Struct, frozen=True):
    """The state of one replica."""

    key: ReplicaKey
    # The replica's log end offset; -1 while unknown.
    log_end_offset: int
    # Monotonic ms; None for the leader itself and for a replica that never fetched.
    last_fetch_ms: float | None
    # Last time when the replica had all records of the leader, monotonic ms; None as above.
    last_caught_up_ms: float | None
    # A voter's addresses by listener name; empty for observers.
    endpoints: tuple[tuple[str, Address], ...] = ()

    @property
    def id(self) -> int:
        """Node id of the replica."""
        return self.key.id


class QuorumStatus(msgspec.Struct, frozen=True):
    """The state of the quorum. Only the leader knows the offsets of voters and observers."""

    leader_id: int
    epoch: int
    high_watermark: int
    voters: tuple[ReplicaStatus, ...]
    observers: tuple[ReplicaStatus, ...]


def quorum_status(core: RaftCore, config: RaftConfig, log_end_offset: int) -> QuorumStatus:
    """Return the current state of the quorum as `core` knows it."""
    leader_id, epoch = core.leader_and_epoch
    role = core.role
    known: dict[int, ReplicaState] = dict(role.voters) if isinstance(role, Leader) else {}
    voters = []
    for voter in core.voters:
        if voter.key.id == config.node_id and core.is_voter:
            voters.append(ReplicaStatus(voter.key, log_end_offset, None, None, voter.endpoints))
        else:
            state = known.get(voter.key.id) or ReplicaState(voter.key)
            voters.append(_status(voter.key, state, voter.endpoints))
    observers = dict(role.observers) if isinstance(role, Leader) else {}
    described = [_status(key, observers[key]) for key in sorted(observers)]
    if isinstance(role, Leader) and not core.is_voter:
        # The leader itself is being removed from the voters.
        described.append(ReplicaStatus(config.key, log_end_offset, None, None))
    return QuorumStatus(leader_id, epoch, core.high_watermark, tuple(voters), tuple(described))


def _status(
    key: ReplicaKey, state: ReplicaState, endpoints: tuple[tuple[str, Address], ...] = ()
) -> ReplicaStatus:
    if state.end_offset is None:
        return ReplicaStatus(key, -1, None, None, endpoints)
    return ReplicaStatus(
        key,
        state.end_offset,
        _known(state.last_fetch_ms),
        _known(state.last_caught_up_ms),
        endpoints,
    )


def _known(at_ms: float) -> float | None:
    return at_ms if at_ms > -NEVER else None


# A leader responds to a fetch without new records after 500 ms; twice that means no contact.
CONTACT_MS = 1_000.0


def has_contact(core: RaftCore, fetch_timeout_ms: float, now_ms: float) -> bool:
    """Return whether this replica was recently in contact with a working quorum.

    A leader has contact if a majority of the voters has fetched within `CONTACT_MS`. A follower or
    an observer has contact if the leader has responded to one of its fetches within that time.

    Args:
        core: the state machine of this replica.
        fetch_timeout_ms: `controller.quorum.fetch.timeout.ms`.
        now_ms: the monotonic time.
    """
    role = core.role
    match role:
        case Leader():
            fetched = sum(
                now_ms - each.last_fetch_ms <= CONTACT_MS for each in role.voters.values()
            )
            return fetched + core.is_voter >= core.voters.majority
        case Follower():
            last_response_ms = role.fetch_deadline - fetch_timeout_ms
            is_recent = now_ms - last_response_ms <= CONTACT_MS
            return role.has_fetched and role.lost_deadline == NEVER and is_recent
        case _:
            return False


_NO_VOTE = -1


class RaftMetrics:
    """Measurements that the driver reports and that metrics read on request."""

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


_log = logging.getLogger(__name__)


class RoleLog:
    """Compares the role with the last logged one after each step."""

    def __init__(self) -> None:
        # The values at the last call of `check`.
        self._role: Role | None = None
        self._epoch = -1

    def check(self, core: RaftCore) -> bool:
        """Log the role if its kind or the epoch changed.

        Returns:
            Whether the role object has changed.
        """
        role = core.role
        if role is self._role:
            return False
        before, self._role = self._role, role
        if type(role) is not type(before) or core.epoch != self._epoch:
            self._epoch = core.epoch
            _log.info(
                "Quorum role changed: epoch=%d role=%s", core.epoch, _words(role, core.is_voter)
            )
        return True


def _words(role: Role, is_voter: bool) -> str:
    match role:
        case Unattached():
            return "unattached"
        case Prospective():
            return "prospective"
        case Candidate():
            return "candidate"
        case Follower():
            return f"{'follower' if is_voter else 'observer'} leader={role.leader_id}"
        case Leader():
            return f"leader elected_by={','.join(map(str, role.granting_voters))}"
        case Resigned():
            return "resigned"
