"""File with the largest timestamps of the sealed segments of a log.

The first lookup by timestamp after a start needs the largest timestamp of every segment. This file
has all of them, so that the lookup does not read the end of each time index. It is Barnabas' own:
Apache Kafka ignores files with unknown names in a partition's directory.

An entry counts only if size and modification time of its segment's file are those of the entry. So
an entry is void after Apache Kafka has replaced or truncated the segment, and after a power loss
that restored an older file. The log additionally drops the entries of segments before it truncates
or compacts them. The file is never synced: each entry has a checksum, and without an entry the time
index is read. A failed write is therefore harmless.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from struct import Struct
from typing import TYPE_CHECKING

from barnabas.record.compiled import crc32c
from barnabas.storage.topic_partition import LARGEST_TIMESTAMPS, LOG_SUFFIX

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from barnabas.runtime.disk import Disk
    from barnabas.storage.segment.segment import Segment


_log = logging.getLogger(__name__)

# Base offset, size and modification time (ns) of the segment's file, largest timestamp, last offset
# of its batch.
_FIELDS = Struct(">qqqqq")
_CHECKSUM = Struct(">I")
_ENTRY_BYTES = _FIELDS.size + _CHECKSUM.size
# Entries without a segment that may stay in the file beside as many as there are segments.
_SPARE_ENTRIES = 64


class LargestTimestamps:
    """Reads and appends the entries; holds no descriptor between calls."""

    __slots__ = ("_count", "_directory", "_disk", "_stored")

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        # Number of entries in the file, including those without a segment.
        self._count = 0
        # Base offsets of the segments whose last entry is valid; None is the empty set.
        self._stored: set[int] | None = None

    def load(self, segments: Iterable[Segment], modified_ns: dict[int, int]) -> None:
        """Set the largest timestamps of the segments that have a valid entry.

        Args:
            segments: the segments found in the directory.
            modified_ns: modification time of each segment's file by base offset.
        """
        try:
            self._load(segments, modified_ns)
        except OSError as error:
            self._give_up(error)

    def _load(self, segments: Iterable[Segment], modified_ns: dict[int, int]) -> None:
        content = self._disk.read(self._path)
        entries = list(_entries(content))
        self._count = len(entries)
        last = dict(entries)
        kept = []
        for segment in segments:
            base = segment.base_offset
            entry = last.get(base)
            if entry is not None:
                _, size, modified, timestamp, offset = _FIELDS.unpack_from(entry)
                if (size, modified) == (segment.size, modified_ns[base]):
                    segment.set_max_timestamp(timestamp, offset)
                    kept.append(entry)
        self._stored = {_base_of(entry) for entry in kept}
        if len(content) != len(entries) * _ENTRY_BYTES or self._is_due:
            self._replace(kept)

    def add(self, segments: Sequence[Segment], anew: bool = False) -> None:
        """Add entries of sealed segments whose largest timestamp is known.

        Args:
            segments: the segments.
            anew: whether to replace existing entries.
        """
        stored = self._stored = self._stored or set()
        added = [each for each in segments if anew or each.base_offset not in stored]
        if not added:
            return
        try:
            entries = [entry for segment in added if (entry := self._entry_of(segment))]
            file = self._disk.open(self._path, briefly=True)
            try:
                file.append(b"".join(entries))
            finally:
                file.close()
            self._count += len(entries)
            stored.update(map(_base_of, entries))
            if self._is_due:
                self._keep(stored)
        except OSError as error:
            self._give_up(error)

    def forget(self, segments: Iterable[Segment]) -> None:
        """Forget deleted segments; a later change removes their entries from the file."""
        if self._stored:
            self._stored.difference_update(segment.base_offset for segment in segments)

    def drop(self, segments: Iterable[Segment]) -> None:
        """Remove the entries of segments that are about to change."""
        if self._stored and not self._stored.isdisjoint(each.base_offset for each in segments):
            self.forget(segments)
            try:
                self._keep(self._stored)
            except OSError as error:
                self._give_up(error)

    def on_directory_renamed(self, directory: str) -> None:
        """Adopt the new name of the log's directory."""
        self._directory = directory

    @property
    def _path(self) -> str:
        return f"{self._directory}/{LARGEST_TIMESTAMPS}"

    @property
    def _is_due(self) -> bool:
        """Whether too many entries have no segment."""
        return self._count > 2 * len(self._stored or ()) + _SPARE_ENTRIES

    def _entry_of(self, segment: Segment) -> bytes | None:
        """Return the entry of a segment; None if its file has unexpected bytes at its end."""
        size, modified = self._disk.stamp(segment.path(LOG_SUFFIX))
        if size != segment.size:
            return None
        timestamp, offset = segment.max_timestamp, segment.offset_of_max_timestamp
        fields = _FIELDS.pack(segment.base_offset, size, modified, timestamp, offset)
        return fields + _CHECKSUM.pack(crc32c(fields))

    def _keep(self, bases: set[int]) -> None:
        """Keep the last entry of these segments only."""
        last = dict(_entries(self._disk.read(self._path)))
        self._replace([entry for base, entry in last.items() if base in bases])

    def _replace(self, entries: Sequence[bytes]) -> None:
        self._count = len(entries)
        if entries:
            self._disk.write_atomically(self._path, b"".join(entries), sync=False)
        else:
            self._disk.remove(self._path)

    def _give_up(self, error: OSError) -> None:
        """Continue without the file, because lookups work without it too."""
        _log.warning("Cannot write the largest timestamps: path=%s error=%s", self._path, error)
        self._stored = None
        # The next start checks the entries of a file that stays.
        with suppress(OSError):
            self._disk.remove(self._path)


def _entries(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield base offset and bytes of each entry up to the first damaged one."""
    for start in range(0, len(content) - _ENTRY_BYTES + 1, _ENTRY_BYTES):
        entry = content[start : start + _ENTRY_BYTES]
        if _CHECKSUM.unpack_from(entry, _FIELDS.size)[0] != crc32c(entry[: _FIELDS.size]):
            return
        yield _base_of(entry), entry


def _base_of(entry: bytes) -> int:
    base: int = _FIELDS.unpack_from(entry)[0]
    return base
