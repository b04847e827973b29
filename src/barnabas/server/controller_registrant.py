"""Has the active controller know where this controller listens (ControllerRegistration, KIP-919).

Kafka: ControllerRegistrationManager. The active controller writes its own registration when it
becomes active; the others ask it to.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.metadata.broker_registration import features_as, listeners_as
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    Feature,
    Listener,
)

if TYPE_CHECKING:
    from barnabas.metadata.broker_registration import ControllerRegistration
    from barnabas.metadata.delta import ClusterDelta
    from barnabas.metadata.image import ClusterImage
    from barnabas.protocol.messages.controller_registration import ControllerRegistrationResponse
    from barnabas.runtime.timer import Timer
    from barnabas.server.controller_access import ControllerAccess

_log = logging.getLogger(__name__)

# Between tries while the controller says no, or its word has not come back as metadata yet.
_RETRY_MS = 1_000.0


class ControllerRegistrant:
    """A listener of the metadata publisher."""

    __slots__ = ("_access", "_image", "_is_asking", "_is_stopped", "_registration", "_timer")

    def __init__(
        self, registration: ControllerRegistration, access: ControllerAccess, timer: Timer
    ) -> None:
        self._registration = registration
        self._access = access
        self._timer = timer
        # Whether a request is out, or the next is due.
        self._is_asking = False
        self._is_stopped = False
        # The newest.
        self._image: ClusterImage | None = None

    def on_image(self, _delta: ClusterDelta, image: ClusterImage) -> None:
        """Ask, unless the metadata has it."""
        self._image = image
        self._maybe_ask(image)

    def _maybe_ask(self, image: ClusterImage) -> None:
        me = self._registration
        # Without a metadata.version there is no cluster yet.
        if image.controllers.get(me.id) == me or not image.features.finalized:
            return
        if not (self._is_asking or self._is_stopped):
            self._is_asking = True
            self._timer.call_soon(self._ask)

    def stop(self) -> None:
        """Ask no more."""
        self._is_stopped = True

    def _ask(self) -> None:
        me = self._registration
        request = ControllerRegistrationRequest(
            controller_id=me.id,
            incarnation_id=me.incarnation_id,
            zk_migration_ready=False,
            listeners=listeners_as(Listener, me.listeners),
            features=features_as(Feature, me.supported_features),
        )
        self._access.send(request, self._on_answer)

    def _on_answer(self, response: ControllerRegistrationResponse) -> None:
        if response.error_code:
            _log.warning(
                "The active controller refuses the registration of this one: %s",
                ErrorCode.of(response.error_code).name,
            )
        self._timer.call_later(_RETRY_MS, self._look_again)

    def _look_again(self) -> None:
        """By now the metadata has it, or it is asked for again."""
        self._is_asking = False
        if self._image is not None:
            self._maybe_ask(self._image)
