"""A store of segments over named objects: the files of a directory, or the objects of a bucket.

What differs between the places is in `RemoteObjects`. The order of calls is here: the manifest
follows the other parts, and is deleted before them. So a manifest always stands for a whole
segment.

`store.json` marks the store of a cluster. A place that has lost its mark is not the store: perhaps
its file system is not mounted, or another bucket has the name. All calls then fail as if the store
did not answer. Otherwise an empty place would look like a store that has lost all segments, and
brokers would drop them.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple, Protocol

from barnabas.record.compiled import crc32c
from barnabas.storage.remote.remote_storage import (
    RemoteDamagedError,
    RemoteMissingError,
    RemoteRefusedError,
    RemoteUnavailableError,
)
from barnabas.storage.remote.segment_objects import (
    INDEXES_BYTES_MAX,
    INDEXES_SUFFIX,
    LOG_SUFFIX,
    MANIFEST_BYTES_MAX,
    MANIFEST_SUFFIX,
    STORE_FILE,
    SUFFIXES,
    TOPIC_BYTES_MAX,
    TOPIC_FILE,
    decode_custom,
    decode_indexes,
    decode_store,
    decode_topic,
    encode_custom,
    encode_indexes,
    encode_manifest,
    encode_store,
    encode_topic,
    parse_segment_name,
    parse_topic_directory,
    segment_name,
    shortened_topic,
    sizes_of,
    stored_segment,
    topic_directory,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from barnabas.storage.remote.remote_storage import (
        RemoteSegment,
        SegmentFiles,
        SegmentIndexes,
        StoredObject,
        StoredSegment,
        TopicDescription,
    )

_log = logging.getLogger(__name__)

# The suffix of a segment whose object comes last in a listing.
_LAST_SUFFIX = max(SUFFIXES)


class RemoteObjects(Protocol):
    """The objects of one cluster. Each call raises `RemoteStorageError` and nothing else.

    A name stands for a whole object, or for none. Names are below the root of the cluster.
    """

    # What an operator can do when the place has lost its mark.
    advice: str

    def place(self, name: str) -> str:
        """Return the full name of an object for messages."""

    def put_file(self, name: str, local_path: str, size: int) -> None:
        """Store the first `size` bytes of a local file."""

    def put(self, name: str, content: bytes) -> None:
        """Store an object durably. An older one is replaced."""

    def get(self, name: str, start: int, end: int) -> memoryview:
        """Return the bytes [start, end) of an object, or fewer if it ends before."""

    def size(self, name: str) -> int | None:
        """Return the size of an object; None if it is missing."""

    def delete(self, names: Sequence[str]) -> None:
        """Delete objects of one directory durably. Missing ones are no error."""

    def list(self, directory: str, after: str) -> Iterator[StoredObject]:
        """Yield the objects below a directory in the order of their names, after a name."""

    def directories(self) -> Sequence[str]:
        """Return the names of the directories of topics."""

    def close(self) -> None:
        """Close connections."""


def always() -> bool:
    """Return True: a missing mark may be created."""
    return True


class ObjectStorage:
    """The store of one cluster. The calls are those of `RemoteStorage`."""

    def __init__(
        self, objects: RemoteObjects, cluster_id: str, is_new: Callable[[], bool] = always
    ) -> None:
        """Use the objects of a cluster. Nothing is read or written.

        Args:
            objects: where they are.
            cluster_id: the cluster.
            is_new: returns whether the cluster may have no mark yet, so that a missing one is
                created. It is called on the threads of the calls.
        """
        self._objects = objects
        self._cluster_id = cluster_id
        self._is_new = is_new
        # Whether the mark was seen, or created, since the start.
        self._is_marked = False

    def check(self) -> None:
        """Check that this is the store of the cluster. In a new store, the mark is created.

        Raises:
            RemoteUnavailableError: the store has lost its mark, or does not answer.
            RemoteRefusedError: it is the store of another cluster.
            RemoteDamagedError: the mark does not decode.
        """
        if not self._is_marked:
            self._mark()
        elif self._objects.size(STORE_FILE) is None:
            raise self._unmarked()

    def open(self) -> None:
        """Check the mark, unless it is missing and may not be created."""
        if self._is_new() or self._objects.size(STORE_FILE) is not None:
            self.check()

    def name_of(self, segment: RemoteSegment) -> str:
        """Return the name of the segment's objects, without a suffix."""
        return segment_name(segment)

    def copy_segment(self, segment: RemoteSegment, files: SegmentFiles) -> bytes:
        """Store log, indexes and manifest, in this order; return the custom metadata."""
        name = self.name_of(segment)
        indexes = encode_indexes(files)
        sizes = sizes_of(files, indexes)
        self.check()
        self._objects.put_file(name + LOG_SUFFIX, files.log_path, files.log_size)
        self._objects.put(name + INDEXES_SUFFIX, indexes)
        self._confirm(name + LOG_SUFFIX, sizes.log_size)
        self._confirm(name + INDEXES_SUFFIX, sizes.indexes_size)
        manifest = encode_manifest(segment, sizes, self._cluster_id)
        self._objects.put(name + MANIFEST_SUFFIX, manifest)
        return encode_custom(sizes)

    def read(self, segment: RemoteSegment, start: int, end: int) -> memoryview:
        """Return exactly the bytes [start, end) of the segment's log."""
        name = self.name_of(segment) + LOG_SUFFIX
        content = self._get(name, start, end)
        if len(content) != end - start:
            raise RemoteDamagedError(
                f"{self._objects.place(name)}: the object ends at {start + len(content)}, before"
                f" byte {end}"
            )
        return content

    def read_indexes(self, segment: RemoteSegment) -> SegmentIndexes:
        """Return all indexes of the segment, with their checksum verified."""
        name = self.name_of(segment) + INDEXES_SUFFIX
        place = self._objects.place(name)
        stored = decode_custom(segment.custom)
        expected = (self._objects.size(name) or 0) if stored is None else stored.indexes_size
        # One byte more than allowed shows that the object is too long.
        content = bytes(self._get(name, 0, min(expected, INDEXES_BYTES_MAX) + 1))
        if stored is not None and len(content) != expected:
            raise RemoteDamagedError(f"{place}: the object does not have {expected} bytes")
        if stored is not None and crc32c(content) != stored.indexes_crc:
            # Those of another segment have a checksum that is right in itself.
            raise RemoteDamagedError(f"{place}: the object is not the one that was stored")
        return decode_indexes(content, place)

    def size_of(self, segment: RemoteSegment) -> int | None:
        """Return the stored size of the log; None if a part is missing or incomplete."""
        found = self._size_of(segment)
        if found is None:
            # A file system may have been mounted between the look and the check. So the store has
            # to be there before a second look and after it.
            self.check()
            found = self._size_of(segment)
            self.check()
        return found

    def _size_of(self, segment: RemoteSegment) -> int | None:
        name = self.name_of(segment)
        log_size, indexes_size, manifest_size = (
            self._objects.size(name + suffix) for suffix in SUFFIXES
        )
        stored = decode_custom(segment.custom)
        if stored is not None and indexes_size != stored.indexes_size:
            indexes_size = None
        return None if None in (log_size, indexes_size, manifest_size) else log_size

    def delete_segment(self, segment: RemoteSegment) -> None:
        """Delete the manifest, then the other parts, and what an interrupted copy has left."""
        name = self.name_of(segment)
        self.check()
        self._objects.delete([name + MANIFEST_SUFFIX])
        self._objects.delete([name + LOG_SUFFIX, name + INDEXES_SUFFIX])

    def list_segments(self, topic: str | None, after: str = "") -> Iterator[StoredSegment]:
        """Yield the segments that have a manifest, in the order of their names.

        A damaged manifest is logged, and its segment is left out.
        """
        last = after + _LAST_SUFFIX if after else ""
        for directory in self._topic_directories(topic, after):
            listed = self._objects.list(directory, last)
            for parts in segments_in(listed, SUFFIXES, parse_segment_name):
                found = self._stored_segment(parts)
                if found is not None and topic in (None, found.segment.topic):
                    yield found

    def list_objects(self, after: str = "") -> Iterator[StoredObject]:
        """Yield all objects of the cluster in the order of their names, also incomplete ones."""
        return self._objects.list("", after)

    def delete_objects(self, names: Sequence[str]) -> None:
        """Delete objects by the names that `list_objects` gave. Missing ones are no error."""
        self.check()
        by_directory: dict[str, list[str]] = {}
        for name in names:
            by_directory.setdefault(name.rpartition("/")[0], []).append(name)
        for each in by_directory.values():
            self._objects.delete(each)

    def write_topic(self, topic: TopicDescription) -> None:
        """Store the description of a topic; an older one is replaced."""
        self.check()
        directory = topic_directory(topic.name, topic.topic_id)
        self._objects.put(f"{directory}/{TOPIC_FILE}", encode_topic(topic))

    def delete_topic(self, topic: str, topic_id: bytes) -> None:
        """Delete the description of a topic. A missing one is no error."""
        self.check()
        self._objects.delete([f"{topic_directory(topic, topic_id)}/{TOPIC_FILE}"])

    def list_topics(self) -> Iterator[TopicDescription]:
        """Yield the descriptions of all topics; a damaged one is logged and left out."""
        for directory in self._topic_directories(None, ""):
            try:
                content = self._get(f"{directory}/{TOPIC_FILE}", 0, TOPIC_BYTES_MAX + 1)
                found = decode_topic(bytes(content), directory)
            except RemoteMissingError:
                continue
            except RemoteDamagedError as error:
                _log.warning("Description of a stored topic is damaged: %s", error)
                continue
            yield found

    def close(self) -> None:
        """Close connections. Calls in progress may fail."""
        self._objects.close()

    def _mark(self) -> None:
        """Check the mark, or create it if this is a new store."""
        place = self._objects.place(STORE_FILE)
        if self._objects.size(STORE_FILE) is None:
            if not self._is_new():
                raise self._unmarked()
            self._objects.put(STORE_FILE, encode_store(self._cluster_id))
            _log.info("Remote store created: mark=%s", place)
        else:
            content = bytes(self._objects.get(STORE_FILE, 0, MANIFEST_BYTES_MAX + 1))
            owner = decode_store(content, place)
            if owner != self._cluster_id:
                raise RemoteRefusedError(
                    f"{place} marks the store of cluster {owner}, and not of {self._cluster_id}:"
                    " give each cluster a directory of its own"
                )
        self._is_marked = True

    def _unmarked(self) -> RemoteUnavailableError:
        place = self._objects.place(STORE_FILE)
        return RemoteUnavailableError(
            f"{place} is missing: {self._objects.advice}. If the store is new, or was emptied on"
            f" purpose: barnabas remote format URL --cluster {self._cluster_id}"
        )

    def _confirm(self, name: str, size: int) -> None:
        """Check that an object that was just stored is there."""
        found = self._objects.size(name)
        if found != size:
            words = "is missing" if found is None else f"has {found} bytes"
            raise RemoteUnavailableError(
                f"{self._objects.place(name)} {words} after the store has confirmed {size} bytes:"
                " check the store"
            )

    def _get(self, name: str, start: int, end: int) -> memoryview:
        try:
            return self._objects.get(name, start, end)
        except RemoteMissingError:
            self.check()
            raise

    def _topic_directories(self, topic: str | None, after: str) -> Iterator[str]:
        for directory in names_in_order(self._objects.directories(), "", after):
            found = parse_topic_directory(directory)
            if found is not None and (topic is None or found[0] == shortened_topic(topic)):
                yield directory

    def _stored_segment(self, parts: SegmentParts) -> StoredSegment | None:
        """Return the segment of objects; None if it is damaged, or has no manifest."""
        name, objects = parts
        if MANIFEST_SUFFIX not in objects:
            return None
        sizes = {suffix: each.size for suffix, each in objects.items()}
        try:
            manifest = bytes(self._get(name + MANIFEST_SUFFIX, 0, MANIFEST_BYTES_MAX + 1))
            return stored_segment(name, manifest, sizes.get(LOG_SUFFIX), sizes.get(INDEXES_SUFFIX))
        except RemoteMissingError:
            # The segment was deleted meanwhile.
            return None
        except RemoteDamagedError as error:
            _log.warning("Manifest of a stored segment is damaged: %s", error)
            return None


