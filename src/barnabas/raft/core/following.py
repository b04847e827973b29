"""Fetching the log or a snapshot from the leader, and finding the leader (KIP-595, KIP-630)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.schema import ZERO_UUID
from barnabas.raft.core.messages import (
    AddVoterRequest,
    FetchRequest,
    FetchSnapshotRequest,
    RemoveVoterRequest,
    SnapshotSlice,
    UpdateVoterRequest,
)
from barnabas.raft.core.roles import NEVER, Follower, SnapshotFetch, Unattached
from barnabas.raft.listener import NO_LEADER

if TYPE_CHECKING:
    from barnabas.raft.core.messages import (
        FetchResponse,
        FetchSnapshotResponse,
        Request,
        VoterChangeResponse,
    )
    from barnabas.raft.core.replica import Replica
    from barnabas.raft.listener import SnapshotId

_log = logging.getLogger(__name__)

_LOST_SPREAD_MS = 100


class Following:
    """The behavior of a replica that does not lead."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica

    # -- timers ------------------------------------------------------------------------------------

    def look_for_leader(self, now_ms: float, role: Unattached) -> float:
        """Ask peers for the leader until the election deadline, then run for leader."""
        replica = self._replica
        unproven_voter = replica.unproven_voter
        if unproven_voter is not None and unproven_voter.is_first(self._other_voters()):
            replica.take_vote(now_ms)
        if not replica.is_voter:
            role.election_deadline = NEVER
        elif role.election_deadline == NEVER:
            # This replica became a voter after it entered the role.
            role.election_deadline = replica.election_deadline(now_ms)
        if now_ms >= role.election_deadline:
            replica.to_prospective(now_ms, NO_LEADER)
            return now_ms
        return min(role.election_deadline, self.find_leader(now_ms))

    def follow(self, now_ms: float, role: Follower) -> float:
        """Fetch from the leader; run for leader when the leader is lost."""
        replica = self._replica
        unproven = replica.unproven_voter
        if unproven is not None and unproven.has_caught_up(replica.epoch, replica.high_watermark):
            replica.take_vote(now_ms)
        if not replica.is_voter:
            return self._observe(now_ms, role)
        lost_at = min(role.fetch_deadline, role.lost_deadline)
        if now_ms >= lost_at:
            replica.to_prospective(now_ms, role.leader_id)
            return now_ms
        return min(lost_at, self._fetch(now_ms, role))

    def _observe(self, now_ms: float, role: Follower) -> float:
        """Fetch as an observer; also search for another leader if the current one is lost."""
        requests = self._replica.requests
        is_lost = now_ms >= role.fetch_deadline or requests.is_backing_off(role.leader_id, now_ms)
        due = NEVER if is_lost else role.fetch_deadline
        if is_lost and not role.has_resigned:
            due = min(due, self.find_leader(now_ms))
        if role.has_resigned:
            # A new leader announces itself only to the voters, so an observer has to search for it.
            return min(due, self.find_leader(now_ms))
        return min(due, self._fetch(now_ms, role))

    def _fetch(self, now_ms: float, role: Follower) -> float:
        replica = self._replica
        if role.syncing_to is not None or role.has_resigned:
            return NEVER
        if role.snapshot is not None and role.snapshot.is_complete:
            return NEVER
        ready_at = replica.requests.ready_at(role.leader_id)
        if ready_at <= now_ms and replica.address_of(role.leader_id) is None:
            # The leader is not in our voter set and its address is unknown: ask other nodes.
            return self.find_leader(now_ms)
        if ready_at <= now_ms:
            replica.send(now_ms, role.leader_id, self._next_request(now_ms, role))
        return replica.requests.ready_at(role.leader_id)

    def _next_request(self, now_ms: float, role: Follower) -> Request:
        replica = self._replica
        config = replica.config
        if now_ms >= role.update_voter_at:
            role.update_voter_at = now_ms + config.fetch_timeout_ms
            change = self._voter_request(role)
            if change is not None:
                return change
        if role.snapshot is None:
            return self._fetch_request()
        return FetchSnapshotRequest(
            replica.fetch_key,
            replica.epoch,
            role.snapshot.id,
            role.snapshot.position,
            config.fetch_snapshot_max_bytes,
        )

    def _voter_request(self, role: Follower) -> Request | None:
        """Return the voter request that the leader needs from this replica; None if it needs none.

        A voter updates its own record in the voter set. An observer that joins automatically
        removes the record of its earlier directory, or adds itself (KIP-853).
        """
        replica = self._replica
        voters, own = replica.voters, replica.own_voter()
        if not own.endpoints or own.key.directory_id == ZERO_UUID:
            return None
        is_dynamic = replica.history.kraft_version > 0
        known = voters.get(replica.me)
        if replica.is_voter:
            if is_dynamic:
                is_known = known is not None and own.is_equivalent_to(known)
            else:
                is_known = role.has_updated_leader
            return None if is_known else UpdateVoterRequest(own, replica.epoch)
        config = replica.config
        if not (config.auto_join and config.can_be_voter and is_dynamic):
            return None
        if known is not None:
            # The record names this node id with another directory, which no longer exists.
            return RemoveVoterRequest(known.key)
        return AddVoterRequest(own, config.request_timeout_ms, ack_when_committed=False)

    def on_voter_change_response(
        self, now_ms: float, request: Request, response: VoterChangeResponse
    ) -> None:
        """Note a successful UpdateVoter, and schedule the next check after the fetch timeout."""
        role = self._replica.role
        if not isinstance(role, Follower):
            return
        if isinstance(request, UpdateVoterRequest) and response.error is ErrorCode.NONE:
            role.has_updated_leader = True
        role.update_voter_at = now_ms + self._replica.config.fetch_timeout_ms

    def _fetch_request(self) -> FetchRequest:
        replica = self._replica
        config = replica.config
        role = replica.role
        # After a broken connection, ask for an immediate response to learn whether the leader is
        # alive.
        must_check_leader = isinstance(role, Follower) and role.lost_deadline < NEVER
        return FetchRequest(
            replica.fetch_key,
            replica.epoch,
            replica.log.end_offset,
            replica.log.last_epoch,
            replica.high_watermark,
            0 if must_check_leader else config.fetch_max_wait_ms,
            config.fetch_max_bytes,
        )

    def find_leader(self, now_ms: float) -> float:
        """Send a fetch to a bootstrap server or a voter, to learn the leader's id.

        At most one request is in flight at a time. Returns when to call this again.
        """
        replica = self._replica
        requests = replica.requests
        busy_until = requests.busy_until(now_ms)
        if busy_until > now_ms:
            return busy_until
        # The configured bootstrap servers may be gone, or may no longer be voters.
        known = [*replica.bootstrap, *self._other_voters()]
        if not known:
            return NEVER
        ready = [each for each in known if requests.ready_at(each) <= now_ms]
        if not ready:
            return min(requests.ready_at(each) for each in known)
        if replica.unproven_voter is not None:
            # This replica may vote only after it knows the state of all voters' logs.
            ready = [each for each in ready if each not in replica.unproven_voter.empty] or ready
        destination = ready[replica.rng.randint(0, len(ready) - 1)]
        replica.send(now_ms, destination, self._fetch_request())
        return requests.ready_at(destination)

    def _other_voters(self) -> list[int]:
        replica = self._replica
        return [each for each in replica.voters.ids if each != replica.me]

    # -- responses ---------------------------------------------------------------------------------

    def on_fetch_response(
        self, now_ms: float, request: FetchRequest, source: int, response: FetchResponse
    ) -> None:
        """Handle records, a diverging epoch, a snapshot id, or an empty response."""
        replica = self._replica
        role = replica.role
        if response.epoch == 0:
            # Epoch 0 means that no election has taken place, so the peer's log is empty.
            replica.note_empty(source)
        if not isinstance(role, Follower) or response.error is not ErrorCode.NONE:
            replica.requests.failed(source, now_ms)
            return
        if source != role.leader_id and source not in replica.bootstrap:
            return
        if request.fetch_offset != replica.log.end_offset:
            return
        self._note_success(now_ms, role)
        replica.note_leader_high_watermark(response.high_watermark)
        if response.diverging is not None:
            diverging = response.diverging
            self._truncate(now_ms, role, diverging.epoch, diverging.end_offset)
        elif response.snapshot_id is not None:
            self._begin_snapshot(now_ms, role, response.snapshot_id)
        elif response.records:
            replica.out.append = response.records
            role.syncing_to = response.high_watermark
        else:
            if replica.unproven_voter is not None:
                replica.unproven_voter.reach(replica.epoch, replica.log.end_offset)
            replica.move_high_watermark(min(response.high_watermark, replica.log.end_offset))

    def _note_success(self, now_ms: float, role: Follower) -> None:
        role.has_fetched = True
        role.lost_deadline = NEVER
        role.has_yielded = False
        role.fetch_deadline = now_ms + self._replica.config.fetch_timeout_ms

    def on_synced(self, role: Follower, end_offset: int) -> None:
        """Raise the high watermark now that the fetched records are on disk."""
        replica = self._replica
        if role.syncing_to is not None and end_offset >= replica.log.end_offset:
            expected, role.syncing_to = role.syncing_to, None
            replica.move_high_watermark(min(expected, end_offset))

    def on_nothing_appended(self, now_ms: float, role: Follower) -> None:
        """Discard a response without whole batches, and fetch again after the backoff."""
        role.syncing_to = None
        self._replica.requests.failed(role.leader_id, now_ms)

    def on_unreachable(self, now_ms: float, source: int) -> None:
        """Handle a broken connection to `source`, or a failed attempt to connect."""
        replica = self._replica
        role = replica.role
        if isinstance(role, Follower) and role.leader_id == source:
            # The random part keeps the followers from running for leader at the same time.
            delay_ms = replica.config.leader_lost_ms + replica.rng.randint(0, _LOST_SPREAD_MS)
            role.lost_deadline = min(role.lost_deadline, now_ms + delay_ms)

    def _truncate(self, now_ms: float, role: Follower, epoch: int, end_offset: int) -> None:
        """Truncate to the end of the last epoch that both logs are known to share.

        A leader has all committed records, so a response that would remove one is wrong: retry
        after the backoff.
        """
        replica = self._replica
        own_epoch, own_end = replica.log.end_offset_for_epoch(epoch)
        offset = min(end_offset, own_end) if own_epoch >= 0 else replica.log.start_offset
        offset = max(offset, replica.log.start_offset)
        if offset < replica.high_watermark:
            self._refuse_loss(now_ms, role, offset)
            return
        replica.out.truncate_to = offset
        replica.synced_end = min(replica.synced_end, offset)

    def _refuse_loss(self, now_ms: float, role: Follower, end_offset: int) -> None:
        """Keep the log, although the leader claims that it ends before committed records."""
        replica = self._replica
        # One message for each leader is enough: the leader repeats its response.
        level = logging.DEBUG if role.lacks_committed else logging.ERROR
        role.lacks_committed = True
        _log.log(
            level,
            "Leader lacks committed metadata records, which are kept: leader=%d epoch=%d "
            "leader_has_until=%d committed=%d",
            role.leader_id,
            replica.epoch,
            end_offset,
            replica.high_watermark,
        )
        replica.requests.failed(role.leader_id, now_ms)

    # -- snapshots ---------------------------------------------------------------------------------

    def _begin_snapshot(self, now_ms: float, role: Follower, snapshot_id: SnapshotId) -> None:
        replica = self._replica
        latest = replica.log.latest_snapshot
        if snapshot_id.end_offset < 0 or snapshot_id.epoch < 0 or latest == snapshot_id:
            # A correct leader never sends this id: retry after the backoff.
            replica.requests.failed(role.leader_id, now_ms)
        elif snapshot_id.end_offset < replica.high_watermark:
            # Its installation would replace a log that has more committed records.
            self._refuse_loss(now_ms, role, snapshot_id.end_offset)
        else:
            role.snapshot = SnapshotFetch(snapshot_id)

    def on_fetch_snapshot_response(
        self, now_ms: float, request: FetchSnapshotRequest, response: FetchSnapshotResponse
    ) -> None:
        """Handle the next part of the snapshot, or give up this snapshot."""
        replica = self._replica
        role = replica.role
        if not isinstance(role, Follower) or role.snapshot is None:
            return
        fetching = role.snapshot
        if response.error is not ErrorCode.NONE:
            # The leader has a later snapshot, or the two files differ: start again with a fetch.
            role.snapshot = None
            replica.requests.failed(role.leader_id, now_ms)
            return
        content = response.content
        assert isinstance(content, bytes | bytearray | memoryview), type(content)
        is_expected = (
            response.snapshot_id == fetching.id == request.snapshot_id
            and response.position == fetching.position == request.position
            and 0 < len(content) <= response.size - response.position
        )
        if not is_expected:
            role.snapshot = None
            replica.requests.failed(role.leader_id, now_ms)
            return
        self._note_success(now_ms, role)
        fetching.position += len(content)
        fetching.is_complete = fetching.position == response.size
        replica.out.snapshot_slice = SnapshotSlice(
            fetching.id, response.position, content, fetching.is_complete
        )

    def on_snapshot_refused(self) -> None:
        """Give up the snapshot, because Kafka 4.4 reports a deleted snapshot only by refusing."""
        role = self._replica.role
        if isinstance(role, Follower) and role.snapshot and not role.snapshot.is_complete:
            role.snapshot = None

    def on_snapshot_installed(self, now_ms: float, snapshot_id: SnapshotId | None) -> None:
        """Continue at the end of the installed snapshot.

        Args:
            now_ms: the current time.
            snapshot_id: the installed snapshot; None if it was damaged and has been deleted.
        """
        replica = self._replica
        role = replica.role
        if isinstance(role, Follower):
            role.snapshot = None
            if snapshot_id is None:
                replica.requests.failed(role.leader_id, now_ms)
        if snapshot_id is not None:
            replica.synced_end = snapshot_id.end_offset
            replica.move_high_watermark(snapshot_id.end_offset)
