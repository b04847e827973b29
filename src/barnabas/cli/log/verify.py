"""Verify the directory of one partition, and each of its segments.

The checks cover batches, the positions in indexes, leader epochs, snapshots and the topic id.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from barnabas.cli.log.segment_files import METADATA_TOPIC, ReadOnlyFile, SegmentScan
from barnabas.raft.election_state import QuorumStateError, decode_quorum_state
from barnabas.raft.listener import SnapshotError
from barnabas.raft.log.snapshot import list_snapshots, read_snapshot, snapshot_name
from barnabas.record.reader import layouts, records_payload
from barnabas.record.record import CorruptBatchError
from barnabas.runtime.disk import RealDisk
from barnabas.storage.files.checkpoint import CheckpointError, decode_lines
from barnabas.storage.files.metadata_files import read_topic_id
from barnabas.storage.producers.producer_entry import CorruptSnapshotError, decode_snapshot
from barnabas.storage.segment.segment_indexes import IndexFile
from barnabas.storage.segment.transaction_index import (
    ENTRY_BYTES as TXN_ENTRY_BYTES,
    TransactionIndex,
)
from barnabas.storage.topic_partition import (
    INDEX_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    PARTITION_METADATA,
    PRODUCER_SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    offset_file,
    offset_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.cli.log.segment_files import FileFindings, PartitionDirectory, ScannedBatch
    from barnabas.record.batch import BatchHeader


_OFFSET_ENTRY_BYTES = 8
_TIME_ENTRY_BYTES = 12
_REBUILD = "stop the broker and delete the file: the next start rebuilds it"
_START = "start the broker: it truncates the log after the last intact batch"
LOST = (
    "if other replicas exist, stop the broker, delete the partition's directory and "
    "start the broker, which copies the leader's log; otherwise, stop it and run "
    "`barnabas log repair` on the data directory"
)


class SegmentFacts(NamedTuple):
    """Facts about a segment, from its batches."""

    base_offset: int
    # The offset after its last batch.
    end_offset: int
    batches: int
    # (epoch, first offset) at each change of the leader epoch.
    epochs: tuple[tuple[int, int], ...]
    # Whether the file is valid up to its end.
    is_whole: bool


class _IndexEntry(NamedTuple):
    """An entry of an index, and its verdict."""

    offset: int
    # Must increase from entry to entry.
    key: tuple[int, int]
    words: str
    # The problem of the entry; None if it is valid.
    wrong: str | None


class SegmentCheck:
    """Verifies one segment and adds to the findings."""

    def __init__(
        self, directory: str, base_offset: int, findings: FileFindings, *, may_skip: bool = True
    ) -> None:
        """Prepare the check. With `may_skip`, offsets may be missing (the log is compacted)."""
        self._directory = directory
        self._base_offset = base_offset
        self._findings = findings
        self._may_skip = may_skip
        self._disk = RealDisk()
        self.path = offset_file(directory, base_offset, LOG_SUFFIX)
        # By batch: its position, its last offset, and the largest timestamp up to this batch.
        self._positions: list[int] = []
        self._last_offsets: list[int] = []
        self._max_timestamps: list[int] = []
        self._epochs: list[tuple[int, int]] = []
        # Whether a decrease of the epoch was reported; it is reported once per segment.
        self._has_reported_epoch = False

    def run(
        self, *, is_last: bool, is_running: bool, deep: bool, advance: Callable[[int], None]
    ) -> SegmentFacts:
        """Read the segment and its indexes.

        Args:
            is_last: Whether this is the last segment, whose end a crash can cut off.
            is_running: Whether a broker writes to the segment, so its end may be incomplete.
            deep: Whether to decompress and decode every record too.
            advance: Called with the number of bytes that were read, for a progress bar.
        """
        with ReadOnlyFile(self.path) as file:
            scan = SegmentScan(file)
            for batch in scan:
                self._check_batch(batch, deep=deep)
                advance(batch.header.size)
            self._check_end(scan, file.size, is_last=is_last, is_running=is_running)
        is_whole = scan.reason is None
        if scan.old_format is None:
            self._check_index(
                INDEX_SUFFIX, _OFFSET_ENTRY_BYTES, self._offset_entry, is_running=is_running
            )
            self._check_index(
                TIME_INDEX_SUFFIX, _TIME_ENTRY_BYTES, self._time_entry, is_running=is_running
            )
            self._check_transaction_index()
        end = self._last_offsets[-1] + 1 if self._last_offsets else self._base_offset
        return SegmentFacts(
            self._base_offset, end, len(self._positions), tuple(self._epochs), is_whole
        )

    # Batches

    def _check_batch(self, batch: ScannedBatch, *, deep: bool) -> None:
        header = batch.header
        where = f"batch {header.base_offset}-{header.last_offset} at position {batch.position}"
        if not batch.crc_is_right:
            self._problem(f"{where}: the CRC is wrong, its records are damaged", LOST)
        elif deep:
            self._check_records(batch, where)
        expected = self._last_offsets[-1] + 1 if self._last_offsets else self._base_offset
        if header.base_offset < expected:
            self._problem(f"{where}: begins below {expected}, where the previous batch ends", LOST)
        elif header.base_offset > expected and not self._may_skip:
            missing = f"offsets {expected} to {header.base_offset - 1} are missing before it"
            self._problem(f"{where}: {missing}", LOST)
        if header.last_offset_delta < 0 or header.record_count > header.last_offset_delta + 1:
            self._problem(f"{where}: {header.record_count} records do not fit its offsets", LOST)
        self._note_epoch(header, where)
        self._positions.append(batch.position)
        self._last_offsets.append(header.last_offset)
        before = self._max_timestamps[-1] if self._max_timestamps else -1
        self._max_timestamps.append(max(before, header.max_timestamp))

    def _note_epoch(self, header: BatchHeader, where: str) -> None:
        epoch = header.partition_leader_epoch
        latest = self._epochs[-1][0] if self._epochs else -1
        if epoch > latest:
            self._epochs.append((epoch, header.base_offset))
        elif 0 <= epoch < latest and not self._has_reported_epoch:
            self._has_reported_epoch = True
            self._problem(f"{where}: leader epoch {epoch} follows {latest}", _START)

    def _check_records(self, batch: ScannedBatch, where: str) -> None:
        header = batch.header
        try:
            payload = records_payload(batch.data, 0, header)
            deltas = [layout[1] for layout in layouts(payload, header.record_count)]
        except CorruptBatchError as error:
            self._problem(f"{where}: {error}", LOST)
            return
        if any(after <= before for before, after in pairwise(deltas)):
            self._problem(f"{where}: offsets of its records do not increase", LOST)
        if deltas and not 0 <= deltas[0] <= deltas[-1] <= header.last_offset_delta:
            self._problem(f"{where}: offsets of its records are outside of the batch", LOST)

    def _check_end(self, scan: SegmentScan, size: int, *, is_last: bool, is_running: bool) -> None:
        if scan.reason is None:
            return
        if scan.old_format is not None:
            what = f"message format {scan.old_format}, from before Kafka 0.11, is not checked"
            self._findings.note(self.path, what)
            return
        what = f"at position {scan.stopped_at} of {size}: {scan.reason}"
        if is_last and is_running and scan.is_cut_off:
            self._findings.note(self.path, f"{what} (a broker is writing to it)")
        else:
            self._problem(what, _START if is_last else LOST)

    def _problem(self, what: str, remedy: str) -> None:
        self._findings.problem(self.path, what, remedy)

    # Indexes

    def _read_index(self, suffix: str, entry_bytes: int, *, is_running: bool) -> bytes | None:
        path = offset_file(self._directory, self._base_offset, suffix)
        if not self._disk.exists(path):
            self._findings.problem(
                path, "the index is missing", "start the broker: it creates the index"
            )
            return None
        content = IndexFile(self._disk, path, entry_bytes).read()
        # A running Kafka broker preallocates the file; that size need not fit the entries.
        if self._disk.size(path) % entry_bytes and not is_running:
            self._findings.problem(path, "the last entry is cut off", _REBUILD)
        return content

    def _check_index(
        self,
        suffix: str,
        entry_bytes: int,
        examine: Callable[[bytes, tuple[int, int]], _IndexEntry],
        *,
        is_running: bool,
    ) -> None:
        """Examine the entries up to the first invalid one.

        Args:
            suffix: File suffix of the index.
            entry_bytes: Size of an entry.
            examine: Called with an entry and the key of the previous entry.
            is_running: Whether a broker writes to the segment.
        """
        content = self._read_index(suffix, entry_bytes, is_running=is_running) or b""
        path = offset_file(self._directory, self._base_offset, suffix)
        before = (-1, -1)
        for at in range(0, len(content), entry_bytes):
            entry = examine(content[at : at + entry_bytes], before)
            if is_running and self._is_newer(entry.offset):
                return
            if entry.wrong is not None:
                what = f"entry {at // entry_bytes} ({entry.words}) {entry.wrong}"
                self._findings.problem(path, what, _REBUILD)
                return
            before = entry.key

    def _offset_entry(self, entry: bytes, before: tuple[int, int]) -> _IndexEntry:
        relative = int.from_bytes(entry[:4], "big", signed=True)
        position = int.from_bytes(entry[4:], "big", signed=True)
        offset = self._base_offset + relative
        wrong = None
        if relative <= before[0] or position <= before[1]:
            wrong = "does not follow the previous entry"
        elif not self._leads_to(offset, position):
            wrong = "points after the batch of its offset, or to no batch"
        return _IndexEntry(offset, (relative, position), f"{offset} at {position}", wrong)

    def _time_entry(self, entry: bytes, before: tuple[int, int]) -> _IndexEntry:
        stamp = int.from_bytes(entry[:8], "big", signed=True)
        relative = int.from_bytes(entry[8:], "big", signed=True)
        offset = self._base_offset + relative
        wrong = None
        if stamp <= before[0] or relative < before[1]:
            wrong = "does not follow the previous entry"
        elif not self._last_offsets or offset > self._last_offsets[-1]:
            wrong = "is after the segment's end"
        elif self._latest_before(offset) > stamp:
            wrong = "is too late: an earlier record has a later timestamp"
        return _IndexEntry(offset, (stamp, relative), f"{offset} at time {stamp}", wrong)

    def _is_newer(self, offset: int) -> bool:
        """Return whether the entry may have been written after the batches were read."""
        return not self._last_offsets or offset > self._last_offsets[-1]

    def _leads_to(self, offset: int, position: int) -> bool:
        """Return whether a scan from `position` finds `offset` and all later offsets."""
        slot = bisect_left(self._positions, position)
        if slot == len(self._positions) or self._positions[slot] != position:
            return False
        return slot == 0 or self._last_offsets[slot - 1] < offset <= self._last_offsets[-1]

    def _latest_before(self, offset: int) -> int:
        """Return the largest timestamp of the batches that end below `offset`."""
        slot = bisect_right(self._last_offsets, offset - 1)
        return self._max_timestamps[slot - 1] if slot else -1

    def _check_transaction_index(self) -> None:
        path = offset_file(self._directory, self._base_offset, TXN_INDEX_SUFFIX)
        if not self._disk.exists(path):
            return
        remedy = (
            "stop the broker, delete the file and .kafka_cleanshutdown: the next start rebuilds it"
        )
        if self._disk.size(path) % TXN_ENTRY_BYTES:
            self._findings.problem(path, "the last entry is cut off", remedy)
        last = -1
        for entry in TransactionIndex(self._disk, path).entries():
            if entry.last_offset <= last or entry.first_offset > entry.last_offset:
                self._findings.problem(path, f"{entry} does not follow the previous entry", remedy)
                return
            last = entry.last_offset


_QUORUM_STATE = "quorum-state"
_REBUILT = "stop the broker and empty the file: the next start rebuilds it from the batches"


class VerifyOptions(NamedTuple):
    """The options of a verification."""

    # Whether to decode every record too.
    deep: bool
    # Whether a broker writes to the directory.
    is_running: bool
    # Called with the number of bytes that were read.
    advance: Callable[[int], None]
    # Partitions whose log was compacted, so gaps between offsets are valid.
    compacted: frozenset[tuple[str, int]] = frozenset()
    # Topics with compaction, whose logs may have the gaps of the leader's log.
    compacted_topics: frozenset[str] = frozenset()


class LogFacts(NamedTuple):
    """Facts about the log of a partition, from all its segments."""

    start_offset: int
    end_offset: int
    segments: int
    batches: int


def verify_partition(
    partition: PartitionDirectory, options: VerifyOptions, findings: FileFindings
) -> LogFacts:
    """Verify all files of a partition's directory."""
    disk = RealDisk()
    names = disk.list(partition.path)
    bases = sorted(b for n in names if (b := offset_of(n, LOG_SUFFIX)) is not None)
    facts: list[SegmentFacts] = []
    for base in bases:
        found = _check_segment(partition, base, options, findings, is_last=base == bases[-1])
        if found is None:
            continue
        _check_continuity(partition, facts, found, options, findings)
        facts.append(found)
    # A partition that never had a record has no other file.
    if not bases and set(names) - {PARTITION_METADATA}:
        remedy = (
            "start the broker: it creates an empty log; only other replicas still have the records"
        )
        findings.problem(partition.path, "no segment (*.log) exists", remedy)
    _check_orphans(partition, names, set(bases), findings)
    if not options.is_running:
        _check_epochs(partition, facts, findings)
    _check_snapshots(partition, names, findings)
    if partition.topic == METADATA_TOPIC:
        _check_metadata_files(partition, findings)
    elif PARTITION_METADATA in names and read_topic_id(disk, partition.path) is None:
        path = f"{partition.path}/{PARTITION_METADATA}"
        findings.problem(path, "it cannot be read", "start the broker: it rewrites the file")
    return LogFacts(
        facts[0].base_offset if facts else 0,
        facts[-1].end_offset if facts else 0,
        len(facts),
        sum(each.batches for each in facts),
    )


