"""Heartbeats, sessions, states and shutdown of brokers, and their producer ids.

BrokerHeartbeat API 63 (KIP-631), and AllocateProducerIds API 67 (KIP-730).

Kafka: BrokerHeartbeatTracker has the time of each broker's last heartbeat, and BrokerControlState
(KIP-631) the states and their transitions.
"""

from __future__ import annotations

import logging
from enum import Enum
from typing import TYPE_CHECKING

from barnabas.controller.partitions.elections import leads_any_partition, uses_more_than
from barnabas.controller.result import (
    ControllerResult,
    Refusal,
    check_broker_epoch,
    refuse_as_a_whole,
)
from barnabas.metadata.metadata_version import has_cordoned_directories
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.nodes import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from barnabas.protocol.records.nodes import BrokerRegistrationChangeRecord, ProducerIdsRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Set as AbstractSet

    from barnabas.controller.partitions.directories import DirectoryControl
    from barnabas.controller.partitions.elections import Elections
    from barnabas.controller.result import ControllerView, VersionedRecord
    from barnabas.metadata.broker_registration import BrokerRegistration
    from barnabas.metadata.image import ClusterImage


_log = logging.getLogger(__name__)

# A timer may fire slightly before its deadline because of rounding, ms.
_SLACK_MS = 1.0


class BrokerSessions:
    """The sessions of all brokers. They exist only at the active controller."""

    def __init__(self, timeout_ms: int, own_id: int) -> None:
        self._timeout_ms = timeout_ms
        # Id of the broker in this process, if there is one. Its session never ends.
        self._own_id = own_id
        # Time of the last heartbeat by broker id, monotonic ms. The entry is removed with the
        # session.
        self._heartbeat_ms: dict[int, float] = {}
        # Ids of unfenced brokers that may be dead. A heartbeat removes the broker from the set.
        self._suspected: set[int] = set()

    @property
    def suspected(self) -> AbstractSet[int]:
        """Unfenced brokers that may be dead. This is the live set, which changes over time.

        It has each broker without a heartbeat since this controller became active, and each broker
        whose heartbeat connection is lost. It also has each broker that was silent for half a
        session when the session of another broker ended.
        """
        return self._suspected

    def begin(self, broker_ids: Iterable[int], now_ms: float) -> None:
        """Start a full session for each of these brokers, when this controller becomes active."""
        self._heartbeat_ms = dict.fromkeys(broker_ids, now_ms)
        self._suspected.clear()
        self._suspected.update(self._heartbeat_ms)

    def touch(self, broker_id: int, now_ms: float) -> None:
        """Renew the broker's session after a heartbeat."""
        before_ms = self._heartbeat_ms.get(broker_id, now_ms)
        assert now_ms >= before_ms, f"heartbeats of broker {broker_id} at {before_ms}, {now_ms} ms"
        self._heartbeat_ms[broker_id] = now_ms
        self._suspected.discard(broker_id)

    def suspect(self, broker_id: int) -> None:
        """Mark the broker as possibly dead until its next heartbeat."""
        self._suspected.add(broker_id)

    def suspect_silent(self, now_ms: float) -> None:
        """Mark every other broker that was silent for half a session or more as possibly dead."""
        for broker_id, last_ms in self._heartbeat_ms.items():
            if last_ms + self._timeout_ms / 2 <= now_ms and broker_id != self._own_id:
                self._suspected.add(broker_id)

    def end(self, broker_id: int) -> None:
        """End the session of a broker that is gone, or that has registered again."""
        self._heartbeat_ms.pop(broker_id, None)

    def is_valid(self, broker_id: int, now_ms: float) -> bool:
        """Return whether another process with that id may be alive."""
        last_ms = self._heartbeat_ms.get(broker_id)
        if last_ms is None or broker_id == self._own_id:
            # An earlier process with this node's id is dead, because this process has its
            # directories.
            return False
        return now_ms < last_ms + self._timeout_ms

    def is_own(self, broker_id: int) -> bool:
        """Return whether this is the broker in this process."""
        return broker_id == self._own_id

    def expired(self, now_ms: float) -> list[int]:
        """Return the brokers whose sessions have ended, the longest silent first."""
        silent = [
            (last_ms, broker_id)
            for broker_id, last_ms in self._heartbeat_ms.items()
            if last_ms + self._timeout_ms <= now_ms + _SLACK_MS and broker_id != self._own_id
        ]
        return [broker_id for _, broker_id in sorted(silent)]

    def next_deadline(self) -> float | None:
        """Return when the next session of another broker ends, monotonic ms.

        The result is None if there is no session of another broker.
        """
        last_ms = [at for broker_id, at in self._heartbeat_ms.items() if broker_id != self._own_id]
        return min(last_ms) + self._timeout_ms if last_ms else None

    def renew(self, now_ms: float) -> None:
        """Restart every session, because this process did not read heartbeats for some time."""
        self._heartbeat_ms = dict.fromkeys(self._heartbeat_ms, now_ms)


