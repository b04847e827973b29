"""The leader's work: serving fetches, committing records, and checking its quorum (KIP-595)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from barnabas.protocol.errors import ErrorCode
from barnabas.raft.core.messages import (
    BeginQuorumEpochRequest,
    DivergingEpoch,
    FetchResponse,
    FetchSnapshotResponse,
)
from barnabas.raft.core.replica import CHECK_QUORUM_FACTOR
from barnabas.raft.core.roles import NEVER, Leader, PendingFetch, ReplicaState
from barnabas.raft.voter_set import Address

if TYPE_CHECKING:
    from barnabas.raft.core.messages import FetchRequest, FetchSnapshotRequest, LogView
    from barnabas.raft.core.replica import Replica
    from barnabas.raft.voter_set import ReplicaKey

# The leader forgets an observer that has not fetched for this long.
_OBSERVER_SESSION_MS = 300_000
# Any client that fetches as a replica counts as an observer, so the number is limited.
_OBSERVERS_MAX = 10_000


class Leading:
    """The behavior of the leader."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica

    # -- timers ------------------------------------------------------------------------------------

    def lead(self, now_ms: float, role: Leader) -> float:
        """Do everything that is due, and return when the leader has to act next, ms."""
        deadline = self._quorum_deadline(role)
        if now_ms >= deadline:
            self._replica.to_resigned(now_ms, successors(role))
            return now_ms
        self._complete_pending(now_ms, role, due_only=True)
        self._forget_silent_observers(now_ms, role)
        due = min((pending.deadline for pending in role.pending.values()), default=NEVER)
        return min(deadline, due, self._send_begin_quorum_epoch(now_ms, role))

    def _quorum_deadline(self, role: Leader) -> float:
        """Return when to resign for lack of fetches from a majority, ms.

        After that time the other voters may already have elected another leader.
        """
        replica = self._replica
        needed = replica.voters.majority
        if replica.is_voter:
            # The leader counts towards the majority.
            needed -= 1
        if needed == 0:
            return NEVER
        fetches = sorted((each.last_fetch_ms for each in role.voters.values()), reverse=True)
        timeout_ms = replica.config.fetch_timeout_ms * CHECK_QUORUM_FACTOR
        return max(role.check_quorum_deadline, fetches[needed - 1] + timeout_ms)

    def _send_begin_quorum_epoch(self, now_ms: float, role: Leader) -> float:
        """Send BeginQuorumEpoch to each voter that does not fetch, every half fetch timeout."""
        replica = self._replica
        interval_ms = replica.config.fetch_timeout_ms / 2
        next_due = NEVER
        for voter in sorted(role.voters):
            state = role.voters[voter]
            due = max(state.last_fetch_ms, state.begin_sent_ms) + interval_ms
            due = max(due, replica.requests.ready_at(voter))
            if due <= now_ms:
                state.begin_sent_ms = now_ms
                own = replica.config.advertised.get(replica.config.listener_name)
                address = None if own is None else Address(*own)
                request = BeginQuorumEpochRequest(replica.me, replica.epoch, address, state.key)
                replica.send(now_ms, voter, request)
                due = now_ms + interval_ms
            next_due = min(next_due, due)
        return next_due

    # -- fetches -----------------------------------------------------------------------------------

    def check_leader_only(self, epoch: int) -> ErrorCode:
        """Return why a request to the leader of `epoch` cannot be served here; NONE if it can."""
        replica = self._replica
        if epoch < replica.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if epoch > replica.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        if not isinstance(replica.role, Leader):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NONE

    def on_fetch(self, now_ms: float, request: FetchRequest) -> None:
        """Respond with records, or hold the request until there are new records."""
        replica = self._replica
        numbers = (request.fetch_offset, request.last_fetched_epoch, request.max_wait_ms)
        if min(numbers) < 0:
            replica.refuse_fetch(request, ErrorCode.INVALID_REQUEST)
            return
        if request.fetch_offset == 0:
            replica.note_empty(request.source.id)
        error = self.check_leader_only(request.epoch)
        if error is ErrorCode.NONE and request.last_fetched_epoch > request.epoch:
            error = ErrorCode.INVALID_REQUEST
        role = replica.role
        if error is not ErrorCode.NONE or not isinstance(role, Leader):
            replica.refuse_fetch(request, error)
            return
        response = self._response_to(role, request)
        if response.diverging is None and response.snapshot_id is None:
            self._note_fetch(now_ms, role, request)
            self.maybe_commit(now_ms, role)
            response = replace(response, high_watermark=self._own_high_watermark(role))
            if (
                replica.role is role
                and request.max_wait_ms > 0
                and not self._has_new_records(role, request)
            ):
                self._park(now_ms, role, request, response)
                return
        replica.respond(request, response)

    def _park(
        self, now_ms: float, role: Leader, request: FetchRequest, response: FetchResponse
    ) -> None:
        earlier = role.pending.pop(request.source, None)
        if earlier is not None:
            # The replica has given up this request, or uses another connection now.
            self._replica.respond(earlier.request, response)
        wait_ms = min(request.max_wait_ms, self._replica.config.fetch_max_wait_ms)
        role.pending[request.source] = PendingFetch(request, now_ms + wait_ms)

    def _own_high_watermark(self, role: Leader) -> int:
        """Return the high watermark; -1 before the first commit of this epoch, as in Kafka.

        The voters that elected this leader may know a higher one from the earlier leader. A Kafka
        follower ends its process if the high watermark that it knows becomes smaller.
        """
        known = self._replica.high_watermark
        return known if known > role.epoch_start_offset else -1

    def _has_new_records(self, role: Leader, request: FetchRequest) -> bool:
        return (
            request.fetch_offset < self._replica.log.end_offset
            or request.high_watermark < self._own_high_watermark(role)
        )

    def _response_to(self, role: Leader, request: FetchRequest) -> FetchResponse:
        """Return a response: empty if the logs agree, else a diverging epoch or a snapshot id."""
        log = self._replica.log
        high_watermark = self._own_high_watermark(role)
        return validate_fetch(
            log,
            request,
            FetchResponse(high_watermark=high_watermark, log_start_offset=log.start_offset),
        )

    def _note_fetch(self, now_ms: float, role: Leader, request: FetchRequest) -> None:
        if request.source.id < 0:
            # The client is not a replica. Kafka also lets such clients read.
            return
        state = self.state_of(role, request.source)
        log_end = self._replica.log.end_offset
        if request.fetch_offset >= log_end:
            state.last_caught_up_ms = now_ms
        elif request.fetch_offset >= state.leader_end_at_fetch >= 0:
            state.last_caught_up_ms = max(state.last_caught_up_ms, state.last_fetch_ms)
        state.end_offset = request.fetch_offset
        state.last_fetch_ms = now_ms
        state.leader_end_at_fetch = log_end

    def state_of(self, role: Leader, key: ReplicaKey) -> ReplicaState:
        """Return the state of a replica that fetches, whether it is a voter or an observer."""
        if key.id in role.voters and self._replica.voters.is_voter(key):
            return role.voters[key.id]
        observers = role.observers
        if key not in observers and len(observers) >= _OBSERVERS_MAX:
            del observers[min(observers, key=lambda each: observers[each].last_fetch_ms)]
        return observers.setdefault(key, ReplicaState(key))

    def _forget_silent_observers(self, now_ms: float, role: Leader) -> None:
        """Remove the observers that have not fetched within the session time."""
        for key, state in list(role.observers.items()):
            if state.last_fetch_ms + _OBSERVER_SESSION_MS < now_ms:
                del role.observers[key]

    def on_fetch_snapshot(self, now_ms: float, request: FetchSnapshotRequest) -> None:
        """Accept the request, which counts as a fetch of the replica.

        The driver reads the bytes.
        """
        replica = self._replica
        error = self.check_leader_only(request.epoch)
        role = replica.role
        is_replica = request.source.id >= 0
        if error is ErrorCode.NONE and isinstance(role, Leader) and is_replica:
            self.state_of(role, request.source).last_fetch_ms = now_ms
        replica.respond(
            request, FetchSnapshotResponse(error=error, snapshot_id=request.snapshot_id)
        )

    # -- commits -----------------------------------------------------------------------------------

    def on_synced(self, now_ms: float, role: Leader, end_offset: int) -> None:
        """Count the leader's own log as replicated up to the synced offset."""
        role.synced_offset = max(role.synced_offset, end_offset)
        self.maybe_commit(now_ms, role)

    def maybe_commit(self, now_ms: float, role: Leader) -> None:
        """Raise the high watermark if a majority of the voters has more records than before."""
        replica = self._replica
        end = committed_end(role, replica.is_voter)
        # Records of earlier epochs are committed only together with a later record of this epoch.
        if end > role.epoch_start_offset and end > replica.high_watermark:
            replica.move_high_watermark(end)
            replica.note_leader_high_watermark(end)
            self._complete_pending(now_ms, role)

    def on_appended(self, now_ms: float, role: Leader) -> None:
        """Respond to the fetches that wait for the records just written at the log end."""
        self._complete_pending(now_ms, role)

    def _complete_pending(self, now_ms: float, role: Leader, due_only: bool = False) -> None:
        for source, pending in list(role.pending.items()):
            is_due = now_ms >= pending.deadline
            if is_due or (not due_only and self._has_new_records(role, pending.request)):
                del role.pending[source]
                self._replica.respond(pending.request, self._response_to(role, pending.request))

    # -- voter changes -----------------------------------------------------------------------------

    def on_voters_changed(self, now_ms: float, role: Leader) -> None:
        """Rebuild the states for the new voters. The known state of each replica is kept."""
        replica = self._replica
        known: dict[ReplicaKey, ReplicaState] = dict(role.observers)
        known.update({state.key: state for state in role.voters.values()})
        by_id = {state.key.id: state for state in role.voters.values()}
        voters: dict[int, ReplicaState] = {}
        for voter in replica.voters:
            if voter.key.id == replica.me and replica.is_voter:
                continue
            # The new record may give a voter its directory id for the first time.
            state = known.pop(voter.key, None) or by_id.get(voter.key.id)
            if state is None:
                state = ReplicaState(voter.key)
            known.pop(state.key, None)
            state.key = voter.key
            voters[voter.key.id] = state
        role.voters = voters
        role.observers = {key: known[key] for key in known if key.id not in voters}
        timeout_ms = replica.config.fetch_timeout_ms * CHECK_QUORUM_FACTOR
        role.check_quorum_deadline = max(role.check_quorum_deadline, now_ms + timeout_ms)
        self.maybe_commit(now_ms, role)


