"""Requests of brokers and controllers, which only a controller's listeners serve.

- For the controller of this process: AlterPartition (56; v3 adds broker epochs, KIP-903),
  AllocateProducerIds (67), ControllerRegistration (70) and AssignReplicasToDirs (73).
- For the replica of the metadata quorum in this process (KIP-595, KIP-853): Fetch (1) of the
  metadata log, Vote (52), BeginQuorumEpoch (53), EndQuorumEpoch (54), FetchSnapshot (59),
  AddRaftVoter (80), RemoveRaftVoter (81) and UpdateRaftVoter (82).
- For the controller and for the watch over the brokers' connections: BrokerHeartbeat (key 63,
  v0-2; v1 adds offline directories, v2 directories that take no new partitions) and
  BrokerRegistration (62, v0-4; v2 adds directories, KIP-858, v3 the previous epoch, KIP-966).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
    from barnabas.protocol.messages.broker_registration import (
        BrokerRegistrationRequest,
        BrokerRegistrationResponse,
    )
    from barnabas.protocol.schema import Message
    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.handlers.dependencies import (
        ControllerListenerDependencies,
        NodeDependencies,
    )


def controller_request(dependencies: NodeDependencies) -> Handle:
    """Return the handler that passes requests of nodes to the controller of this process.

    The response follows when resulting changes are committed. An inactive controller responds with
    NOT_CONTROLLER.
    """
    controller = dependencies.forwarding

    def handle_controller_request(context: RequestContext, request: Message) -> None:
        controller.send(request, context.respond_exempt, client_context=context)

    return handle_controller_request


def quorum_request(dependencies: ControllerListenerDependencies) -> Handle:
    """Return the handler that passes requests to the local replica of the quorum.

    The response is immediate, or follows when the replica can respond.
    """
    raft = dependencies.raft

    def handle_quorum_request(context: RequestContext, request: Message) -> None:
        raft.serve(request, context.version, context.respond_exempt)

    return handle_quorum_request


def broker_heartbeat(dependencies: ControllerListenerDependencies) -> Handle:
    """Return the handler that processes heartbeats of brokers."""
    controller = dependencies.forwarding
    watch = dependencies.watch

    def handle_broker_heartbeat(context: RequestContext, request: BrokerHeartbeatRequest) -> None:
        """Process a heartbeat. The response follows when resulting changes are committed."""
        watch.on_heartbeat(context.connection, request.broker_id, request.broker_epoch)
        controller.send(request, context.respond_exempt, client_context=context)

    return handle_broker_heartbeat


def broker_registration(dependencies: ControllerListenerDependencies) -> Handle:
    """Return the handler that registers brokers."""
    controller = dependencies.forwarding
    watch = dependencies.watch

    def handle_broker_registration(
        context: RequestContext, request: BrokerRegistrationRequest
    ) -> None:
        """Register a broker. The response follows when the registration is committed."""

        def on_done(response: BrokerRegistrationResponse) -> None:
            if response.error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION:
                watch.on_duplicate(request.broker_id)
            context.respond_exempt(response)

        controller.send(request, on_done, client_context=context)

    return handle_broker_registration