class BrokerState(Enum):
    """The state of a broker, as in Kafka."""

    # Leads no partition and is in no ISR.
    FENCED = "fenced"
    UNFENCED = "unfenced"
    # Moves its leaderships to other brokers, and waits until those have read the changes.
    CONTROLLED_SHUTDOWN = "controlled shutdown"
    # May stop its process, and is fenced.
    SHUTDOWN_NOW = "shutdown now"

    @classmethod
    def of(cls, broker: BrokerRegistration) -> BrokerState:
        """Return the state of a registered broker."""
        if broker.fenced:
            return cls.FENCED
        return cls.CONTROLLED_SHUTDOWN if broker.in_controlled_shutdown else cls.UNFENCED

    @property
    def is_fenced(self) -> bool:
        """Whether the heartbeat response reports the broker as fenced."""
        return self in (BrokerState.FENCED, BrokerState.SHUTDOWN_NOW)


def next_state(
    state: BrokerState,
    request: BrokerHeartbeatRequest,
    *,
    is_caught_up: bool,
    leads_any_partition: bool,
    others_are_caught_up: bool,
) -> BrokerState:
    """Return the state after a heartbeat.

    Args:
        state: the state before the heartbeat.
        request: the heartbeat, in which the broker may request to be fenced or shut down.
        is_caught_up: whether the broker has read its own registration.
        leads_any_partition: whether it leads a partition.
        others_are_caught_up: whether every live broker has read the changes of its leaderships.
    """
    match state:
        case BrokerState.FENCED:
            if request.want_shut_down:
                return BrokerState.SHUTDOWN_NOW
            may_enter = is_caught_up and not request.want_fence
            return BrokerState.UNFENCED if may_enter else BrokerState.FENCED
        case BrokerState.UNFENCED:
            if request.want_fence:
                wants_both = request.want_shut_down
                return BrokerState.SHUTDOWN_NOW if wants_both else BrokerState.FENCED
            if not request.want_shut_down:
                return BrokerState.UNFENCED
            return (
                BrokerState.CONTROLLED_SHUTDOWN if leads_any_partition else BrokerState.SHUTDOWN_NOW
            )
        case BrokerState.CONTROLLED_SHUTDOWN:
            if leads_any_partition or not others_are_caught_up:
                return BrokerState.CONTROLLED_SHUTDOWN
            return BrokerState.SHUTDOWN_NOW
        case BrokerState.SHUTDOWN_NOW:
            return BrokerState.SHUTDOWN_NOW


_FENCE = 1
_UNFENCE = -1
_SHUTTING_DOWN = 1
_UNKNOWN_OFFSET = -1
# Number of partitions that get new leaders in one turn of the event loop: about 10 ms.
_PARTITIONS_AT_ONCE = 1000


