"""Registration, heartbeats, fencing and controlled shutdown of brokers (APIs 62, 63; KIP-631).

A broker is known by its id, a life of it by its epoch: the offset that the log ended at when it
registered. The controller keeps in memory when it last heard of each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.controller.broker_epochs import check_broker_epoch
from barnabas.controller.result import ControllerResult, Refusal
from barnabas.metadata.broker_registration import (
    BrokerRegistration,
    Endpoint,
    SupportedLevels,
)
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from barnabas.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from barnabas.protocol.records.broker_registration_change_record import (
    BrokerRegistrationChangeRecord,
)

if TYPE_CHECKING:
    from barnabas.controller.config import ControllerConfig
    from barnabas.controller.directories import DirectoryControl
    from barnabas.controller.elections import Elections
    from barnabas.controller.result import ControllerView, VersionedRecord
    from barnabas.metadata.features_image import FeaturesImage
    from barnabas.metadata.image import ClusterImage

_FENCE = 1
_UNFENCE = -1
_SHUTTING_DOWN = 1


class BrokerControl:
    """Turns what brokers say of themselves, and their silence, into records."""

    def __init__(
        self, config: ControllerConfig, elections: Elections, directories: DirectoryControl
    ) -> None:
        self._config = config
        self._elections = elections
        self._directories = directories
        # When each broker was last heard of, monotonic ms; started anew by a new leader.
        self._heard: dict[int, float] = {}

    def begin(self, image: ClusterImage, now_ms: float) -> None:
        """This controller has become active: every broker gets a full session."""
        self._heard = {broker.id: now_ms for broker in image.brokers.values() if not broker.fenced}

    # -- registration -----------------------------------------------------------------------------

    def register(
        self, view: ControllerView, request: BrokerRegistrationRequest
    ) -> ControllerResult[BrokerRegistrationResponse]:
        """Take in a broker; it is fenced until its heartbeats show that it has caught up."""
        image = view.image
        try:
            self._check(view, request)
        except Refusal as refusal:
            return ControllerResult([], refuse_registration(request, refusal))
        known = image.brokers.get(request.broker_id)
        records: list[VersionedRecord] = []
        if known is not None and known.incarnation_id == request.incarnation_id:
            # The answer was lost: the same life asks again.
            response = BrokerRegistrationResponse(
                error_code=ErrorCode.NONE, broker_epoch=known.epoch
            )
            return ControllerResult([], response)
        if known is not None:
            clean = request.previous_broker_epoch == known.epoch
            is_unclean = image.features.is_elr_enabled and not clean
            if is_unclean or not known.fenced:
                records += self._elections.on_leaving(image, known.id, is_unclean=is_unclean)
        registration = _registration(request, epoch=view.next_offset)
        records.append(registration.to_record(image.features.metadata_version))
        self._heard[request.broker_id] = view.now_ms
        return ControllerResult(
            records,
            BrokerRegistrationResponse(error_code=ErrorCode.NONE, broker_epoch=registration.epoch),
        )

    def _check(self, view: ControllerView, request: BrokerRegistrationRequest) -> None:
        if request.cluster_id != self._config.cluster_id:
            raise Refusal(
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f"this is cluster {self._config.cluster_id}, not {request.cluster_id}",
            )
        if not request.listeners:
            raise Refusal(ErrorCode.INVALID_REGISTRATION, "a broker needs a listener")
        known = view.image.brokers.get(request.broker_id)
        if (
            known is not None
            and known.incarnation_id != request.incarnation_id
            and request.broker_id != self._config.node_id
            and self._has_session(known.id, view.now_ms)
        ):
            # The own node is this process: what registered before it is dead.
            raise Refusal(
                ErrorCode.DUPLICATE_BROKER_REGISTRATION,
                f"broker {known.id} is alive already in another process",
            )
        _check_features(view.image.features, request)

    # -- heartbeats -------------------------------------------------------------------------------

    def heartbeat(
        self, view: ControllerView, request: BrokerHeartbeatRequest
    ) -> ControllerResult[BrokerHeartbeatResponse]:
        """Note that the broker lives; unfence, fence or let it go as it wants and may."""
        image = view.image
        try:
            broker = check_broker_epoch(image, request.broker_id, request.broker_epoch)
        except Refusal as refusal:
            return ControllerResult([], refuse_heartbeat(request, refusal))
        is_caught_up = request.current_metadata_offset >= broker.epoch
        records: list[VersionedRecord] = []
        fenced, should_shut_down = broker.fenced, False
        if request.want_shut_down:
            if broker.fenced or broker.in_controlled_shutdown:
                should_shut_down = True
                if not broker.fenced:
                    records.append(_change(broker, fenced=_FENCE))
                    fenced = True
            else:
                records += self._shut_down(image, broker)
        elif request.want_fence:
            if not broker.fenced:
                records += self._fence(image, broker)
                fenced = True
        elif broker.fenced and is_caught_up:
            records.append(_change(broker, fenced=_UNFENCE))
            records += self._elections.on_returning(image, broker.id)
            fenced = False
        if request.offline_log_dirs:
            records += self._directories.take_offline(image, broker, request.offline_log_dirs)
        records += _cordoned(broker, request)
        self._heard[broker.id] = view.now_ms
        if fenced:
            self._heard.pop(broker.id, None)
        response = BrokerHeartbeatResponse(
            error_code=ErrorCode.NONE,
            is_caught_up=is_caught_up,
            is_fenced=fenced,
            should_shut_down=should_shut_down,
        )
        return ControllerResult(records, response)

    def _shut_down(self, image: ClusterImage, broker: BrokerRegistration) -> list[VersionedRecord]:
        record = BrokerRegistrationChangeRecord(
            broker_id=broker.id,
            broker_epoch=broker.epoch,
            in_controlled_shutdown=_SHUTTING_DOWN,
        )
        return [(record, 1), *self._elections.on_leaving(image, broker.id)]

    def _fence(self, image: ClusterImage, broker: BrokerRegistration) -> list[VersionedRecord]:
        return [
            *self._elections.on_leaving(image, broker.id),
            _change(broker, fenced=_FENCE),
        ]

    # -- sessions ---------------------------------------------------------------------------------

    def fence_silent(self, view: ControllerView) -> ControllerResult[int | None]:
        """Fence one broker whose session is over; the response is its id, None if there is none."""
        for broker_id in list(self._heard):
            # The own node lives as long as this controller does.
            if broker_id == self._config.node_id or self._has_session(broker_id, view.now_ms):
                continue
            del self._heard[broker_id]
            broker = view.image.brokers.get(broker_id)
            if broker is not None and not broker.fenced:
                return ControllerResult(self._fence(view.image, broker), broker_id)
        return ControllerResult([], None)

    def next_deadline(self) -> float | None:
        """When the next session of another broker ends; None if there is no other broker."""
        heard = [at for broker, at in self._heard.items() if broker != self._config.node_id]
        return min(heard) + self._config.broker_session_timeout_ms if heard else None

    def _has_session(self, broker_id: int, now_ms: float) -> bool:
        heard = self._heard.get(broker_id)
        return heard is not None and now_ms < heard + self._config.broker_session_timeout_ms


def _registration(request: BrokerRegistrationRequest, epoch: int) -> BrokerRegistration:
    return BrokerRegistration(
        id=request.broker_id,
        epoch=epoch,
        incarnation_id=request.incarnation_id,
        listeners={
            each.name: Endpoint(each.host, each.port, each.security_protocol)
            for each in request.listeners
        },
        supported_features={
            each.name: SupportedLevels(each.min_supported_version, each.max_supported_version)
            for each in request.features
        },
        rack=request.rack,
        fenced=True,
        directories=tuple(sorted(request.log_dirs)),
    )


def _check_features(features: FeaturesImage, request: BrokerRegistrationRequest) -> None:
    """Refuse a broker that cannot work at a level that the cluster is at."""
    supported = {each.name: each for each in request.features}
    for name, level in features.finalized.items():
        levels = supported.get(name)
        low = 0 if levels is None else levels.min_supported_version
        high = 0 if levels is None else levels.max_supported_version
        if not low <= level <= high:
            raise Refusal(
                ErrorCode.UNSUPPORTED_VERSION,
                f"the cluster has {name} at level {level}, the broker supports {low} to {high}",
            )


def _change(broker: BrokerRegistration, fenced: int) -> VersionedRecord:
    record = BrokerRegistrationChangeRecord(
        broker_id=broker.id, broker_epoch=broker.epoch, fenced=fenced
    )
    return record, 0


def _cordoned(broker: BrokerRegistration, request: BrokerHeartbeatRequest) -> list[VersionedRecord]:
    """Directories that take no new partitions (KIP-1066), if the broker names others now."""
    wanted = request.cordoned_log_dirs
    if wanted is None or broker.cordoned_directories == tuple(wanted):
        return []
    record = BrokerRegistrationChangeRecord(
        broker_id=broker.id, broker_epoch=broker.epoch, cordoned_log_dirs=list(wanted)
    )
    return [(record, 3)]


def refuse_registration(
    _request: BrokerRegistrationRequest, error: Refusal
) -> BrokerRegistrationResponse:
    """The response when nothing could be done."""
    return BrokerRegistrationResponse(error_code=error.error_code)


def refuse_heartbeat(_request: BrokerHeartbeatRequest, error: Refusal) -> BrokerHeartbeatResponse:
    """The response when nothing could be done."""
    return BrokerHeartbeatResponse(error_code=error.error_code, should_shut_down=False)
