"""`barnabas log repair`: recover the intact data of a stopped broker's damaged files.

No data is deleted: a file that is replaced, cut or not needed is kept with the suffix `.damaged`.

In a damaged segment, intact batches are kept and batches with one flipped bit are corrected. A
batch that cannot be saved is replaced by an empty batch with the same offsets, like those that
compaction leaves. All later batches keep their offsets, and consumers continue with the next
record.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from barnabas.cli.log.segment_files import (
    METADATA_TOPIC,
    FileFindings,
    ReadOnlyFile,
    SegmentScan,
    partition_directories,
)
from barnabas.cli.log.verify import SegmentCheck
from barnabas.cli.log.verify_directory import compacted_topics
from barnabas.raft.election_state import QUORUM_STATE_FILE, QuorumStateError, decode_quorum_state
from barnabas.raft.log.metadata_check import COMMITTED_OFFSET, find_intact_end
from barnabas.record.batch import (
    ATTRIBUTES_POSITION,
    CRC_POSITION,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC_POSITION,
    MAGIC_V2,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchHeader,
    check_crc,
    set_crc,
    set_offset_and_epoch,
)
from barnabas.record.compiled import crc32c
from barnabas.runtime.disk import RealDisk
from barnabas.storage.config import LONG_MAX
from barnabas.storage.files.checkpoint import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    CheckpointError,
    OffsetCheckpoint,
    decode_lines,
)
from barnabas.storage.files.leader_epoch_cache import EpochEntry, LeaderEpochCache
from barnabas.storage.files.metadata_files import CLEAN_SHUTDOWN
from barnabas.storage.log.batch_order import BatchOrder
from barnabas.storage.producers.producer_entry import CorruptSnapshotError, decode_snapshot
from barnabas.storage.topic_partition import (
    INDEX_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    PRODUCER_SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    TopicPartition,
    offset_file,
    offset_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.cli.log.segment_files import PartitionDirectory

_DAMAGED = ".damaged"
_PART = ".tmp"
_INDEXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)
_REBUILT = "renamed to .damaged; the next start rebuilds it"


@dataclass(frozen=True, slots=True)
class RepairStep:
    """One action of the repair, executed or only planned."""

    path: str
    problem: str
    # Description of the action.
    action: str
    # Offsets of lost records, `last_lost` inclusive; None if no records are lost.
    first_lost: int | None = None
    last_lost: int | None = None

    @property
    def records_lost(self) -> int:
        """Maximum number of lost records; some offsets may have no record."""
        if self.first_lost is None or self.last_lost is None:
            return 0
        return self.last_lost - self.first_lost + 1


def repair(path: str, *, apply: bool) -> list[RepairStep]:
    """Repair a data directory, or the directory of one partition. The broker must be stopped.

    Args:
        path: The directory.
        apply: Whether to execute the actions; otherwise they are only returned.

    Returns:
        The actions.

    Raises:
        click.UsageError: The path is neither a data directory nor a partition's directory.
    """
    path = path.rstrip("/") or "/"
    inside = partition_directories(path)
    is_partition = len(inside) == 1 and inside[0].path == path
    top = path.rpartition("/")[0] or "." if is_partition else path
    return _Repair(top, apply=apply).run(inside, with_top=not is_partition)


class _Repair:
    """One run over a data directory."""

    def __init__(self, top: str, *, apply: bool) -> None:
        self._top = top
        self._apply = apply
        self._disk = RealDisk()
        self._steps: list[RepairStep] = []
        self._compacted_topics = compacted_topics(top)

    def run(self, partitions: list[PartitionDirectory], *, with_top: bool) -> list[RepairStep]:
        """Repair all partitions and, with `with_top`, the files of the data directory itself."""
        if with_top:
            for name in (RECOVERY_POINTS, LOG_START_OFFSETS, HIGH_WATERMARKS, CLEANER_OFFSETS):
                try:
                    OffsetCheckpoint(self._disk, self._top, name).read()
                except CheckpointError as error:
                    self._rename_damaged(f"{self._top}/{name}", str(error), _REBUILT)
        for partition in partitions:
            before = len(self._steps)
            if partition.topic == METADATA_TOPIC:
                self._repair_metadata(partition)
            else:
                self._repair_log(partition)
            if len(self._steps) > before and self._apply:
                self._force_recovery(partition)
        return self._steps

    def _force_recovery(self, partition: PartitionDirectory) -> None:
        """Make the next start recover the whole log, which rebuilds indexes and transactions."""
        marker = f"{self._top}/{CLEAN_SHUTDOWN}"
        if self._disk.exists(marker):
            self._disk.remove(marker)
        checkpoint = OffsetCheckpoint(self._disk, self._top, RECOVERY_POINTS)
        try:
            offsets = checkpoint.read()
        except CheckpointError:
            return
        if offsets.pop(TopicPartition(partition.topic, partition.partition), None) is not None:
            checkpoint.write(offsets)

    # -- logs ------------------------------------------------------------------------------------

    def _repair_log(self, partition: PartitionDirectory) -> None:
        self._check_small_files(partition)
        bases = self._bases(partition)
        if not bases:
            return
        may_skip = self._is_compacted(partition)
        order = BatchOrder(self._epochs(partition), may_skip=may_skip)
        for index, base in enumerate(bases):
            following = self._following(partition, bases[index + 1 :])
            order.begin_segment(base)
            path = offset_file(partition.path, base, LOG_SUFFIX)
            with ReadOnlyFile(path) as file:
                pieces = list(_joined(repaired_pieces(file, order, following, may_skip=may_skip)))
                damaged = [piece for piece in pieces if piece.content is not None]
                if not damaged:
                    self._check_indexes(partition, base)
                    continue
                for piece in damaged:
                    self._steps.append(_step_of(path, piece, order.next_offset))
                if not self._apply:
                    continue
                self._write_repaired(path, file, pieces)
            for suffix in _INDEXES:
                self._move(offset_file(partition.path, base, suffix))

    def _check_indexes(self, partition: PartitionDirectory, base: int) -> None:
        """Rename the damaged indexes of an intact segment."""
        findings = FileFindings()
        SegmentCheck(partition.path, base, findings).run(
            is_last=False, is_running=False, deep=False, advance=lambda _: None
        )
        for finding in findings.problems:
            if finding.path.endswith(_INDEXES) and self._disk.exists(finding.path):
                self._rename_damaged(finding.path, finding.what, _REBUILT)

    def _following(self, partition: PartitionDirectory, bases: list[int]) -> Following:
        if not bases:
            return Following()
        with ReadOnlyFile(offset_file(partition.path, bases[0], LOG_SUFFIX)) as file:
            return Following(bases[0], first_header(file))

    def _write_repaired(self, path: str, file: ReadOnlyFile, pieces: list[Piece]) -> None:
        """Replace a segment. The new file is durable when this method returns."""
        part = f"{path}{_PART}"
        if self._disk.exists(part):
            self._disk.remove(part)
        repaired = self._disk.open(part)
        for piece in pieces:
            content = piece.content
            if content is not None:
                repaired.append(content)
                continue
            at, end = piece.position, piece.position + piece.size
            while at < end:
                block = file.read_at(min(1 << 20, end - at), at)
                repaired.append(block)
                at += len(block)
        repaired.sync()
        repaired.close()
        self._move(path)
        self._disk.rename(part, path)
        self._disk.sync_directory(path.rpartition("/")[0])

    def _check_small_files(self, partition: PartitionDirectory) -> None:
        path = f"{partition.path}/{LEADER_EPOCH_CHECKPOINT}"
        if self._disk.exists(path) and (content := self._disk.read(path)):
            try:
                decode_lines(content, 2)
            except CheckpointError as error:
                self._rename_damaged(path, str(error), _REBUILT)
        for name in self._disk.list(partition.path):
            if offset_of(name, PRODUCER_SNAPSHOT_SUFFIX) is None:
                continue
            try:
                decode_snapshot(self._disk.read(f"{partition.path}/{name}"))
            except CorruptSnapshotError as error:
                action = (
                    "renamed to .damaged; the producer state is rebuilt from an older snapshot and "
                    "the batches"
                )
                self._rename_damaged(f"{partition.path}/{name}", str(error), action)

    # -- metadata --------------------------------------------------------------------------------

    def _repair_metadata(self, partition: PartitionDirectory) -> None:
        """Cut the log at the damage: later records are meaningless without the damaged ones."""
        path = f"{partition.path}/{QUORUM_STATE_FILE}"
        if self._disk.exists(path):
            try:
                decode_quorum_state(self._disk.read(path))
            except QuorumStateError as error:
                action = "renamed to .damaged: repair this file only on the sole controller"
                self._rename_damaged(path, str(error), action)
        intact = find_intact_end(self._disk, partition.path)
        if intact.path is None:
            return
        last = self._last_offset(partition)
        action = (
            f"the metadata log is cut at offset {intact.end}, and the rest is set "
            "aside: later topics and changes are lost, and the next start renames the "
            "logs of those topics (-stray)"
        )
        self._steps.append(
            RepairStep(intact.path, intact.problem, action, intact.end, max(last, intact.end))
        )
        if not self._apply:
            return
        for base in self._bases(partition):
            name = offset_file(partition.path, base, LOG_SUFFIX)
            if base > intact.end or (name == intact.path and not intact.position):
                self._move(name)
            elif name == intact.path:
                content = self._disk.read(name)[: intact.position]
                self._move(name)
                self._disk.write_atomically(name, content)
            else:
                continue
            for suffix in _INDEXES:
                self._move(offset_file(partition.path, base, suffix))
        self._move(f"{partition.path}/{COMMITTED_OFFSET}")

    def _last_offset(self, partition: PartitionDirectory) -> int:
        """Return the last offset of any intact batch that a scan of the segments reaches."""
        last = -1
        for base in self._bases(partition):
            with ReadOnlyFile(offset_file(partition.path, base, LOG_SUFFIX)) as file:
                for batch in SegmentScan(file):
                    if batch.crc_is_right:
                        last = max(last, batch.header.last_offset)
        return last

    # -- files -----------------------------------------------------------------------------------

    def _bases(self, partition: PartitionDirectory) -> list[int]:
        names = self._disk.list(partition.path)
        return sorted(base for name in names if (base := offset_of(name, LOG_SUFFIX)) is not None)

    def _is_compacted(self, partition: PartitionDirectory) -> bool:
        if partition.topic.startswith("__") or partition.topic in self._compacted_topics:
            return True
        try:
            offsets = OffsetCheckpoint(self._disk, self._top, CLEANER_OFFSETS).read()
        except CheckpointError:
            return True
        return TopicPartition(partition.topic, partition.partition) in offsets

    def _epochs(self, partition: PartitionDirectory) -> list[EpochEntry]:
        cache = LeaderEpochCache(self._disk, partition.path)
        cache.load()
        return cache.entries

    def _rename_damaged(self, path: str, problem: str, action: str) -> None:
        self._steps.append(RepairStep(path, problem, action))
        if self._apply:
            self._move(path)

    def _move(self, path: str) -> None:
        """Rename a file with the suffix for damaged files; earlier ones are kept too."""
        if not self._disk.exists(path):
            return
        target, number = f"{path}{_DAMAGED}", 1
        while self._disk.exists(target):
            number += 1
            target = f"{path}{_DAMAGED}-{number}"
        self._disk.rename(path, target)


def _joined(pieces: Iterator[Piece]) -> Iterator[Piece]:
    """Merge adjacent intact pieces."""
    run: Piece | None = None
    for piece in pieces:
        if piece.content is None:
            run = piece if run is None else run._replace(size=run.size + piece.size)
            continue
        if run is not None:
            yield run
            run = None
        yield piece
    if run is not None:
        yield run


def _step_of(path: str, piece: Piece, end: int) -> RepairStep:
    problem = f"at position {piece.position}: {piece.problem}"
    if piece.last_lost < piece.first_lost:
        return RepairStep(path, problem, "repaired; no record is lost")
    if piece.last_lost == LONG_MAX:
        action = f"cut off; the log ends at offset {end}"
        return RepairStep(path, problem, action, piece.first_lost, piece.first_lost)
    action = "replaced by an empty batch; consumers continue after it"
    return RepairStep(path, problem, action, piece.first_lost, piece.last_lost)


# Larger batches are not searched for a flipped bit: each bit costs a checksum of the batch.
_SEARCHED_BYTES_MAX = 16 << 10
_BLOCK_BYTES = 4 << 20
_LENGTH_MIN = HEADER_SIZE - LOG_OVERHEAD
_LENGTH_POSITION = 8


class Following(NamedTuple):
    """The data after a segment."""

    # Base offset of the next segment; LONG_MAX if there is none.
    base_offset: int = LONG_MAX
    # Header of its first batch; None if that is damaged.
    header: BatchHeader | None = None


class Piece(NamedTuple):
    """A part of the repaired segment."""

    # Position in the damaged file.
    position: int
    size: int
    # The replacement; None: the part stays unchanged.
    content: bytes | None = None
    # The problem; empty for an intact batch.
    problem: str = ""
    # Offsets of lost records, `last_lost` inclusive; none if `last_lost` is below `first_lost`.
    first_lost: int = 0
    last_lost: int = -1


def repaired_pieces(
    file: ReadOnlyFile, order: BatchOrder, following: Following, *, may_skip: bool
) -> Iterator[Piece]:
    """Yield the pieces of a segment in order.

    Args:
        file: The damaged segment.
        order: The expected next offset and epoch, at the beginning of the segment.
        following: The data after the segment.
        may_skip: Whether offsets may be missing (the log is compacted).
    """
    limit = following.base_offset
    position = 0
    while position < file.size:
        piece, header = _piece_at(file, order, position, following)
        if header is not None:
            order.take(header)
        yield piece
        position += piece.size
    if limit != LONG_MAX and order.next_offset < limit and not may_skip:
        yield _filled(order, position, 0, limit, "offsets are missing before the next segment")


def first_header(file: ReadOnlyFile) -> BatchHeader | None:
    """Return the header of a segment's first batch; None if that is damaged."""
    batch = _intact_batch(file, 0)
    return None if batch is None else _header(batch)


