"""Operations of transactional clients during faults: the input of the transaction checker.

Each record names its transaction, its index within the transaction, and the number of records that
the transaction has, so that a reader can tell whether it saw the whole transaction. The record of a
consume-transform-produce member also names the input record that it was made from.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

# A topic and a partition.
Place = tuple[str, int]

# Bits of a record's code that hold the index within the transaction.
_INDEX_BITS = 8
# Transaction numbers of one instance: `instance << _SERIAL_BITS | serial`.
_SERIAL_BITS = 24
NO_SOURCE = (-1, -1)


def code_of(transaction: int, index: int) -> int:
    """Return the code of a record: an integer that names it."""
    assert 0 <= index < 1 << _INDEX_BITS, index
    return transaction << _INDEX_BITS | index


def transaction_of(code: int) -> int:
    """Return the number of the transaction of a record."""
    return code >> _INDEX_BITS


def index_of(code: int) -> int:
    """Return the index of a record within its transaction."""
    return code & (1 << _INDEX_BITS) - 1


def number_of(instance: int, serial: int) -> int:
    """Return the number of a transaction, which no other transaction has."""
    return instance << _SERIAL_BITS | serial


def name_of(code: int) -> str:
    """Return a record's code in words."""
    if code < 0:
        return "a record of an unknown client"
    return f"record {index_of(code)} of {name_of_transaction(transaction_of(code))}"


def name_of_transaction(number: int) -> str:
    """Return a transaction's number in words."""
    return f"transaction {number >> _SERIAL_BITS}.{number & (1 << _SERIAL_BITS) - 1}"


class Content(NamedTuple):
    """The content of a record."""

    code: int
    # Number of records of the transaction.
    count: int
    # Amount that the key receives; the amounts of a transaction add up to 0.
    amount: int
    # How often the record was copied from the input topic into the input topic.
    hops: int = 0
    # Input partition and offset of the record that this one was made from.
    source: tuple[int, int] = NO_SOURCE

    def to_value(self, padding: bytes = b"") -> bytes:
        """Return the record's value."""
        numbers = (self.code, self.count, self.amount, self.hops, *self.source)
        return b":".join(b"%d" % each for each in numbers) + b":" + padding


UNKNOWN_CONTENT = Content(-1, 0, 0)


def content_in(value: bytes | None) -> Content:
    """Return the content of a record's value; `UNKNOWN_CONTENT` for a record of another client."""
    try:
        parts = (value or b"").split(b":", 6)
        code, count, amount, hops, partition, offset = (int(each) for each in parts[:6])
    except ValueError:
        return UNKNOWN_CONTENT
    return Content(code, count, amount, hops, (partition, offset))


class Result(Enum):
    """Result that the producer got at the end of a transaction."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    # No response, or an error after which the result is unknown.
    UNKNOWN = "unknown"


@dataclass
class Transaction:
    """A transaction as its producer knows it. Times are monotonic seconds."""

    number: int
    transactional_id: str
    # Number of the process that ran the transaction.
    instance: int
    # The place of each record, by index.
    places: tuple[Place, ...]
    began: float
    # Offsets of the group that the transaction commits, by input partition.
    offsets: dict[int, int] = field(default_factory=dict)
    # When the commit was first requested; None if it was not: the records must not be visible.
    commit_asked: float | None = None
    # When the producer received the result.
    ended: float | None = None
    result: Result = Result.UNKNOWN

    @property
    def must_be_invisible(self) -> bool:
        """Whether no read_committed reader may see a record of it."""
        return self.commit_asked is None or self.result is Result.ABORTED


@dataclass(frozen=True)
class Initialization:
    """A finished `init_transactions` call: it fences all earlier instances of the id."""

    transactional_id: str
    instance: int
    asked: float
    ended: float


@dataclass
class CommittedLog:
    """The final content of a partition, read from the start with read_committed."""

    place: Place
    offsets: array[int] = field(default_factory=lambda: array("q"))
    contents: list[Content] = field(default_factory=list)

    def add(self, offset: int, content: Content) -> None:
        """Add one record."""
        self.offsets.append(offset)
        self.contents.append(content)


@dataclass
class ReadRun:
    """Records of a partition that a read_committed reader got without a seek, in order."""

    reader: str
    place: Place
    offsets: array[int] = field(default_factory=lambda: array("q"))
    codes: array[int] = field(default_factory=lambda: array("q"))
    # When the reader got each record, monotonic seconds.
    times: array[float] = field(default_factory=lambda: array("d"))

    def add(self, offset: int, code: int, time: float) -> None:
        """Add one record."""
        self.offsets.append(offset)
        self.codes.append(code)
        self.times.append(time)


@dataclass(frozen=True)
class OffsetSample:
    """A stable committed offset of the group that a client fetched."""

    partition: int
    offset: int
    started: float
    ended: float


class Ends(NamedTuple):
    """Ends of a partition after the last fault is healed and transactions have timed out."""

    last_stable_offset: int
    high_watermark: int


@dataclass
class TransactionHistory:
    """The history of all transactional clients."""

    # The topic that members consume, and the topic that they produce to.
    input_topic: str
    output_topic: str
    transactions: dict[int, Transaction] = field(default_factory=dict)
    initializations: list[Initialization] = field(default_factory=list)
    logs: dict[Place, CommittedLog] = field(default_factory=dict)
    runs: list[ReadRun] = field(default_factory=list)
    samples: list[OffsetSample] = field(default_factory=list)
    # The group's committed offsets at the end, by input partition.
    committed_offsets: dict[int, int] = field(default_factory=dict)
    # Final state of each transactional id, from ListTransactions.
    states: dict[str, str] = field(default_factory=dict)
    ends: dict[Place, Ends] = field(default_factory=dict)
