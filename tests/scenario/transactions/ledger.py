"""Transactions of producers, and a check of the records that `read_committed` readers see.

torn          a transaction with an unknown result is visible in part
lost          a committed record is not visible
dirty         an aborted record is visible
duplicated    a record is visible twice
reordered     a record is visible after a later record of its producer
phantom       a visible record was never sent
wrong offset  a group's committed offset is not that of the last visible transaction with offsets
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum


class Result(Enum):
    """The result of a transaction from the view of its producer."""

    OPEN = "open"
    # The producer has requested a commit, and has no response.
    UNKNOWN = "unknown"
    COMMITTED = "committed"
    # The producer aborted, was fenced, or exited before it requested a commit.
    ABORTED = "aborted"


@dataclass
class Transaction:
    """One transaction of one producer."""

    producer: str
    number: int
    result: Result = Result.OPEN
    # (topic, value) in the order of sending.
    records: list[tuple[str, bytes]] = field(default_factory=list)
    # Offset by group and topic.
    offsets: dict[tuple[str, str], int] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"transaction {self.number} of {self.producer} ({self.result.value})"

    def new_values(self, topic: str, count: int) -> list[bytes]:
        """Return values of new records of this transaction."""
        first = len(self.records)
        values = [
            b"%s:%d:%d" % (self.producer.encode(), self.number, first + number)
            for number in range(count)
        ]
        self.records += [(topic, value) for value in values]
        return values


class Ledger:
    """The transactions of all producers. It may be used by several threads."""

    def __init__(self) -> None:
        self.transactions: list[Transaction] = []
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def begin(self, producer: str) -> Transaction:
        """Add a transaction."""
        with self._lock:
            made = Transaction(producer, self._counts[producer])
            self._counts[producer] += 1
            self.transactions.append(made)
            return made

    @property
    def topics(self) -> list[str]:
        """The topics that transactions wrote to."""
        found = {topic for each in self.transactions for topic, _ in each.records}
        return sorted(found)

    @property
    def offset_places(self) -> list[tuple[str, str]]:
        """The groups and topics that transactions wrote offsets of."""
        return sorted({group_topic for each in self.transactions for group_topic in each.offsets})


def find_faults(
    transactions: Sequence[Transaction],
    visible: Mapping[str, Sequence[bytes]],
    committed: Mapping[tuple[str, str], int],
) -> list[str]:
    """Compare transactions with the visible records after the last transaction has ended.

    Args:
        transactions: all transactions, those of one producer in their order.
        visible: values of each topic in the order of their offsets.
        committed: offset by group and topic, -1 without one.
    """
    faults = _find_record_faults(transactions, visible)
    shown = {topic: set(values) for topic, values in visible.items()}
    # Whether the records of each transaction are visible; None if unknown.
    seen: list[bool | None] = []
    for each in transactions:
        found = [value in shown[topic] for topic, value in each.records]
        fault = _find_transaction_fault(each, found)
        if fault:
            faults.append(fault)
        if each.result is Result.UNKNOWN:
            seen.append(any(found) if found else None)
        else:
            seen.append(each.result is Result.COMMITTED)
    for group_topic, offset in committed.items():
        expected = _possible_offsets(group_topic, transactions, seen)
        if offset not in expected:
            faults.append(f"wrong offset: {offset} of {group_topic}, expected {expected}")
    return faults


def _find_transaction_fault(transaction: Transaction, found: list[bool]) -> str:
    """Return the fault of a transaction, given which of its records are visible."""
    if transaction.result is Result.OPEN:
        return f"unsettled: {transaction}"
    of_all = f"of {len(found)} records of {transaction}"
    if transaction.result is Result.COMMITTED and not all(found):
        return f"lost: {found.count(False)} {of_all}"
    if transaction.result is Result.ABORTED and any(found):
        return f"dirty: {found.count(True)} {of_all}"
    if transaction.result is Result.UNKNOWN and any(found) and not all(found):
        return f"torn: {found.count(True)} {of_all}"
    return ""


def _possible_offsets(
    group_topic: tuple[str, str], transactions: Sequence[Transaction], seen: Sequence[bool | None]
) -> list[int]:
    """Return the offset of the last visible transaction, and later offsets of unknown ones."""
    expected = [-1]
    for each, is_visible in zip(transactions, seen, strict=True):
        offset = each.offsets.get(group_topic)
        if offset is None or is_visible is False:
            continue
        expected = [offset] if is_visible else [*expected, offset]
    return expected


def _find_record_faults(
    transactions: Sequence[Transaction], visible: Mapping[str, Sequence[bytes]]
) -> list[str]:
    places: dict[tuple[str, bytes], tuple[int, int]] = {}
    producers: dict[tuple[str, bytes], str] = {}
    for each in transactions:
        for number, record in enumerate(each.records):
            places[record] = (each.number, number)
            producers[record] = each.producer
    faults = []
    for topic, values in visible.items():
        last: dict[str, tuple[int, int]] = {}
        for value, count in Counter(values).items():
            if count > 1:
                faults.append(f"duplicated: {value!r} in {topic}")
        for value in dict.fromkeys(values):
            place = places.get((topic, value))
            if place is None:
                faults.append(f"phantom: {value!r} in {topic}")
                continue
            producer = producers[topic, value]
            if place < last.get(producer, (-1, -1)):
                faults.append(f"reordered: {value!r} in {topic} behind {last[producer]}")
            last[producer] = place
    return faults