class BrokerControl:
    """Handles heartbeats and expired sessions, and returns the resulting records."""

    def __init__(
        self, elections: Elections, directories: DirectoryControl, sessions: BrokerSessions
    ) -> None:
        self._elections = elections
        self._directories = directories
        self._sessions = sessions
        # Metadata offset of each broker, from its last heartbeat.
        self._metadata_offsets: dict[int, int] = {}
        # Offset that all other brokers must have read before the broker may shut down, by broker
        # id.
        self._shutdown_offsets: dict[int, int] = {}
        # Brokers to fence, with the reason. Each one may need several turns.
        self._dead: dict[int, str] = {}
        # Brokers in controlled shutdown with more partitions than one turn can move.
        self._leaving: dict[int, None] = {}
        # Offset of the latest registration record, by broker id. It is above the broker epoch if
        # the broker has registered again with the same incarnation id.
        self._registered_at: dict[int, int] = {}

    def begin(self, image: ClusterImage, now_ms: float) -> None:
        """Start a full session for each live broker, when this controller becomes active."""
        self._sessions.begin(
            (broker.id for broker in image.brokers.values() if not broker.fenced), now_ms
        )
        self._metadata_offsets.clear()
        self._registered_at.clear()
        self._dead.clear()
        # The previous controller may have been moving leaderships away from these brokers.
        self._leaving = {
            broker.id: None
            for broker in image.brokers.values()
            if broker.in_controlled_shutdown and not broker.fenced
        }
        # All changes of the previous controller are at or below this offset.
        self._shutdown_offsets = {
            broker.id: image.provenance.offset
            for broker in image.brokers.values()
            if broker.in_controlled_shutdown and not broker.fenced
        }

    def note_registration(self, broker_id: int, offset: int) -> None:
        """Note the log offset of a broker's new registration record."""
        before = self._registered_at.get(broker_id, _UNKNOWN_OFFSET)
        assert offset >= before, f"registrations of broker {broker_id}: {before}, {offset}"
        self._registered_at[broker_id] = offset
        self._shutdown_offsets.pop(broker_id, None)

    # -- heartbeats --------------------------------------------------------------------------------

    def heartbeat(
        self, view: ControllerView, request: BrokerHeartbeatRequest
    ) -> ControllerResult[BrokerHeartbeatResponse]:
        """Renew the broker's session, and change its state as requested and allowed."""
        image = view.image
        try:
            broker = check_broker_epoch(image, request.broker_id, request.broker_epoch)
        except Refusal as refusal:
            return ControllerResult([], refuse_as_a_whole(request, refusal))
        offset = request.current_metadata_offset
        is_caught_up = offset >= self._registered_at.get(broker.id, broker.epoch)
        before = BrokerState.of(broker)
        after = next_state(
            before,
            request,
            is_caught_up=is_caught_up,
            leads_any_partition=request.want_shut_down
            and (broker.id in self._leaving or self._must_move_leaders(image, broker.id)),
            others_are_caught_up=self._others_are_caught_up(image, broker.id),
        )
        offline = self._directories.newly_offline(broker, request.offline_log_dirs)
        if after is BrokerState.UNFENCED and before is not after and offline:
            # First the directories go offline, so that replicas in them are not elected.
            after = before
        if before is after is BrokerState.UNFENCED and broker.id in self._sessions.suspected:
            # A broker that was considered dead is alive, and may lead partitions without a leader.
            records = self._elections.on_returning(image, broker.id)
        else:
            records = self._transition(image, broker, before, after)
        is_leaving = before is not after
        records += self._directories.take_offline(
            image, broker, offline, without_elections=is_leaving
        )
        if has_cordoned_directories(image.features.metadata_version):
            records += _cordoned(broker, request)
        self._store_heartbeat(view, request, after, len(records) if is_leaving else 0)
        response = BrokerHeartbeatResponse(
            error_code=ErrorCode.NONE,
            is_caught_up=is_caught_up,
            is_fenced=after.is_fenced,
            should_shut_down=after is BrokerState.SHUTDOWN_NOW,
        )
        return ControllerResult(records, response, atomic=False)

    def _transition(
        self,
        image: ClusterImage,
        broker: BrokerRegistration,
        before: BrokerState,
        after: BrokerState,
    ) -> list[VersionedRecord]:
        if before is after:
            return []
        match after:
            case BrokerState.UNFENCED:
                elected = self._elections.on_returning(image, broker.id)
                return [_change(broker, fenced=_UNFENCE), *elected]
            case BrokerState.CONTROLLED_SHUTDOWN:
                record = BrokerRegistrationChangeRecord(
                    broker_id=broker.id,
                    broker_epoch=broker.epoch,
                    in_controlled_shutdown=_SHUTTING_DOWN,
                )
                return [(record, 1), *self._move_leaders(image, broker.id)]
            case BrokerState.FENCED | BrokerState.SHUTDOWN_NOW:
                return self._fence(image, broker)

    def _must_move_leaders(self, image: ClusterImage, broker_id: int) -> bool:
        """Return whether the broker leads partitions, or is in too many ISRs for one turn."""
        return leads_any_partition(image, broker_id) or uses_more_than(
            image, broker_id, _PARTITIONS_AT_ONCE
        )

    def _move_leaders(self, image: ClusterImage, broker_id: int) -> list[VersionedRecord]:
        """Return records that move partitions away from a broker, as many as one turn allows."""
        records = self._elections.on_leaving(image, broker_id, _PARTITIONS_AT_ONCE)
        if len(records) < _PARTITIONS_AT_ONCE:
            self._leaving.pop(broker_id, None)
        else:
            self._leaving[broker_id] = None
        return records

    @property
    def has_leaving_brokers(self) -> bool:
        """Whether a broker in controlled shutdown still has partitions to move."""
        return bool(self._leaving)

    def move_some(self, view: ControllerView) -> list[VersionedRecord]:
        """Move more partitions of the first broker in controlled shutdown."""
        broker_id = next(iter(self._leaving))
        broker = view.image.brokers.get(broker_id)
        if broker is None or broker.fenced or not broker.in_controlled_shutdown:
            del self._leaving[broker_id]
            return []
        records = self._move_leaders(view.image, broker_id)
        if records:
            # The broker may stop only after the other brokers have read these records too.
            self._shutdown_offsets[broker_id] = view.next_offset + len(records) - 1
        return records

    def _fence(self, image: ClusterImage, broker: BrokerRegistration) -> list[VersionedRecord]:
        return [*self._elections.on_leaving(image, broker.id), _change(broker, fenced=_FENCE)]

    def _store_heartbeat(
        self,
        view: ControllerView,
        request: BrokerHeartbeatRequest,
        after: BrokerState,
        records: int,
    ) -> None:
        """Store the values of a heartbeat that are not in its records."""
        broker_id = request.broker_id
        self._metadata_offsets[broker_id] = request.current_metadata_offset
        if after is BrokerState.SHUTDOWN_NOW:
            # The process ends, so a new process with this id need not wait for the session to end.
            self._sessions.end(broker_id)
        else:
            self._sessions.touch(broker_id, view.now_ms)
        if after is not BrokerState.CONTROLLED_SHUTDOWN:
            self._shutdown_offsets.pop(broker_id, None)
        elif records:
            self._shutdown_offsets[broker_id] = view.next_offset + records - 1

    def _others_are_caught_up(self, image: ClusterImage, broker_id: int) -> bool:
        """Return whether every live broker has read the changes that precede a shutdown."""
        wanted = self._shutdown_offsets.get(broker_id, _UNKNOWN_OFFSET)
        return all(
            self._metadata_offsets.get(other.id, _UNKNOWN_OFFSET) >= wanted
            for other in image.brokers.values()
            if not other.fenced and not other.in_controlled_shutdown
        )

    # -- dead brokers ------------------------------------------------------------------------------

    def note_silent(self, now_ms: float) -> None:
        """Mark the brokers whose sessions have ended for fencing."""
        expired = self._sessions.expired(now_ms)
        for broker_id in expired:
            self._sessions.end(broker_id)
            self._sessions.suspect(broker_id)
            self._dead[broker_id] = "session expired"
        if expired:
            self._sessions.suspect_silent(now_ms)

    def note_suspected(self, image: ClusterImage, broker_id: int, broker_epoch: int) -> None:
        """Mark a broker whose connection is lost as possibly dead; it may connect again."""
        broker = image.brokers.get(broker_id)
        is_same = broker is not None and broker.epoch == broker_epoch and not broker.fenced
        if is_same and not self._sessions.is_own(broker_id):
            self._sessions.suspect(broker_id)

    def note_lost(self, image: ClusterImage, broker_id: int, broker_epoch: int) -> None:
        """Mark a broker whose connection is lost for fencing.

        A report about an earlier epoch of the broker is ignored.
        """
        broker = image.brokers.get(broker_id)
        if broker is None or broker.epoch != broker_epoch or self._sessions.is_own(broker_id):
            return
        # A new process with this id need not wait for the session to end.
        self._sessions.end(broker_id)
        self._sessions.suspect(broker_id)
        self._dead[broker_id] = "heartbeat connection closed"

    @property
    def has_dead(self) -> bool:
        """Whether a broker is waiting to be fenced."""
        return bool(self._dead)

    def fence_some(self, view: ControllerView) -> list[VersionedRecord]:
        """Remove the next dead broker from as many ISRs as one turn allows, then fence it.

        The fencing record comes last, so that the next controller can continue from any state.
        """
        broker_id, why = next(iter(self._dead.items()))
        broker = view.image.brokers.get(broker_id)
        if broker is None or broker.fenced:
            del self._dead[broker_id]
            return []
        records = self._elections.on_death(view.image, broker_id, _PARTITIONS_AT_ONCE)
        if len(records) < _PARTITIONS_AT_ONCE:
            _log.warning("Broker fenced: id=%d reason=%s", broker_id, why)
            del self._dead[broker_id]
            records.append(_change(broker, fenced=_FENCE))
        return records