def _check_segment(
    partition: PartitionDirectory,
    base: int,
    options: VerifyOptions,
    findings: FileFindings,
    *,
    is_last: bool,
) -> SegmentFacts | None:
    """Verify one segment; repeat if a running broker replaced its file meanwhile.

    Returns:
        None if the broker deleted the segment meanwhile.
    """
    before = len(findings.all)
    while True:
        may_skip = _may_skip(partition, options)
        check = SegmentCheck(partition.path, base, findings, may_skip=may_skip)
        try:
            file_id = Path(check.path).stat().st_ino
            found = check.run(
                is_last=is_last,
                is_running=options.is_running,
                deep=options.deep,
                advance=options.advance,
            )
            is_same = Path(check.path).stat().st_ino == file_id
        except FileNotFoundError:
            del findings.all[before:]
            return None
        if is_same:
            return found
        del findings.all[before:]


def _check_continuity(
    partition: PartitionDirectory,
    before: list[SegmentFacts],
    found: SegmentFacts,
    options: VerifyOptions,
    findings: FileFindings,
) -> None:
    """Check that a segment begins where the previous one ends."""
    if not before:
        return
    end = before[-1].end_offset
    path = offset_file(partition.path, found.base_offset, LOG_SUFFIX)
    if found.base_offset < end:
        what = f"begins at {found.base_offset}, but the previous segment ends at {end}"
        findings.problem(path, what, "kill and start the broker: recovery removes the overlap")
    elif found.base_offset > end and before[-1].is_whole and not _may_skip(partition, options):
        what = f"offsets {end} to {found.base_offset - 1} are missing before it"
        findings.problem(path, f"{what}: a segment is missing", LOST)
    latest = before[-1].epochs[-1][0] if before[-1].epochs else -1
    if found.epochs and found.epochs[0][0] < latest:
        what = (
            f"begins with leader epoch {found.epochs[0][0]}, but the previous segment has {latest}"
        )
        findings.problem(path, what, LOST)