def _piece_at(
    file: ReadOnlyFile, order: BatchOrder, position: int, following: Following
) -> tuple[Piece, BatchHeader | None]:
    """Return the piece at a position, and the header of its batch.

    The header is None for lost or filled pieces.
    """
    limit = following.base_offset
    batch = _intact_batch(file, position)
    if batch is not None:
        header = _header(batch)
        behind = _intact_batch(file, position + len(batch))
        after = following.header if behind is None else _header(behind)
        problem = order.problem(header, after, limit)
        if problem is None and header.next_offset <= limit:
            return Piece(position, len(batch)), header
        repaired = _with_corrected_header(batch, order, after, limit)
        if repaired is not None:
            piece = Piece(
                position, len(batch), repaired, f"{problem}: it is {_describe_change(repaired)}"
            )
            return piece, _header(repaired)
    else:
        repaired = _with_restored_bit(file, position, order)
        if repaired is not None:
            what = "its CRC is wrong: one flipped bit was corrected"
            return Piece(position, len(repaired), repaired, what), _header(repaired)
    start, base_offset = _next_intact(file, order, position, limit)
    lost = start - position
    if start == file.size and limit == LONG_MAX:
        what = f"the last {lost} bytes are no intact batches"
        return Piece(position, lost, b"", what, order.next_offset, LONG_MAX), None
    return _filled(order, position, lost, base_offset, f"{lost} bytes are no intact batch"), None


