"""Encode and decode any message at any of its versions.

Decoding raises only `ProtocolError`, whatever the bytes are. Its time and memory are linear in the
number of bytes.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, TypeVar

from barnabas.protocol.decoding import (
    Decoder,
    StepDecoder,
    compile_decoder,
    compile_step_decoder,
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
    return encode_with(encoder_of(type(message), version), start, message, version)


def encode_with(encoder: Encoder, start: bytearray, message: Message, version: int) -> list[Chunk]:
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
    encoder = _encoders.get((cls, version)) or encoder_of(cls, version)
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


def encoder_of(cls: type[Message], version: int) -> Encoder:
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
