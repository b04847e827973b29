"""Encode and decode any message at any of its versions, with headers and in frames.

Decoding raises only `ProtocolError`, whatever the bytes are. Its time and memory are linear in the
number of bytes.

A frame is a 4-byte length, a header and a message. Request header v0 has no client id and is only
used by ControlledShutdown v0. Header v1 adds the client id. Header v2, for flexible versions, adds
tagged fields but keeps the old length prefix of the client id. Response header v1 adds tagged
fields. An ApiVersions response always has header v0, because its reader does not know the broker's
versions yet (KIP-511).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, TypeVar

from barnabas.protocol.api_keys import ApiKey, response_class
from barnabas.protocol.api_table import API_ROWS
from barnabas.protocol.decoding import (
    Decoder,
    StepDecoder,
    compile_decoder,
    compile_step_decoder,
    skip_tags,
)
from barnabas.protocol.encoding import (
    Chunk,
    Encoder,
    StepEncoder,
    compile_encoder,
    compile_step_encoder,
)
from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.schema import Message

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    Writer = tuple[Callable[[int, int], bytes], Encoder]

M = TypeVar("M", bound=Message)
F = TypeVar("F")

_decoders: dict[tuple[type[Message], int], Decoder] = {}
_encoders: dict[tuple[type[Message], int], Encoder] = {}
_step_decoders: dict[tuple[type[Message], int], StepDecoder] = {}
_step_encoders: dict[tuple[type[Message], int], StepEncoder] = {}

# Errors that the generated code raises for short or invalid bytes; see decoding.py.
_DECODE_ERRORS = (struct.error, IndexError, UnicodeDecodeError)
_ENCODE_ERRORS = (struct.error, TypeError, AttributeError, UnicodeEncodeError)


def encode(message: Message, version: int) -> list[Chunk]:
    """Encode a message.

    Returns:
        Chunks, to be sent in this order. Records of at least 1 KiB, and records that are not bytes,
            become separate chunks and are not copied.

    Raises:
        ProtocolError: The message does not have this version, or the version cannot carry a value.
    """
    return encode_onto(bytearray(), message, version)


def encode_onto(start: bytearray, message: Message, version: int) -> list[Chunk]:
    """Encode a message after the bytes that `start` already contains.

    Returns:
        Chunks as from `encode`. The first chunk is `start`, which the caller may still modify.
    """
    return _encode_with(_encoder_of(type(message), version), start, message, version)


def _encode_with(encoder: Encoder, start: bytearray, message: Message, version: int) -> list[Chunk]:
    """Encode like `encode_onto`, with the encoder of the message's class and version."""
    chunks: list[Chunk] = []
    try:
        last = encoder(message, start, chunks)
    except _ENCODE_ERRORS as error:
        raise ProtocolError(f"{type(message).__name__} v{version}: {error}") from error
    if last or not chunks:
        chunks.append(last)
    return chunks


def encode_after(prefix: bytes, message: Message, version: int) -> bytes:
    """Return `prefix` and an encoded message, which contains no record batches.

    Raises:
        ProtocolError: As for `encode`.
    """
    cls = type(message)
    encoder = _encoders.get((cls, version)) or _encoder_of(cls, version)
    chunks: list[Chunk] = []
    try:
        encoded = encoder(message, bytearray(prefix), chunks)
    except _ENCODE_ERRORS as error:
        raise ProtocolError(f"{cls.__name__} v{version}: {error}") from error
    assert not chunks, f"{cls.__name__} v{version} contains record batches"
    return bytes(encoded)


def encode_bytes(message: Message, version: int) -> bytes:
    """Encode a message into one bytes object; file slices are read."""
    chunks = encode(message, version)
    return b"".join(
        chunk if isinstance(chunk, bytes | bytearray | memoryview) else chunk.read()
        for chunk in chunks
    )


def decode(cls: type[M], version: int, view: bytes | bytearray | memoryview, offset: int = 0) -> M:
    """Decode a message that starts at `offset`. Bytes after the message are ignored, as in Kafka.

    Records are views into `view`; every other value is a copy.

    Raises:
        ProtocolError: The message does not have this version, or the bytes are invalid.
    """
    return decode_from(cls, version, view, offset)[0]


def decode_from(
    cls: type[M], version: int, view: bytes | bytearray | memoryview, offset: int = 0
) -> tuple[M, int]:
    """Decode like `decode`. Return the message and the position after it."""
    decoder = _decoders.get((cls, version)) or _compiled(_decoders, compile_decoder, cls, version)
    if not isinstance(view, memoryview):
        view = memoryview(view)
    try:
        decoded: tuple[M, int] = decoder(view, offset, len(view))
    except _DECODE_ERRORS as error:
        raise ProtocolError(f"{cls.__name__} v{version}: {error}") from error
    return decoded


def decode_in_steps(
    cls: type[M], version: int, view: memoryview, offset: int = 0
) -> Generator[None, None, M]:
    """Decode like `decode`, as a generator that yields before each item of an array.

    The generator returns the message.

    Raises:
        ProtocolError: As for `decode`, or the arrays have more than `decoding.ITEMS_MAX` items.
    """
    decoder = _step_decoders.get((cls, version)) or _compiled(
        _step_decoders, compile_step_decoder, cls, version
    )
    try:
        decoded: tuple[M, int] = yield from decoder(view, offset, len(view))
    except _DECODE_ERRORS as error:
        raise ProtocolError(f"{cls.__name__} v{version}: {error}") from error
    return decoded[0]


def encode_in_steps(
    start: bytearray, message: Message, version: int
) -> Generator[None, None, list[Chunk]]:
    """Encode like `encode_onto`, as a generator that yields before each item of an array.

    Raises:
        ProtocolError: As for `encode`.
    """
    cls = type(message)
    encoder = _step_encoders.get((cls, version)) or _compiled(
        _step_encoders, compile_step_encoder, cls, version
    )
    chunks: list[Chunk] = []
    try:
        last = yield from encoder(message, start, chunks)
    except _ENCODE_ERRORS as error:
        raise ProtocolError(f"{cls.__name__} v{version}: {error}") from error
    if last or not chunks:
        chunks.append(last)
    return chunks


def compile_codecs(cls: type[Message], version: int) -> None:
    """Compile the functions of a message version now instead of at their first use."""
    _encoder_of(cls, version)
    if (cls, version) not in _decoders:
        _compiled(_decoders, compile_decoder, cls, version)


def _encoder_of(cls: type[Message], version: int) -> Encoder:
    """Return the function that encodes messages of this class and version; see encoding.py.

    Raises:
        ProtocolError: The message does not have this version.
    """
    encoder = _encoders.get((cls, version))
    return encoder or _compiled(_encoders, compile_encoder, cls, version)


def _compiled(
    functions: dict[tuple[type[Message], int], F],
    compile_one: Callable[[type[Message], int], F],
    cls: type[Message],
    version: int,
) -> F:
    """Compile and store the function of a message version.

    Raises:
        ProtocolError: The message does not have this version.
    """
    first, last = cls.__versions__
    if not first <= version <= last:
        raise ProtocolError(f"{cls.__name__} has versions {first}-{last}, not {version}")
    compiled = functions[cls, version] = compile_one(cls, version)
    return compiled


# Headers of requests and responses, and complete frames.

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
    return _with_length(start, _encode_with(encoder, start, message, version))


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
    writer = _writers[cls, version] = (start.pack, _encoder_of(cls, version))
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
