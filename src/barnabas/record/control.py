"""Control records, whose keys define the meaning of a control batch (KIP-98, KIP-595, KIP-853)."""

from __future__ import annotations

from enum import IntEnum
from struct import Struct, error
from typing import TYPE_CHECKING

from barnabas.record.errors import CorruptBatchError

if TYPE_CHECKING:
    from barnabas.record.batch import Buffer

_KEY = Struct(">hh")
_END_MARKER = Struct(">hi")
_KEY_VERSION = 0
_END_MARKER_VERSION = 0


class ControlType(IntEnum):
    """Type of a control record; records of other types are kept and ignored."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


def encode_control_key(control_type: ControlType) -> bytes:
    """Return the key of a control record."""
    return _KEY.pack(_KEY_VERSION, control_type)


def parse_control_key(key: Buffer | None) -> ControlType | None:
    """Return the type in a control record's key; None for an unknown type.

    Raises:
        CorruptBatchError: the key is missing or too short, or its version is negative.
    """
    try:
        version, number = _KEY.unpack_from(key or b"")
    except error:
        raise CorruptBatchError("control record has no key of four bytes") from None
    if version < 0:
        raise CorruptBatchError(f"control record key has version {version}")
    try:
        return ControlType(number)
    except ValueError:
        return None


def encode_end_marker(coordinator_epoch: int) -> bytes:
    """Return the value of a transaction's ABORT or COMMIT marker."""
    return _END_MARKER.pack(_END_MARKER_VERSION, coordinator_epoch)


def parse_end_marker(value: Buffer | None) -> int:
    """Return the coordinator epoch in the value of an ABORT or COMMIT marker.

    Raises:
        CorruptBatchError: the value is too short or has a negative version.
    """
    try:
        version, coordinator_epoch = _END_MARKER.unpack_from(value or b"")
    except error:
        raise CorruptBatchError("transaction marker has no value of six bytes") from None
    if version < 0:
        raise CorruptBatchError(f"transaction marker has version {version}")
    return int(coordinator_epoch)
