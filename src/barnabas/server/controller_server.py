"""What a controller has beside what every node has (Kafka's ControllerServer)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.controller.config import ControllerConfig
from barnabas.controller.controller import Controller, ControllerParts
from barnabas.metadata.broker_registration import ControllerRegistration
from barnabas.server.features import SUPPORTED_FEATURES
from barnabas.server.local_controller import LocalController

if TYPE_CHECKING:
    from barnabas.server.shared_server import SharedServer


class ControllerServer:
    """The controller of a node."""

    def __init__(self, shared: SharedServer) -> None:
        self._shared = shared
        registration = ControllerRegistration(
            shared.node_id, shared.runtime.rng.uuid(), {}, SUPPORTED_FEATURES
        )
        self.controller = Controller(
            ControllerConfig(shared.node_id, shared.cluster_id, shared.config),
            ControllerParts(shared.quorum, shared.publisher, shared.runtime.rng, registration),
        )
        self.local = LocalController(self.controller)

    def follow_quorum(self) -> None:
        """Hear of what is committed, behind the publisher whose image the controller takes."""
        self._shared.quorum.add_listener(self.controller)
