"""Verify a data directory: its identity, its checkpoints, and every partition in it.

A log that was copied from the leader has the gaps of the leader's compaction, even if this broker
has not compacted it, so that `cleaner-offset-checkpoint` does not name it. The metadata log in the
same directory therefore tells which topics may lack offsets.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, NamedTuple

from barnabas.cli.log.segment_files import (
    METADATA_LOG,
    METADATA_TOPIC,
    ReadOnlyFile,
    SegmentScan,
    is_locked,
    needs_recovery,
    partition_directories,
)
from barnabas.cli.log.verify import VerifyOptions, verify_partition
from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.record_frame import decode_metadata_record
from barnabas.protocol.records.topics import ConfigRecord
from barnabas.record.reader import records_of
from barnabas.record.record import CorruptBatchError
from barnabas.runtime.disk import RealDisk
from barnabas.storage.errors import InconsistentDirectoryError
from barnabas.storage.files.checkpoint import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    CheckpointError,
    OffsetCheckpoint,
)
from barnabas.storage.files.log_directory import LOCK_FILE
from barnabas.storage.files.metadata_files import META_PROPERTIES, MetaProperties

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from barnabas.cli.log.segment_files import FileFindings, PartitionDirectory
    from barnabas.cli.log.verify import LogFacts

_CHECKPOINTS = (RECOVERY_POINTS, LOG_START_OFFSETS, HIGH_WATERMARKS, CLEANER_OFFSETS)
_REMOVE = "stop the broker and delete the file: the next start reads the logs instead"


class Verified(NamedTuple):
    """The result of a verification."""

    partitions: dict[PartitionDirectory, LogFacts]
    # Whether a broker has the directory open.
    is_running: bool


def bytes_to_read(path: str) -> int:
    """Return the size of all segments, for a progress bar."""
    disk = RealDisk()
    total = 0
    for partition in partition_directories(path):
        with contextlib.suppress(FileNotFoundError):
            for name in disk.list(partition.path):
                if name.endswith(".log"):
                    total += disk.size(f"{partition.path}/{name}")
    return total


def verify(
    path: str, *, deep: bool, advance: Callable[[int], None], findings: FileFindings
) -> Verified:
    """Verify a data directory, or the directory of one partition.

    Raises:
        click.UsageError: The path is neither a data directory nor a partition's directory.
    """
    path = path.rstrip("/") or "/"
    disk = RealDisk()
    inside = partition_directories(path)
    is_partition = len(inside) == 1 and inside[0].path == path
    top = f"{path}/.." if is_partition else path
    is_running = is_locked(f"{top}/{LOCK_FILE}")
    offsets = _checkpoints(top, findings, reports=not is_partition)
    compacted = frozenset((tp[0], tp[1]) for tp in offsets[CLEANER_OFFSETS])
    options = VerifyOptions(deep, is_running, advance, compacted, compacted_topics(top))
    facts = {}
    for part in inside:
        # A running broker may have deleted the partition meanwhile.
        with contextlib.suppress(FileNotFoundError):
            facts[part] = verify_partition(part, options, findings)
    if not is_partition:
        _check_identity(disk, path, findings)
        if is_running:
            findings.note(
                path, "a broker uses the directory: data written during the check is not verified"
            )
        elif needs_recovery(path):
            what = "the broker was not stopped cleanly"
            findings.note(path, what, "no action is needed: the next start recovers the logs")
    for part, found in facts.items():
        _check_offsets(top, part, found, offsets, findings, is_running=is_running)
    return Verified(facts, is_running)


def _check_identity(disk: RealDisk, path: str, findings: FileFindings) -> None:
    try:
        if MetaProperties.read(disk, path) is None:
            what = f"{META_PROPERTIES} is missing: the directory does not belong to a node"
            remedy = "start the broker, which formats the directory; or restore the file"
            findings.problem(path, what, remedy)
    except InconsistentDirectoryError as error:
        remedy = "write the node.id, cluster.id and version=1 of the node's other directories"
        findings.problem(f"{path}/{META_PROPERTIES}", str(error), remedy)


Offsets = dict[str, dict[tuple[str, int], int]]


def _checkpoints(path: str, findings: FileFindings, *, reports: bool) -> Offsets:
    """Return the offsets in all checkpoint files; unreadable files count as empty."""
    found: Offsets = {}
    for name in _CHECKPOINTS:
        found[name] = {}
        try:
            read = OffsetCheckpoint(RealDisk(), path, name).read()
            found[name] = {(tp.topic, tp.partition): offset for tp, offset in read.items()}
        except CheckpointError as error:
            if reports:
                findings.problem(f"{path}/{name}", str(error), _REMOVE)
    return found


def _check_offsets(
    top: str,
    part: PartitionDirectory,
    facts: LogFacts,
    offsets: Offsets,
    findings: FileFindings,
    *,
    is_running: bool,
) -> None:
    """Check that no checkpoint contains an offset beyond the log."""
    key = (part.topic, part.partition)
    # While a broker runs, its checkpoint can be newer than the end that was read here. The entries
    # belong to the current log: a deleted one of the same name, or a future copy, may be shorter.
    if is_running or part.topic == METADATA_TOPIC or not part.is_current:
        return
    end = facts.end_offset
    for name in (RECOVERY_POINTS, HIGH_WATERMARKS, CLEANER_OFFSETS):
        offset = offsets[name].get(key)
        if offset is not None and offset > end:
            what = f"{part.name}: {offset}, but its log ends at {end}: records were lost"
            remedy = (
                "start the broker: it uses the end of the log; other replicas may have the "
                "lost records"
            )
            findings.problem(f"{top}/{name}", what, remedy)
    start = offsets[LOG_START_OFFSETS].get(key)
    if start is not None and start > end:
        what = f"{part.name}: the log starts at {start}, but it ends at {end}"
        remedy = "start the broker: it continues with an empty log from that offset"
        findings.problem(f"{top}/{LOG_START_OFFSETS}", what, remedy)


_SUFFIXES = (".log", ".checkpoint")
_TOPIC = 2


def compacted_topics(path: str) -> frozenset[str]:
    """Return the topics that have or had a `cleanup.policy` with compaction."""
    return frozenset(
        record.resource_name
        for record in metadata_records(path)
        if isinstance(record, ConfigRecord)
        and is_of_topic(record, "cleanup.policy")
        and "compact" in (record.value or "")
    )


def is_of_topic(record: ConfigRecord, key: str) -> bool:
    """Return whether a record sets a key of a topic."""
    return record.resource_type == _TOPIC and record.name == key


def metadata_records(path: str) -> Iterator[object]:
    """Yield the records of the metadata log and its snapshots; an error for an unknown one.

    Args:
        path: the data directory. Parts of its metadata log that are missing or damaged count as
            empty.
    """
    disk, directory = RealDisk(), f"{path}/{METADATA_LOG}"
    if not disk.is_directory(directory):
        return
    for name in disk.list(directory):
        if not name.endswith(_SUFFIXES):
            continue
        try:
            with ReadOnlyFile(f"{directory}/{name}") as file:
                yield from _in_file(file)
        except OSError:
            # The node has deleted the file, or the disk cannot read it.
            continue


def _in_file(file: ReadOnlyFile) -> Iterator[object]:
    for batch in SegmentScan(file):
        if not batch.crc_is_right or batch.header.is_control:
            continue
        try:
            for record in records_of(batch.data, 0, batch.header):
                yield _decoded(record.value or b"")
        except CorruptBatchError:
            # Other commands report damage of the metadata log.
            continue


def _decoded(value: bytes) -> object:
    try:
        return decode_metadata_record(value)[0]
    except ProtocolError as error:
        return error
