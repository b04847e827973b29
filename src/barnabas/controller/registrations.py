"""Registration and permanent removal of brokers and controllers.

BrokerRegistration API 62 (KIP-631, KIP-858, KIP-966), UnregisterBroker API 64 (KIP-500), and
ControllerRegistration (KIP-919).

A broker is identified by its id, and each registered process of it by its epoch. The epoch is the
log end offset at the registration.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from barnabas.controller.partitions.directories import note_missing_directories
from barnabas.controller.result import ControllerResult, Refusal, refuse_as_a_whole
from barnabas.metadata.broker_registration import (
    BrokerRegistration,
    ControllerRegistration,
    SupportedLevels,
    features_from,
    listeners_from,
)
from barnabas.metadata.metadata_version import (
    METADATA_VERSION,
    has_controller_registration,
    has_directories,
)
from barnabas.metadata.partition_registration import RESERVED_DIRECTORIES
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.nodes import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
    UnregisterControllerRequest,
    UnregisterControllerResponse,
)
from barnabas.protocol.records.nodes import UnregisterBrokerRecord, UnregisterControllerRecord

if TYPE_CHECKING:
    from barnabas.controller.brokers import BrokerControl, BrokerSessions
    from barnabas.controller.config import ControllerConfig
    from barnabas.controller.partitions.elections import Elections
    from barnabas.controller.result import ControllerView, VersionedRecord
    from barnabas.metadata.image import ClusterImage
    from barnabas.metadata.metadata_version import FeaturesImage


class RegistrationControl:
    """Handles broker registrations, and returns the resulting records."""

    def __init__(
        self,
        config: ControllerConfig,
        elections: Elections,
        sessions: BrokerSessions,
        brokers: BrokerControl,
    ) -> None:
        self._config = config
        self._elections = elections
        self._sessions = sessions
        self._brokers = brokers

    def register(
        self, view: ControllerView, request: BrokerRegistrationRequest
    ) -> ControllerResult[BrokerRegistrationResponse]:
        """Register a broker, which stays fenced until its heartbeats show that it has caught up.

        The same process may register again, because a response was lost or its endpoints or
        features have changed. It keeps its epoch and state. The registration of a new process first
        removes the broker from every ISR.
        """
        image = view.image
        try:
            self._check(view, request)
        except Refusal as refusal:
            return ControllerResult([], refuse_as_a_whole(request, refusal))
        known = image.brokers.get(request.broker_id)
        records: list[VersionedRecord] = []
        if known is not None and known.incarnation_id == request.incarnation_id:
            registration = replace(
                _registration(request, known.epoch),
                fenced=known.fenced,
                in_controlled_shutdown=known.in_controlled_shutdown,
            )
        else:
            records += self._remove_former_process(image, known, request)
            registration = _registration(request, epoch=view.next_offset)
            self._sessions.end(request.broker_id)
        records.append(registration.to_record(image.features.metadata_version))
        offset = view.next_offset + len(records) - 1
        self._brokers.note_registration(request.broker_id, offset)
        return ControllerResult(
            records,
            BrokerRegistrationResponse(error_code=ErrorCode.NONE, broker_epoch=registration.epoch),
            atomic=False,
        )

    def _remove_former_process(
        self,
        image: ClusterImage,
        known: BrokerRegistration | None,
        request: BrokerRegistrationRequest,
    ) -> list[VersionedRecord]:
        is_clean = known is not None and request.previous_broker_epoch == known.epoch
        if image.features.is_elr_enabled and not is_clean:
            records = self._elections.on_unclean_shutdown(image, request.broker_id)
        else:
            records = self._elections.on_death(image, request.broker_id)
        if known is not None and not set(known.directories).issubset(request.log_dirs):
            records += note_missing_directories(image, request.broker_id)
        return records

    def _check(self, view: ControllerView, request: BrokerRegistrationRequest) -> None:
        if request.cluster_id != self._config.cluster_id:
            raise Refusal(
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f"the cluster id is {self._config.cluster_id}, not {request.cluster_id}",
            )
        known = view.image.brokers.get(request.broker_id)
        if (
            known is not None
            and known.incarnation_id != request.incarnation_id
            and self._sessions.is_valid(known.id, view.now_ms)
        ):
            raise Refusal(
                ErrorCode.DUPLICATE_BROKER_REGISTRATION,
                f"another process of broker {known.id} is alive",
            )
        if request.is_migrating_zk_broker:
            raise Refusal(
                ErrorCode.BROKER_ID_NOT_REGISTERED, "migration from ZooKeeper is not supported"
            )
        if has_directories(view.image.features.metadata_version):
            _check_directories(view.image, request)
        _check_features(view.image.features, request)


def _check_directories(image: ClusterImage, request: BrokerRegistrationRequest) -> None:
    """Refuse directory ids that are missing, reserved, or used by another broker (KIP-858)."""
    directories = request.log_dirs
    problem = None
    if not directories:
        problem = "a broker requires a data directory"
    elif RESERVED_DIRECTORIES.intersection(directories):
        problem = "a directory has a reserved id"
    elif len(set(directories)) != len(directories):
        problem = "a directory occurs twice"
    else:
        for other in image.brokers.values():
            if other.id != request.broker_id and not set(directories).isdisjoint(other.directories):
                problem = f"a directory already belongs to broker {other.id}"
    if problem is not None:
        raise Refusal(ErrorCode.INVALID_REGISTRATION, problem)


def _check_features(features: FeaturesImage, request: BrokerRegistrationRequest) -> None:
    """Refuse a broker that does not support a finalized level; a missing feature has level 0."""
    supported = features_from(request.features)
    if METADATA_VERSION not in supported:
        raise Refusal(
            ErrorCode.INVALID_REGISTRATION, f"the broker does not support {METADATA_VERSION}"
        )
    for name in (*features.finalized, *supported):
        low, high = supported.get(name, SupportedLevels(0, 0))
        level = features.finalized.get(name, 0)
        if not low <= level <= high:
            raise Refusal(
                ErrorCode.UNSUPPORTED_VERSION,
                f"the cluster has {name} at level {level}, but the broker supports {low} to {high}",
            )


def _registration(request: BrokerRegistrationRequest, epoch: int) -> BrokerRegistration:
    return BrokerRegistration(
        id=request.broker_id,
        epoch=epoch,
        incarnation_id=request.incarnation_id,
        listeners=listeners_from(request.listeners),
        supported_features=features_from(request.features),
        rack=request.rack,
        fenced=True,
        directories=tuple(sorted(request.log_dirs)),
    )


class UnregistrationControl:
    """Handles requests to unregister a broker, and returns the resulting records."""

    def __init__(self, elections: Elections) -> None:
        self._elections = elections

    def unregister(
        self, view: ControllerView, request: UnregisterBrokerRequest
    ) -> ControllerResult[UnregisterBrokerResponse]:
        """Remove the broker from every ISR and unregister it; its replicas stay assigned to it."""
        broker = view.image.brokers.get(request.broker_id)
        if broker is None:
            refusal = Refusal(
                ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {request.broker_id} is not registered"
            )
            return ControllerResult([], refuse_as_a_whole(request, refusal))
        records: list[VersionedRecord] = self._elections.on_unregistered(view.image, broker.id)
        record = UnregisterBrokerRecord(broker_id=broker.id, broker_epoch=broker.epoch)
        records.append((record, 0))
        response = UnregisterBrokerResponse(error_code=ErrorCode.NONE, error_message=None)
        return ControllerResult(records, response, atomic=False)


def register_controller(
    view: ControllerView, request: ControllerRegistrationRequest
) -> ControllerResult[ControllerRegistrationResponse]:
    """Register a controller's endpoints and supported features."""
    if not has_controller_registration(view.image.features.metadata_version):
        refusal = Refusal(
            ErrorCode.UNSUPPORTED_VERSION,
            "the metadata.version does not support the registration of controllers",
        )
        return ControllerResult([], refuse_as_a_whole(request, refusal))
    registration = ControllerRegistration(
        id=request.controller_id,
        incarnation_id=request.incarnation_id,
        listeners=listeners_from(request.listeners),
        supported_features=features_from(request.features),
        zk_migration_ready=request.zk_migration_ready,
    )
    response = ControllerRegistrationResponse(error_code=ErrorCode.NONE, error_message=None)
    return ControllerResult([registration.to_record()], response)


def unregister_controller(
    view: ControllerView, request: UnregisterControllerRequest
) -> ControllerResult[UnregisterControllerResponse]:
    """Unregister a controller that is permanently gone."""
    if request.controller_id not in view.image.controllers:
        refusal = Refusal(
            ErrorCode.CONTROLLER_ID_NOT_REGISTERED,
            f"controller {request.controller_id} is not registered",
        )
        return ControllerResult([], refuse_as_a_whole(request, refusal))
    record = UnregisterControllerRecord(controller_id=request.controller_id)
    response = UnregisterControllerResponse(error_code=ErrorCode.NONE, error_message=None)
    return ControllerResult([(record, 0)], response)
