"""Control record keys and transaction markers."""

from __future__ import annotations

import pytest
from aiokafka.record.control_record import ABORT_MARKER, COMMIT_MARKER, ControlRecord

from barnabas.record.batch import (
    ControlType,
    encode_control_key,
    encode_end_marker,
    parse_control_key,
    parse_end_marker,
)
from barnabas.record.record import CorruptBatchError


def test_every_control_type_is_decoded_again() -> None:
    for control_type in ControlType:
        assert parse_control_key(encode_control_key(control_type)) is control_type


def test_encoded_markers_are_recognized_by_consumers() -> None:
    assert ControlRecord.parse(encode_control_key(ControlType.ABORT)) == ABORT_MARKER
    assert ControlRecord.parse(encode_control_key(ControlType.COMMIT)) == COMMIT_MARKER


def test_an_unknown_control_type_is_none() -> None:
    assert parse_control_key(b"\x00\x00\x00\x63") is None


@pytest.mark.parametrize("key", [None, b"", b"\x00\x00\x00", b"\xff\xff\x00\x00"])
def test_a_malformed_key_is_corrupt(key: bytes | None) -> None:
    with pytest.raises(CorruptBatchError):
        parse_control_key(key)


def test_the_coordinator_epoch_is_decoded_again() -> None:
    assert parse_end_marker(encode_end_marker(12)) == 12
    for value in (None, b"", b"\xff\xff\x00\x00\x00\x00"):
        with pytest.raises(CorruptBatchError):
            parse_end_marker(value)
