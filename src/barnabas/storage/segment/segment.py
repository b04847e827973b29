"""One segment of a log: a file of batches and its indexes (Kafka's LogSegment).

The file is opened on first use and closed when the segment is idle. Indexes are loaded on first
use. A segment does not depend on other segments, leaders or producers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.storage.errors import CorruptRecordError, DamagedLogError
from barnabas.storage.segment.batch_scan import BatchPlace, WrongEntryError, find_batch, headers
from barnabas.storage.segment.segment_indexes import (
    NO_TIMESTAMP,
    RELATIVE_OFFSET_MAX,
    OffsetIndex,
    TimeIndex,
)
from barnabas.storage.segment.transaction_index import TransactionIndex
from barnabas.storage.topic_partition import (
    DELETED_FILE_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    offset_file,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from barnabas.record.batch import BatchHeader, Buffer
    from barnabas.runtime.disk import Disk, File
    from barnabas.storage.config import LogConfig
    from barnabas.storage.segment.batch_scan import PlacedBatch

# Recent appends whose places stay in memory. Reads at the end of the log need exactly these.
_RECENT_MAX = 64
# Size of an append that stays in memory, for the readers at the end of the log.
_TAIL_BYTES_MAX = 2048
# A tuple, because a union expression would be created again for each call of isinstance.
_IN_MEMORY = (bytes, bytearray, memoryview)
_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)


class Segment:
    """Batches from `base_offset` on, in offset order."""

    __slots__ = (
        "_directory",
        "_disk",
        "_file",
        "_has_files",
        "_index_interval_bytes",
        "_max_timestamp",
        "_recent",
        "_suffix",
        "_was_used",
        "base_offset",
        "bytes_since_index_entry",
        "created_ms",
        "first_batch_timestamp",
        "is_new",
        "offset_index",
        "offset_of_max_timestamp",
        "on_damaged_index",
        "on_rebuilt",
        "roll_jitter_ms",
        "size",
        "synced_size",
        "tail",
        "time_index",
        "txn_index",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        base_offset: int,
        config: LogConfig,
        size: int = 0,
        suffix: str = "",
    ) -> None:
        self._disk = disk
        self._directory = directory
        # ".deleted" before deletion; ".cleaned" and ".swap" before it replaces other segments.
        self._suffix = suffix
        # Smallest offset that the segment can hold; names its files. Never changes.
        self.base_offset = base_offset
        # Bytes of batches in the file; the next append starts here. Appends raise it, truncations
        # lower it.
        self.size = size
        # File size in bytes covered by the last completed sync. -1 if unknown, as after a
        # truncation; then the next sync includes the file.
        self.synced_size = -1
        # Called after damaged indexes were rebuilt.
        self.on_rebuilt: Callable[[Segment], None] | None = None
        # Called with path and position when damaged index entries are found.
        self.on_damaged_index: Callable[[str, int], None] | None = None
        # None while the segment is idle; the next use opens the file.
        self._file: File | None = None
        # Whether the files exist. Those of a log without records are created by the first use.
        self._has_files = True
        # Whether the file was used since the last check for idle segments.
        self._was_used = False
        self._index_interval_bytes = config.index_interval_bytes
        # Place of the first batch of recent appends, by its base offset; at most _RECENT_MAX. A
        # read from there does not read the header back from the file.
        self._recent: dict[int, BatchPlace] = {}
        # Bytes of the last append, which end at `size`. Empty if the append was large, and after a
        # truncation.
        self.tail = b""
        # Bytes appended since the last index entry. An append above index.interval.bytes adds an
        # entry and sets it to 0.
        self.bytes_since_index_entry = 0
        # Largest timestamp, and last offset of its batch; None until the time index is read.
        self._max_timestamp: int | None = None
        self.offset_of_max_timestamp = base_offset
        # Largest timestamp of the first batch, from which segment.ms counts; None if unknown.
        self.first_batch_timestamp: int | None = None
        # Wall clock at which the segment was created or found, in ms. segment.ms counts from it if
        # records have no timestamps.
        self.created_ms = 0
        # Whether the directory entry has not been synced yet. A sync of the log resets it.
        self.is_new = False
        # In ms, subtracted from segment.ms, so that the partitions of a topic do not all roll at
        # once.
        self.roll_jitter_ms = 0
        index_bytes = config.segment_index_bytes
        self.offset_index = OffsetIndex(disk, self.path(INDEX_SUFFIX), base_offset, index_bytes)
        self.time_index = TimeIndex(disk, self.path(TIME_INDEX_SUFFIX), base_offset, index_bytes)
        self.txn_index = TransactionIndex(disk, self.path(TXN_INDEX_SUFFIX))

    def __repr__(self) -> str:
        return f"Segment({self.path(LOG_SUFFIX)!r}, size={self.size})"

    def create(self, now_ms: int, roll_jitter_ms: int, with_files: bool = True) -> None:
        """Start a new segment.

        Args:
            now_ms: wall clock.
            roll_jitter_ms: subtracted from segment.ms.
            with_files: whether to create the files now, instead of at the first use.
        """
        self.size = self.synced_size = 0
        self.offset_index.create()
        self.time_index.create()
        self.txn_index.create()
        self._max_timestamp = NO_TIMESTAMP
        self.created_ms = now_ms
        self.roll_jitter_ms = roll_jitter_ms
        self._has_files = False
        if with_files:
            self._create_files()

    def _create_files(self) -> None:
        """Create the files; empty a file left over from a crash."""
        file = self._disk.open(self.path(LOG_SUFFIX), briefly=True)
        try:
            if file.size():
                file.truncate(0)
        finally:
            file.close()
        self.offset_index.file.create()
        self.time_index.file.create()
        # For an empty file, only the directory entry has to be synced.
        self.is_new = True
        self._has_files = True

    def path(self, suffix: str) -> str:
        """Return the path of the file with that suffix."""
        return offset_file(self._directory, self.base_offset, suffix) + self._suffix

    @property
    def file(self) -> File:
        """The open file of batches."""
        self._was_used = True
        file = self._file
        if file is None:
            if not self._has_files:
                self._create_files()
            file = self._file = self._disk.open(self.path(LOG_SUFFIX), create=False)
        return file

    @property
    def is_open(self) -> bool:
        """Whether the segment holds a descriptor."""
        return self._file is not None

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp of the segment; -1 if no record has a timestamp."""
        if self._max_timestamp is None:
            self._max_timestamp, self.offset_of_max_timestamp = self.time_index.last_entry()
        return self._max_timestamp

    @property
    def has_max_timestamp(self) -> bool:
        """Whether the largest timestamp is known without reading the time index."""
        return self._max_timestamp is not None

    def set_max_timestamp(self, timestamp: int, offset: int) -> None:
        """Set the largest timestamp, and the last offset of its batch, which were stored."""
        self._max_timestamp, self.offset_of_max_timestamp = timestamp, offset

    # -- appending ---------------------------------------------------------------------------

    def prepare_append(self) -> None:
        """Open and read all that `append` needs, so that a missing descriptor fails here."""
        if self._file is None or self._max_timestamp is None:
            self.file  # noqa: B018 - the property opens the file
            self.max_timestamp  # noqa: B018 - the property reads the file
            self.txn_index.load()

    def append(
        self, data: Buffer | Sequence[Buffer], first_offset: int, placed: list[PlacedBatch]
    ) -> None:
        """Write batches at the end with one system call, and index them if due.

        Call `prepare_append` first. After an OSError, a part of the data may be in the file.
        """
        start = self.size
        if start == 0:
            self.first_batch_timestamp = placed[0].max_timestamp
        file = self._file or self.file
        self._was_used = True
        self.size = start + file.append(data)
        recent = self._recent
        if len(recent) >= _RECENT_MAX:
            recent.clear()
        recent[first_offset] = BatchPlace(start, placed[0].size, first_offset)
        largest = self._max_timestamp
        for batch in placed:
            if self.bytes_since_index_entry > self._index_interval_bytes or largest is None:
                self._add_to_indexes(batch.last_offset, start + batch.position, batch.max_timestamp)
                largest = self._max_timestamp
            elif batch.max_timestamp > largest:
                self._max_timestamp = largest = batch.max_timestamp
                self.offset_of_max_timestamp = batch.last_offset
            self.bytes_since_index_entry += batch.size
        # The one copy: followers and consumers usually read an append at once.
        if self.size - start <= _TAIL_BYTES_MAX:
            self.tail = bytes(data) if isinstance(data, _IN_MEMORY) else b"".join(data)
        else:
            self.tail = b""

    def index_batch(self, position: int, header: BatchHeader) -> None:
        """Index a batch that is already in the file (during recovery)."""
        if position == 0:
            self.first_batch_timestamp = header.max_timestamp
        self._add_to_indexes(header.last_offset, position, header.max_timestamp)
        self.bytes_since_index_entry += header.size

    def _add_to_indexes(self, last_offset: int, position: int, max_timestamp: int) -> None:
        largest = self._max_timestamp
        if max_timestamp > (self.max_timestamp if largest is None else largest):
            self._max_timestamp = max_timestamp
            self.offset_of_max_timestamp = last_offset
        if self.bytes_since_index_entry > self._index_interval_bytes:
            if self.offset_index.drop_from(last_offset, position) and self.on_damaged_index:
                self.on_damaged_index(self.path(INDEX_SUFFIX), position)
            self.offset_index.append(last_offset, position)
            self.time_index.maybe_append(self.max_timestamp, self.offset_of_max_timestamp)
            self.bytes_since_index_entry = 0

    def first_timestamp(self) -> int:
        """Return the largest timestamp of the first batch; -1 without one."""
        if self.first_batch_timestamp is not None:
            return self.first_batch_timestamp
        first = NO_TIMESTAMP
        try:
            for _, header in headers(self.file, 0, self.size):
                first = header.max_timestamp
                break
        except DamagedLogError:
            # Readers get an error for the damage. The creation time decides when to roll.
            pass
        self.first_batch_timestamp = first
        return first

    # -- reading -----------------------------------------------------------------------------

    def locate(self, offset: int, may_skip: bool = True) -> BatchPlace | None:
        """Return the first batch that ends at or after `offset`; None if there is none.

        Args:
            offset: at or above the base offset; may be below it if earlier records are gone.
            may_skip: whether offsets may be missing between batches (the log is compacted).

        Raises:
            DamagedLogError: a batch before the result is damaged.
        """
        recent = self._recent.get(offset)
        if recent is not None:
            return recent
        if not self.size:
            return None
        wrong_positions: list[int] = []
        while True:
            indexed, position = self.offset_index.entry_before(offset)
            try:
                place = find_batch(self, position, indexed, offset, may_skip)
            except WrongEntryError:
                # The entry or its batch is damaged; the previous entry leads to the offset too.
                wrong_positions.append(position)
                self.offset_index.forget(position)
                continue
            if wrong_positions and self.on_damaged_index is not None:
                self.on_damaged_index(self.path(INDEX_SUFFIX), wrong_positions[0])
            return place

    def position_of(self, offset: int) -> int:
        """Return the position of the batch of `offset`, or the segment size without one."""
        place = self.locate(offset)
        return self.size if place is None else place.position

    def lookup_time(self, timestamp: int) -> int:
        """Return an offset at or before the first record at or after `timestamp`."""
        indexed, offset = self.time_index.lookup(timestamp)
        if indexed >= 0 and not self._has_timestamp(indexed, offset):
            self._renew_time_index()
            indexed, offset = self.time_index.lookup(timestamp)
        return offset

    def trusted_max_timestamp(self, is_active: bool) -> int:
        """Return `max_timestamp` after checking it against the batches, for deletions.

        Args:
            is_active: whether the segment receives appends. The time index of an active segment
                ends before its last batches, and may be empty.
        """
        if is_active:
            largest, _ = self._found_max_timestamp()
        else:
            if not self._is_time_known():
                self._renew_time_index()
            largest, _ = self.time_index.last_entry()
        return max(self.max_timestamp, largest)

    def _renew_time_index(self) -> None:
        if self.on_damaged_index is not None:
            self.on_damaged_index(self.path(TIME_INDEX_SUFFIX), 0)
        self.rebuild_indexes()

    def find_end(self) -> tuple[int, int]:
        """Return position and offset after the last whole batch, from the last index entry on.

        Raises:
            CorruptRecordError: the file does not contain a valid batch there.
        """
        end, next_offset = 0, self.base_offset
        if self.size == 0:
            return end, next_offset
        start = self.offset_index.last_position()
        for position, header in headers(self.file, start, self.size):
            end, next_offset = position + header.size, header.next_offset
        return end, next_offset

    # -- changes -----------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> int:
        """Remove the batch of `offset` and everything after it.

        Returns:
            The new end offset of the segment; below `offset` if that lay within a batch.
        """
        place = self.locate(offset)
        if place is None:
            return offset
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.txn_index.truncate_to(offset)
        self.truncate_file(place.position)
        # Kafka also resets this count after a truncation.
        self.bytes_since_index_entry = 0
        self._max_timestamp, self.offset_of_max_timestamp = self._found_max_timestamp()
        if place.position == 0:
            self.first_batch_timestamp = None
        return min(offset, place.base_offset)

    def _found_max_timestamp(self) -> tuple[int, int]:
        """Return the largest timestamp, and the last offset of its batch, from the files.

        Each entry of the offset index has a time index entry with the largest timestamp up to
        there. So only the batches from the last entry on are read.
        """
        largest, offset = self.time_index.last_entry()
        try:
            for header in self._headers_at_end():
                if header.max_timestamp > largest:
                    largest, offset = header.max_timestamp, header.last_offset
        except DamagedLogError:
            # A truncation must be completed; a later read reports the damage.
            pass
        return largest, offset

    def _headers_at_end(self) -> Iterator[BatchHeader]:
        """Yield the headers of the batches from the last entry of the offset index on."""
        for _, header in headers(self.file, self.offset_index.last_position(), self.size):
            yield header

    def has_whole_indexes(self) -> bool:
        """Return whether the indexes cover the last batches, as far as their ends show it.

        A kill may leave a segment without the last entry of its time index, or an empty segment
        with old entries.
        """
        timestamp, offset = self.time_index.last_entry()
        if not self.size:
            return timestamp < 0 and not self.offset_index.last_position()
        try:
            if any(header.max_timestamp > timestamp for header in self._headers_at_end()):
                return False
            return timestamp < 0 or self._has_timestamp(timestamp, offset)
        except CorruptRecordError:
            return False

    def remove_padding(self) -> None:
        """Remove the zeros that a killed Kafka leaves at the end of its index files."""
        self.offset_index.file.remove_padding()
        self.time_index.file.remove_padding()

    def truncate_file(self, position: int) -> None:
        """Truncate the file and leave the indexes unchanged."""
        self.synced_size = -1
        self.file.truncate(position)
        self.size = position
        self._recent.clear()
        self.tail = b""

    def clear_indexes(self) -> None:
        """Remove all index entries, before batches are indexed again."""
        self.offset_index.clear()
        self.time_index.clear()
        self.txn_index.clear()
        self._max_timestamp = NO_TIMESTAMP
        self.bytes_since_index_entry = 0

    def rebuild_indexes(self) -> None:
        """Rebuild the offset and time indexes from the batches."""
        self.offset_index.clear()
        self.time_index.clear()
        self._max_timestamp = NO_TIMESTAMP
        self.bytes_since_index_entry = 0
        next_offset = self.base_offset
        try:
            for position, header in headers(self.file, 0, self.size):
                if header.base_offset < next_offset or header.size > self.size:
                    break
                self.ensure_offset_fits(header.last_offset)
                self.index_batch(position, header)
                next_offset = header.next_offset
        except CorruptRecordError:
            # A read reports the damage; the index covers the batches before it.
            pass
        self.seal()
        if self.on_rebuilt is not None:
            self.on_rebuilt(self)

    def seal(self) -> None:
        """Complete the indexes, because no append follows soon."""
        timestamp = self.max_timestamp
        if timestamp >= 0:
            self.time_index.maybe_append(timestamp, self.offset_of_max_timestamp)
        self._write_out_indexes()

    def sync_batches(self) -> Callable[[], None]:
        """Return a function, callable on any thread, that syncs the file of batches."""
        return _do_nothing if self.size == self.synced_size else self.file.sync

    def sync_all(self) -> Callable[[], None]:
        """Write the indexes; return a function, callable on any thread, that syncs all files."""
        if not self._has_files:
            return _do_nothing
        self._write_out_indexes()
        syncs = (
            self.sync_batches(),
            self.offset_index.file.sync,
            self.time_index.file.sync,
            self.txn_index.sync,
        )

        def work() -> None:
            for sync in syncs:
                sync()

        return work

    def _write_out_indexes(self) -> None:
        self.offset_index.file.write_out()
        self.time_index.file.write_out()
        self.txn_index.write_out()

    def modified_ms(self) -> int:
        """Return when the file of batches was last written (wall clock, ms)."""
        return self._disk.modified_ms(self.path(LOG_SUFFIX)) if self._has_files else self.created_ms

    def largest_timestamp(self) -> int:
        """Return the largest record timestamp; without timestamps, the time of the last write."""
        timestamp = self.max_timestamp
        return timestamp if timestamp >= 0 else self.modified_ms()

    def trim_indexes(self) -> None:
        """Keep only the ends of the indexes in memory, while the segment grows."""
        self.offset_index.trim()
        self.time_index.trim()

    def release_if_idle(self) -> bool:
        """Close the descriptor and unload the indexes if unused since the last call."""
        if self._was_used:
            self._was_used = False
            return False
        self.offset_index.unload()
        self.time_index.unload()
        self._recent.clear()
        self.close()
        return True

    def close_if_idle(self) -> None:
        """Close the descriptor if unused since the last call of this or `release_if_idle`."""
        if self._was_used:
            self._was_used = False
        else:
            self.close()

    def close(self) -> None:
        """Close the descriptor; the segment stays usable and opens it again."""
        self.tail = b""
        if self._file is not None:
            self._file.close()
            self._file = None

    # -- renaming ----------------------------------------------------------------------------

    def on_directory_renamed(self, directory: str) -> None:
        """Adopt the new name of the log's directory; an open file stays open."""
        self._directory = directory
        self._rename_indexes()

    def mark_deleted(self) -> None:
        """Rename all files to `.deleted`; the next opening of the directory deletes them."""
        self.change_suffix(DELETED_FILE_SUFFIX)

    def change_suffix(self, suffix: str) -> None:
        """Rename all existing files, the batches first."""
        old = [self.path(kind) for kind in _SUFFIXES]
        self._suffix = suffix
        for kind, path in zip(_SUFFIXES, old, strict=True):
            if self._disk.exists(path):
                self._disk.rename(path, self.path(kind))
        self._rename_indexes()

    def delete_files(self) -> None:
        """Delete all files, under their current names."""
        for suffix in _SUFFIXES:
            path = self.path(suffix)
            if self._disk.exists(path):
                self._disk.remove(path)

    def _rename_indexes(self) -> None:
        self.offset_index.file.path = self.path(INDEX_SUFFIX)
        self.time_index.file.path = self.path(TIME_INDEX_SUFFIX)
        self.txn_index.path = self.path(TXN_INDEX_SUFFIX)

    def _is_time_known(self) -> bool:
        """Return whether the last time index entry names a batch with that timestamp.

        Retention uses it: a timestamp zeroed by a power loss would delete the segment.
        """
        timestamp, offset = self.time_index.last_entry()
        try:
            if timestamp < 0:
                return self.size == 0 or self.first_timestamp() < 0
            return self._has_timestamp(timestamp, offset)
        except CorruptRecordError:
            return False

    def _has_timestamp(self, timestamp: int, offset: int) -> bool:
        """Return whether the batch at `offset` has that largest timestamp."""
        place = self.locate(offset) if offset >= self.base_offset else None
        if place is not None:
            for _, header in headers(self.file, place.position, self.size):
                return header.max_timestamp == timestamp
        return False

    def ensure_offset_fits(self, offset: int) -> None:
        """Raise CorruptRecordError unless the offset fits relative to the base offset."""
        if not 0 <= offset - self.base_offset <= RELATIVE_OFFSET_MAX:
            raise CorruptRecordError(f"{self!r} cannot hold offset {offset}")


def _do_nothing() -> None:
    """Do nothing, because everything is already synced."""
