"""Verify the directory of one partition: segments, leader epochs, snapshots and topic id."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from barnabas.cli.log.verify_segment import LOST, SegmentCheck
from barnabas.raft.election_state import QuorumStateError, decode_quorum_state
from barnabas.raft.listener import SnapshotError
from barnabas.raft.log.snapshot import list_snapshots, read_snapshot, snapshot_name
from barnabas.runtime.disk import RealDisk
from barnabas.storage.files.checkpoint import CheckpointError, decode_lines
from barnabas.storage.files.metadata_files import read_topic_id
from barnabas.storage.producers.producer_entry import CorruptSnapshotError, decode_snapshot
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

    from barnabas.cli.log.findings import Findings
    from barnabas.cli.log.paths import PartitionDirectory
    from barnabas.cli.log.verify_segment import SegmentFacts

__all__ = ["PartitionFacts", "VerifyOptions", "verify_partition"]

METADATA_TOPIC = "__cluster_metadata"
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


class PartitionFacts(NamedTuple):
    """Facts about the log of a partition, from all its segments."""

    start_offset: int
    end_offset: int
    segments: int
    batches: int


def verify_partition(
    partition: PartitionDirectory, options: VerifyOptions, findings: Findings
) -> PartitionFacts:
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
    return PartitionFacts(
        facts[0].base_offset if facts else 0,
        facts[-1].end_offset if facts else 0,
        len(facts),
        sum(each.batches for each in facts),
    )


def _check_segment(
    partition: PartitionDirectory,
    base: int,
    options: VerifyOptions,
    findings: Findings,
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
    findings: Findings,
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
    partition: PartitionDirectory, names: list[str], bases: set[int], findings: Findings
) -> None:
    for name in names:
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX):
            base = offset_of(name, suffix)
            if base is not None and base not in bases:
                path = f"{partition.path}/{name}"
                remedy = "start the broker: it deletes the file"
                findings.problem(path, "an index without its segment", remedy)


def _check_epochs(
    partition: PartitionDirectory, facts: list[SegmentFacts], findings: Findings
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


def _check_snapshots(partition: PartitionDirectory, names: list[str], findings: Findings) -> None:
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


def _check_metadata_files(partition: PartitionDirectory, findings: Findings) -> None:
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
