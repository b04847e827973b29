"""Registration and unregistration of controllers (ControllerRegistration, KIP-919)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.controller.result import ControllerResult, Refusal
from barnabas.metadata.broker_registration import (
    ControllerRegistration,
    features_from,
    listeners_from,
)
from barnabas.metadata.metadata_version import has_controller_registration
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from barnabas.protocol.messages.unregister_controller import (
    UnregisterControllerRequest,
    UnregisterControllerResponse,
)
from barnabas.protocol.records.unregister_controller_record import UnregisterControllerRecord

if TYPE_CHECKING:
    from barnabas.controller.result import ControllerView


def register_controller(
    view: ControllerView, request: ControllerRegistrationRequest
) -> ControllerResult[ControllerRegistrationResponse]:
    """Register a controller's endpoints and supported features."""
    if not has_controller_registration(view.image.features.metadata_version):
        refusal = Refusal(
            ErrorCode.UNSUPPORTED_VERSION,
            "the metadata.version does not support the registration of controllers",
        )
        return ControllerResult([], refuse_controller_registration(request, refusal))
    registration = ControllerRegistration(
        id=request.controller_id,
        incarnation_id=request.incarnation_id,
        listeners=listeners_from(request.listeners),
        supported_features=features_from(request.features),
        zk_migration_ready=request.zk_migration_ready,
    )
    response = ControllerRegistrationResponse(error_code=ErrorCode.NONE, error_message=None)
    return ControllerResult([registration.to_record()], response)


def refuse_controller_registration(
    _request: ControllerRegistrationRequest, error: Refusal
) -> ControllerRegistrationResponse:
    """Return the error response to a controller registration."""
    return ControllerRegistrationResponse(error_code=error.error_code, error_message=error.message)


def unregister_controller(
    view: ControllerView, request: UnregisterControllerRequest
) -> ControllerResult[UnregisterControllerResponse]:
    """Unregister a controller that is permanently gone."""
    if request.controller_id not in view.image.controllers:
        refusal = Refusal(
            ErrorCode.CONTROLLER_ID_NOT_REGISTERED,
            f"controller {request.controller_id} is not registered",
        )
        return ControllerResult([], refuse_unregister_controller(request, refusal))
    record = UnregisterControllerRecord(controller_id=request.controller_id)
    response = UnregisterControllerResponse(error_code=ErrorCode.NONE, error_message=None)
    return ControllerResult([(record, 0)], response)


def refuse_unregister_controller(
    _request: UnregisterControllerRequest, error: Refusal
) -> UnregisterControllerResponse:
    """Return the error response to a controller unregistration."""
    return UnregisterControllerResponse(error_code=error.error_code, error_message=error.message)
