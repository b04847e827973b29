"""The layout of Apache Kafka's LocalTieredStorage, in a directory that both programs use in turn.

`DIR` is the key `dir` of Kafka's plug-in. The segments of a partition are in
`DIR/kafka-tiered-storage/TOPIC-PARTITION-TOPIC_ID`, with one file for each part:
`OFFSET-SEGMENT_ID` and a suffix. The transaction index is there only if the segment has aborted
transactions. There are no manifests and no descriptions of topics, so a listing takes what it can
from the names, the leader epochs and the last batches.

The custom metadata of our copies has their sizes and the checksum of their indexes. Kafka ignores
it, and has none for its own copies. Those are read without these checks.
"""

from __future__ import annotations

import logging
import re
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from barnabas.protocol.primitives import uuid_to_string
from barnabas.record.batch import HEADER_SIZE, read_header
from barnabas.record.compiled import crc32c
from barnabas.record.record import CorruptBatchError
from barnabas.storage.files.checkpoint import CheckpointError
from barnabas.storage.files.leader_epoch_cache import decode_epochs
from barnabas.storage.remote.directory_storage import DirectoryLayout, DirectoryObjects
from barnabas.storage.remote.object_storage import ObjectStorage, segments_in
from barnabas.storage.remote.remote_storage import (
    RemoteDamagedError,
    RemoteMissingError,
    RemoteSegment,
    SegmentIndexes,
    SegmentState,
    StoredSegment,
)
from barnabas.storage.remote.segment_objects import (
    INDEXES_BYTES_MAX,
    INT32_MAX,
    LOG_SUFFIX,
    MANIFEST_BYTES_MAX,
    STORE_FILE,
    StoredSizes,
    decode_custom,
    decode_store,
    encode_custom,
    parse_segment_file,
    segment_file,
    uuid_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.runtime.disk import Disk
    from barnabas.storage.remote.object_storage import SegmentParts
    from barnabas.storage.remote.remote_storage import SegmentFiles, TopicDescription

_log = logging.getLogger(__name__)

_ROOT = "kafka-tiered-storage"
_TRANSACTIONS = ".txnindex"
_EPOCHS = ".leader_epoch_checkpoint"
# In the order of the fields of `SegmentIndexes`.
_INDEX_SUFFIXES = (".index", ".timeindex", _TRANSACTIONS, ".snapshot", _EPOCHS)
_SUFFIXES = (LOG_SUFFIX, *_INDEX_SUFFIXES)
# Kafka leaves out the transaction index of a segment without aborted transactions.
_NEEDED = frozenset(_SUFFIXES) - {_TRANSACTIONS}
_LAST_SUFFIX = max(_SUFFIXES)
_PARTITION = re.compile(r"([a-zA-Z0-9._-]{1,249})-(0|[1-9][0-9]{0,9})-([A-Za-z0-9_-]{22})")
_OFFSET_ENTRY = Struct(">ii")
_TIME_ENTRY = Struct(">qi")


class _Name(NamedTuple):
    """The parts of the name of a segment's files."""

    topic: str
    topic_id: bytes
    partition: int
    start_offset: int
    segment_id: bytes


class LocalTieredStorage(ObjectStorage):
    """The store of a cluster in a directory of LocalTieredStorage."""

    def __init__(self, disk: Disk, directory: str, cluster_id: str) -> None:
        """Prepare the directory: create what is missing, and mark it as that of the cluster.

        Args:
            disk: the disk with the directory and with the local segments.
            directory: the key `dir` of Kafka's plug-in.
            cluster_id: the cluster. Its part of the directory is the whole of it.

        Raises:
            RemoteStorageError: the directory cannot be used.
        """
        layout = DirectoryLayout((_parse_root, _parse_partition), _SUFFIXES)
        super().__init__(DirectoryObjects(disk, directory, layout), cluster_id)
        self.check()

    def name_of(self, segment: RemoteSegment) -> str:
        """Return the name of the segment's files, without a suffix."""
        directory = f"{segment.topic}-{segment.partition}-{uuid_to_string(segment.topic_id)}"
        return f"{_ROOT}/{directory}/{segment_file(segment)}"

    def copy_segment(self, segment: RemoteSegment, files: SegmentFiles) -> bytes:
        """Store the log, then the other parts; return the custom metadata."""
        name = self.name_of(segment)
        indexes = (
            files.offset_index,
            files.time_index,
            files.transaction_index or b"",
            files.producer_snapshot,
            files.leader_epochs,
        )
        self.check()
        self._objects.put_file(name + LOG_SUFFIX, files.log_path, files.log_size)
        for suffix, content in zip(_INDEX_SUFFIXES, indexes, strict=True):
            if content or suffix in _NEEDED:
                self._objects.put(name + suffix, content)
                self._confirm(name + suffix, len(content))
        self._confirm(name + LOG_SUFFIX, files.log_size)
        return encode_custom(_sizes_of(files.log_size, indexes))

    def read_indexes(self, segment: RemoteSegment) -> SegmentIndexes:
        """Return all indexes of the segment, with their checksum verified if it is known."""
        name = self.name_of(segment)
        indexes = [self._index(name + suffix) for suffix in _INDEX_SUFFIXES]
        stored = decode_custom(segment.custom)
        if stored is not None and _sizes_of(stored.log_size, indexes) != stored:
            raise RemoteDamagedError(
                f"{self._objects.place(name)}: sizes or checksum of the indexes are wrong"
            )
        return SegmentIndexes(*indexes)

    def _size_of(self, segment: RemoteSegment) -> int | None:
        name = self.name_of(segment)
        sizes = {suffix: self._objects.size(name + suffix) for suffix in _SUFFIXES}
        stored = decode_custom(segment.custom)
        indexes_size = sum(sizes[suffix] or 0 for suffix in _INDEX_SUFFIXES)
        is_whole = stored is None or indexes_size == stored.indexes_size
        if not is_whole or any(sizes[suffix] is None for suffix in _NEEDED):
            return None
        return sizes[LOG_SUFFIX]

    def delete_segment(self, segment: RemoteSegment) -> None:
        """Delete all parts, and what an interrupted copy has left."""
        name = self.name_of(segment)
        self.check()
        self._objects.delete([name + suffix for suffix in reversed(_SUFFIXES)])

    def list_segments(self, topic: str | None, after: str = "") -> Iterator[StoredSegment]:
        """Yield the segments whose log is there, in the order of their names.

        The broker that copied a segment is not known, and the time of the event is that of the
        file. A damaged segment is logged and left out.
        """
        last = after + _LAST_SUFFIX if after else ""
        for parts in segments_in(self._objects.list(_ROOT, last), _SUFFIXES, _parse_name):
            name = _parse_name(parts.name)
            assert name is not None
            if LOG_SUFFIX in parts.objects and topic in (None, name.topic):
                found = self._listed(name, parts)
                if found is not None:
                    yield found

    def write_topic(self, topic: TopicDescription) -> None:
        """Do nothing: the layout has no place for descriptions of topics."""

    def delete_topic(self, topic: str, topic_id: bytes) -> None:
        """Do nothing: the layout has no place for descriptions of topics."""

    def list_topics(self) -> Iterator[TopicDescription]:
        """Yield nothing: the layout has no place for descriptions of topics."""
        return iter(())

    def _index(self, name: str) -> bytes:
        """Return the content of an index; empty for a missing transaction index.

        A segment that Kafka 3.9 or older has copied is said to have aborted transactions even
        without them, so a missing index cannot be told from a lost one.
        """
        try:
            content = bytes(self._get(name, 0, INDEXES_BYTES_MAX + 1))
        except RemoteMissingError:
            if name.endswith(_TRANSACTIONS):
                return b""
            raise
        if len(content) > INDEXES_BYTES_MAX:
            place = self._objects.place(name)
            raise RemoteDamagedError(f"{place}: the file has more than {INDEXES_BYTES_MAX} bytes")
        return content

    def _listed(self, name: _Name, parts: SegmentParts) -> StoredSegment | None:
        """Return the segment of files in a listing; None if it is damaged or deleted."""
        try:
            segment = self._described(name, parts)
        except RemoteMissingError:
            # A part was deleted meanwhile, or the copy has not ended.
            return None
        except (RemoteDamagedError, CorruptBatchError, CheckpointError) as error:
            place = self._objects.place(parts.name)
            _log.warning("Stored segment is damaged: segment=%s error=%s", place, error)
            return None
        return StoredSegment(parts.name, segment, parts.objects.keys() >= _NEEDED)

    def _described(self, name: _Name, parts: SegmentParts) -> RemoteSegment:
        """Return the segment of files in a listing.

        Raises:
            RemoteStorageError: a file is missing, or ends inside of a batch.
            CorruptBatchError: the log has something else than batches.
            CheckpointError: the leader epochs are damaged.
        """
        log = parts.objects[LOG_SUFFIX]
        end_offset, max_timestamp = self._last_batch(name, parts)
        epochs = decode_epochs(self._index(parts.name + _EPOCHS))
        # Of the log's epochs, those of the segment.
        first = sum(1 for each in epochs if each.start_offset <= name.start_offset) - 1
        within = [each for each in epochs[max(first, 0) :] if each.start_offset <= end_offset]
        if first < 0 or not within:
            raise CheckpointError(f"offset {name.start_offset} has no leader epoch")
        transactions = parts.objects.get(_TRANSACTIONS)
        return RemoteSegment(
            topic=name.topic,
            topic_id=name.topic_id,
            partition=name.partition,
            id=name.segment_id,
            start_offset=name.start_offset,
            end_offset=end_offset,
            size=log.size,
            max_timestamp=max_timestamp,
            leader_epochs=tuple(
                (each.epoch, max(each.start_offset, name.start_offset)) for each in within
            ),
            has_transactions=transactions is not None and transactions.size > 0,
            broker_id=-1,
            event_ms=log.modified_ms,
            state=SegmentState.COPY_SEGMENT_FINISHED,
        )

    def _last_batch(self, name: _Name, parts: SegmentParts) -> tuple[int, int]:
        """Return the last offset and the largest timestamp of a segment in a listing.

        The indexes tell them up to their last entries, the headers of batches from there on.
        """
        log = parts.objects[LOG_SUFFIX]
        position = self._last_entry(parts, ".index", _OFFSET_ENTRY)[1]
        timestamp = self._last_entry(parts, ".timeindex", _TIME_ENTRY)[0]
        next_offset = name.start_offset
        while position < log.size:
            content = self._get(log.name, position, position + HEADER_SIZE)
            header = read_header(content)
            position += header.size
            if header.base_offset < next_offset or position > log.size:
                raise RemoteDamagedError(f"the log does not end with a whole batch: {header}")
            next_offset = header.next_offset
            timestamp = max(timestamp, header.max_timestamp)
        if next_offset == name.start_offset:
            raise RemoteDamagedError("the log has no batch")
        return next_offset - 1, timestamp

    def _last_entry(self, parts: SegmentParts, suffix: str, entry: Struct) -> tuple[int, int]:
        """Return the last entry of an index, with numbers of at least 0; zeros if it is empty."""
        found = parts.objects.get(suffix)
        if found is None or found.size < entry.size:
            return 0, 0
        start = (found.size // entry.size - 1) * entry.size
        content = self._get(found.name, start, start + entry.size)
        if len(content) < entry.size:
            raise RemoteDamagedError(f"{found.name} ends at {start + len(content)}")
        first, second = entry.unpack(content)
        return max(first, 0), max(second, 0)


def clusters_in_layout(disk: Disk, directory: str) -> list[str]:
    """Return the id of the cluster that has marked a directory; empty if none has.

    Raises:
        RemoteStorageError: the directory cannot be read, or the mark does not decode.
    """
    objects = DirectoryObjects(disk, directory)
    if objects.size(STORE_FILE) is None:
        return []
    content = bytes(objects.get(STORE_FILE, 0, MANIFEST_BYTES_MAX + 1))
    return [decode_store(content, objects.place(STORE_FILE))]


def _sizes_of(log_size: int, indexes: list[bytes] | tuple[bytes, ...]) -> StoredSizes:
    content = b"".join(indexes)
    return StoredSizes(log_size, len(content), crc32c(content))


def _parse_root(name: str) -> str | None:
    return name if name == _ROOT else None


def _parse_partition(name: str) -> tuple[str, int, bytes] | None:
    match = _PARTITION.fullmatch(name)
    if match is None or int(match[2]) >= INT32_MAX:
        return None
    topic_id = uuid_of(match[3])
    return None if topic_id is None else (match[1], int(match[2]), topic_id)


def _parse_name(name: str) -> _Name | None:
    parts = name.split("/")
    if len(parts) != 3 or parts[0] != _ROOT:
        return None
    partition, segment = _parse_partition(parts[1]), parse_segment_file(parts[2])
    if partition is None or segment is None:
        return None
    topic, index, topic_id = partition
    return _Name(topic, topic_id, index, *segment)
