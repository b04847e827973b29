"""Request and response headers, and complete frames around messages.

A frame is a 4-byte length, a header and a message. Request header v0 has no client id and is only
used by ControlledShutdown v0. Header v1 adds the client id. Header v2, for flexible versions, adds
tagged fields but keeps the old length prefix of the client id. Response header v1 adds tagged
fields. An ApiVersions response always has header v0, because its reader does not know the broker's
versions yet (KIP-511).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from barnabas.protocol.api_keys import ApiKey, response_class
from barnabas.protocol.api_table import API_ROWS
from barnabas.protocol.codec import (
    decode,
    encode_in_steps,
    encode_onto,
    encode_with,
    encoder_of,
)
from barnabas.protocol.decoding import skip_tags
from barnabas.protocol.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from barnabas.protocol.encoding import Chunk, Encoder
    from barnabas.protocol.schema import Message

    Writer = tuple[Callable[[int, int], bytes], Encoder]

FRAME_BYTES_MAX = 0x7FFFFFFF

_FIXED = struct.Struct(">hhi")
_FIXED_AND_LENGTH = struct.Struct(">hhih")
_unpack_fixed_and_length = _FIXED_AND_LENGTH.unpack_from
_CORRELATION_ID = struct.Struct(">i")
# Length and correlation id; in flexible versions also an empty set of tagged fields.
_RESPONSE_STARTS = (struct.Struct(">ii"), struct.Struct(">iix"))
_LENGTH = struct.Struct(">i")
_pack_length = _LENGTH.pack_into
_unpack_length = _LENGTH.unpack_from

_CONTROLLED_SHUTDOWN = int(ApiKey.CONTROLLED_SHUTDOWN)
_API_VERSIONS = int(ApiKey.API_VERSIONS)
_NEVER_FLEXIBLE = 0x8000

# API key -> first flexible version. A plain dict, because every request looks it up.
_FLEXIBLE_FROM = {
    key: _NEVER_FLEXIBLE if row.flexible_from is None else row.flexible_from
    for key, row in API_ROWS.items()
}


# Response class and version -> functions that write the header and the body of the frame.
_writers: dict[tuple[type[Message], int], Writer] = {}


def request_header_version(api_key: int, version: int) -> int:
    """Return the request header version: 0, 1 or 2. An unknown API has version 1."""
    if version >= _FLEXIBLE_FROM.get(api_key, _NEVER_FLEXIBLE):
        return 2
    return 0 if api_key == _CONTROLLED_SHUTDOWN and version == 0 else 1


def response_header_version(api_key: int, version: int) -> int:
    """Return the response header version: 0 or 1."""
    if api_key == _API_VERSIONS:
        return 0
    return 1 if version >= _FLEXIBLE_FROM.get(api_key, _NEVER_FLEXIBLE) else 0


def decode_request_header(
    view: bytes | bytearray | memoryview,
) -> tuple[int, int, int, str | None, int]:
    """Read the header of a request frame (without its length prefix).

    API key and version are not checked, because an ApiVersions request gets a response even in an
    unknown version.

    Returns:
        (api_key, api_version, correlation_id, client_id, offset of the message)

    Raises:
        ProtocolError: The bytes are not a valid header.
    """
    try:
        api_key, version, correlation_id, length = _unpack_fixed_and_length(view)
        if api_key == _CONTROLLED_SHUTDOWN and version == 0:
            # There is no client id: the bytes read as its length belong to the message.
            return api_key, version, correlation_id, None, _FIXED.size
        offset = 10
        client_id = None
        if length >= 0:
            offset += length
            # The client id is only displayed and counted, so another encoding is accepted.
            client_id = str(view[10:offset], "utf-8", "replace")
        if version >= _FLEXIBLE_FROM.get(api_key, _NEVER_FLEXIBLE):
            tags = view[offset]
            offset += 1
            if tags:
                offset = skip_tags(view, offset, len(view), tags, None)
    except (struct.error, IndexError) as error:
        raise ProtocolError(f"request header: {error}") from error
    if offset > len(view):
        raise ProtocolError("request header: the client id is truncated")
    return api_key, version, correlation_id, client_id, offset


def encode_request_header(
    api_key: int, version: int, correlation_id: int, client_id: str | None
) -> bytes:
    """Return the encoded header of a request."""
    header_version = request_header_version(api_key, version)
    if header_version == 0:
        return _FIXED.pack(api_key, version, correlation_id)
    try:
        name = b"" if client_id is None else client_id.encode()
        length = -1 if client_id is None else len(name)
        start = _FIXED_AND_LENGTH.pack(api_key, version, correlation_id, length)
    except (struct.error, UnicodeEncodeError) as error:
        raise ProtocolError(f"request header: {error}") from error
    return start + name + (b"\x00" if header_version == 2 else b"")


def encode_request(
    correlation_id: int, client_id: str | None, message: Message, version: int
) -> list[Chunk]:
    """Return a complete request frame: length, header and message."""
    start = bytearray(4)
    start += encode_request_header(message.__api_key__, version, correlation_id, client_id)
    return _with_length(start, encode_onto(start, message, version))


def encode_response(correlation_id: int, message: Message, version: int) -> list[Chunk]:
    """Return a complete response frame: length, header and message."""
    cls = type(message)
    pack_start, encoder = _writers.get((cls, version)) or _writer(cls, version)
    start = bytearray(pack_start(0, correlation_id))
    return _with_length(start, encode_with(encoder, start, message, version))


def encode_response_in_steps(
    correlation_id: int, message: Message, version: int
) -> Generator[None, None, list[Chunk]]:
    """Encode like `encode_response`, as a generator that yields before each array item."""
    header = _RESPONSE_STARTS[response_header_version(message.__api_key__, version)]
    start = bytearray(header.pack(0, correlation_id))
    chunks = yield from encode_in_steps(start, message, version)
    return _with_length(start, chunks)


def _writer(cls: type[Message], version: int) -> Writer:
    """Return the functions that write the header and the body of a response frame."""
    start = _RESPONSE_STARTS[response_header_version(cls.__api_key__, version)]
    writer = _writers[cls, version] = (start.pack, encoder_of(cls, version))
    return writer


def decode_response_header(
    api_key: int, version: int, view: bytes | bytearray | memoryview
) -> tuple[int, int]:
    """Read the header of a response frame (without its length prefix).

    Returns:
        (correlation id, offset of the message)
    """
    try:
        (correlation_id,) = _CORRELATION_ID.unpack_from(view)
        offset = 4
        if response_header_version(api_key, version):
            tags = view[4]
            offset = skip_tags(view, 5, len(view), tags, None) if tags else 5
    except (struct.error, IndexError) as error:
        raise ProtocolError(f"response header: {error}") from error
    return correlation_id, offset


def decode_response(
    request_cls: type[Message], version: int, view: bytes | bytearray | memoryview
) -> tuple[int, Message]:
    """Read a response frame (without its length prefix) for a request of this class and version."""
    api_key = request_cls.__api_key__
    correlation_id, offset = decode_response_header(api_key, version, view)
    return correlation_id, decode(response_class(api_key), version, view, offset)


def peek_correlation_id(view: bytes | bytearray | memoryview) -> int:
    """Return the correlation id of a response frame, which identifies its request."""
    if len(view) < 4:
        raise ProtocolError("response header: fewer than 4 bytes")
    correlation_id: int = _CORRELATION_ID.unpack_from(view)[0]
    return correlation_id


def frame_bytes(chunks: list[Chunk]) -> int:
    """Return the size of a frame, from its length prefix.

    A sum of the lengths would cost more, if there are slices of files.
    """
    length: int
    (length,) = _unpack_length(chunks[0])  # type: ignore[arg-type]  # a frame begins in memory
    return 4 + length


def _with_length(start: bytearray, chunks: list[Chunk]) -> list[Chunk]:
    length = sum(map(len, chunks)) - 4
    if length > FRAME_BYTES_MAX:
        raise ProtocolError(f"a frame of {length} bytes is too long")
    _pack_length(start, 0, length)
    return chunks
