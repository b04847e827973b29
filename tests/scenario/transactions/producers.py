"""Transactional producers of the Barnabas client and of librdkafka with a common interface.

Calls are retried after retriable errors until `PATIENCE_S` is over, as in applications. All other
errors raise `Refused`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol

import confluent_kafka
from confluent_kafka import KafkaException, TopicPartition

import barnabas
from barnabas.client.errors import ClientError
from chaos.load import ANSWER_TIMEOUT_MS, QUICK
from scenario.transactions.refused import ABORT, FATAL, Refused, judge_own
from waiting import PATIENCE_S


class TransactionalProducer(Protocol):
    """The calls of a transactional producer; each returns when it has succeeded.

    All of them raise `Refused`.
    """

    def initialize(self) -> None:
        """Register the transactional id. An older producer with this id is fenced."""

    def begin(self) -> None:
        """Begin a transaction."""

    def send(self, topic: str, values: Sequence[bytes]) -> None:
        """Send records to partition 0; all of them must be acknowledged."""

    def send_offset(self, group: str, topic: str, offset: int) -> None:
        """Add a group's offset of partition 0 to the transaction."""

    def commit(self) -> None:
        """Commit the transaction."""

    def abort(self) -> None:
        """Abort the transaction."""


class OwnProducer:
    """The producer of the Barnabas client."""

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        config = {**QUICK, "retry.backoff.max.ms": 100, "request.timeout.ms": ANSWER_TIMEOUT_MS}
        self._producer = barnabas.Producer(
            bootstrap,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            **config,
        )

    def initialize(self) -> None:
        _persist(self._producer.init_transactions, judge_own)

    def begin(self) -> None:
        _persist(self._producer.begin_transaction, judge_own)

    def send(self, topic: str, values: Sequence[bytes]) -> None:
        def send() -> None:
            deliveries = [self._producer.send(topic, value, partition=0) for value in values]
            for delivery in deliveries:
                delivery.result()

        # A second attempt would send the records twice.
        _persist(send, lambda error: judge_own(error) or ABORT)

    def send_offset(self, group: str, topic: str, offset: int) -> None:
        _persist(
            lambda: self._producer.send_offsets_to_transaction({(topic, 0): offset}, group),
            judge_own,
        )

    def commit(self) -> None:
        _persist(self._producer.commit_transaction, judge_own)

    def abort(self) -> None:
        _persist(self._producer.abort_transaction, judge_own)


class LibrdkafkaProducer:
    """The producer of confluent-kafka."""

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        self._bootstrap = bootstrap
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": timeout_ms,
                "linger.ms": 2,
                "socket.timeout.ms": min(ANSWER_TIMEOUT_MS, timeout_ms),
                "retry.backoff.max.ms": 100,
                "topic.metadata.refresh.fast.interval.ms": 50,
                "log_level": 0,
                **QUICK,
            }
        )
        self._failures: list[str] = []

    def initialize(self) -> None:
        _persist(lambda: self._producer.init_transactions(5.0), _judge_librdkafka)

    def begin(self) -> None:
        _persist(self._producer.begin_transaction, _judge_librdkafka)

    def send(self, topic: str, values: Sequence[bytes]) -> None:
        self._failures = []

        def on_delivery(error: object, _message: object) -> None:
            if error is not None:
                self._failures.append(str(error))

        def produce() -> None:
            for value in values:
                self._producer.produce(topic, value, partition=0, on_delivery=on_delivery)

        _persist(produce, lambda error: _judge_librdkafka(error) or ABORT)
        left = self._producer.flush(PATIENCE_S)
        if left or self._failures:
            raise Refused(ABORT, f"{left} undecided, failed: {self._failures[:3]}")

    def send_offset(self, group: str, topic: str, offset: int) -> None:
        offset_reader = confluent_kafka.Consumer(
            {"bootstrap.servers": self._bootstrap, "group.id": group}
        )
        try:
            member = offset_reader.consumer_group_metadata()
        finally:
            offset_reader.close()
        places = [TopicPartition(topic, 0, offset)]
        _persist(
            lambda: self._producer.send_offsets_to_transaction(places, member, 5.0),
            _judge_librdkafka,
        )

    def commit(self) -> None:
        _persist(lambda: self._producer.commit_transaction(5.0), _judge_librdkafka)

    def abort(self) -> None:
        _persist(lambda: self._producer.abort_transaction(5.0), _judge_librdkafka)


PRODUCERS: dict[str, type[OwnProducer | LibrdkafkaProducer]] = {
    "barnabas": OwnProducer,
    "librdkafka": LibrdkafkaProducer,
}


def _persist(call: Callable[[], object], judge_error: Callable[[Exception], str]) -> None:
    """Run a call, with retries after retriable errors.

    Args:
        call: the call.
        judge_error: returns ABORT, FATAL, or "" for a retriable error.

    Raises:
        Refused: an error is not retriable, or `PATIENCE_S` is over.
    """
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            call()
        except (ClientError, KafkaException) as error:
            verdict = judge_error(error)
            if verdict or time.monotonic() > deadline:
                raise Refused(verdict or FATAL, f"{type(error).__name__}: {error}") from error
            time.sleep(0.05)
        else:
            return


def _judge_librdkafka(error: Exception) -> str:
    failed = error.args[0]
    if failed.fatal():
        return FATAL
    if failed.txn_requires_abort():
        return ABORT
    return "" if failed.retriable() else FATAL