def _describe_change(batch: bytes) -> str:
    header = _header(batch)
    return f"given offset {header.base_offset} and leader epoch {header.partition_leader_epoch}"


def _header(batch: bytes | bytearray) -> BatchHeader:
    return BatchHeader._make(HEADER.unpack_from(batch))


def _intact_batch(file: ReadOnlyFile, position: int) -> bytes | None:
    """Return the batch at a position if its structure and CRC are valid."""
    head = file.read_at(HEADER_SIZE, position)
    if len(head) < HEADER_SIZE:
        return None
    header = _header(head)
    if header.magic != MAGIC_V2 or not _LENGTH_MIN <= header.batch_length <= file.size - position:
        return None
    batch = file.read_at(header.size, position)
    if header.last_offset_delta < 0 or not check_crc(batch, 0, header):
        return None
    return batch


def _with_corrected_header(
    batch: bytes, order: BatchOrder, after: BatchHeader | None, following: int
) -> bytes | None:
    """Return the batch with corrected offset and epoch; None if they cannot be determined."""
    header = _header(batch)
    end = order.next_offset + header.last_offset_delta + 1
    limit = following if after is None else after.base_offset
    # The next batch determines the end of this one; at the end of the log, there is none.
    if end != limit and not (after is None and limit == LONG_MAX):
        return None
    epoch = header.partition_leader_epoch
    highest = LONG_MAX if after is None else after.partition_leader_epoch
    if not order.epoch <= epoch <= highest or (after is None and order.epoch >= 0):
        epoch = max(order.epoch, 0)
    repaired = bytearray(batch)
    set_offset_and_epoch(repaired, 0, order.next_offset, epoch)
    return bytes(repaired)


