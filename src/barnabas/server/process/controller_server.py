"""Controller role of a node (Kafka's ControllerServer)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.controller.config import ControllerConfig
from barnabas.controller.controller import Controller, ControllerDependencies
from barnabas.metadata.broker_registration import ControllerRegistration, Endpoint
from barnabas.server.configs.policies import (
    close_policy,
    load_alter_config_policy,
    load_create_topic_policy,
)
from barnabas.server.controller_access.controller_access import LocalController
from barnabas.server.startup.features import SUPPORTED_FEATURES

if TYPE_CHECKING:
    from barnabas.protocol.messages.describe_quorum import DescribeQuorumRequest
    from barnabas.protocol.schema import Message
    from barnabas.server.controller_access.controller_access import ControllerAccess
    from barnabas.server.controller_access.controller_registrant import ControllerRegistrant
    from barnabas.server.listeners.listener import Listener
    from barnabas.server.process.controller_listeners import ControllerListeners
    from barnabas.server.process.shared_server import SharedServer


class ControllerServer:
    """The controller role of a node. Its listeners, if it has any, are bound on creation."""

    def __init__(self, shared: SharedServer) -> None:
        """Create the controller and bind its listeners.

        Raises:
            OSError: an address cannot be bound.
            ConfigError: a policy cannot be loaded.
        """
        self._shared = shared
        given = shared.configuration.given
        self._create_topic_policy = load_create_topic_policy(shared.config, given)
        self._alter_config_policy = load_alter_config_policy(shared.config, given)
        # Listeners of the controller. None if no other node uses them.
        self._listeners: ControllerListeners | None = None
        # Registers this controller. None before `follow_quorum`.
        self._registrant: ControllerRegistrant | None = None
        self.registration = ControllerRegistration(
            shared.node_id,
            shared.runtime.rng.uuid(),
            {
                each.name: Endpoint(each.host, each.port, each.security_protocol)
                for each in shared.configuration.advertised_controller_endpoints
            },
            SUPPORTED_FEATURES,
        )
        self.controller = Controller(
            ControllerConfig(
                shared.node_id,
                shared.cluster_id,
                shared.config,
                has_authorizer=shared.authorizer is not None,
            ),
            ControllerDependencies(
                shared.quorum,
                shared.publisher,
                shared.runtime.rng,
                self.registration,
                self._create_topic_policy,
                self._alter_config_policy,
            ),
        )
        self.local = LocalController(
            self.controller,
            self._describe_quorum,
            lambda: shared.raft_rpc,
            None if shared.authorizer is None else shared.authorizer.controller_guard(),
        )
        if shared.configuration.controller_endpoints:
            self._listen()

    @property
    def listeners(self) -> list[Listener]:
        """Bound listeners of the controller."""
        return [] if self._listeners is None else self._listeners.listeners

    @property
    def address(self) -> str | None:
        """HOST:PORT of the first listener, or None without listeners."""
        return self._listeners.bound[0].address if self._listeners is not None else None

    def follow_quorum(self, access: ControllerAccess) -> None:
        """Register the controller with the quorum, behind the publisher whose image it uses.

        Args:
            access: access to the active controller, which may be another node.
        """
        shared = self._shared
        shared.quorum.add_listener(self.controller)
        if self._listeners is not None:
            shared.quorum.add_listener(self._listeners.watch)
        if not shared.configuration.cluster.is_alone:
            from barnabas.server.controller_access.controller_registrant import ControllerRegistrant

            registrant = ControllerRegistrant(self.registration, access, shared.runtime.timer)
            self._registrant = registrant
            shared.publisher.add_listener(registrant.on_image)

    def serve(self) -> None:
        """Begin to read requests."""
        if self._listeners is not None:
            self._listeners.serve()

    def close(self) -> None:
        """Close the listeners. The quorum must be shut down already."""
        if self._registrant is not None:
            self._registrant.stop()
        if self._listeners is not None:
            self._listeners.close()
        for policy in (self._create_topic_policy, self._alter_config_policy):
            if policy is not None:
                close_policy(policy)

    def _describe_quorum(self, request: DescribeQuorumRequest, version: int) -> Message:
        # Imported at the first DescribeQuorum request.
        from barnabas.server.quorum.quorum_description import QuorumDescription

        shared = self._shared
        return QuorumDescription(shared.quorum, shared.runtime.clock).describe(request, version)

    def _listen(self) -> None:
        # Imported only in clusters with other nodes.
        from barnabas.server.process.controller_listeners import ControllerListeners

        shared = self._shared
        self._listeners = ControllerListeners(shared, self.controller, self.local, shared.raft_rpc)
