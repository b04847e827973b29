"""Hostile bytes in a remote store are damage, and never another error."""

from __future__ import annotations

import json
from contextlib import suppress

import msgspec
from hypothesis import given, strategies as st

from barnabas.record.compiled import crc32c
from barnabas.storage.remote.remote_storage import RemoteDamagedError, SegmentFiles
from barnabas.storage.remote.segment_objects import (
    StoredSizes,
    decode_custom,
    decode_indexes,
    decode_manifest,
    decode_store,
    decode_topic,
    encode_custom,
    encode_indexes,
    encode_manifest,
    parse_segment_name,
    parse_topic_directory,
    segment_name,
)
from unit.storage.remote.stored_segments import segment_at

SIZES = StoredSizes(1000, 321, 7)
SEGMENT = segment_at()
NAME = segment_name(SEGMENT)
MANIFEST = msgspec.json.decode(encode_manifest(SEGMENT, SIZES, "cluster"))

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(st.binary(max_size=200))
def test_any_bytes_are_decoded_or_damaged(content: bytes) -> None:
    for decode in (decode_indexes, decode_manifest, decode_topic, decode_store):
        with suppress(RemoteDamagedError):
            decode(content, NAME)
    decode_custom(content)


@given(st.lists(st.integers(0, 2**32 - 1), min_size=5, max_size=5), st.binary(max_size=50))
def test_any_lengths_of_indexes_are_decoded_or_damaged(lengths: list[int], rest: bytes) -> None:
    content = b"BRI1" + b"".join(length.to_bytes(4) for length in lengths) + rest
    content += crc32c(content).to_bytes(4)
    try:
        found = decode_indexes(content, NAME)
    except RemoteDamagedError:
        assert sum(lengths) != len(rest)
    else:
        parts = [getattr(found, name) for name in found.__struct_fields__]
        assert [len(part) for part in parts] == lengths
        assert b"".join(parts) == rest


@given(st.dictionaries(st.sampled_from(sorted(MANIFEST)), values, min_size=1, max_size=3))
def test_any_field_of_a_manifest_is_decoded_or_damaged(fields: dict[str, object]) -> None:
    content = json.dumps(MANIFEST | fields).encode()
    with suppress(RemoteDamagedError):
        segment, _ = decode_manifest(content, NAME)
        assert segment_name(segment) == NAME
        assert segment.start_offset <= segment.end_offset


@given(*[st.binary(max_size=100)] * 5)
def test_indexes_come_back(
    offsets: bytes, times: bytes, aborted: bytes, producers: bytes, epochs: bytes
) -> None:
    files = SegmentFiles("/log", 1, offsets, times, aborted, producers, epochs)
    found = decode_indexes(encode_indexes(files), NAME)
    assert (found.offset_index, found.time_index) == (offsets, times)
    assert (found.transaction_index, found.producer_snapshot) == (aborted, producers)
    assert found.leader_epochs == epochs


@given(*[st.integers(0, 2**32 - 1)] * 3)
def test_custom_metadata_comes_back(log: int, indexes: int, checksum: int) -> None:
    sizes = StoredSizes(log, indexes, checksum)
    assert decode_custom(encode_custom(sizes)) == sizes


@given(
    st.from_regex(r"[a-zA-Z0-9._-]{1,249}", fullmatch=True),
    st.binary(min_size=16, max_size=16),
    st.integers(0, 2**31 - 1),
    st.integers(0, 2**63 - 1),
)
def test_names_are_parsed_again(topic: str, unique: bytes, partition: int, offset: int) -> None:
    segment = msgspec.structs.replace(
        SEGMENT, topic=topic, topic_id=unique, partition=partition, start_offset=offset, id=unique
    )
    name = segment_name(segment)
    found = parse_segment_name(name)
    assert found == (topic[:232], unique, partition, offset, unique)
    assert all(
        len(part) <= 255 - len(".indexes.tmp") or index == 0
        for index, part in enumerate(name.split("/"))
    )
    assert len(name.split("/", maxsplit=1)[0]) <= 255


@given(st.text(max_size=60))
def test_any_name_is_parsed_or_refused(name: str) -> None:
    parse_segment_name(name)
    found = parse_topic_directory(name)
    assert found is None or name.startswith(found[0])