def _with_restored_bit(file: ReadOnlyFile, position: int, order: BatchOrder) -> bytes | None:
    """Return the batch at a position with one bit flipped so that its CRC matches."""
    size = min(_SEARCHED_BYTES_MAX, file.size - position)
    block = bytearray(file.read_at(size, position))
    if len(block) < HEADER_SIZE:
        return None
    block[MAGIC_POSITION] = MAGIC_V2
    length = int.from_bytes(block[_LENGTH_POSITION:LOG_OVERHEAD], "big")
    for bit in range(33):
        # Try the length as it is, then with each of its bits flipped.
        end = (length ^ (1 << bit - 1 if bit else 0)) + LOG_OVERHEAD
        if not HEADER_SIZE <= end <= len(block):
            continue
        block[_LENGTH_POSITION:LOG_OVERHEAD] = (end - LOG_OVERHEAD).to_bytes(4, "big")
        batch = block[:end]
        if not bit:
            if _restore_bit(batch):
                break
        elif check_crc(batch, 0, _header(batch)):
            break
    else:
        return None
    header = _header(batch)
    is_continued = header.base_offset >= order.next_offset and header.last_offset_delta >= 0
    return bytes(batch) if is_continued else None


def _restore_bit(batch: bytearray) -> bool:
    """Find and restore the flipped bit. Return whether that made the CRC match."""
    wanted = int.from_bytes(batch[CRC_POSITION:ATTRIBUTES_POSITION], "big")
    found = crc32c(memoryview(batch)[ATTRIBUTES_POSITION:])
    if (wanted ^ found).bit_count() <= 1:
        # Only the magic was wrong and is already set, or a bit of the checksum itself is wrong.
        batch[CRC_POSITION:ATTRIBUTES_POSITION] = found.to_bytes(4, "big")
        return True
    for at in range(ATTRIBUTES_POSITION, len(batch)):
        for bit in range(8):
            batch[at] ^= 1 << bit
            with memoryview(batch) as view:
                is_right = crc32c(view[ATTRIBUTES_POSITION:]) == wanted
            if is_right:
                return True
            batch[at] ^= 1 << bit
    return False


