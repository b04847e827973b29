"""Envelope: key 58, v0. A client's request that its broker hands on (KIP-590).

The request inside is served as if its client had asked here; the answer travels back in the
version that it was asked in. Where this node is not the active controller the envelope itself says
so, so that the broker looks for the one that is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.api_table import ApiKey
from barnabas.protocol.codec import decode
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from barnabas.protocol.protocol_error import ProtocolError
from barnabas.server.envelope import read_address, read_header, read_principal
from barnabas.server.forwarded_context import ForwardedContext, ForwardedRequest

if TYPE_CHECKING:
    from barnabas.server.parts import ControllerListenerParts
    from barnabas.server.request import Handle, RequestContext

# What Kafka's brokers forward, as far as it is served here.
FORWARDABLE = frozenset(
    {
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.ELECT_LEADERS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.UPDATE_FEATURES,
        ApiKey.UNREGISTER_BROKER,
        ApiKey.UNREGISTER_CONTROLLER,
        ApiKey.ADD_RAFT_VOTER,
        ApiKey.REMOVE_RAFT_VOTER,
    }
)


def handler(parts: ControllerListenerParts) -> Handle:
    """The handler of this API."""
    return EnvelopeHandler(parts).handle_envelope


class EnvelopeHandler:
    """Opens the envelope and has the handler of what is in it serve that."""

    __slots__ = ("_find",)

    def __init__(self, parts: ControllerListenerParts) -> None:
        self._find = parts.find

    def handle_envelope(
        self, context: RequestContext, envelope: EnvelopeRequest
    ) -> EnvelopeResponse | None:
        """Answered when the request inside is."""
        try:
            user = read_principal(envelope)
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
        inner = ForwardedContext(context, ForwardedRequest(header, user, address), statistics)
        answer = handle(inner, request)
        if answer is not None:
            inner.respond(answer)
        return None
