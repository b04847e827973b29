"""Load during faults: idempotent producers, a group that commits, a consumer without a group.

Producers are librdkafka's and our own, all with acks=all. Each runs in a separate thread, numbers
its records per partition, and records the results.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import confluent_kafka
from confluent_kafka import Consumer, TopicPartition

from barnabas.client.errors import ClientError
from barnabas.client.facade import Client
from barnabas.client.producer.producer_batch import RecordMetadata
from chaos.history import Commit, History, PartitionLog, Run, Sends, code_in, value_of
from chaos.missing_offsets import assign_again, tells_missing_offsets, uncommitted
from group_offsets import committed_offsets
from waiting import PATIENCE_S, eventually

PADDING = b"." * 100
_READ_AT_ONCE = 1_000
# Errors during and shortly after the election of a leader.
_EARLY = (
    confluent_kafka.KafkaError.OFFSET_NOT_AVAILABLE,
    confluent_kafka.KafkaError.LEADER_NOT_AVAILABLE,
    confluent_kafka.KafkaError.NOT_LEADER_FOR_PARTITION,
    # librdkafka says so for a partition without a leader.
    confluent_kafka.KafkaError._UNKNOWN_PARTITION,
)
# A record expires after this time, so that each record has a result.
DELIVERY_TIMEOUT_MS = 120_000
# Short backoffs, so that recovery times depend on the cluster and not on the clients.
# A paused broker delays a response for as long as the client waits for it.
ANSWER_TIMEOUT_MS = 3000
QUICK = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100, "retry.backoff.ms": 20}


@dataclass(frozen=True)
class LoadOptions:
    """The size of the load."""

    topic: str
    partitions: int
    group: str = "chaos"
    # Records per second, of each producer, all partitions together.
    rate: int = 300
    members: int = 2
    # Of the producers, whose records carry it. Loads on one topic need different numbers.
    first_producer: int = 0
    # Additional keys of all clients, for TLS.
    keys: Mapping[str, str] = field(default_factory=dict)


def offset_of(message: confluent_kafka.Message) -> int:
    """Return the offset of a delivered record; -1 if the broker did not return it (a duplicate)."""
    offset = message.offset()
    return -1 if offset is None else int(offset)


class Errors:
    """Counts errors of clients by message; used by any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.counts: Counter[str] = Counter()

    def add(self, text: str) -> None:
        """Count an error."""
        with self._lock:
            self.counts[text] += 1

    def total(self) -> int:
        """Return the number of errors."""
        with self._lock:
            return sum(self.counts.values())