def _next_intact(
    file: ReadOnlyFile, order: BatchOrder, position: int, following: int
) -> tuple[int, int]:
    """Return the position and base offset of the next intact batch, or the end of the file."""
    magic = bytes([MAGIC_V2])
    block_start = position + 1
    while block_start < file.size:
        block = file.read_at(_BLOCK_BYTES, block_start)
        at = block.find(magic, MAGIC_POSITION)
        while at >= 0:
            start = block_start + at - MAGIC_POSITION
            base_offset = int.from_bytes(block[at - MAGIC_POSITION : at - 8], "big")
            if order.next_offset <= base_offset < following:
                batch = _intact_batch(file, start)
                if batch is not None and _header(batch).partition_leader_epoch >= order.epoch:
                    return start, base_offset
            at = block.find(magic, at + 1)
        block_start += _BLOCK_BYTES - MAGIC_POSITION
    return file.size, following


def _filled(order: BatchOrder, position: int, size: int, until: int, problem: str) -> Piece:
    """Return an empty batch for the offsets up to `until`, exclusive."""
    first = order.next_offset
    if until <= first:
        return Piece(position, size, b"", problem, first, until - 1)
    values = (
        first, _LENGTH_MIN, max(order.epoch, 0), MAGIC_V2, 0, 0, until - first - 1, NO_TIMESTAMP,
        NO_TIMESTAMP, NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE, 0,
    )  # fmt: skip
    batch = bytearray(HEADER.pack(*values))
    set_crc(batch, 0, HEADER_SIZE)
    order.take(_header(bytes(batch)))
    return Piece(position, size, bytes(batch), problem, first, until - 1)
