"""Operations on a topic during faults, and their results: the input of the checker.

Every record is numbered: producer and number (from 0, per partition) are its value. Both are kept
as one integer, the code, so that half an hour of records fits into memory.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

_SHIFT = 40
NOT_ACKNOWLEDGED = -1
# Offset of a record that was acknowledged as a duplicate, without its offset.
ACKNOWLEDGED_SOMEWHERE = -2


def code_of(producer: int, number: int) -> int:
    """Return the code of a record."""
    return producer << _SHIFT | number


def name_of(code: int) -> str:
    """Return the description of a record's code."""
    if code < 0:
        return "a record that is not ours"
    return f"record {code & (1 << _SHIFT) - 1} of producer {code >> _SHIFT}"


def value_of(producer: int, number: int, padding: bytes = b"") -> bytes:
    """Return the value of a record."""
    return b"%d:%d:%s" % (producer, number, padding)


def code_in(value: bytes | None) -> int:
    """Return the code in the value of a record; -1 for a record of another client."""
    try:
        producer, number, _ = (value or b"").split(b":", 2)
        return code_of(int(producer), int(number))
    except ValueError:
        return -1


@dataclass
class Sends:
    """Records that one producer sent to one partition. Written by that producer's thread alone."""

    producer: int
    partition: int
    # Offset by record number; NOT_ACKNOWLEDGED at first. One entry for each sent record.
    offsets: array[int] = field(default_factory=lambda: array("q"))
    # Whether the client may send a record again under a new producer epoch although its first copy
    # may be in the log (librdkafka issue 4953). No broker can recognize such a copy.
    may_start_new_epochs: bool = False
    # Failed records by number, with the reason. They may be in the log.
    failed: dict[int, str] = field(default_factory=dict)
    # When the first record numbered `mark` or higher was acknowledged (monotonic seconds).
    mark: int = 0
    acknowledged_at: float | None = None

    @property
    def sent(self) -> int:
        """Return the number of records that were passed to the producer."""
        return len(self.offsets)

    def next_number(self) -> int:
        """Return the number of the next record, which counts as sent."""
        self.offsets.append(NOT_ACKNOWLEDGED)
        return len(self.offsets) - 1

    def acknowledge(self, number: int, offset: int, now: float) -> None:
        """Record an acknowledgement; a negative offset means an unknown offset."""
        self.offsets[number] = offset if offset >= 0 else ACKNOWLEDGED_SOMEWHERE
        if self.acknowledged_at is None and number >= self.mark:
            self.acknowledged_at = now


@dataclass
class Run:
    """The records that one reader got from a partition without a seek, in order."""

    reader: str
    partition: int
    offsets: array[int] = field(default_factory=lambda: array("q"))
    codes: array[int] = field(default_factory=lambda: array("q"))

    def add(self, offset: int, code: int) -> None:
        """Add a record."""
        self.offsets.append(offset)
        self.codes.append(code)


@dataclass(frozen=True)
class Commit:
    """A committed offset of a group: the result of a commit, or of an OffsetFetch."""

    partition: int
    offset: int
    # Times of the request and of the response (monotonic seconds).
    started: float
    ended: float
    # Whether the offset was fetched; otherwise it was committed.
    was_found: bool = False


@dataclass
class PartitionLog:
    """The content of a partition, read after the end of the load."""

    partition: int
    # Earlier records were deleted by retention.
    start_offset: int = 0
    offsets: array[int] = field(default_factory=lambda: array("q"))
    codes: array[int] = field(default_factory=lambda: array("q"))
    # The producer epoch of each offset; empty if it was not read.
    producer_epochs: dict[int, int] = field(default_factory=dict)

    def add(self, offset: int, code: int) -> None:
        """Add a record."""
        self.offsets.append(offset)
        self.codes.append(code)

    def has_new_epoch(self, earlier: int, later: int) -> bool:
        """Return whether the producer started a new epoch between two of its offsets."""
        epochs = self.producer_epochs
        return earlier in epochs and later in epochs and epochs[earlier] < epochs[later]


@dataclass
class History:
    """The history of one topic and of the groups that read it."""

    sends: list[Sends] = field(default_factory=list)
    logs: dict[int, PartitionLog] = field(default_factory=dict)
    # Runs of readers without a group.
    runs: list[Run] = field(default_factory=list)
    # Runs of the members of the group.
    member_runs: list[Run] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    # Runs of the members of a second group, which uses the consumer protocol.
    modern_runs: list[Run] = field(default_factory=list)
    modern_commits: list[Commit] = field(default_factory=list)