class Worker:
    """A thread that works until it is stopped; its exception is kept."""

    def __init__(self, name: str) -> None:
        self._stopping = threading.Event()
        self.death: BaseException | None = None
        self._thread = threading.Thread(target=self._guarded, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Request the end of the thread. `join` waits for it."""
        self._stopping.set()

    def join(self) -> None:
        """Wait for the end of the thread, and raise its exception."""
        self._thread.join()
        self.check_alive()

    def check_alive(self) -> None:
        """Raise the exception of a dead thread."""
        if self.death is not None:
            raise self.death

    def _guarded(self) -> None:
        try:
            self._run()
        except BaseException as error:  # noqa: BLE001 - raised again by `join`
            self.death = error

    def _run(self) -> None:
        raise NotImplementedError


class _Producing(Worker):
    """Sends at a fixed rate, to all partitions in turn."""

    def __init__(self, number: int, options: LoadOptions, errors: Errors) -> None:
        super().__init__(f"producer-{number}")
        self.number = number
        self.options = options
        self.errors = errors
        self.sends = [Sends(number, partition) for partition in range(options.partitions)]

    def _run(self) -> None:
        self._open()
        started = time.monotonic()
        sent = 0
        while not self._stopping.is_set():
            due = int((time.monotonic() - started) * self.options.rate)
            while sent < due:
                partition = sent % self.options.partitions
                sends = self.sends[partition]
                if not self._send(partition, sends):
                    break
                sent += 1
            self._serve(0.005)
        self._finish()

    def _open(self) -> None:
        raise NotImplementedError

    def _send(self, partition: int, sends: Sends) -> bool:
        """Send the next record; return False if the buffer is full."""
        raise NotImplementedError

    def _serve(self, seconds: float) -> None:
        raise NotImplementedError

    def _finish(self) -> None:
        raise NotImplementedError


class LibrdkafkaProducing(_Producing):
    """confluent-kafka's producer."""

    def __init__(self, number: int, bootstrap: str, options: LoadOptions, errors: Errors) -> None:
        super().__init__(number, options, errors)
        for sends in self.sends:
            sends.may_start_new_epochs = True
        self._producer = confluent_kafka.Producer({**self.keys(bootstrap, errors), **options.keys})

    @staticmethod
    def keys(bootstrap: str, errors: Errors) -> dict[str, Any]:
        """Return the keys of an idempotent producer that survives faults."""
        return {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 2,
            "message.timeout.ms": DELIVERY_TIMEOUT_MS,
            "socket.timeout.ms": ANSWER_TIMEOUT_MS,
            "request.timeout.ms": ANSWER_TIMEOUT_MS - 500,
            "retry.backoff.max.ms": 100,
            "topic.metadata.refresh.fast.interval.ms": 50,
            # Otherwise it would not refresh metadata when an isolated leader cannot commit.
            "topic.metadata.refresh.interval.ms": 2000,
            "error_cb": lambda error: errors.add(f"librdkafka: {error.name()}"),
            # Errors are counted instead of logged.
            "log_level": 0,
            **QUICK,
        }

    def _open(self) -> None:
        pass

    def _send(self, partition: int, sends: Sends) -> bool:
        number = sends.sent

        def on_delivery(error: confluent_kafka.KafkaError | None, message: object) -> None:
            self._on_delivery(sends, number, error, message)

        try:
            value = value_of(self.number, number, PADDING)
            self._producer.produce(
                self.options.topic, value, partition=partition, on_delivery=on_delivery
            )
        except BufferError:
            return False
        sends.next_number()
        return True

    def _serve(self, seconds: float) -> None:
        self._producer.poll(seconds)

    def _finish(self) -> None:
        left = self._producer.flush(DELIVERY_TIMEOUT_MS / 1000)
        assert left == 0, f"{left} records were neither delivered nor given up"

    def _on_delivery(self, sends: Sends, number: int, error: object, message: object) -> None:
        if error is not None:
            sends.failed[number] = str(error)
            self.errors.add(f"librdkafka: not delivered: {error}")
        else:
            assert isinstance(message, confluent_kafka.Message)
            sends.acknowledge(number, offset_of(message), time.monotonic())


class OwnProducing(_Producing):
    """Our own client's producer."""

    def __init__(self, number: int, bootstrap: str, options: LoadOptions, errors: Errors) -> None:
        super().__init__(number, options, errors)
        self._bootstrap = bootstrap

    def _open(self) -> None:
        config = {**self.options.keys, **QUICK, "retry.backoff.max.ms": 100, "linger.ms": 2}
        config["delivery.timeout.ms"] = DELIVERY_TIMEOUT_MS
        config["request.timeout.ms"] = ANSWER_TIMEOUT_MS
        self._client = Client(self._bootstrap, **config)
        self._producer = self._client.producer()

    def _send(self, partition: int, sends: Sends) -> bool:
        number = sends.next_number()

        def on_delivery(metadata: RecordMetadata | None, error: ClientError | None) -> None:
            if metadata is not None:
                sends.acknowledge(number, metadata.offset, time.monotonic())
            else:
                sends.failed[number] = str(error)
                self.errors.add(f"barnabas: not delivered: {type(error).__name__}")

        self._producer.send(
            self.options.topic,
            value_of(self.number, number, PADDING),
            partition=partition,
            on_delivery=on_delivery,
        )
        return True

    def _serve(self, seconds: float) -> None:
        before = time.monotonic()
        self._producer.poll(seconds * 1000)
        # `poll` returns immediately if no record is in flight.
        self._stopping.wait(max(0.0, seconds - (time.monotonic() - before)))

    def _finish(self) -> None:
        self._producer.flush(DELIVERY_TIMEOUT_MS / 1000)
        self._client.close()


class OwnReading(Worker):
    """Our own client reads all partitions from the start to their ends."""

    def __init__(self, bootstrap: str, options: LoadOptions, errors: Errors) -> None:
        super().__init__("reader")
        self._bootstrap = bootstrap
        self._options = options
        self._errors = errors
        self.runs = [Run("own reader", partition) for partition in range(options.partitions)]

    def _run(self) -> None:
        config = {**self._options.keys, **QUICK, "retry.backoff.max.ms": 100}
        config["default.api.timeout.ms"] = 120_000
        config["request.timeout.ms"] = ANSWER_TIMEOUT_MS
        with Client(self._bootstrap, **config) as client:
            ranges = {(self._options.topic, each.partition): (0, None) for each in self.runs}
            with client.stream(ranges) as stream:
                while not self._stopping.is_set():
                    for record in stream.poll_records(100):
                        self.runs[record.partition].add(record.offset, code_in(record.value))


class GroupReading(Worker):
    """A group member that reads and commits (librdkafka)."""

    def __init__(self, name: str, bootstrap: str, options: LoadOptions, errors: Errors) -> None:
        super().__init__(name)
        self._name = name
        self._bootstrap = bootstrap
        self._options = options
        self._errors = errors
        self.runs: list[Run] = []
        self.commits: list[Commit] = []
        self._current: dict[int, Run] = {}

    def _run(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": self._options.group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 6000,
                "socket.timeout.ms": ANSWER_TIMEOUT_MS,
                "heartbeat.interval.ms": 500,
                "topic.metadata.refresh.fast.interval.ms": 50,
                "fetch.error.backoff.ms": 20,
                "error_cb": lambda error: self._errors.add(f"consumer: {error.name()}"),
                **self._options.keys,
                "log_level": 0,
                "retry.backoff.max.ms": 100,
                **QUICK,
            }
        )
        consumer.subscribe(
            [self._options.topic], on_assign=self._on_change, on_lost=self._on_change
        )
        while not self._stopping.is_set():
            self._read(consumer)
        consumer.close()

    def _on_change(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._current.clear()

    def _read(self, consumer: Consumer) -> None:
        messages = consumer.consume(500, 0.1)
        lacks_offsets = False
        for message in messages:
            if message.error():
                self._errors.add(f"consumer: {message.error().name()}")
                lacks_offsets |= tells_missing_offsets(message.error())
                continue
            partition = message.partition()
            run = self._current.get(partition)
            if run is None:
                run = self._current[partition] = Run(self._name, partition)
                self.runs.append(run)
            run.add(message.offset(), code_in(message.value()))
        if messages:
            self._commit(consumer)
        if lacks_offsets:
            assign_again(consumer)
            self._current.clear()

    def _commit(self, consumer: Consumer) -> None:
        started = time.monotonic()
        try:
            done = consumer.commit(asynchronous=False)
        except confluent_kafka.KafkaException as error:
            # The result of the commit is unknown, so it does not count.
            self._errors.add(f"commit: {error.args[0].name()}")
            return
        ended = time.monotonic()
        for place in done or ():
            if place.error is None and place.offset >= 0:
                self.commits.append(Commit(place.partition, place.offset, started, ended))


class Load:
    """All clients of the load, on one existing topic."""

    def __init__(self, bootstrap: str, options: LoadOptions) -> None:
        self.bootstrap = bootstrap
        self.options = options
        self.errors = Errors()
        self.producing: list[_Producing] = [
            LibrdkafkaProducing(options.first_producer, bootstrap, options, self.errors),
            OwnProducing(options.first_producer + 1, bootstrap, options, self.errors),
        ]
        self.reading = OwnReading(bootstrap, options, self.errors)
        self.members = [
            GroupReading(f"member {number}", bootstrap, options, self.errors)
            for number in range(options.members)
        ]
        # Committed offsets from `sample_commits`.
        self.found: list[Commit] = []

    @property
    def _workers(self) -> list[Worker]:
        return [*self.producing, self.reading, *self.members]

    @property
    def sends(self) -> list[Sends]:
        """Return the records of all producers and partitions."""
        return [each for producing in self.producing for each in producing.sends]

    def start(self) -> None:
        """Start all clients."""
        for worker in self._workers:
            worker.start()

    def abandon(self) -> None:
        """Stop all clients without waiting for their records."""
        for worker in self._workers:
            worker.stop()

    def check_alive(self) -> None:
        """Raise the exception of a dead client."""
        for worker in self._workers:
            worker.check_alive()

    def mark(self) -> float:
        """Make `recovered` count only records that are sent from now on; return the time."""
        for sends in self.sends:
            sends.mark = sends.sent
            sends.acknowledged_at = None
        return time.monotonic()

    def recovered(self) -> list[float] | None:
        """Return the time of each producer's first acknowledgement after `mark`, by partition.

        None until all producers have one in each partition.
        """
        times = [sends.acknowledged_at for sends in self.sends]
        return None if None in times else [each for each in times if each is not None]

    def waiting(self) -> list[str]:
        """Return the producers, and the group, with the partitions in which they have not started.

        A producer starts with its first acknowledgement since `mark`, the group with its first
        commit.
        """
        return [
            f"{type(producing).__name__} in {sends.partition}"
            for producing in self.producing
            for sends in producing.sends
            if sends.acknowledged_at is None
        ] + uncommitted(self.options.group, self.options.partitions, self._committed())

    def failures(self) -> int:
        """Return the number of failed records."""
        return sum(len(sends.failed) for sends in self.sends)

    def records(self) -> int:
        """Return the number of records sent so far."""
        return sum(sends.sent for sends in self.sends)

    def sample_commits(self) -> None:
        """Add the committed offsets of the group to the history."""
        options = self.options
        started = time.monotonic()
        offset_reader = plain_consumer(self.bootstrap, options.group, options.keys)
        found = committed_offsets(offset_reader, options.topic, range(options.partitions))
        ended = time.monotonic()
        self.found += [Commit(n, offset, started, ended, True) for n, offset in found.items()]

    def finish(self, on_settled: Callable[[], None] = lambda: None) -> History:
        """Stop producers, let readers reach the end, and read everything again.

        Args:
            on_settled: called when all records are acknowledged or expired.
        """
        for producing in self.producing:
            producing.stop()
        for producing in self.producing:
            producing.join()
        on_settled()
        topic = self.options.topic
        keys = self.options.keys
        partitions = range(self.options.partitions)
        logs = {n: read_log(self.bootstrap, topic, n, keys=keys) for n in partitions}
        self._await_readers(logs)
        for worker in (self.reading, *self.members):
            worker.stop()
        for worker in (self.reading, *self.members):
            worker.join()
        self.sample_commits()
        commits = [commit for member in self.members for commit in member.commits]
        return History(
            sends=self.sends,
            logs=logs,
            runs=self.reading.runs,
            member_runs=[run for member in self.members for run in member.runs],
            commits=commits + self.found,
        )

    def _await_readers(self, logs: dict[int, PartitionLog]) -> None:
        """Wait until the group has committed the end, and the other reader has read it."""
        ends = {number: log.offsets[-1] + 1 if log.offsets else 0 for number, log in logs.items()}

        def behind() -> list[str]:
            committed = self._committed()
            found = []
            for number, end in ends.items():
                if committed.get(number, 0) < end:
                    found.append(f"group: {number} at {committed.get(number, 0)} of {end}")
                offsets = self.reading.runs[number].offsets
                if end and (not offsets or offsets[-1] < end - 1):
                    found.append(f"reader: {number} at {offsets[-1:]} of {end}")
            return found

        eventually(
            lambda: (self.check_alive(), not behind())[1],
            lambda: f"readers did not come to the end: {behind()}\n{self._describe_group()}",
        )

    def _committed(self) -> dict[int, int]:
        """Return the greatest offset that the members have committed, by partition."""
        committed: dict[int, int] = {}
        for member in self.members:
            for commit in list(member.commits):
                before = committed.get(commit.partition, 0)
                committed[commit.partition] = max(commit.offset, before)
        return committed

    def _describe_group(self) -> str:
        """Return the group as its coordinator describes it, and the errors of all clients."""
        group = self.options.group
        found: list[object] = []
        try:
            with Client(self.bootstrap, **self.options.keys) as client:
                found.append(client.admin.coordinators([group])[group])
                found.append(client.admin.describe_groups([group])[group])
        except ClientError as error:
            found.append(error)
        return f"coordinator and group: {found}\nerrors of clients: {dict(self.errors.counts)}"


def plain_consumer(bootstrap: str, group: str, keys: Mapping[str, str] | None = None) -> Consumer:
    """Return a consumer that commits nothing."""
    return Consumer(
        {
            **(keys or {}),
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "log_level": 0,
            **QUICK,
        }
    )


def read_values(
    bootstrap: str, topic: str, partition: int, keys: Mapping[str, str] | None = None
) -> list[tuple[int, bytes | None]]:
    """Return (offset, value) of every record of a partition, read by a consumer."""
    return list(read_each(bootstrap, topic, partition, keys))


def read_each(
    bootstrap: str, topic: str, partition: int, keys: Mapping[str, str] | None = None
) -> Iterator[tuple[int, bytes | None]]:
    """Yield (offset, value) of every record of a partition, with few of them in memory."""
    consumer = plain_consumer(bootstrap, "reads-all", keys)
    try:
        place = TopicPartition(topic, partition, 0)
        start, end = eventually(lambda: _ends(consumer, place), f"{topic}-{partition} has no end")
        consumer.assign([TopicPartition(topic, partition, start)])
        position = start
        while position < end:
            missing = f"{topic}-{partition} cannot be read from {position} to {end}"
            for message in eventually(lambda: consumer.consume(_READ_AT_ONCE, 0.2), missing):
                assert message.error() is None, message.error()
                position = message.offset() + 1
                yield message.offset(), message.value()
    finally:
        consumer.close()


def _ends(consumer: Consumer, place: TopicPartition) -> tuple[int, int] | None:
    """Return start and end offset. A new leader may not know its high watermark yet."""
    try:
        start, end = consumer.get_watermark_offsets(place, PATIENCE_S)
    except confluent_kafka.KafkaException as error:
        if error.args[0].code() not in _EARLY:
            raise
        return None
    return start, end


def read_log(
    bootstrap: str,
    topic: str,
    partition: int,
    name: int | None = None,
    keys: Mapping[str, str] | None = None,
) -> PartitionLog:
    """Read a partition for the checker, as partition `name` of the history."""
    values = read_values(bootstrap, topic, partition, keys)
    log = PartitionLog(partition if name is None else name)
    for offset, value in values:
        log.add(offset, code_in(value))
    return log
