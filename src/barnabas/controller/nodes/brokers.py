"""Heartbeats, fencing and controlled shutdown of brokers (BrokerHeartbeat API 63; KIP-631)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.controller.nodes.broker_sessions import BrokerState, next_state
from barnabas.controller.partitions.elections import leads_any_partition, uses_more_than
from barnabas.controller.result import ControllerResult, Refusal, check_broker_epoch
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.nodes import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from barnabas.protocol.records.nodes import (
    BrokerRegistrationChangeRecord,
)

if TYPE_CHECKING:
    from barnabas.controller.nodes.broker_sessions import BrokerSessions
    from barnabas.controller.partitions.directories import DirectoryControl
    from barnabas.controller.partitions.elections import Elections
    from barnabas.controller.result import ControllerView, VersionedRecord
    from barnabas.metadata.broker_registration import BrokerRegistration
    from barnabas.metadata.image import ClusterImage

_FENCE = 1
_UNFENCE = -1
_SHUTTING_DOWN = 1
_UNKNOWN_OFFSET = -1
# Number of partitions that get new leaders in one turn of the event loop: about 10 ms.
_PARTITIONS_AT_ONCE = 1000

_log = logging.getLogger(__name__)


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
            return ControllerResult([], refuse_heartbeat(request, refusal))
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
        return [
            *self._elections.on_leaving(image, broker.id),
            _change(broker, fenced=_FENCE),
        ]

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


def refuse_heartbeat(_request: BrokerHeartbeatRequest, error: Refusal) -> BrokerHeartbeatResponse:
    """Return the error response to a heartbeat."""
    return BrokerHeartbeatResponse(error_code=error.error_code, should_shut_down=False)
