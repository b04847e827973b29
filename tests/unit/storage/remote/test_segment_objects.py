"""Names and contents of objects: what is written is read again, and everything else is refused."""

from __future__ import annotations

import json
import struct

import msgspec
import pytest

from barnabas.record.compiled import crc32c
from barnabas.storage.remote.remote_storage import (
    CUSTOM_METADATA_MAX,
    RemoteDamagedError,
    SegmentIndexes,
    SegmentState,
    TopicDescription,
)
from barnabas.storage.remote.segment_objects import (
    EPOCHS_MAX,
    MANIFEST_BYTES_MAX,
    StoredSizes,
    decode_custom,
    decode_indexes,
    decode_manifest,
    decode_store,
    decode_topic,
    encode_custom,
    encode_indexes,
    encode_manifest,
    encode_store,
    encode_topic,
    parse_partition_directory,
    parse_segment_name,
    parse_topic_directory,
    segment_name,
    stored_segment,
    topic_directory,
)
from unit.storage.remote.stored_segments import TOPIC_ID, files_of, finished, segment_at

SIZES = StoredSizes(1000, 321, 0xDEADBEEF)
NAME = "orders-AAECAwQFBgcICQoLDA0ODw/3/00000000000000000100-AAAAAAAAAGQAAAAAAAAAAw"


def test_names_have_topic_partition_offset_and_ids() -> None:
    assert segment_name(segment_at()) == NAME
    assert topic_directory("orders", TOPIC_ID) == "orders-AAECAwQFBgcICQoLDA0ODw"
    assert parse_segment_name(NAME) == ("orders", TOPIC_ID, 3, 100, segment_at().id)


def test_a_topic_name_may_look_like_a_directory() -> None:
    name = topic_directory("a-AAECAwQFBgcICQoLDA0ODw", TOPIC_ID)
    assert parse_topic_directory(name) == ("a-AAECAwQFBgcICQoLDA0ODw", TOPIC_ID)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "topic.json",
        "lost+found",
        "-AAECAwQFBgcICQoLDA0ODw",
        "orders_AAECAwQFBgcICQoLDA0ODw",
        "orders-AAECAwQFBgcICQoLDA0OD",
        # The last character has bits that no uuid has.
        "orders-AAECAwQFBgcICQoLDA0ODx",
        "or ders-AAECAwQFBgcICQoLDA0ODw",
        "t" * 233 + "-AAECAwQFBgcICQoLDA0ODw",
    ],
)
def test_other_directories_are_not_those_of_topics(name: str) -> None:
    assert parse_topic_directory(name) is None


@pytest.mark.parametrize("name", ["", "-1", "01", "2147483647", "1 ", "٣", "1e3"])
def test_other_directories_are_not_those_of_partitions(name: str) -> None:
    assert parse_partition_directory(name) is None


@pytest.mark.parametrize(
    "name",
    [
        NAME + "/x",
        NAME + "x",
        NAME[:-1],
        NAME.replace("/3/", "/03/"),
        NAME.replace("/00000", "/0000"),
        NAME.replace("/0000000000000000010", "/9999999999999999999"),
        "../" + NAME,
    ],
)
def test_other_names_are_not_those_of_segments(name: str) -> None:
    assert parse_segment_name(name) is None


def test_indexes_come_back_as_they_were() -> None:
    files = msgspec.structs.replace(
        files_of(segment_at(), "/log"), transaction_index=b"aborted", time_index=b""
    )
    assert decode_indexes(encode_indexes(files), "x") == SegmentIndexes(
        files.offset_index, b"", b"aborted", files.producer_snapshot, files.leader_epochs
    )


def test_indexes_have_a_fixed_layout() -> None:
    files = files_of(segment_at(), "/log")
    content = encode_indexes(files)
    assert content[:4] == b"BRI1"
    assert struct.unpack(">5I", content[4:24]) == (11, 9, 0, 13, 16)
    assert content[24:35] == files.offset_index
    assert struct.unpack(">I", content[-4:]) == (crc32c(content[:-4]),)


def test_every_flipped_bit_of_indexes_is_found() -> None:
    content = encode_indexes(files_of(segment_at(), "/log"))
    for bit in range(len(content) * 8):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(RemoteDamagedError):
            decode_indexes(bytes(damaged), "x")


def test_lengths_that_promise_too_much_are_found_before_anything_is_read() -> None:
    head = struct.pack(">4s5I", b"BRI1", *[0xFFFFFFFF] * 5)
    content = head + struct.pack(">I", crc32c(head))
    with pytest.raises(RemoteDamagedError, match="28 bytes instead of"):
        decode_indexes(content, "x")


def test_custom_metadata_has_17_bytes() -> None:
    custom = encode_custom(SIZES)
    assert custom.hex() == "01000003e800000141deadbeef00000000"
    assert len(custom) == 17 < CUSTOM_METADATA_MAX
    assert decode_custom(custom) == SIZES


@pytest.mark.parametrize("custom", [None, b"", b"\x01", b"\x02" + bytes(16), b"\x01" + bytes(17)])
def test_custom_metadata_of_other_stores_is_unknown(custom: bytes | None) -> None:
    assert decode_custom(custom) is None


