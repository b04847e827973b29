"""What a controller has beside what every node has (Kafka's ControllerServer)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.controller.config import ControllerConfig
from barnabas.controller.controller import Controller, ControllerParts
from barnabas.metadata.broker_registration import ControllerRegistration, Endpoint
from barnabas.server.features import SUPPORTED_FEATURES
from barnabas.server.local_controller import LocalController

if TYPE_CHECKING:
    from barnabas.protocol.messages.describe_quorum import DescribeQuorumRequest
    from barnabas.protocol.schema import Message
    from barnabas.server.controller_access import ControllerAccess
    from barnabas.server.controller_listeners import ControllerListeners
    from barnabas.server.controller_registrant import ControllerRegistrant
    from barnabas.server.listener import Listener
    from barnabas.server.shared_server import SharedServer


class ControllerServer:
    """The controller of a node; its listeners, if it has any, are bound when it is made."""

    def __init__(self, shared: SharedServer) -> None:
        """Raises:
        OSError: an address cannot be bound.
        """
        self._shared = shared
        self._listeners: ControllerListeners | None = None
        self._registrant: ControllerRegistrant | None = None
        self.registration = ControllerRegistration(
            shared.node_id,
            shared.runtime.rng.uuid(),
            {
                each.name: Endpoint(each.host, each.port)
                for each in shared.configuration.advertised_controller_endpoints
            },
            SUPPORTED_FEATURES,
        )
        self.controller = Controller(
            ControllerConfig(shared.node_id, shared.cluster_id, shared.config),
            ControllerParts(shared.quorum, shared.publisher, shared.runtime.rng, self.registration),
        )
        self.local = LocalController(
            self.controller, self._describe_quorum, lambda: shared.raft_rpc
        )
        if shared.configuration.controller_endpoints:
            self._listen()

    @property
    def listeners(self) -> list[Listener]:
        """Those that are bound."""
        return [] if self._listeners is None else self._listeners.listeners

    @property
    def address(self) -> str | None:
        """HOST:PORT of the first listener; None without any."""
        return self._listeners.bound[0].address if self._listeners is not None else None

    def follow_quorum(self, access: ControllerAccess) -> None:
        """Hear of what is committed, behind the publisher whose image the controller takes.

        Args:
            access: the way to the active controller, if that is another.
        """
        shared = self._shared
        shared.quorum.add_listener(self.controller)
        if self._listeners is not None:
            shared.quorum.add_listener(self._listeners.watch)
        if not shared.configuration.cluster.is_alone:
            from barnabas.server.controller_registrant import ControllerRegistrant

            registrant = ControllerRegistrant(self.registration, access, shared.runtime.timer)
            self._registrant = registrant
            shared.publisher.add_listener(registrant.on_image)

    def serve(self) -> None:
        """Read requests from now on."""
        if self._listeners is not None:
            self._listeners.serve()

    def close(self) -> None:
        """Close the listeners; the quorum was left before."""
        if self._registrant is not None:
            self._registrant.stop()
        if self._listeners is not None:
            self._listeners.close()

    def _describe_quorum(self, request: DescribeQuorumRequest, version: int) -> Message:
        # Loaded when somebody asks.
        from barnabas.server.quorum_description import QuorumDescription

        shared = self._shared
        return QuorumDescription(shared.quorum, shared.runtime.clock).describe(request, version)

    def _listen(self) -> None:
        # Loaded only where there are other nodes.
        from barnabas.server.controller_listeners import ControllerListeners

        shared = self._shared
        self._listeners = ControllerListeners(shared, self.controller, self.local, shared.raft_rpc)