def committed_end(role: Leader, is_voter: bool) -> int:
    """Return the largest offset that a majority of the voters has on disk; -1 if there is none."""
    ends = [role.synced_offset] if is_voter else []
    ends += [-1 if each.end_offset is None else each.end_offset for each in role.voters.values()]
    ends.sort(reverse=True)
    return ends[len(ends) // 2]


def successors(role: Leader) -> tuple[ReplicaKey, ...]:
    """Return the other voters as preferred successors, those with the most records first."""
    states = sorted(role.voters.values(), key=lambda each: (-(each.end_offset or 0), each.key))
    return tuple(state.key for state in states)


def validate_fetch(log: LogView, request: FetchRequest, response: FetchResponse) -> FetchResponse:
    """Complete a response by comparing the follower's log end with the leader's log.

    Below the leader's log start the logs cannot be compared, so the response names the latest
    snapshot (KIP-595, KIP-630).
    """
    offset, epoch = request.fetch_offset, request.last_fetched_epoch
    earliest = log.earliest_snapshot
    if offset == 0 and log.start_offset == 0:
        return response
    if earliest is not None and (
        offset < log.start_offset
        or (offset == log.start_offset and epoch != earliest.epoch)
        or epoch < earliest.epoch
    ):
        return replace(response, snapshot_id=log.latest_snapshot)
    known_epoch, end = log.end_offset_for_epoch(epoch)
    if known_epoch < 0:
        return replace(response, diverging=DivergingEpoch(0, 0))
    if known_epoch != epoch or end < offset:
        return replace(response, diverging=DivergingEpoch(known_epoch, end))
    return response
