"""`barnabas remote verify`: compare the objects of a store with the segments that exist.

Both are read in the order of their names, so the memory does not grow with their number. The
segments come from the metadata of a cluster, or else from the manifests in the store.

Brokers go on meanwhile. The metadata is read first, then the objects are listed, then the events
since the first read: a finding about a segment with such an event is dropped. An object never
exists before the first event of its segment, so each orphan is one.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from barnabas.cli.common.printable import printable
from barnabas.cli.remote.cluster_segments import partition_key
from barnabas.cli.remote.segment_contents import check_contents
from barnabas.cli.remote.spooled_items import SpooledItems
from barnabas.cli.remote.stores import objects_of
from barnabas.runtime.executor import results_of
from barnabas.storage.remote.coverage import Coverage
from barnabas.storage.remote.remote_storage import (
    RemoteDamagedError,
    RemoteMissingError,
    RemoteSegment,
    SegmentState,
    StoredObject,
)
from barnabas.storage.remote.segment_objects import (
    INDEXES_SUFFIX,
    LOG_SUFFIX,
    MANIFEST_SUFFIX,
    STORE_FILE,
    SUFFIXES,
    TOPIC_FILE,
    decode_custom,
    parse_segment_name,
    parse_topic_directory,
    segment_name,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from barnabas.cli.remote.stores import OpenStore

# Kinds of findings. Of these, some are damage, and the others are worth knowing.
MISSING, SIZE, DAMAGED, GAP = "missing", "size", "damaged", "gap"
ORPHAN, INCOMPLETE, FOREIGN = "orphan", "incomplete", "foreign"
PROBLEMS = frozenset({MISSING, SIZE, DAMAGED, GAP})
_TEMPORARY_SUFFIX = ".tmp"
# Segments whose contents are read at a time, each in pieces of 4 MiB.
READS = 4


class RemoteFinding(msgspec.Struct, frozen=True):
    """A problem of a segment, or something worth knowing about objects."""

    kind: str
    # TOPIC-PARTITION and offsets, or the name of an object.
    subject: str
    what: str
    # Id of the segment, or `partition_key` of a gap; empty if the objects belong to no segment.
    key: bytes = b""
    # Names of objects that can be deleted if they are orphans, their bytes, and the time of the
    # latest change, ms.
    objects: tuple[str, ...] = ()
    size: int = 0
    modified_ms: int = 0

    @property
    def is_problem(self) -> bool:
        """Whether data is lost or damaged."""
        return self.kind in PROBLEMS


class StoredParts(NamedTuple):
    """The objects of one segment."""

    # Without a suffix.
    name: str
    # By suffix. A temporary file has the suffix of its object and one more.
    objects: dict[str, StoredObject]

    def size(self, suffix: str) -> int | None:
        """Return the size of an object; None if it is missing."""
        found = self.objects.get(suffix)
        return None if found is None else found.size

    def finding(self, kind: str, what: str) -> RemoteFinding:
        """Return a finding about all objects."""
        name = parse_segment_name(self.name)
        assert name is not None, self.name
        return RemoteFinding(
            kind,
            f"{name.topic}-{name.partition} from offset {name.start_offset}",
            what,
            name.segment_id,
            tuple(each.name for each in self.objects.values()),
            sum(each.size for each in self.objects.values()),
            max(each.modified_ms for each in self.objects.values()),
        )


class VerifyScope(NamedTuple):
    """What is verified."""

    # Only this topic; None for all.
    topic: str | None
    # Whether all contents are read too.
    reads: bool
    # Whether the segments come from the metadata of a cluster, instead of the manifests.
    has_metadata: bool
    # Returns whether the cluster has the topic with an id. Without metadata, it has all.
    has_topic: Callable[[bytes], bool]


class Verification:
    """Compares segments with objects, and keeps the findings in a temporary file."""

    def __init__(
        self, store: OpenStore, scope: VerifyScope, advance: Callable[[int], None]
    ) -> None:
        """Prepare.

        Args:
            store: The store of the cluster.
            scope: What is verified.
            advance: Called with the number of bytes of the segments that were verified; also on
                the threads that read contents.
        """
        self._store = store
        self._scope = scope
        self._advance = advance
        self.findings = SpooledItems(RemoteFinding)
        # Finished segments that were verified, and their bytes.
        self.segments = 0
        self.bytes = 0
        # Copies and deletions that are not finished.
        self.unfinished = 0
        self._partition: tuple[bytes, int] | None = None
        self._coverage = Coverage()
        # Topic ids in the metadata, for descriptions of topics that are gone.
        self._topic_ids: set[bytes] = set()
        self._descriptions: list[StoredObject] = []
        self._manifests: _Manifests | None = None

    def run(self, segments: Iterator[RemoteSegment]) -> None:
        """Compare all segments with all objects.

        Args:
            segments: The segments in the order of their names.

        Raises:
            RemoteStorageError: The store does not answer.
        """
        if self._scope.reads and self._scope.has_metadata:
            listed = self._store.storage.list_segments(self._scope.topic)
            self._manifests = _Manifests(each.segment for each in listed)
        for finding in results_of(self._reads(segments), READS):
            if finding is not None:
                self._add(finding)
        for each in self._descriptions:
            self._check_description(each)

    def _reads(
        self, segments: Iterator[RemoteSegment]
    ) -> Iterator[Callable[[], RemoteFinding | None]]:
        """Compare segments with objects; yield the checks of contents, which run on threads."""
        for segment, parts in _joined(segments, self._stored_parts()):
            if segment is None:
                assert parts is not None
                self._check_unnamed(parts)
                continue
            self._topic_ids.add(segment.topic_id)
            if segment.state is not SegmentState.COPY_SEGMENT_FINISHED:
                self.unfinished += 1
                continue
            problem = self._problem_of(segment, parts)
            if problem is not None:
                self._add(problem)
            if problem is None and self._scope.reads:
                yield partial(self._check_contents, segment)
            else:
                self._advance(segment.size)

    def _check_unnamed(self, parts: StoredParts) -> None:
        """Check objects that no segment has."""
        if self._scope.has_metadata:
            self._add(parts.finding(ORPHAN, "no metadata names these objects"))
        elif MANIFEST_SUFFIX in parts.objects:
            name = self._store.place(parts.name + MANIFEST_SUFFIX)
            self._add(parts.finding(DAMAGED, f"{name} is no manifest of this segment"))
        else:
            words = "there is no manifest: a copy or a deletion is not finished"
            self._add(parts.finding(INCOMPLETE, words))

    def _problem_of(
        self, segment: RemoteSegment, parts: StoredParts | None
    ) -> RemoteFinding | None:
        """Return the problem of a finished copy that the names and sizes of its objects show."""
        self.segments += 1
        self.bytes += segment.size
        self._check_coverage(segment)
        problem = _problem_of_objects(segment, parts)
        if problem is not None:
            kind, words = problem
            return _finding(segment, kind, f"{self._store.place(segment_name(segment))}{words}")
        if self._manifests is not None:
            return self._problem_of_manifest(segment, self._manifests)
        return None

    def _check_contents(self, segment: RemoteSegment) -> RemoteFinding | None:
        """Return the problem of the contents of a segment; runs on a thread."""
        checked = 0

        def advance(size: int) -> None:
            nonlocal checked
            checked += size
            self._advance(size)

        finding = None
        try:
            check_contents(self._store.storage, segment, advance)
        except RemoteDamagedError as error:
            finding = _finding(segment, DAMAGED, str(error))
        except RemoteMissingError as error:
            finding = _finding(segment, MISSING, str(error))
        self._advance(segment.size - checked)
        return finding

    def _problem_of_manifest(
        self, segment: RemoteSegment, manifests: _Manifests
    ) -> RemoteFinding | None:
        name = self._store.place(segment_name(segment) + MANIFEST_SUFFIX)
        stored = manifests.at(segment)
        if stored is None:
            return _finding(segment, DAMAGED, f"{name} is no manifest of this segment")
        for field in ("end_offset", "size", "leader_epochs"):
            own, other = getattr(segment, field), getattr(stored, field)
            if field == "leader_epochs":
                # A manifest has the last ones only.
                own = own[-len(other) :]
            if own != other:
                words = f"{name} has {field} {other}, but the metadata has {own}"
                return _finding(segment, DAMAGED, words)
        return None

    def _check_coverage(self, segment: RemoteSegment) -> None:
        partition = (segment.topic_id, segment.partition)
        if partition != self._partition:
            self._partition, self._coverage = partition, Coverage()
        gap = self._coverage.add(segment)
        if gap is not None:
            words = f"no segment has the offsets {gap} before it"
            self._add(_finding(segment, GAP, words, partition_key(*partition)))

    def _check_description(self, found: StoredObject) -> None:
        """Report the description of a topic that is gone with all of its segments."""
        directory = parse_topic_directory(found.name.partition("/")[0])
        if directory is None or directory[1] in self._topic_ids:
            return
        if not self._scope.has_topic(directory[1]):
            self._add(
                RemoteFinding(
                    ORPHAN,
                    found.name,
                    "the cluster has no such topic, and no segment of it",
                    objects=(found.name,),
                    size=found.size,
                    modified_ms=found.modified_ms,
                )
            )

    def _add(self, finding: RemoteFinding) -> None:
        self.findings.add(finding)

    def _stored_parts(self) -> Iterator[StoredParts]:
        """Yield the objects of each segment; keep or report the other objects."""
        current: StoredParts | None = None
        for found in self._objects():
            name, suffix = _split(found.name)
            if parse_segment_name(name) is None:
                self._on_other(found)
                continue
            if current is None or current.name != name:
                if current is not None:
                    yield current
                current = StoredParts(name, {})
            current.objects[suffix] = found
        if current is not None:
            yield current

    def _objects(self) -> Iterator[StoredObject]:
        topic, storage = self._scope.topic, self._store.storage
        return storage.list_objects() if topic is None else objects_of(storage, topic)

    def _on_other(self, found: StoredObject) -> None:
        directory, _, name = found.name.partition("/")
        if found.name == STORE_FILE:
            return
        if name == TOPIC_FILE and parse_topic_directory(directory) is not None:
            self._descriptions.append(found)
            return
        if found.name.endswith(_TEMPORARY_SUFFIX):
            words = "it is left from a call that was interrupted"
        else:
            words = "Barnabas does not write objects of this name"
        # A file system has names that are no text.
        shown = printable(found.name)
        self._add(
            RemoteFinding(
                FOREIGN,
                shown,
                words,
                objects=(shown,),
                size=found.size,
                modified_ms=found.modified_ms,
            )
        )


class _Manifests:
    """The segments of a store by their manifests, as far as a check has come."""

    def __init__(self, segments: Iterator[RemoteSegment]) -> None:
        self._segments = segments
        self._next = next(segments, None)

    def at(self, segment: RemoteSegment) -> RemoteSegment | None:
        """Return what the manifest of a segment tells. Segments are asked for in order."""
        name = segment_name(segment)
        while self._next is not None and segment_name(self._next) < name:
            self._next = next(self._segments, None)
        if self._next is None or segment_name(self._next) != name:
            return None
        return self._next


def _joined(
    segments: Iterator[RemoteSegment], stored: Iterator[StoredParts]
) -> Iterator[tuple[RemoteSegment | None, StoredParts | None]]:
    """Yield segments and objects in the order of names, together if their names are equal."""
    segment, parts = next(segments, None), next(stored, None)
    while segment is not None or parts is not None:
        name = None if segment is None else segment_name(segment)
        if parts is None or (name is not None and name < parts.name):
            yield segment, None
            segment = next(segments, None)
        elif name is None or parts.name < name:
            yield None, parts
            parts = next(stored, None)
        else:
            yield segment, parts
            segment, parts = next(segments, None), next(stored, None)


def _split(name: str) -> tuple[str, str]:
    """Return the name of a segment's object without its suffix, and the suffix."""
    whole = name.removesuffix(_TEMPORARY_SUFFIX)
    for suffix in SUFFIXES:
        if whole.endswith(suffix):
            stem = whole.removesuffix(suffix)
            return stem, name[len(stem) :]
    return name, ""


def _finding(
    segment: RemoteSegment, kind: str, what: str, key: bytes | None = None
) -> RemoteFinding:
    subject = (
        f"{segment.topic}-{segment.partition} offsets {segment.start_offset} to "
        f"{segment.end_offset}"
    )
    return RemoteFinding(kind, subject, what, segment.id if key is None else key)


def _problem_of_objects(
    segment: RemoteSegment, parts: StoredParts | None
) -> tuple[str, str] | None:
    """Return the kind of a problem with the objects of a segment, and its words; else None."""
    missing = [each for each in SUFFIXES if parts is None or parts.size(each) is None]
    if parts is None or missing:
        return MISSING, f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing"
    stored = decode_custom(segment.custom)
    sizes = {LOG_SUFFIX: segment.size}
    if stored is not None:
        sizes[INDEXES_SUFFIX] = stored.indexes_size
    for suffix, size in sizes.items():
        found = parts.size(suffix)
        if found != size:
            return SIZE, f"{suffix} has {found} bytes instead of {size}"
    return None
