"""`barnabas log repair`: recover the intact data of a stopped broker's damaged files.

No data is deleted: a file that is replaced, cut or not needed is kept with the suffix `.damaged`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.cli.log.compacted_topics import compacted_topics
from barnabas.cli.log.findings import Findings
from barnabas.cli.log.paths import partition_directories
from barnabas.cli.log.read_only import ReadOnlyFile
from barnabas.cli.log.repaired_segment import Following, first_header, repaired_pieces
from barnabas.raft.election_state import (
    QUORUM_STATE_FILE,
    QuorumStateError,
    decode_quorum_state,
)
from barnabas.raft.log.metadata_check import COMMITTED_OFFSET, find_intact_end
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

    from barnabas.cli.log.paths import PartitionDirectory
    from barnabas.cli.log.repaired_segment import Piece

__all__ = ["RepairStep", "repair"]

METADATA_TOPIC = "__cluster_metadata"
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
        from barnabas.cli.log.verify_segment import SegmentCheck

        findings = Findings()
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
        from barnabas.cli.log.segment_scan import SegmentScan

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
