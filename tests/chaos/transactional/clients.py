"""Transactional producers and read_committed consumers of two clients, with one interface.

Both clients distinguish three errors, and so does the interface: a call that can be retried, a
transaction that must be aborted, and a fatal error of the producer.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol, TypeVar

import confluent_kafka

import barnabas
from barnabas.client.errors import ClientError, ClientTimeoutError, ProducerFencedError
from chaos.missing_offsets import assign_again, tells_missing_offsets
from chaos.transactional.history import Place
from chaos.transactional.watchdog import HungCallError, Watchdog

T = TypeVar("T")
# Time limit of the retries of a call. Then its result is unknown, and the producer is replaced.
CALL_S = 120.0
# Time limit of one attempt.
ATTEMPT_S = 5.0
# How long `close` may wait for the end of a transaction. Then its coordinator ends the transaction.
CLOSE_S = 5.0
# Time limit of an attempt that does not keep its own: longer than the longest pause of a process.
HUNG_S = 30.0
# Exit status of a process whose producer cannot continue.
REPLACE_ME = 3
ANSWER_TIMEOUT_MS = 3000
SESSION_TIMEOUT_MS = 6000
# Coordinators abort transactions that are open for longer.
TRANSACTION_TIMEOUT_MS = 10_000
QUICK = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 100,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 100,
}
_LIBRDKAFKA = {
    **QUICK,
    "log_level": 0,
    "socket.timeout.ms": ANSWER_TIMEOUT_MS,
    "topic.metadata.refresh.fast.interval.ms": 50,
    "topic.metadata.refresh.interval.ms": 2000,
}


class AbortableError(Exception):
    """The transaction must be aborted. The producer can then continue."""


class FatalError(Exception):
    """The producer can no longer be used."""


class Read(NamedTuple):
    """A record that a consumer got."""

    place: Place
    offset: int
    value: bytes | None


class TransactionalProducer(Protocol):
    """A producer with a transactional id. Calls raise AbortableError or FatalError."""

    def initialize(self) -> None:
        """Fence earlier producers of the id, and wait for the end of their transactions."""

    def begin(self) -> None:
        """Begin a transaction."""

    def send(self, place: Place, key: bytes, value: bytes) -> None:
        """Queue a record."""

    def flush(self) -> None:
        """Wait until all queued records are acknowledged or have failed."""

    def send_offsets(self, offsets: dict[Place, int], group: Any) -> None:
        """Commit the group's next offsets in the transaction; `group` is its metadata."""

    def commit(self) -> None:
        """Commit the transaction."""

    def abort(self) -> None:
        """Abort the transaction."""

    def close(self) -> None:
        """Close the producer, and abort an open transaction. Errors are reported."""


