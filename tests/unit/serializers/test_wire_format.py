"""Magic byte, schema id and message indexes."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from barnabas.serializers import WireFormatError
from barnabas.serializers.schema import decode_indexes, encode_header, encode_indexes, schema_id_of

INDEXES = st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=64)


@given(st.integers(0, 2**31 - 1), st.binary(max_size=20))
def test_a_schema_id_comes_back(schema_id: int, payload: bytes) -> None:
    assert schema_id_of(encode_header(schema_id) + payload) == schema_id


@given(INDEXES, st.binary(max_size=20))
def test_message_indexes_come_back_and_end_before_the_payload(
    indexes: list[int], payload: bytes
) -> None:
    data = encode_indexes(indexes)
    assert decode_indexes(b"?" + data + payload, 1) == (tuple(indexes), len(data) + 1)


@pytest.mark.parametrize(
    ("indexes", "data"), [((0,), b"\0"), ((1,), b"\x02\x02"), ((1, 0), b"\x04\x02\x00")]
)
def test_message_indexes_are_those_of_the_specification(
    indexes: tuple[int, ...], data: bytes
) -> None:
    assert encode_indexes(indexes) == data


@pytest.mark.parametrize("data", [b"", b"\0\0\0\1", b"\1\0\0\0\1x", b"{}plain", b"\0\xff\0\0\0"])
def test_bytes_without_a_schema_id_are_refused(data: bytes) -> None:
    with pytest.raises(WireFormatError, match="serializer of a schema registry"):
        schema_id_of(data)


@given(st.binary(max_size=30))
def test_any_bytes_are_message_indexes_or_an_error(data: bytes) -> None:
    try:
        indexes, position = decode_indexes(data, 0)
    except WireFormatError:
        return
    assert position <= len(data)
    assert 1 <= len(indexes) <= 64


@pytest.mark.parametrize("data", [b"\x80" * 11, b"\xfe\x7f", b"\x01", b"\x02\x01"])
def test_message_indexes_without_a_limit_or_below_zero_are_refused(data: bytes) -> None:
    with pytest.raises(WireFormatError):
        decode_indexes(data, 0)
