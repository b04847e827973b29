"""Names and contents of the objects in a remote store. This file does no I/O.

A segment has three objects, whose names differ in the suffix:

- `.log`: the segment's log file, unchanged.
- `.indexes`: its offset, time and transaction index, the producer snapshot and the leader epochs.
  One request reads all of them. The layout is: magic `BRI1`, five lengths, the five parts, and the
  CRC-32C of everything before. Numbers are big endian.
- `.json`: the manifest, which is written last. A broker does not need it, because the metadata
  topic has the same facts. It is for listing, verifying and restoring without a cluster.

Each topic has `topic.json`, so that it can be created again, and the store has `store.json`.
Contents from a store are not trusted: everything that does not decode is `RemoteDamagedError`.
"""

from __future__ import annotations

import re
import struct
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec

from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.primitives import uuid_from_string, uuid_to_string
from barnabas.record.compiled import crc32c
from barnabas.storage.remote.remote_storage import (
    OFFSET_MAX,
    RemoteDamagedError,
    RemoteSegment,
    SegmentFiles,
    SegmentIndexes,
    SegmentState,
    StoredSegment,
    TopicDescription,
)
from barnabas.version import __version__

LOG_SUFFIX = ".log"
INDEXES_SUFFIX = ".indexes"
MANIFEST_SUFFIX = ".json"
# In the order in which they are written. They are deleted in the opposite order.
SUFFIXES = (LOG_SUFFIX, INDEXES_SUFFIX, MANIFEST_SUFFIX)
TOPIC_FILE = "topic.json"
STORE_FILE = "store.json"

# Larger objects are not decoded.
MANIFEST_BYTES_MAX = 64 << 10
TOPIC_BYTES_MAX = 4 << 20
INDEXES_BYTES_MAX = 256 << 20
# A manifest keeps so many of a segment's leader epochs, so that it stays below its limit.
# `.indexes` has all of them.
EPOCHS_MAX = 1_800
# Limits of Kafka: `segmentSizeInBytes` is an int32, and so are epochs and partitions.
INT32_MAX = (1 << 31) - 1
_INT64_MAX = (1 << 63) - 1

_FORMAT = 1
# A directory name has 255 bytes at most, and a topic name alone may have 249.
_TOPIC_LENGTH_MAX = 232
_UUID_LENGTH = 22
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,232}")
_PARTITION = re.compile(r"0|[1-9][0-9]{0,9}")
_SEGMENT = re.compile(r"([0-9]{20})-([A-Za-z0-9_-]{22})")

T = TypeVar("T")


class SegmentName(NamedTuple):
    """The parts of the name of a segment's objects."""

    # The beginning of a long topic name.
    topic: str
    topic_id: bytes
    partition: int
    start_offset: int
    segment_id: bytes


def shortened_topic(topic: str) -> str:
    """Return the part of a topic name that is in the names of objects."""
    return topic[:_TOPIC_LENGTH_MAX]


def topic_directory(topic: str, topic_id: bytes) -> str:
    """Return the first part of the names of a topic's objects."""
    return f"{shortened_topic(topic)}-{uuid_to_string(topic_id)}"


def segment_name(segment: RemoteSegment) -> str:
    """Return the name of a segment's objects, without a suffix and below the root of the store."""
    directory = topic_directory(segment.topic, segment.topic_id)
    return f"{directory}/{segment.partition}/{segment_file(segment)}"


def segment_file(segment: RemoteSegment) -> str:
    """Return the last part of the names of a segment's objects, without a suffix."""
    return f"{segment.start_offset:020d}-{uuid_to_string(segment.id)}"


def parse_topic_directory(name: str) -> tuple[str, bytes] | None:
    """Return the topic, shortened, and the topic id; None if a directory has another name."""
    topic, dash, text = name[: -_UUID_LENGTH - 1], name[-_UUID_LENGTH - 1 :][:1], name[-22:]
    topic_id = uuid_of(text)
    if dash != "-" or topic_id is None or not _TOPIC.fullmatch(topic):
        return None
    return topic, topic_id


def parse_partition_directory(name: str) -> int | None:
    """Return the partition; None if a directory has another name."""
    # The number of partitions is an int32 too.
    if not _PARTITION.fullmatch(name) or int(name) >= INT32_MAX:
        return None
    return int(name)


