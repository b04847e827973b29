"""Envelopes: requests of clients that a broker forwards to the controller (KIP-590).

The request and the response include their headers. The principal has the format of Kafka's default
principal: a version of two bytes, then DefaultPrincipalData. On the controller, `ForwardedClient`
is the client of the request in an envelope. It sends the response in that of the envelope.
"""

from __future__ import annotations

import ipaddress
import struct
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from barnabas.network.principal import Principal
from barnabas.protocol.codec import (
    decode,
    decode_request_header,
    decode_response,
    encode_onto,
    encode_request,
    encode_response,
)
from barnabas.protocol.errors import ErrorCode, ProtocolError
from barnabas.protocol.messages.nodes import EnvelopeRequest, EnvelopeResponse
from barnabas.protocol.records.security import DefaultPrincipalData
from barnabas.server.listeners.listener import address_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.protocol.encoding import Chunk
    from barnabas.protocol.schema import Message
    from barnabas.server.dispatch.request import RequestContext


_LENGTH_BYTES = 4
_PRINCIPAL_VERSION = struct.Struct(">h")
# Used for a client whose address is not an IP address.
_NO_ADDRESS = bytes(4)


class ForwardedHeader(NamedTuple):
    """Header of the request in an envelope."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    # Position of the request body after the header.
    offset: int


def wrap_request(request: Message, version: int, client_context: RequestContext) -> EnvelopeRequest:
    """Return an envelope with a client's request, encoded in a version that the controller has.

    Raises:
        ProtocolError: the request has values that the version cannot represent.
    """
    frame = encode_request(
        client_context.correlation_id, client_context.client_id, request, version
    )
    sender = client_context.principal
    principal = DefaultPrincipalData(
        type=sender.type, name=sender.name, token_authenticated=sender.is_token
    )
    start = bytearray(_PRINCIPAL_VERSION.pack(0))
    return EnvelopeRequest(
        request_data=_joined(frame)[_LENGTH_BYTES:],
        request_principal=_joined(encode_onto(start, principal, 0)),
        client_host_address=_packed(client_context.address),
    )


def unwrap_response(request: Message, version: int, data: bytes) -> Any:
    """Decode the response from an envelope.

    Raises:
        ProtocolError: the bytes are not a response of this API and version.
    """
    return decode_response(type(request), version, data)[1]


def read_header(envelope: EnvelopeRequest) -> ForwardedHeader:
    """Decode the header of the request in an envelope.

    Raises:
        ProtocolError: the bytes are not a request header.
    """
    return ForwardedHeader(*decode_request_header(envelope.request_data))


def read_principal(envelope: EnvelopeRequest) -> Principal:
    """Return the principal of the client.

    Raises:
        ProtocolError: the principal is missing or does not have Kafka's default format.
    """
    data = envelope.request_principal
    if data is None or len(data) < _PRINCIPAL_VERSION.size:
        raise ProtocolError("an envelope without a principal")
    (version,) = _PRINCIPAL_VERSION.unpack_from(data)
    principal = decode(DefaultPrincipalData, version, data, _PRINCIPAL_VERSION.size)
    return Principal(principal.name, principal.type, is_token=principal.token_authenticated)


def read_address(envelope: EnvelopeRequest) -> str:
    """Return the IP address of the client.

    Raises:
        ProtocolError: the bytes are not an IPv4 or IPv6 address.
    """
    try:
        return str(ipaddress.ip_address(bytes(envelope.client_host_address)))
    except ValueError as error:
        raise ProtocolError(f"an envelope's client address: {error}") from error


class ForwardedClient(msgspec.Struct, frozen=True):
    """The origin of the request in an envelope, see `Origin`."""

    envelope: RequestContext
    principal: Principal
    address: str

    def respond(
        self, request: RequestContext, response: Message, throttle_ms: int, *, is_clean: bool
    ) -> None:
        """Send the response in the envelope.

        Only the mutation quota of the controller throttles the client here. The broker counts the
        other quotas, and it stops reading from the client.
        """
        statistics = request.statistics
        if throttle_ms > 0 and statistics.has_throttle_time:
            response.throttle_time_ms = throttle_ms  # type: ignore[attr-defined]  # the class has it
        if not is_clean:
            statistics.error_searches += 1
        codes = [0] * len(statistics.errors)
        statistics.count_errors(response, codes)
        for code, count in enumerate(codes):
            statistics.errors[code] += count
        if codes[ErrorCode.NOT_CONTROLLER]:
            self.envelope.respond_exempt(EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER))
            return
        try:
            data = _joined(encode_response(request.correlation_id, response, request.version))
        except Exception as error:  # noqa: BLE001 - only this request fails
            # As for a response to a client: the caller has other requests to complete.
            request.give_up(error)
            return
        content = data[_LENGTH_BYTES:]
        self.envelope.respond_exempt(
            EnvelopeResponse(response_data=content, error_code=ErrorCode.NONE)
        )


def _packed(peer: str) -> bytes:
    try:
        return ipaddress.ip_address(address_of(peer)).packed
    except ValueError:
        return _NO_ADDRESS


def _joined(chunks: Sequence[Chunk]) -> bytes:
    return b"".join(bytes(chunk) for chunk in chunks)  # type: ignore[arg-type]  # no file ranges
