"""Registration of this controller with the active one (ControllerRegistration, KIP-919).

In Kafka this is the ControllerRegistrationManager. The active controller writes its own
registration when it becomes active. Other controllers send it a request.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.metadata.broker_registration import features_as, listeners_as
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.nodes import (
    ControllerRegistrationRequest,
    Feature,
    Listener,
)

if TYPE_CHECKING:
    from barnabas.metadata.broker_registration import ControllerRegistration
    from barnabas.metadata.image import ClusterDelta, ClusterImage
    from barnabas.protocol.messages.nodes import ControllerRegistrationResponse
    from barnabas.runtime.clock import Timer
    from barnabas.server.controller_access.controller_access import ControllerAccess

_log = logging.getLogger(__name__)

# Delay before a retry: the controller rejected the request, or the metadata does not show it yet.
_RETRY_MS = 1_000.0


class ControllerRegistrant:
    """Registers this controller until the metadata shows it. Listens to the metadata publisher."""

    def __init__(
        self, registration: ControllerRegistration, access: ControllerAccess, timer: Timer
    ) -> None:
        self._registration = registration
        self._access = access
        self._timer = timer
        # Whether a request is pending or scheduled.
        self._is_pending = False
        # Whether `stop` was called. Never reset.
        self._is_stopped = False
        # Error of the last response. Prevents repeated log lines.
        self._last_error = ErrorCode.NONE
        # Latest metadata image.
        self._image: ClusterImage | None = None

    def on_image(self, _delta: ClusterDelta, image: ClusterImage) -> None:
        """Send a registration unless the image contains it."""
        self._image = image
        self._maybe_send(image)

    def _maybe_send(self, image: ClusterImage) -> None:
        own = self._registration
        # Without a metadata.version the cluster does not exist yet.
        if image.controllers.get(own.id) == own or not image.features.finalized:
            return
        if not (self._is_pending or self._is_stopped):
            self._is_pending = True
            self._timer.call_soon(self._send)

    def stop(self) -> None:
        """Send no more requests."""
        self._is_stopped = True

    def _send(self) -> None:
        own = self._registration
        request = ControllerRegistrationRequest(
            controller_id=own.id,
            incarnation_id=own.incarnation_id,
            zk_migration_ready=False,
            listeners=listeners_as(Listener, own.listeners),
            features=features_as(Feature, own.supported_features),
        )
        self._access.send(request, self._on_response)

    def _on_response(self, response: ControllerRegistrationResponse) -> None:
        error = ErrorCode.of(response.error_code)
        if error is not self._last_error and error is not ErrorCode.NONE:
            _log.warning("Registration of this controller rejected, retrying: error=%s", error.name)
        self._last_error = error
        self._timer.call_later(_RETRY_MS, self._on_retry)

    def _on_retry(self) -> None:
        """Send the registration again if the metadata still lacks it."""
        self._is_pending = False
        if self._image is not None:
            self._maybe_send(self._image)
