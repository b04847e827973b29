"""What a leader works out of fetches: commit point, divergence, quorum, succession (KIP-595)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.raft.messages import DivergingEpoch, FetchRequest, FetchResponse
from barnabas.raft.roles import NEVER, Leader

if TYPE_CHECKING:
    from barnabas.raft.config import RaftConfig
    from barnabas.raft.log_view import LogView

# A leader gives up this many fetch time-outs after a majority last fetched.
_CHECK_QUORUM_FACTOR = 1.5


def committed_end(role: Leader) -> int:
    """The largest offset that a majority of the voters has on disk; -1 while there is none."""
    ends = [role.synced_offset]
    ends += [-1 if each.end_offset is None else each.end_offset for each in role.voters.values()]
    ends.sort(reverse=True)
    return ends[len(ends) // 2]


def answer_fetch(node_id: int, epoch: int, log: LogView, request: FetchRequest) -> FetchResponse:
    """The answer of a leader: agreed up to the fetch offset, or where the logs part (KIP-595)."""
    diverging = None
    offset = request.fetch_offset
    if offset > 0:
        known_epoch, end = log.end_offset_for_epoch(request.last_fetched_epoch)
        if known_epoch < 0:
            diverging = DivergingEpoch(0, 0)
        elif known_epoch != request.last_fetched_epoch or end < offset:
            diverging = DivergingEpoch(known_epoch, end)
    return FetchResponse(node_id, epoch, node_id, offset, diverging=diverging)


def successors(role: Leader) -> tuple[int, ...]:
    """The other voters, those with the most records first."""
    return tuple(
        sorted(
            role.voters,
            key=lambda voter: (-(role.voters[voter].end_offset or 0), voter),
        )
    )


def has_lost_quorum(role: Leader, now_ms: float, config: RaftConfig, majority: int) -> bool:
    """Whether too few voters have fetched for too long; then others may have elected a leader."""
    if majority == 1:
        return False
    return now_ms >= _quorum_deadline(role, config, majority)


def next_leader_deadline(role: Leader, config: RaftConfig) -> float:
    """When a leader has something to do by time alone."""
    due = min((parked.deadline for parked in role.parked.values()), default=NEVER)
    if not role.voters:
        return due
    for state in role.voters.values():
        silent_since = max(state.last_fetch_ms, state.begin_sent_ms)
        due = min(due, silent_since + config.fetch_timeout_ms / 2)
    return min(due, _quorum_deadline(role, config, len(config.voters) // 2 + 1))


def _quorum_deadline(role: Leader, config: RaftConfig, majority: int) -> float:
    fetches = sorted((each.last_fetch_ms for each in role.voters.values()), reverse=True)
    # The leader is one of the majority itself.
    since = fetches[majority - 2]
    return max(role.check_quorum_deadline, since + config.fetch_timeout_ms * _CHECK_QUORUM_FACTOR)
