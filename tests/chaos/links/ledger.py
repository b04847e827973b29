"""Transactions of a topic that moves between clusters, and the check of what is visible of them.

Each transaction writes records to both partitions. It is committed or aborted at random. When an
error leaves the end of a transaction unknown, it may be visible as a whole or not at all.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from itertools import pairwise

from confluent_kafka import KafkaException, Producer

from chaos.load import ANSWER_TIMEOUT_MS, QUICK, Errors, Worker
from chaos.verdict import Verdict

LEDGER = "ledger"
PARTITIONS = 2
RECORDS = 2
KINDS = ("lost", "aborted but visible", "half visible", "reordered", "unknown record")
_CALL_S = 60.0
_PAUSE_S = 0.1
# The broker aborts a transaction whose client has given up.
_TRANSACTION_TIMEOUT_MS = 60_000
# The greatest value that brokers allow: it stays open while the other clients stop.
_HANGING_TIMEOUT_MS = 900_000


class Fate(Enum):
    """What the client knows about the end of a transaction."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


class Fates:
    """The fates of all transactions by number; used by any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.by_number: dict[int, Fate] = {}

    def begin(self) -> int:
        """Return the number of a new transaction."""
        with self._lock:
            number = len(self.by_number)
            self.by_number[number] = Fate.OPEN
        return number

    def count(self, fate: Fate) -> int:
        """Return the number of transactions with a fate."""
        with self._lock:
            return list(self.by_number.values()).count(fate)


class LedgerWriting(Worker):
    """A producer that commits three of four transactions and aborts the others."""

    def __init__(self, bootstrap: str, fates: Fates, seed: int, errors: Errors) -> None:
        super().__init__("ledger")
        self._bootstrap = bootstrap
        self._fates = fates
        self._rng = random.Random(seed)
        self._errors = errors
        self.committed = 0

    def _run(self) -> None:
        producer: Producer | None = None
        while not self._stopping.is_set():
            try:
                if producer is None:
                    producer = transactional_producer(self._bootstrap, "ledger")
                self._write(producer)
            except KafkaException as error:
                self._errors.add(f"ledger: {error.args[0].name()}")
                # The next producer of this id ends the transaction of the last one.
                producer = None
            self._stopping.wait(_PAUSE_S)

    def _write(self, producer: Producer) -> None:
        number = self._fates.begin()
        fates = self._fates.by_number
        # Without a request to commit, the transaction is aborted at the latest by its timeout.
        fates[number] = Fate.ABORTED
        producer.begin_transaction()
        write_transaction(producer, number)
        if self._rng.random() < 0.25:
            producer.abort_transaction(_CALL_S)
            return
        fates[number] = Fate.UNKNOWN
        producer.commit_transaction(_CALL_S)
        fates[number] = Fate.COMMITTED
        self.committed += 1


class HangingTransaction:
    """A transaction with records in both partitions that stays open."""

    def __init__(self, bootstrap: str, fates: Fates) -> None:
        self._producer = transactional_producer(bootstrap, "hanging", _HANGING_TIMEOUT_MS)
        self._number = fates.begin()
        fates.by_number[self._number] = Fate.ABORTED
        self._producer.begin_transaction()
        write_transaction(self._producer, self._number)
        assert self._producer.flush(_CALL_S) == 0

    def abort(self) -> None:
        """Abort it in the cluster in which it was begun."""
        deadline = time.monotonic() + _CALL_S
        while True:
            try:
                self._producer.abort_transaction(_CALL_S)
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > deadline:
                    raise
            else:
                return


def transactional_producer(
    bootstrap: str, transactional_id: str, timeout_ms: int = _TRANSACTION_TIMEOUT_MS
) -> Producer:
    """Return a producer that may begin a transaction.

    Raises:
        KafkaException: the coordinator did not respond in time.
    """
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": timeout_ms,
            "socket.timeout.ms": ANSWER_TIMEOUT_MS,
            "log_level": 0,
            **QUICK,
        }
    )
    producer.init_transactions(_CALL_S)
    return producer


def write_transaction(producer: Producer, number: int) -> None:
    """Write the records of a transaction."""
    for partition in range(PARTITIONS):
        for _ in range(RECORDS):
            producer.produce(LEDGER, b"%d" % number, partition=partition)


def check_ledger(fates: Mapping[int, Fate], visible: Sequence[Sequence[bytes]]) -> Verdict:
    """Return all violations.

    Args:
        fates: the fate of each transaction.
        visible: the values that read_committed returns, of each partition.
    """
    verdict = Verdict(KINDS)
    numbers = [[int(value) for value in partition] for partition in visible]
    for partition, found in enumerate(numbers):
        if found != sorted(found):
            at = next(n for n, (one, two) in enumerate(pairwise(found)) if one > two)
            verdict.add("reordered", f"partition {partition}: {found[at : at + 2]}")
        for number in set(found) - set(fates):
            verdict.add("unknown record", f"partition {partition}: transaction {number}")
    counts: list[Callable[[int], int]] = [_counter(found) for found in numbers]
    for number, fate in fates.items():
        seen = [count(number) for count in counts]
        whole, none = [RECORDS] * len(seen), [0] * len(seen)
        if fate is Fate.COMMITTED and seen == none:
            verdict.add("lost", f"transaction {number}")
        elif fate is Fate.ABORTED and seen != none:
            verdict.add("aborted but visible", f"transaction {number}: {seen} records")
        elif seen not in (whole, none):
            verdict.add("half visible", f"transaction {number}: {seen} records")
    return verdict


def _counter(numbers: Sequence[int]) -> Callable[[int], int]:
    counts: dict[int, int] = {}
    for number in numbers:
        counts[number] = counts.get(number, 0) + 1
    return lambda number: counts.get(number, 0)