def parse_segment_name(name: str) -> SegmentName | None:
    """Return the parts of a name that `segment_name` made; None for all others."""
    parts = name.split("/")
    if len(parts) != 3:
        return None
    topic = parse_topic_directory(parts[0])
    partition = parse_partition_directory(parts[1])
    segment = parse_segment_file(parts[2])
    if topic is None or partition is None or segment is None:
        return None
    return SegmentName(*topic, partition, *segment)


def parse_segment_file(name: str) -> tuple[int, bytes] | None:
    """Return start offset and segment id of a name that `segment_file` made; None for others."""
    match = _SEGMENT.fullmatch(name)
    if match is None:
        return None
    start_offset, segment_id = int(match[1]), uuid_of(match[2])
    if segment_id is None or start_offset > OFFSET_MAX:
        return None
    return start_offset, segment_id


def uuid_of(text: str) -> bytes | None:
    """Return the bytes of a UUID; None if the text is not the one that stands for them."""
    try:
        found = uuid_from_string(text)
    except ProtocolError:
        return None
    # Several texts decode to the same bytes.
    return found if uuid_to_string(found) == text else None


# --- .indexes

_MAGIC = b"BRI1"
_HEAD = struct.Struct(">4s5I")
_CRC = struct.Struct(">I")


def encode_indexes(files: SegmentFiles) -> bytes:
    """Return the content of the `.indexes` object. A missing transaction index becomes empty."""
    parts = (
        files.offset_index,
        files.time_index,
        files.transaction_index or b"",
        files.producer_snapshot,
        files.leader_epochs,
    )
    content = b"".join((_HEAD.pack(_MAGIC, *map(len, parts)), *parts))
    return content + _CRC.pack(crc32c(content))


def decode_indexes(content: bytes, name: str) -> SegmentIndexes:
    """Return the parts of an `.indexes` object.

    Args:
        content: the whole object.
        name: the object's name for the error.

    Raises:
        RemoteDamagedError: a length, the magic or the checksum is wrong.
    """
    size = len(content)
    if size > INDEXES_BYTES_MAX:
        raise RemoteDamagedError(f"{name}: {size} bytes are more than {INDEXES_BYTES_MAX}")
    if size < _HEAD.size + _CRC.size:
        raise RemoteDamagedError(f"{name}: {size} bytes are too few for indexes")
    magic, *lengths = _HEAD.unpack_from(content)
    if magic != _MAGIC:
        raise RemoteDamagedError(f"{name}: the object does not begin with {_MAGIC!r}")
    expected = _HEAD.size + sum(lengths) + _CRC.size
    if size != expected:
        raise RemoteDamagedError(f"{name}: the object has {size} bytes instead of {expected}")
    if crc32c(memoryview(content)[: -_CRC.size]) != _CRC.unpack_from(content, size - _CRC.size)[0]:
        raise RemoteDamagedError(f"{name}: the checksum is wrong")
    parts, position = [], _HEAD.size
    for length in lengths:
        parts.append(content[position : position + length])
        position += length
    return SegmentIndexes(*parts)


# --- custom metadata

_CUSTOM = struct.Struct(">BIIII")
_CUSTOM_VERSION = 1


class StoredSizes(NamedTuple):
    """Sizes and checksum of a stored segment, which the store returns as custom metadata."""

    log_size: int
    indexes_size: int
    indexes_crc: int


def encode_custom(sizes: StoredSizes) -> bytes:
    """Return the custom metadata: version, sizes, checksum, and four bytes of zeros as reserve."""
    return _CUSTOM.pack(_CUSTOM_VERSION, *sizes, 0)


def decode_custom(custom: bytes | None) -> StoredSizes | None:
    """Return the sizes; None if the metadata is missing or comes from another store."""
    if custom is None or len(custom) != _CUSTOM.size or custom[0] != _CUSTOM_VERSION:
        return None
    _, log_size, indexes_size, indexes_crc, _ = _CUSTOM.unpack(custom)
    return StoredSizes(log_size, indexes_size, indexes_crc)


def sizes_of(files: SegmentFiles, indexes: bytes) -> StoredSizes:
    """Return sizes and checksum of what is stored: the log, and the encoded indexes."""
    return StoredSizes(files.log_size, len(indexes), crc32c(indexes))


# --- manifest