class OwnProducer:
    """Our own client's producer."""

    def __init__(self, bootstrap: str, transactional_id: str, errs: Callable[[object], None]):
        self._errs = errs
        self._producer = barnabas.Producer(
            bootstrap,
            transactional_id=transactional_id,
            **QUICK,
            **{
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "request.timeout.ms": ANSWER_TIMEOUT_MS,
                "delivery.timeout.ms": int(CALL_S * 1000),
                "linger.ms": 2,
            },
        )

    def _call(self, call: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Call, and retry while the client reports that the result is pending."""
        deadline = time.monotonic() + CALL_S
        while True:
            try:
                return call(*args, **kwargs)
            except ClientTimeoutError as error:
                self._errs(error)
                if time.monotonic() > deadline:
                    raise FatalError from error
            except ProducerFencedError as error:
                self._errs(error)
                raise FatalError from error
            except ClientError as error:
                self._errs(error)
                raise AbortableError from error

    def initialize(self) -> None:
        self._call(self._producer.init_transactions, timeout=ATTEMPT_S)

    def begin(self) -> None:
        self._call(self._producer.begin_transaction)

    def send(self, place: Place, key: bytes, value: bytes) -> None:
        topic, partition = place
        self._call(self._producer.send, topic, value, key, partition)

    def flush(self) -> None:
        self._call(self._producer.flush)

    def send_offsets(self, offsets: dict[Place, int], group: Any) -> None:
        self._call(
            self._producer.send_offsets_to_transaction, dict(offsets), group, timeout=ATTEMPT_S
        )

    def commit(self) -> None:
        self._call(self._producer.commit_transaction, timeout=ATTEMPT_S)

    def abort(self) -> None:
        self._call(self._producer.abort_transaction, timeout=ATTEMPT_S)

    def close(self) -> None:
        try:
            self._producer.close(CLOSE_S)
        except ClientError as error:
            self._errs(error)


class LibrdkafkaProducer:
    """confluent-kafka's producer.

    Its calls sometimes never return, in spite of their time limit: the offsets of a transaction,
    when librdkafka removes the broker that it has found to be the group's coordinator. The process
    then ends and is replaced. Calls of our own client have no such excuse.

    The process is also replaced after a transaction that failed. librdkafka 2.16 may use the
    sequence numbers of unacknowledged records again, in the same epoch, when it continues. The
    leader then takes the new records for those, and drops them. `init_transactions` of the new
    process raises the epoch.
    """

    def __init__(
        self,
        bootstrap: str,
        transactional_id: str,
        errs: Callable[[object], None],
        hung_s: float = HUNG_S,
    ):
        self._errs = errs
        self._failure: Exception | None = None
        self._watchdog = Watchdog(hung_s, self._end_process)
        self._producer = confluent_kafka.Producer(
            {
                **_LIBRDKAFKA,
                "bootstrap.servers": bootstrap,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                # librdkafka requires a value of at most the transaction timeout.
                "message.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "request.timeout.ms": ANSWER_TIMEOUT_MS - 500,
                "linger.ms": 2,
                "error_cb": lambda error: errs(error.name()),
            }
        )

    def _call(self, call: Callable[..., Any], *args: Any) -> Any:
        deadline = time.monotonic() + CALL_S
        while True:
            try:
                return call(*args)
            except confluent_kafka.KafkaException as error:
                self._errs(error)
                told = error.args[0]
                if told.fatal():
                    raise FatalError from error
                if told.txn_requires_abort():
                    self._failure = error
                    raise AbortableError from error
                if not told.retriable() or time.monotonic() > deadline:
                    raise FatalError from error
                time.sleep(0.05)

    def _call_limited(self, call: Callable[..., Any], *args: Any) -> None:
        """Call with the time limit of an attempt as the last argument."""

        def watched() -> None:
            with self._watchdog.watch(call.__name__):
                call(*args, ATTEMPT_S)

        self._call(watched)

    def _end_process(self, error: HungCallError) -> None:
        self._errs(error)
        # Nothing else ends the thread that hangs.
        os._exit(REPLACE_ME)

    def initialize(self) -> None:
        self._call_limited(self._producer.init_transactions)

    def begin(self) -> None:
        if self._failure is not None:
            raise FatalError from self._failure
        self._call(self._producer.begin_transaction)

    def send(self, place: Place, key: bytes, value: bytes) -> None:
        topic, partition = place
        while True:
            with contextlib.suppress(BufferError):
                self._call(self._produce, topic, partition, key, value)
                return
            self._producer.poll(0.05)

    def _produce(self, topic: str, partition: int, key: bytes, value: bytes) -> None:
        try:
            self._producer.produce(topic, value, key, partition)
        except confluent_kafka.KafkaException as error:
            # This error does not require an abort by itself. Records are only refused after the
            # transaction has failed.
            self._errs(error)
            is_fatal = error.args[0].fatal()
            self._failure = error
            raise (FatalError if is_fatal else AbortableError) from error
        self._producer.poll(0)

    def flush(self) -> None:
        self._call_limited(self._producer.flush)

    def send_offsets(self, offsets: dict[Place, int], group: Any) -> None:
        told = [
            confluent_kafka.TopicPartition(topic, partition, offset)
            for (topic, partition), offset in offsets.items()
        ]
        self._call_limited(self._producer.send_offsets_to_transaction, told, group)

    def commit(self) -> None:
        self._call_limited(self._producer.commit_transaction)

    def abort(self) -> None:
        self._call_limited(self._producer.abort_transaction)

    def close(self) -> None:
        """Do nothing: librdkafka closes a producer that is dropped."""


class CommittedConsumer(Protocol):
    """A read_committed consumer: a member of a group, or a reader of its own."""

    # Increases when the assignment changes.
    changes: int

    def assign(self, places: Iterable[Place]) -> None:
        """Read partitions from their start."""

    def subscribe(self, topic: str) -> None:
        """Join the group."""

    def poll(self, count: int, seconds: float) -> list[Read]:
        """Return the next records, up to `count`."""

    def group_metadata(self) -> Any:
        """Return the argument of `send_offsets`."""

    def return_to_committed(self) -> None:
        """Seek to the group's committed offsets."""

    def close(self) -> None:
        """Leave the group."""


class OwnConsumer:
    """Our own client's consumer."""

    def __init__(self, bootstrap: str, group: str, errs: Callable[[object], None]):
        self._errs = errs
        self.changes = 0
        config: dict[str, Any] = {
            **QUICK,
            "group.id": group or None,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "request.timeout.ms": ANSWER_TIMEOUT_MS,
            "default.api.timeout.ms": 20_000,
        }
        if group:
            config |= {"session.timeout.ms": SESSION_TIMEOUT_MS, "heartbeat.interval.ms": 500}
        self._consumer = barnabas.Consumer(bootstrap_servers=bootstrap, **config)

    def assign(self, places: Iterable[Place]) -> None:
        self._consumer.assign(list(places))

    def subscribe(self, topic: str) -> None:
        self._consumer.subscribe([topic], listener=_Changes(self))

    def poll(self, count: int, seconds: float) -> list[Read]:
        try:
            records = self._consumer.poll(seconds, max_records=count)
        except ClientError as error:
            self._errs(error)
            return []
        return [Read((each.topic, each.partition), each.offset, each.value) for each in records]

    def group_metadata(self) -> Any:
        return self._consumer.group_metadata()

    def return_to_committed(self) -> None:
        """Seek to the committed offsets. Retry while the group's coordinator moves."""
        deadline = time.monotonic() + CALL_S
        while True:
            changes = self.changes
            assigned = list(self._consumer.assignment())
            if not assigned:
                return
            try:
                committed = self._consumer.committed(assigned)
            except ClientError as error:
                self._errs(error)
                if time.monotonic() > deadline:
                    raise FatalError from error
                continue
            if changes != self.changes:
                continue
            for each in assigned:
                told = committed.get(each)
                self._consumer.seek(each, 0 if told is None else told)
            return

    def close(self) -> None:
        self._consumer.close()


class _Changes(barnabas.RebalanceListener):
    """Counts changes of the assignment."""

    def __init__(self, consumer: OwnConsumer) -> None:
        self._consumer = consumer

    def on_partitions_assigned(self, partitions: Any) -> None:
        self._consumer.changes += 1

    def on_partitions_revoked(self, partitions: Any) -> None:
        self._consumer.changes += 1

    def on_partitions_lost(self, partitions: Any) -> None:
        self._consumer.changes += 1


class LibrdkafkaConsumer:
    """confluent-kafka's consumer."""

    def __init__(self, bootstrap: str, group: str, errs: Callable[[object], None]):
        self._errs = errs
        self.changes = 0
        config: dict[str, Any] = {
            **_LIBRDKAFKA,
            "bootstrap.servers": bootstrap,
            "group.id": group or "unused",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.error.backoff.ms": 20,
            "error_cb": lambda error: errs(error.name()),
        }
        if group:
            config |= {"session.timeout.ms": SESSION_TIMEOUT_MS, "heartbeat.interval.ms": 500}
        self._consumer = confluent_kafka.Consumer(config)

    def assign(self, places: Iterable[Place]) -> None:
        self._consumer.assign([confluent_kafka.TopicPartition(*place, 0) for place in places])

    def subscribe(self, topic: str) -> None:
        self._consumer.subscribe(
            [topic], on_assign=self._on_change, on_revoke=self._on_change, on_lost=self._on_change
        )

    def _on_change(self, _consumer: object, _partitions: object) -> None:
        self.changes += 1

    def poll(self, count: int, seconds: float) -> list[Read]:
        """Return records one by one: a batch of librdkafka may reach over a rebalance."""
        found: list[Read] = []
        while len(found) < count:
            message = self._poll(0 if found else seconds)
            if message is None:
                break
            if message.error() is not None:
                continue
            topic, partition, offset = message.topic(), message.partition(), message.offset()
            assert topic is not None
            assert partition is not None
            assert offset is not None
            found.append(Read((topic, partition), offset, message.value()))
        return found

    def _poll(self, seconds: float) -> confluent_kafka.Message | None:
        """Return the next record or error. Note an error, and recover from it."""
        message = self._consumer.poll(seconds)
        error = None if message is None else message.error()
        if error is not None:
            self._errs(error)
            if tells_missing_offsets(error):
                assign_again(self._consumer)
                self.changes += 1
        return message

    def group_metadata(self) -> Any:
        return self._consumer.consumer_group_metadata()

    def return_to_committed(self) -> None:
        """Seek to the committed offsets. Retry while the group's coordinator moves."""
        deadline = time.monotonic() + CALL_S
        while True:
            changes = self.changes
            assigned = self._consumer.assignment()
            if not assigned:
                return
            try:
                committed = self._consumer.committed(assigned, ATTEMPT_S)
                for each in committed:
                    if each.error is not None:
                        raise confluent_kafka.KafkaException(each.error)
                if changes != self.changes:
                    continue
                for each in committed:
                    each.offset = max(each.offset, 0)
                    self._consumer.seek(each)
            except confluent_kafka.KafkaException as error:
                self._errs(error)
                if time.monotonic() > deadline:
                    raise FatalError from error
                # A seek fails until librdkafka fetches the partition. If another rebalance has
                # begun, that needs a poll. The record is read again after the seek.
                self._poll(0.1)
                continue
            return

    def close(self) -> None:
        self._consumer.close()


PRODUCERS: dict[str, Callable[..., TransactionalProducer]] = {
    "own": OwnProducer,
    "librdkafka": LibrdkafkaProducer,
}
CONSUMERS: dict[str, Callable[..., CommittedConsumer]] = {
    "own": OwnConsumer,
    "librdkafka": LibrdkafkaConsumer,
}
