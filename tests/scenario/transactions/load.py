"""Transactions in the background, each with records of several topics and an offset."""

from __future__ import annotations

from chaos.load import Worker
from scenario.transactions.ledger import Ledger, Result
from scenario.transactions.producers import PRODUCERS, TransactionalProducer
from scenario.transactions.refused import FATAL, Refused

# Long enough that no transaction of the load times out.
TIMEOUT_MS = 300_000
# Every third transaction is aborted.
ABORTED_EVERY = 3
PAUSE_S = 0.02


class TransactionLoad(Worker):
    """A producer that commits and aborts transactions until it is stopped.

    Args:
        kind: a key of `PRODUCERS`.
        bootstrap: addresses of the cluster.
        topics: each transaction writes to all of them.
        ledger: the transactions are added to it.
    """

    def __init__(self, kind: str, bootstrap: str, topics: list[str], ledger: Ledger) -> None:
        self.name = f"{kind}-on-{'-'.join(topics)}"
        super().__init__(self.name)
        self._kind = kind
        self._bootstrap = bootstrap
        self._topics = topics
        self._ledger = ledger
        # Errors of calls after which the transaction was aborted.
        self.failures: list[str] = []
        self.committed = 0

    def _run(self) -> None:
        producer = PRODUCERS[self._kind](self._bootstrap, self.name, TIMEOUT_MS)
        producer.initialize()
        number = 0
        while not self._stopping.wait(PAUSE_S):
            self._transact(producer, number)
            number += 1

    def _transact(self, producer: TransactionalProducer, number: int) -> None:
        transaction = self._ledger.begin(self.name)
        is_aborted = number % ABORTED_EVERY == ABORTED_EVERY - 1
        try:
            producer.begin()
            for topic in self._topics:
                producer.send(topic, transaction.new_values(topic, 1 + number % 3))
            transaction.offsets[self.name, self._topics[0]] = number
            producer.send_offset(self.name, self._topics[0], number)
            if not is_aborted:
                producer.commit()
                transaction.result = Result.COMMITTED
                self.committed += 1
        except Refused as refused:
            self.failures.append(refused.text)
            if refused.verdict == FATAL:
                transaction.result = Result.UNKNOWN
                raise
            is_aborted = True
        if is_aborted:
            producer.abort()
            transaction.result = Result.ABORTED