def _change(broker: BrokerRegistration, fenced: int) -> VersionedRecord:
    record = BrokerRegistrationChangeRecord(
        broker_id=broker.id, broker_epoch=broker.epoch, fenced=fenced
    )
    return record, 0


def _cordoned(broker: BrokerRegistration, request: BrokerHeartbeatRequest) -> list[VersionedRecord]:
    """Return the record for changed cordoned directories (KIP-1066); empty if they are the same.

    Cordoned directories take no new partitions.
    """
    wanted = request.cordoned_log_dirs
    if wanted is None or broker.cordoned_directories == tuple(wanted):
        return []
    record = BrokerRegistrationChangeRecord(
        broker_id=broker.id, broker_epoch=broker.epoch, cordoned_log_dirs=list(wanted)
    )
    return [(record, 3)]


PRODUCER_ID_BLOCK_SIZE = 1000
_PRODUCER_ID_MAX = 0x7FFF_FFFF_FFFF_FFFF


def allocate_producer_ids(
    view: ControllerView, request: AllocateProducerIdsRequest
) -> ControllerResult[AllocateProducerIdsResponse]:
    """Allocate the next block to the broker. The ids of a lost block are never used."""
    try:
        check_broker_epoch(view.image, request.broker_id, request.broker_epoch)
        first = max(0, view.image.next_producer_id)
        if first > _PRODUCER_ID_MAX - PRODUCER_ID_BLOCK_SIZE:
            raise Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, "all producer ids are exhausted")
    except Refusal as refusal:
        return ControllerResult([], refuse_as_a_whole(request, refusal))
    record = ProducerIdsRecord(
        broker_id=request.broker_id,
        broker_epoch=request.broker_epoch,
        next_producer_id=first + PRODUCER_ID_BLOCK_SIZE,
    )
    response = AllocateProducerIdsResponse(
        error_code=ErrorCode.NONE, producer_id_start=first, producer_id_len=PRODUCER_ID_BLOCK_SIZE
    )
    return ControllerResult([(record, 0)], response)
