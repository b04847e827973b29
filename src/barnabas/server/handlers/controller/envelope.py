"""Envelope (key 58, v0): serve a client's request that a broker has forwarded (KIP-590).

The inner request is served like a request of its client. Its response is encoded in the version of
the inner request. An inactive controller sets NOT_CONTROLLER in the envelope itself, so that the
broker finds the active one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.codec import decode
from barnabas.protocol.errors import ErrorCode, ProtocolError
from barnabas.protocol.messages.nodes import EnvelopeRequest, EnvelopeResponse
from barnabas.server.dispatch.envelope import read_address, read_header, read_principal
from barnabas.server.dispatch.forwarded_context import ForwardedContext, ForwardedRequest
from barnabas.server.handlers.broker_apis import SERVED_APIS

if TYPE_CHECKING:
    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.handlers.dependencies import ControllerListenerDependencies

# APIs that Kafka's brokers forward and that this controller serves.
FORWARDABLE = frozenset(key for key, api in SERVED_APIS.items() if api.is_forwarded)


def handler(dependencies: ControllerListenerDependencies) -> Handle:
    """Return the handler that serves forwarded requests."""
    return EnvelopeHandler(dependencies).handle_envelope


class EnvelopeHandler:
    """Decodes the inner request, and calls the handler of its API."""

    __slots__ = ("_find",)

    def __init__(self, dependencies: ControllerListenerDependencies) -> None:
        self._find = dependencies.find

    def handle_envelope(
        self, context: RequestContext, envelope: EnvelopeRequest
    ) -> EnvelopeResponse | None:
        """Serve the inner request. The response follows when its handler responds."""
        try:
            principal = read_principal(envelope)
        except ProtocolError:
            return EnvelopeResponse(error_code=ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE)
        try:
            header = read_header(envelope)
            address = read_address(envelope)
            entry = self._find(header.api_key) if header.api_key in FORWARDABLE else None
            if entry is None:
                return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
            first_version, last_version, request_cls, handle, statistics = entry
            if not first_version <= header.version <= last_version:
                return EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
            request = decode(request_cls, header.version, envelope.request_data, header.offset)
        except ProtocolError:
            return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
        statistics.versions[header.version] += 1
        forwarded = ForwardedRequest(header, principal, address)
        inner = ForwardedContext(context, forwarded, statistics)
        response = handle(inner, request)
        if response is not None:
            inner.respond(response)
        return None