def test_a_manifest_has_the_whole_segment() -> None:
    segment = segment_at()
    content = encode_manifest(segment, SIZES, "cluster")
    found, sizes = decode_manifest(content, NAME)
    assert found == finished(segment, encode_custom(SIZES))
    assert found.state == SegmentState.COPY_SEGMENT_FINISHED
    assert sizes == SIZES


def test_a_manifest_is_readable_by_other_programs() -> None:
    found = msgspec.json.decode(encode_manifest(segment_at(), SIZES, "cluster"))
    assert found["format"] == 1
    assert found["cluster_id"] == "cluster"
    assert found["topic_id"] == "AAECAwQFBgcICQoLDA0ODw"
    assert found["leader_epochs"] == [[4, 100], [7, 120]]
    assert found["has_fewer_epochs"] is False


def test_the_manifest_of_a_segment_with_many_epochs_keeps_the_last_ones() -> None:
    first = 2**31 - 1 - 5000
    base = 2**63 - 1 - 5000
    epochs = tuple((first + n, base + n) for n in range(4000))
    segment = msgspec.structs.replace(
        segment_at(), topic="t" * 249, leader_epochs=epochs, end_offset=2**63 - 2
    )
    content = encode_manifest(segment, SIZES, "c" * 256)
    assert len(content) <= MANIFEST_BYTES_MAX
    found, _ = decode_manifest(content, segment_name(segment))
    assert found.leader_epochs == epochs[-EPOCHS_MAX:]


def changed_manifest(**fields: object) -> bytes:
    found = msgspec.json.decode(encode_manifest(segment_at(), SIZES, "cluster"))
    # Not msgspec, which encodes no numbers above 64 bits.
    return json.dumps(found | fields).encode()


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"format": 2}, "later version"),
        ({"format": "1"}, "format"),
        ({"topic": "../../etc"}, "topic"),
        ({"topic": "payments"}, "payments"),
        ({"topic_id": "AAECAwQFBgcICQoLDA0ODQ"}, "manifest is that of|not a uuid"),
        ({"partition": -1}, "partition"),
        ({"partition": 4}, "/4/"),
        ({"segment_id": "AAAAAAAAAGQAAAAAAAAABA"}, "manifest is that of"),
        ({"start_offset": 99}, "manifest is that of"),
        ({"start_offset": 10**30}, "start_offset"),
        ({"end_offset": 99}, "ends at offset 99"),
        ({"end_offset": 2**63 - 1}, "end_offset"),
        ({"size": 0}, "size"),
        ({"size": 2**31}, "size"),
        ({"size": 10.5}, "size"),
        ({"leader_epochs": []}, "leader_epochs"),
        ({"leader_epochs": [[4, 100], [4, 120]]}, "does not follow"),
        ({"leader_epochs": [[4, 100], [5, 100]]}, "does not follow"),
        ({"leader_epochs": [[4, 200]]}, "after the segment's end"),
        ({"leader_epochs": [[4, 100, 3]]}, "leader_epochs"),
        ({"leader_epochs": [[n, n] for n in range(EPOCHS_MAX + 1)]}, "leader_epochs"),
        ({"indexes_crc32c": 2**32}, "indexes_crc32c"),
        ({"max_timestamp": None}, "max_timestamp"),
    ],
)
def test_hostile_manifests_are_refused(fields: dict[str, object], problem: str) -> None:
    with pytest.raises(RemoteDamagedError, match=problem):
        decode_manifest(changed_manifest(**fields), NAME)


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"null", b"\xff\xfe", b"[" * 50_000, b'{"format":1}', b"{}", b'{"format":1', b'"'],
)
def test_other_contents_are_no_manifests(content: bytes) -> None:
    with pytest.raises(RemoteDamagedError, match=r"\.json"):
        decode_manifest(content, NAME)


def test_a_large_manifest_is_not_decoded() -> None:
    content = changed_manifest() + b" " * MANIFEST_BYTES_MAX
    with pytest.raises(RemoteDamagedError, match="more than 65536"):
        decode_manifest(content, NAME)


def test_fields_of_later_versions_are_ignored() -> None:
    found, _ = decode_manifest(changed_manifest(colour="red"), NAME)
    assert found.start_offset == 100


@pytest.mark.parametrize(
    ("log_size", "indexes_size", "is_whole"),
    [(1000, 321, True), (999, 321, False), (1000, 320, False), (None, 321, False)],
)
def test_a_stored_segment_is_whole_with_the_sizes_of_its_manifest(
    log_size: int | None, indexes_size: int, is_whole: bool
) -> None:
    manifest = encode_manifest(segment_at(), SIZES, "cluster")
    assert stored_segment(NAME, manifest, log_size, indexes_size).is_whole is is_whole


def test_a_topic_comes_back_as_it_was() -> None:
    topic = TopicDescription("orders", TOPIC_ID, 6, 3, {"retention.ms": "-1", "x": "é"})
    directory = topic_directory("orders", TOPIC_ID)
    assert decode_topic(encode_topic(topic), directory) == topic
    with pytest.raises(RemoteDamagedError, match="topic 'orders'"):
        decode_topic(encode_topic(topic), topic_directory("other", TOPIC_ID))
    with pytest.raises(RemoteDamagedError):
        decode_topic(b'{"format":1,"name":"orders"}', directory)


def test_a_store_is_marked_with_its_cluster() -> None:
    assert decode_store(encode_store("cluster"), "x") == "cluster"
    with pytest.raises(RemoteDamagedError):
        decode_store(b"", "x")