def _may_skip(partition: PartitionDirectory, options: VerifyOptions) -> bool:
    """Return whether offsets may be missing, as in a compacted log."""
    is_compacted = (partition.topic, partition.partition) in options.compacted
    return (
        is_compacted
        or partition.topic in options.compacted_topics
        or partition.topic.startswith("__")
    )


def _check_orphans(
    partition: PartitionDirectory, names: list[str], bases: set[int], findings: FileFindings
) -> None:
    for name in names:
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX):
            base = offset_of(name, suffix)
            if base is not None and base not in bases:
                path = f"{partition.path}/{name}"
                remedy = "start the broker: it deletes the file"
                findings.problem(path, "an index without its segment", remedy)


def _check_epochs(
    partition: PartitionDirectory, facts: list[SegmentFacts], findings: FileFindings
) -> None:
    """Check that the epoch file agrees with the batches."""
    path = f"{partition.path}/{LEADER_EPOCH_CHECKPOINT}"
    disk = RealDisk()
    entries: list[tuple[int, int]] = []
    # Kafka creates the file empty, and writes to it with the first record.
    if disk.exists(path) and (content := disk.read(path)):
        try:
            lines = decode_lines(content, 2)
            entries = [(int(epoch), int(start)) for epoch, start in lines]
        except (CheckpointError, ValueError) as error:
            findings.problem(path, str(error), _REBUILT)
            return
    for (epoch, start), (next_epoch, next_start) in pairwise(entries):
        if next_epoch <= epoch or next_start <= start:
            what = f"epoch {next_epoch} from {next_start} follows {epoch} from {start}"
            findings.problem(path, what, _REBUILT)
            return
    end = facts[-1].end_offset if facts else 0
    if entries and entries[-1][1] > end:
        what = f"epoch {entries[-1][0]} begins at {entries[-1][1]}, but the log ends at {end}"
        findings.problem(path, what, _REBUILT)
        return
    for epoch, offset in (each for fact in facts for each in fact.epochs):
        if entries and offset < entries[0][1] and epoch <= entries[0][0]:
            continue  # The offset is below the log start, which raised the first entry.
        known = [entry for entry in entries if entry[1] <= offset]
        if not known or known[-1][0] != epoch:
            in_file = f"epoch {known[-1][0]}" if known else "none"
            what = (
                f"the batch at offset {offset} has leader epoch {epoch}, but the file has {in_file}"
            )
            findings.problem(path, what, _REBUILT)
            return


