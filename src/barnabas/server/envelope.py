"""A client's request on its way from its broker to the controller, in an Envelope (KIP-590).

Request and response travel with their headers as on any connection. The principal is Kafka's
default one: a version of two bytes, then DefaultPrincipalData.
"""

from __future__ import annotations

import ipaddress
import struct
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.protocol.codec import decode, encode_onto
from barnabas.protocol.headers import (
    decode_request_header,
    decode_response,
    encode_request,
    encode_response,
)
from barnabas.protocol.messages.envelope import EnvelopeRequest
from barnabas.protocol.protocol_error import ProtocolError
from barnabas.protocol.records.default_principal_data import DefaultPrincipalData
from barnabas.server.waiting_room import address_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.protocol.chunks import Chunk
    from barnabas.protocol.schema import Message
    from barnabas.server.request import RequestContext

_LENGTH_BYTES = 4
_PRINCIPAL_VERSION = struct.Struct(">h")
_USER = "User"
# For a peer whose address has no numbers.
_NO_ADDRESS = bytes(4)


class ForwardedHeader(NamedTuple):
    """What a request in an envelope says of itself."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    # Where the message begins.
    offset: int


def wrap_request(request: Message, version: int, asker: RequestContext) -> EnvelopeRequest:
    """Put a request of `asker` into an envelope, in a version that the controller has.

    Raises:
        ProtocolError: the message does not fit the version.
    """
    frame = encode_request(asker.correlation_id, asker.client_id, request, version)
    principal = DefaultPrincipalData(type=_USER, name=asker.user, token_authenticated=False)
    start = bytearray(_PRINCIPAL_VERSION.pack(0))
    return EnvelopeRequest(
        request_data=_joined(frame)[_LENGTH_BYTES:],
        request_principal=_joined(encode_onto(start, principal, 0)),
        client_host_address=_packed(asker.address),
    )


def unwrap_response(request: Message, version: int, data: bytes) -> Any:
    """The response that an envelope brought back.

    Raises:
        ProtocolError: bytes that are no such response.
    """
    return decode_response(type(request), version, data)[1]


def wrap_response(correlation_id: int, response: Message, version: int) -> bytes:
    """The bytes of a response as they travel in an envelope."""
    return _joined(encode_response(correlation_id, response, version))[_LENGTH_BYTES:]


def read_header(envelope: EnvelopeRequest) -> ForwardedHeader:
    """The header of the request in the envelope.

    Raises:
        ProtocolError: not a header.
    """
    return ForwardedHeader(*decode_request_header(envelope.request_data))


def read_principal(envelope: EnvelopeRequest) -> str:
    """The name of who asked.

    Raises:
        ProtocolError: there is none, or in another form than Kafka's default.
    """
    data = envelope.request_principal
    if data is None or len(data) < _PRINCIPAL_VERSION.size:
        raise ProtocolError("an envelope without a principal")
    (version,) = _PRINCIPAL_VERSION.unpack_from(data)
    principal = decode(DefaultPrincipalData, version, data, _PRINCIPAL_VERSION.size)
    return principal.name


def read_address(envelope: EnvelopeRequest) -> str:
    """The address of who asked.

    Raises:
        ProtocolError: neither an IPv4 nor an IPv6 address.
    """
    try:
        return str(ipaddress.ip_address(bytes(envelope.client_host_address)))
    except ValueError as error:
        raise ProtocolError(f"an envelope's client address: {error}") from error


def _packed(peer: str) -> bytes:
    try:
        return ipaddress.ip_address(address_of(peer)).packed
    except ValueError:
        return _NO_ADDRESS


def _joined(chunks: Sequence[Chunk]) -> bytes:
    return b"".join(bytes(chunk) for chunk in chunks)  # type: ignore[arg-type]