class SegmentParts(NamedTuple):
    """The objects of one segment in a listing."""

    # Without a suffix.
    name: str
    # By suffix.
    objects: dict[str, StoredObject]


def segments_in(
    objects: Iterator[StoredObject],
    suffixes: Sequence[str],
    parse_name: Callable[[str], object | None],
) -> Iterator[SegmentParts]:
    """Yield the segments of which objects are in a listing.

    Args:
        objects: in the order of their names.
        suffixes: of the objects of a segment.
        parse_name: returns None for names that are not those of a segment.
    """
    current = SegmentParts("", {})
    for each in objects:
        name, dot, suffix = each.name.rpartition(".")
        suffix = dot + suffix
        if suffix not in suffixes or parse_name(name) is None:
            continue
        if name != current.name:
            if current.objects:
                yield current
            current = SegmentParts(name, {})
        current.objects[suffix] = each
    if current.objects:
        yield current


def names_in_order(names: Sequence[str], prefix: str, after: str) -> list[str]:
    """Return the names of directories in the order of the objects in them.

    Args:
        names: of the directories.
        prefix: the path before these names.
        after: directories whose objects all come before this name are left out.
    """
    # "a/b" comes after "a-b/c", although "a" comes before "a-b".
    found = sorted(names, key=lambda name: name + "/")
    return [
        name
        for name in found
        if f"{prefix}{name}/" >= after or after.startswith(f"{prefix}{name}/")
    ]
