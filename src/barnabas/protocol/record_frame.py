"""The prefix of a record, which carries its type and version, and the classes of each type.

A metadata record (KIP-631) starts with three unsigned varints: frame version (always 1), record
type and version. So does a record in `__remote_log_metadata` (KIP-405). Keys and values in the logs
of coordinators start with a 16-bit number: the record type for a key, the version for a value.
"""

from __future__ import annotations

import importlib
import struct
from functools import cache
from typing import TypeVar, cast

from barnabas.protocol.codec import decode_from, encode_after
from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.primitives import read_unsigned_varint, unsigned_varint
from barnabas.protocol.record_table import RECORD_ROWS
from barnabas.protocol.schema import Record

R = TypeVar("R", bound=Record)

FRAME_VERSION = 1

_INT16 = struct.Struct(">h")


def encode_metadata_record(record: Record, version: int) -> bytes:
    """Return the encoded value of a record in the metadata log or in `__remote_log_metadata`."""
    prefix = map(unsigned_varint, (FRAME_VERSION, record.__record_type__, version))
    return encode_after(b"".join(prefix), record, version)


def decode_metadata_record(view: bytes | bytearray | memoryview) -> tuple[Record, int]:
    """Decode the value of a record in the metadata log: (record, its version).

    Raises:
        ProtocolError: The bytes are damaged, or the frame version, type or version is unknown.
    """
    return _decode_framed("metadata", view)


def decode_remote_log_record(view: bytes | bytearray | memoryview) -> Record:
    """Decode the value of a record in `__remote_log_metadata`, like `decode_metadata_record`."""
    record, _ = _decode_framed("storage", view)
    return record


def _decode_framed(family: str, view: bytes | bytearray | memoryview) -> tuple[Record, int]:
    record_type, version, offset = read_metadata_frame(view)
    classes = _classes(family, record_type)
    if not classes:
        raise ProtocolError(f"no {family} record has the type {record_type}")
    record, stop = decode_from(classes[0], version, view, offset)
    if stop != len(view):
        raise ProtocolError(f"{classes[0].__name__}: {len(view) - stop} bytes too many")
    return record, version


def read_metadata_frame(view: bytes | bytearray | memoryview) -> tuple[int, int, int]:
    """Read the prefix of a metadata record: (type, version, offset of the content)."""
    frame_version, offset = read_unsigned_varint(view, 0)
    if frame_version != FRAME_VERSION:
        raise ProtocolError(f"frame version {frame_version} of a metadata record is unknown")
    record_type, offset = read_unsigned_varint(view, offset)
    version, offset = read_unsigned_varint(view, offset)
    return record_type, version, offset


def encode_coordinator_key(key: Record) -> bytes:
    """Encode the key of a record in a coordinator's log.

    The key consists of its record type and its content, which always has version 0.
    """
    return encode_after(_INT16.pack(key.__record_type__), key, 0)


def encode_coordinator_value(value: Record, version: int) -> bytes:
    """Encode the value of a record in a coordinator's log: its version, then its content."""
    return encode_after(_INT16.pack(version), value, version)


def read_prefix(view: bytes | bytearray | memoryview) -> int:
    """Return the 16-bit number before a key (record type) or a value (version)."""
    if len(view) < 2:
        raise ProtocolError("a coordinator record is shorter than its prefix")
    number: int = _INT16.unpack_from(view)[0]
    return number


def decode_coordinator_key(cls: type[R], view: bytes | bytearray | memoryview) -> R:
    """Decode a key whose prefix is the record type of `cls`."""
    return _decode_after_prefix(cls, 0, view)


def decode_coordinator_value(cls: type[R], view: bytes | bytearray | memoryview) -> R:
    """Decode a value of the version in its prefix."""
    return _decode_after_prefix(cls, read_prefix(view), view)


def _decode_after_prefix(cls: type[R], version: int, view: bytes | bytearray | memoryview) -> R:
    record, _ = decode_from(cls, version, view, 2)
    return record


def metadata_record_class(record_type: int) -> type[Record] | None:
    """Return the class of a record in `__cluster_metadata`; None if the type is unknown."""
    classes = _classes("metadata", record_type)
    return classes[0] if classes else None


def group_record_classes(record_type: int) -> tuple[type[Record], type[Record]] | None:
    """Return the key and value class of a record in `__consumer_offsets`; None if unknown.

    The record type is the 16-bit number before the key. The values of each type have their own
    versions.
    """
    return _key_and_value("group-coordinator", record_type)


def transaction_record_classes(record_type: int) -> tuple[type[Record], type[Record]] | None:
    """Return the classes of a record in `__transaction_state`, like `group_record_classes`."""
    return _key_and_value("transaction-coordinator", record_type)


def share_record_classes(record_type: int) -> tuple[type[Record], type[Record]] | None:
    """Return the classes of a record in `__share_group_state`, like `group_record_classes`."""
    return _key_and_value("share-coordinator", record_type)


def _key_and_value(family: str, record_type: int) -> tuple[type[Record], type[Record]] | None:
    classes = _classes(family, record_type)
    return (classes[0], classes[1]) if classes else None


@cache
def _classes(family: str, record_type: int) -> tuple[type[Record], ...]:
    row = RECORD_ROWS[family].get(record_type)
    if row is None:
        return ()
    module_name, names = row
    module = importlib.import_module(f"barnabas.protocol.records.{module_name}")
    return tuple(cast("type[Record]", getattr(module, name)) for name in names)