def _check_snapshots(
    partition: PartitionDirectory, names: list[str], findings: FileFindings
) -> None:
    disk = RealDisk()
    for name in names:
        if offset_of(name, PRODUCER_SNAPSHOT_SUFFIX) is None:
            continue
        path = f"{partition.path}/{name}"
        try:
            decode_snapshot(disk.read(path))
        except CorruptSnapshotError as error:
            remedy = "start the broker: it deletes the file and reads the log from an older one"
            findings.problem(path, str(error), remedy)
        except FileNotFoundError:
            continue  # The broker has meanwhile replaced it with a newer snapshot.


def _check_metadata_files(partition: PartitionDirectory, findings: FileFindings) -> None:
    disk = RealDisk()
    for snapshot in list_snapshots(disk, partition.path):
        try:
            read_snapshot(disk, partition.path, snapshot)
        except (SnapshotError, ValueError) as error:
            path = f"{partition.path}/{snapshot_name(snapshot)}"
            remedy = (
                "stop the broker and move the file away if an older snapshot and the log remain"
            )
            findings.problem(path, str(error), remedy)
    path = f"{partition.path}/{_QUORUM_STATE}"
    if disk.exists(path):
        try:
            decode_quorum_state(disk.read(path))
        except QuorumStateError as error:
            remedy = "on the sole controller, delete it; otherwise, replace this voter"
            findings.problem(path, str(error), remedy)