_Int32 = Annotated[int, msgspec.Meta(ge=0, le=INT32_MAX)]
_Offset = Annotated[int, msgspec.Meta(ge=0, le=OFFSET_MAX)]
_Uint32 = Annotated[int, msgspec.Meta(ge=0, le=(1 << 32) - 1)]
_Timestamp = Annotated[int, msgspec.Meta(ge=-1, le=_INT64_MAX)]
_Uuid = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_-]{22}$")]
_TopicName = Annotated[str, msgspec.Meta(pattern=r"^[a-zA-Z0-9._-]{1,249}$")]
_Text = Annotated[str, msgspec.Meta(max_length=256)]


class _Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The manifest as JSON. Later formats may add fields; readers ignore unknown fields."""

    format: Annotated[int, msgspec.Meta(ge=1, le=INT32_MAX)]
    cluster_id: _Text
    software_version: _Text
    topic: _TopicName
    topic_id: _Uuid
    partition: _Int32
    segment_id: _Uuid
    start_offset: _Offset
    end_offset: _Offset
    size: Annotated[int, msgspec.Meta(ge=1, le=INT32_MAX)]
    max_timestamp: _Timestamp
    leader_epochs: Annotated[
        list[tuple[_Int32, _Offset]], msgspec.Meta(min_length=1, max_length=EPOCHS_MAX)
    ]
    # Whether earlier leader epochs of the segment were left out.
    has_fewer_epochs: bool
    has_transactions: bool
    broker_id: Annotated[int, msgspec.Meta(ge=-1, le=INT32_MAX)]
    event_ms: _Timestamp
    indexes_size: _Uint32
    indexes_crc32c: _Uint32


class _Format(msgspec.Struct):
    """The field that all documents have."""

    format: int


def encode_manifest(segment: RemoteSegment, sizes: StoredSizes, cluster_id: str) -> bytes:
    """Return the manifest of a segment.

    Args:
        segment: the segment; its state is not stored, because a manifest exists for whole ones.
        sizes: of the stored objects.
        cluster_id: the cluster that writes it.
    """
    epochs = list(segment.leader_epochs[-EPOCHS_MAX:])
    manifest = _Manifest(
        format=_FORMAT,
        cluster_id=cluster_id,
        software_version=__version__,
        topic=segment.topic,
        topic_id=uuid_to_string(segment.topic_id),
        partition=segment.partition,
        segment_id=uuid_to_string(segment.id),
        start_offset=segment.start_offset,
        end_offset=segment.end_offset,
        size=sizes.log_size,
        max_timestamp=segment.max_timestamp,
        leader_epochs=epochs,
        has_fewer_epochs=len(epochs) < len(segment.leader_epochs),
        has_transactions=segment.has_transactions,
        broker_id=segment.broker_id,
        event_ms=segment.event_ms,
        indexes_size=sizes.indexes_size,
        indexes_crc32c=sizes.indexes_crc,
    )
    content = msgspec.json.encode(manifest)
    assert len(content) <= MANIFEST_BYTES_MAX, len(content)
    return content


def decode_manifest(content: bytes, name: str) -> tuple[RemoteSegment, StoredSizes]:
    """Return the segment of a manifest, and the sizes of its objects.

    Args:
        content: the whole object.
        name: the name of the segment's objects without a suffix, which must agree.

    Raises:
        RemoteDamagedError: the content is no manifest, or that of another segment.
    """
    path = name + MANIFEST_SUFFIX
    manifest = _decode(content, _Manifest, path, MANIFEST_BYTES_MAX)
    sizes = StoredSizes(manifest.size, manifest.indexes_size, manifest.indexes_crc32c)
    try:
        segment = _segment_of(manifest, sizes)
    except ProtocolError as error:
        raise RemoteDamagedError(f"{path}: {error}") from error
    problem = _problem_of(segment)
    if problem is None and segment_name(segment) != name:
        problem = f"the manifest is that of {segment_name(segment)}"
    if problem is not None:
        raise RemoteDamagedError(f"{path}: {problem}")
    return segment, sizes


def stored_segment(
    name: str, manifest: bytes, log_size: int | None, indexes_size: int | None
) -> StoredSegment:
    """Return a segment that was found in a store.

    Args:
        name: the name of its objects without a suffix.
        manifest: the content of its manifest.
        log_size: the size of its log in the store; None if it is missing.
        indexes_size: the size of its indexes in the store; None if they are missing.

    Raises:
        RemoteDamagedError: the content is no manifest, or that of another segment.
    """
    segment, sizes = decode_manifest(manifest, name)
    is_whole = log_size == sizes.log_size and indexes_size == sizes.indexes_size
    return StoredSegment(name, segment, is_whole)


def _segment_of(manifest: _Manifest, sizes: StoredSizes) -> RemoteSegment:
    return RemoteSegment(
        topic=manifest.topic,
        topic_id=uuid_from_string(manifest.topic_id),
        partition=manifest.partition,
        id=uuid_from_string(manifest.segment_id),
        start_offset=manifest.start_offset,
        end_offset=manifest.end_offset,
        size=manifest.size,
        max_timestamp=manifest.max_timestamp,
        leader_epochs=tuple(manifest.leader_epochs),
        has_transactions=manifest.has_transactions,
        broker_id=manifest.broker_id,
        event_ms=manifest.event_ms,
        state=SegmentState.COPY_SEGMENT_FINISHED,
        custom=encode_custom(sizes),
    )


def _problem_of(segment: RemoteSegment) -> str | None:
    start, end = segment.start_offset, segment.end_offset
    if end < start:
        return f"the segment ends at offset {end}, before its start {start}"
    last = (-1, -1)
    for entry in segment.leader_epochs:
        if entry[0] <= last[0] or entry[1] <= last[1]:
            return f"leader epoch {entry} does not follow {last}"
        last = entry
    if last[1] > end:
        return f"leader epoch {last} begins after the segment's end {end}"
    return None


# --- topics and the store


class _Topic(msgspec.Struct, frozen=True, kw_only=True):
    """The description of a topic as JSON."""

    format: Annotated[int, msgspec.Meta(ge=1, le=INT32_MAX)]
    name: _TopicName
    topic_id: _Uuid
    partitions: Annotated[int, msgspec.Meta(ge=1, le=INT32_MAX)]
    replication_factor: Annotated[int, msgspec.Meta(ge=1, le=32_767)]
    configs: dict[str, str]


class _Store(msgspec.Struct, frozen=True, kw_only=True):
    """The mark of a store as JSON."""

    format: Annotated[int, msgspec.Meta(ge=1, le=INT32_MAX)]
    cluster_id: _Text


def encode_topic(topic: TopicDescription) -> bytes:
    """Return the content of `topic.json`."""
    return msgspec.json.format(
        msgspec.json.encode(
            _Topic(
                format=_FORMAT,
                name=topic.name,
                topic_id=uuid_to_string(topic.topic_id),
                partitions=topic.partitions,
                replication_factor=topic.replication_factor,
                configs=topic.configs,
            )
        )
    )


def decode_topic(content: bytes, directory: str) -> TopicDescription:
    """Return the description of a topic.

    Args:
        content: the whole object.
        directory: the directory of the object, which must agree.

    Raises:
        RemoteDamagedError: the content is no description, or that of another topic.
    """
    path = f"{directory}/{TOPIC_FILE}"
    found = _decode(content, _Topic, path, TOPIC_BYTES_MAX)
    topic_id = uuid_of(found.topic_id)
    if topic_id is None or topic_directory(found.name, topic_id) != directory:
        raise RemoteDamagedError(f"{path}: the description is that of topic {found.name!r}")
    return TopicDescription(
        found.name, topic_id, found.partitions, found.replication_factor, found.configs
    )


def encode_store(cluster_id: str) -> bytes:
    """Return the content of `store.json`, which marks the root of a store."""
    return msgspec.json.encode(_Store(format=_FORMAT, cluster_id=cluster_id))


def decode_store(content: bytes, path: str) -> str:
    """Return the cluster id of a store.

    Raises:
        RemoteDamagedError: the content is no mark of a store.
    """
    return _decode(content, _Store, path, MANIFEST_BYTES_MAX).cluster_id


def _decode(content: bytes, kind: type[T], path: str, bytes_max: int) -> T:
    if len(content) > bytes_max:
        raise RemoteDamagedError(f"{path}: {len(content)} bytes are more than {bytes_max}")
    try:
        found: Any = msgspec.json.decode(content, type=_Format)
        if found.format > _FORMAT:
            raise RemoteDamagedError(
                f"{path}: format {found.format} was written by a later version; use that version"
            )
        return msgspec.json.decode(content, type=kind)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise RemoteDamagedError(f"{path}: {error}") from error
