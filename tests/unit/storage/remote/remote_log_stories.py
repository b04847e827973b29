"""Runs the stories of `remote_log.txt` against a `RemoteLog`."""

from __future__ import annotations

import re
from pathlib import Path

from barnabas.protocol.records.remote_log import (
    RemoteLogSegmentIdEntry,
    RemoteLogSegmentMetadataRecord,
    RemoteLogSegmentMetadataUpdateRecord,
    SegmentLeaderEpochEntry,
    TopicIdPartitionEntry,
)
from barnabas.storage.remote.segment_states import RemoteLog
from barnabas.storage.topic_partition import TopicIdPartition

WHERE = TopicIdPartition(b"0123456789abcdef", "orders", 3)
SIZE = 10
STATES = {"finish": 1, "delete": 2, "deleted": 3}
_START = re.compile(r"start (-?\d+)-(-?\d+) epochs((?: -?\d+@-?\d+)*)( txn)?")


def id_entry(name: str, where: TopicIdPartition = WHERE) -> RemoteLogSegmentIdEntry:
    """Return the id of the segment with this name, of up to 16 characters."""
    return RemoteLogSegmentIdEntry(
        topic_id_partition=TopicIdPartitionEntry(
            name=where.topic, id=where.topic_id, partition=where.partition
        ),
        id=name.encode().ljust(16, b"."),
    )


def start(
    name: str,
    offsets: tuple[int, int],
    epochs: list[tuple[int, int]],
    *,
    has_transactions: bool = False,
    where: TopicIdPartition = WHERE,
) -> RemoteLogSegmentMetadataRecord:
    """Return the first event of a segment."""
    return RemoteLogSegmentMetadataRecord(
        remote_log_segment_id=id_entry(name, where),
        start_offset=offsets[0],
        end_offset=offsets[1],
        broker_id=1,
        max_timestamp_ms=1_700_000_000_000 + offsets[1],
        event_timestamp_ms=1_700_000_001_000,
        segment_leader_epochs=[
            SegmentLeaderEpochEntry(leader_epoch=epoch, offset=offset) for epoch, offset in epochs
        ],
        segment_size_in_bytes=SIZE,
        custom_metadata=None,
        remote_log_segment_state=0,
        txn_index_empty=not has_transactions,
    )


def update(
    name: str,
    state: int,
    *,
    custom: bytes | None = None,
    where: TopicIdPartition = WHERE,
    broker_id: int = 1,
) -> RemoteLogSegmentMetadataUpdateRecord:
    """Return a later event of a segment."""
    return RemoteLogSegmentMetadataUpdateRecord(
        remote_log_segment_id=id_entry(name, where),
        broker_id=broker_id,
        event_timestamp_ms=1_700_000_002_000,
        custom_metadata=custom,
        remote_log_segment_state=state,
    )


def name_of(segment_id: bytes) -> str:
    """Return the name of a segment."""
    return segment_id.rstrip(b".").decode()


def stories(path: Path) -> dict[str, list[str]]:
    """Return the lines of each story by its title."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in path.read_text().splitlines():
        if line.startswith("## "):
            lines = found[line.removeprefix("## ")] = []
        elif line and not line.startswith("#"):
            lines.append(line)
    return found


class Story:
    """One story in progress."""

    def __init__(self) -> None:
        self.log = RemoteLog(WHERE)

    def run(self, line: str) -> None:
        """Apply an event, or check the answer to a question."""
        question, sign, expected = line.partition(" is " if " is " in line else " =")
        if sign:
            assert self._answer(*question.split()) == expected.strip(), line
            return
        event = line.removeprefix("dropped ")
        name, _, rest = event.partition(" ")
        applied = self.log.apply(self._event(name, rest))
        assert applied.was_allowed == (event == line), line
        if applied.was_allowed:
            assert applied.segment is not None
            assert name_of(applied.segment.id) == name

    def _event(
        self, name: str, rest: str
    ) -> RemoteLogSegmentMetadataRecord | RemoteLogSegmentMetadataUpdateRecord:
        if rest in STATES:
            return update(name, STATES[rest])
        match = _START.fullmatch(rest)
        assert match is not None, rest
        first, last, epochs, txn = match.groups()
        pairs = [each.partition("@") for each in epochs.split()]
        return start(
            name,
            (int(first), int(last)),
            [(int(epoch), int(offset)) for epoch, _, offset in pairs],
            has_transactions=bool(txn),
        )

    def _answer(self, kind: str, argument: str = "") -> str:
        log = self.log
        if kind == "count":
            return str(log.count)
        if kind == "bytes":
            return str(log.finished_bytes)
        if kind == "highest":
            highest = log.highest_offset(int(argument))
            return "none" if highest is None else str(highest)
        if kind == "list":
            listed = log.segments(int(argument) if argument else None)
            return " ".join(name_of(each.id) for each in listed)
        search = {"at": log.segment_at, "txn": log.next_with_transactions}[kind]
        epoch, _, offset = argument.partition(":")
        found = search(int(epoch), int(offset))
        return "none" if found is None else name_of(found.id)
