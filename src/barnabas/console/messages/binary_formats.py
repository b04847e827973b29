"""MessagePack and CBOR, which describe their own structure, as JSON.

Their sources: the specification of MessagePack, and RFC 8949 with the tags of the IANA registry.
A peer writes the bytes, so nothing in them may cost more than their size: each value takes at least
a byte. References within a CBOR value could make a small record endless, and regular expressions
could take forever: both are refused or shown as text.
"""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO
from typing import TYPE_CHECKING, Any

import msgspec

from barnabas.console.messages.decoded import (
    DEPTH_MAX,
    FULL_BYTES,
    Decoded,
    FormatError,
    decoded_value,
)

if TYPE_CHECKING:
    from collections.abc import Callable

MESSAGE_PACK = "MessagePack"
CBOR = "CBOR"

# First bytes of maps. Neither of them can begin a text, but for one of MessagePack.
_MESSAGE_PACK_MAPS = {*range(0x81, 0x90), 0xDE, 0xDF}
_CBOR_MAPS = {*range(0xA1, 0xBC), 0xBF}
_CBOR_MARK = b"\xd9\xd9\xf7"


def decode_message_pack(data: bytes, *, is_named_map: bool = False) -> Decoded:
    """Return a MessagePack value as JSON.

    Args:
        data: The bytes.
        is_named_map: Whether to accept only a map whose keys are texts.

    Raises:
        FormatError: The bytes do not have this format.
    """
    return _decoded(data, _read_message_pack, MESSAGE_PACK, is_named_map=is_named_map)


def decode_cbor(data: bytes, *, is_named_map: bool = False) -> Decoded:
    """Return a CBOR value as JSON.

    Args:
        data: The bytes.
        is_named_map: Whether to accept only a map whose keys are texts.

    Raises:
        FormatError: The bytes do not have this format, or the package `cbor2` is not installed.
    """
    return _decoded(data, _read_cbor, CBOR, is_named_map=is_named_map)


def guess_binary(data: bytes) -> Decoded | None:
    """Return bytes as JSON if they are exactly one map with names; None if they are anything else.

    Other values are too short to tell from bytes of another format.
    """
    if len(data) > FULL_BYTES:
        return None
    if data[0] in _MESSAGE_PACK_MAPS:
        decode = decode_message_pack
    elif data[0] in _CBOR_MAPS or data.startswith(_CBOR_MARK):
        decode = decode_cbor
    else:
        return None
    try:
        return decode(data, is_named_map=True)
    except FormatError:
        return None


def _decoded(
    data: bytes, read: Callable[[bytes], Any], name: str, *, is_named_map: bool
) -> Decoded:
    if len(data) > FULL_BYTES:
        raise FormatError(f"values above {FULL_BYTES // 1024} KiB are not decoded")
    try:
        value = read(data)
        if is_named_map and not _is_named_map(value):
            raise FormatError("not a map with names")
        return decoded_value(_as_json(value, DEPTH_MAX), data, name)
    except ModuleNotFoundError as error:
        raise FormatError(f"{name} needs the package {error.name}: barnabas[console]") from None
    except FormatError:
        raise
    except (ValueError, TypeError, RecursionError, OverflowError, ArithmeticError) as error:
        raise FormatError(f"not {name}: {error}") from None


def _read_message_pack(data: bytes) -> Any:
    try:
        return msgspec.msgpack.decode(data)
    except msgspec.DecodeError as error:
        raise FormatError(f"not {MESSAGE_PACK}: {error}") from None


def _read_cbor(data: bytes) -> Any:
    import cbor2

    stream = BytesIO(data)
    decoder = cbor2.CBORDecoder(stream, max_depth=DEPTH_MAX, semantic_decoders=_TAGS)
    try:
        value = decoder.decode()
    except cbor2.CBORError as error:
        raise FormatError(f"not {CBOR}: {error.__cause__ or error}") from None
    if stream.tell() != len(data):
        raise FormatError(f"not {CBOR}: {len(data) - stream.tell()} bytes too many")
    return value


def _refuse(_value: Any, _immutable: object) -> Any:
    raise FormatError("references within a CBOR value are not followed")


def _without_tag(value: Any, _immutable: object) -> Any:
    return value


# Tags of references (strings, shared values), and of values whose evaluation may be costly:
# decimals with large exponents, rational numbers, regular expressions and mails. The last tag only
# marks a value as CBOR.
_TAGS = {
    **dict.fromkeys((25, 256, 28, 29), _refuse),
    **dict.fromkeys((4, 5, 30, 35, 36, 55799), _without_tag),
}


def _is_named_map(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(name, str) and name.isprintable() for name in value
    )


def _as_json(value: Any, depth: int) -> Any:
    """Return a value with what JSON has: names are texts, and unknown types are texts."""
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return value
    if not depth:
        raise FormatError(f"the value is over {DEPTH_MAX} levels deep")
    if isinstance(value, Mapping):
        return {_name(name): _as_json(each, depth - 1) for name, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_as_json(each, depth - 1) for each in value]
    if isinstance(value, msgspec.msgpack.Ext):
        return {"extension": value.code, "data": bytes(value.data)}
    if hasattr(value, "tag") and hasattr(value, "value"):
        return {"tag": value.tag, "value": _as_json(value.value, depth - 1)}
    return str(value)


def _name(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    return value if isinstance(value, str) else str(value)
