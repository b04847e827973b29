"""Requests of brokers and controllers, which only a controller's listeners serve.

- For the controller of this process: AlterPartition (56; v3 adds broker epochs, KIP-903),
  AllocateProducerIds (67), ControllerRegistration (70) and AssignReplicasToDirs (73).
- For the replica of the metadata quorum in this process (KIP-595, KIP-853): Fetch (1) of the
  metadata log, Vote (52), BeginQuorumEpoch (53), EndQuorumEpoch (54), FetchSnapshot (59),
  AddRaftVoter (80), RemoveRaftVoter (81) and UpdateRaftVoter (82).
- For the controller and for the watch over the brokers' connections: BrokerHeartbeat (key 63,
  v0-2; v1 adds offline directories, v2 directories that take no new partitions) and
  BrokerRegistration (62, v0-4; v2 adds directories, KIP-858, v3 the previous epoch, KIP-966).
- From clients, forwarded by a broker: Envelope (58, v0; KIP-590). The inner request is served like
  a request of its client. Its response is encoded in the version of the inner request. An inactive
  controller sets NOT_CONTROLLER in the envelope itself, so that the broker finds the active one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.codec import decode
from barnabas.protocol.errors import ErrorCode, ProtocolError
from barnabas.protocol.messages.nodes import EnvelopeRequest, EnvelopeResponse
from barnabas.server.dispatch.envelope import (
    ForwardedClient,
    read_address,
    read_header,
    read_principal,
)
from barnabas.server.dispatch.served_apis import SERVED_APIS

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.protocol.messages.nodes import (
        BrokerHeartbeatRequest,
        BrokerRegistrationRequest,
        BrokerRegistrationResponse,
    )
    from barnabas.protocol.schema import Message
    from barnabas.server.controller_access.controller_access import ControllerAccess, QuorumApi
    from barnabas.server.dispatch.dispatcher import Entry
    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.quorum.broker_watch import BrokerWatch

# APIs that Kafka's brokers forward and that this controller serves.
FORWARDABLE = frozenset(key for key, api in SERVED_APIS.items() if api.is_forwarded)


def controller_request(forwarding: ControllerAccess) -> Handle:
    """Return the handler that passes requests of nodes to the controller of this process.

    The response follows when resulting changes are committed. An inactive controller responds with
    NOT_CONTROLLER.
    """
    controller = forwarding

    def handle_controller_request(context: RequestContext, request: Message) -> None:
        controller.send(request, context.respond_exempt, client_context=context)

    return handle_controller_request


def quorum_request(raft: QuorumApi) -> Handle:
    """Return the handler that passes requests to the local replica of the quorum.

    The response is immediate, or follows when the replica can respond.
    """

    def handle_quorum_request(context: RequestContext, request: Message) -> None:
        raft.serve(request, context.version, context.respond_exempt, context.listener_name)

    return handle_quorum_request


def broker_heartbeat(forwarding: ControllerAccess, watch: BrokerWatch) -> Handle:
    """Return the handler that processes heartbeats of brokers."""
    controller = forwarding

    def handle_broker_heartbeat(context: RequestContext, request: BrokerHeartbeatRequest) -> None:
        """Process a heartbeat. The response follows when resulting changes are committed."""
        watch.on_heartbeat(context.connection, request.broker_id, request.broker_epoch)
        controller.send(request, context.respond_exempt, client_context=context)

    return handle_broker_heartbeat


def broker_registration(forwarding: ControllerAccess, watch: BrokerWatch) -> Handle:
    """Return the handler that registers brokers."""
    controller = forwarding

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


def envelope(find: Callable[[int], Entry | None]) -> Handle:
    """Return the handler that serves forwarded requests."""

    def handle_envelope(
        context: RequestContext, envelope: EnvelopeRequest
    ) -> EnvelopeResponse | None:
        """Serve the inner request. The response follows when its handler responds."""
        try:
            principal = read_principal(envelope)
        except ProtocolError:
            return EnvelopeResponse(error_code=ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE)
        try:
            header = read_header(envelope)
            address = read_address(envelope)
            entry = find(header.api_key) if header.api_key in FORWARDABLE else None
            if entry is None:
                return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
            if not entry.first_version <= header.version <= entry.last_version:
                return EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
            request = decode(
                entry.request_class, header.version, envelope.request_data, header.offset
            )
        except ProtocolError:
            return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
        entry.statistics.versions[header.version] += 1
        client = ForwardedClient(context, principal, address)
        inner = context.forwarded(header, entry.statistics, client)
        response = entry.handle(inner, request)
        if response is not None:
            inner.respond(response)
        return None

    return handle_envelope
