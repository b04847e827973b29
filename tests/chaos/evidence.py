"""Shows the batches in the segment files around lost or duplicated records.

For each such record, and for each node: the batch headers around its offsets, all batches of the
same producer that hold the same sequence numbers, and the file of leader epochs. The files are read
without the processes, so the nodes should have no pending writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas.record.batch import BatchHeader, batches
from barnabas.record.record import CorruptBatchError, UnsupportedMagicError
from barnabas.storage.topic_partition import LEADER_EPOCH_CHECKPOINT
from scenario.segments import segments

if TYPE_CHECKING:
    from chaos.checker import Finding, Verdict


# Findings that are shown with their batches, of each kind.
SHOWN_MAX = 3
SHOWN_KINDS = (
    "lost",
    "duplicated",
    "reordered",
    "misplaced",
    "two values",
    "vanished",
    "gap",
    "skipped",
)
# Batches shown before and after each batch that holds an offset of a finding.
CONTEXT_BATCHES = 3


@dataclass(frozen=True)
class StoredBatch:
    """A batch and the segment file that holds it."""

    file: str
    position: int
    header: BatchHeader

    def __str__(self) -> str:
        header = self.header
        return (
            f"{self.file} at {self.position}: offsets {header.base_offset} to {header.last_offset}"
            f" leader_epoch={header.partition_leader_epoch} producer_id={header.producer_id}"
            f" producer_epoch={header.producer_epoch} sequences={header.base_sequence} to"
            f" {header.last_sequence} max_timestamp={header.max_timestamp} crc={header.crc:08x}"
            f" size={header.size}"
        )


def evidence(verdict: Verdict, topic: str, data_directories: dict[int, Path]) -> str:
    """Return the batches around the findings of a verdict; an empty text if there are none.

    Args:
        verdict: the findings of the checker.
        topic: the topic of the findings.
        data_directories: the log directory of each node that holds replicas, by its id.
    """
    shown: dict[str, int] = {}
    parts: list[str] = []
    for finding in verdict.findings:
        shown[finding.kind] = shown.get(finding.kind, 0) + 1
        if finding.kind in SHOWN_KINDS and finding.offsets and shown[finding.kind] <= SHOWN_MAX:
            parts.append(f"=== {finding}")
            for node, directory in data_directories.items():
                parts += [f"  node {node}:", *_of_node(finding, topic, directory)]
    return "\n".join(parts)


def _of_node(finding: Finding, topic: str, directory: Path) -> Iterator[str]:
    found, complaints = stored_batches(directory, topic, finding.partition)
    places = _places(found, finding.offsets)
    held = [found[place].header for place in places]
    shown = {
        near
        for place in places
        for near in range(
            max(0, place - CONTEXT_BATCHES), min(len(found), place + CONTEXT_BATCHES + 1)
        )
    }
    shown |= {place for place, each in enumerate(found) if _overlaps(each.header, held)}
    if not places:
        # Without such batches, show the end of the log.
        shown |= set(range(max(0, len(found) - CONTEXT_BATCHES), len(found)))
    before = -1
    for place in sorted(shown):
        if place != before + 1:
            yield "    ..."
        before = place
        yield f"  {'->' if place in places else '  '}{found[place]}"
    for complaint in complaints:
        yield f"    {complaint}"
    checkpoint = directory / f"{topic}-{finding.partition}" / LEADER_EPOCH_CHECKPOINT
    content = checkpoint.read_text(errors="replace").split("\n") if checkpoint.exists() else []
    yield f"    leader epochs and their start offsets: {', '.join(content[2:]).strip(', ')}"


def stored_batches(
    data_directory: Path, topic: str, partition: int
) -> tuple[list[StoredBatch], list[str]]:
    """Return the batches of a replica in the order of its files, and errors of unreadable files."""
    found: list[StoredBatch] = []
    complaints: list[str] = []
    for path in segments(data_directory, topic, partition):
        try:
            found += (
                StoredBatch(path.name, position, header)
                for position, header in batches(path.read_bytes())
            )
        except (CorruptBatchError, UnsupportedMagicError, OSError) as error:
            complaints.append(f"{path.name}: {error}")
    return found, complaints


def producer_epochs(data_directory: Path, topic: str, partition: int) -> dict[int, int]:
    """Return the producer epoch of each offset that a replica's files hold."""
    found, _ = stored_batches(data_directory, topic, partition)
    return {
        offset: each.header.producer_epoch
        for each in found
        for offset in range(each.header.base_offset, each.header.last_offset + 1)
    }


def _places(found: Sequence[StoredBatch], offsets: Sequence[int]) -> list[int]:
    """Return which batches hold one of the offsets."""
    return [
        place
        for place, each in enumerate(found)
        if any(each.header.base_offset <= offset <= each.header.last_offset for offset in offsets)
    ]


def _overlaps(header: BatchHeader, others: Sequence[BatchHeader]) -> bool:
    """Return whether a batch shares sequence numbers with one of the others."""
    return header.has_producer_id and any(
        header.producer_id == other.producer_id
        and header.producer_epoch == other.producer_epoch
        and header.base_sequence <= other.last_sequence
        and other.base_sequence <= header.last_sequence
        for other in others
    )
