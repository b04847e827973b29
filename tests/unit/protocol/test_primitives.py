"""Varints and uuids."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.primitives import (
    read_unsigned_varint,
    read_varint,
    unsigned_varint,
    uuid_from_string,
    uuid_to_string,
    varint,
)


@given(st.integers(0, 2**32 - 1))
def test_unsigned_varints_round_trip(value: int) -> None:
    written = unsigned_varint(value)
    assert read_unsigned_varint(b"." + written + b".", 1) == (value, 1 + len(written))


@given(st.integers(-(2**31), 2**31 - 1))
def test_varints_round_trip(value: int) -> None:
    assert read_varint(varint(value), 0) == (value, len(varint(value)))


def test_known_varints() -> None:
    assert unsigned_varint(300) == b"\xac\x02"
    assert varint(-1) == b"\x01"
    assert varint(1) == b"\x02"


@pytest.mark.parametrize("data", [b"", b"\x80", b"\x80" * 6, b"\xff\xff\xff\xff\x10"])
def test_truncated_and_overlong_varints_are_errors(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        read_unsigned_varint(data, 0)


@given(st.binary(min_size=16, max_size=16))
def test_uuids_round_trip(uuid: bytes) -> None:
    text = uuid_to_string(uuid)
    assert len(text) == 22
    assert uuid_from_string(text) == uuid


def test_known_uuids() -> None:
    assert uuid_to_string(bytes(16)) == "AAAAAAAAAAAAAAAAAAAAAA"
    assert uuid_to_string(bytes(15) + b"\x01") == "AAAAAAAAAAAAAAAAAAAAAQ"


@pytest.mark.parametrize("text", ["", "abc", "A" * 23, "A" * 21 + "é", "!" * 22])
def test_a_malformed_uuid_is_an_error(text: str) -> None:
    with pytest.raises(ProtocolError):
        uuid_from_string(text)
