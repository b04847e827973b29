"""Side loads whose topics change under their clients: made anew with fewer records, and growing."""

from __future__ import annotations

import contextlib
import time
from typing import ClassVar

import barnabas
from barnabas.client.errors import ClientError
from chaos.history import PartitionLog, code_in, value_of
from chaos.load import DELIVERY_TIMEOUT_MS, read_log
from chaos.resources import Leftovers
from chaos.side.side_load import OWN_KEYS, SideLoad, SideOptions, TopicShape
from chaos.verdict import Verdict

PAUSE_S = 0.5
# How long a client may miss new records or partitions while faults are injected and healed. The
# clients wait for them even if the load ends meanwhile.
PATIENCE_S = 90.0
METADATA_MS = 1000
RESTART_SHARE = 0.5
ERROR_CHARACTERS = 80


class RecreatedTopicLoad(SideLoad):
    """A consumer of the new protocol whose topic is deleted and made anew with fewer records.

    Its positions and committed offsets belong to the deleted topic. Sometimes the consumer is
    closed meanwhile, and begins with the committed offsets.
    """

    name = "recreated topics"
    TOPIC, GROUP = "chaos-recreated", "chaos-recreated"
    FIRST_RECORDS = 12
    KINDS = ("unread",)

    def __init__(self, options: SideOptions) -> None:
        super().__init__(options)
        self._verdict = Verdict(self.KINDS)
        self._incarnations = 0

    def _run(self) -> None:
        with barnabas.Client(self.options.bootstrap, **OWN_KEYS) as client:
            consumer = self._new_consumer()
            while not self._stopping.wait(PAUSE_S):
                # Fewer and fewer records, so that old positions lie behind the end.
                count = max(1, self.FIRST_RECORDS - 4 * (self._incarnations % 4))
                restarts = self.rng.random() < RESTART_SHARE
                if restarts:
                    consumer.close()
                is_made = self._make_anew(client, count)
                if restarts:
                    consumer = self._new_consumer()
                if not is_made:
                    continue
                missed = self._read(consumer, count)
                if missed:
                    text = f"incarnation {self._incarnations}: {missed} of {count} were not read"
                    stored = len(read_log(self.options.bootstrap, self.TOPIC, 0).offsets)
                    text += f"{restarts * ' by a new consumer'}, the log has {stored}"
                    self._verdict.add("unread", text)
            consumer.close()

    def _new_consumer(self) -> barnabas.Consumer:
        keys = {
            **OWN_KEYS,
            "group.id": self.GROUP,
            "group.protocol": "consumer",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "metadata.max.age.ms": METADATA_MS,
        }
        return barnabas.Consumer(self.TOPIC, bootstrap_servers=self.options.bootstrap, **keys)

    def _make_anew(self, client: barnabas.Client, count: int) -> bool:
        """Return whether the topic was made anew with records; some calls may fail."""
        self._incarnations += 1
        try:
            with contextlib.suppress(ClientError):
                # A broker that was paused may pass on a deletion that was repeated at another one.
                # By name, it would delete the new topic.
                topic = client.describe_topics([self.TOPIC], may_be_new=False)[self.TOPIC]
                client.admin.delete_topics_by_id([topic.topic_id])
            # One node may lose its directory.
            configs = {"min.insync.replicas": "2", "retention.ms": "-1"}
            client.create_topic(self.TOPIC, 1, 3, configs)
            with client.producer() as producer:
                for number in range(count):
                    value = value_of(self._incarnations, number, b"new")
                    producer.send(self.TOPIC, value, partition=0)
        except ClientError as error:
            self.options.errors.add(f"recreated topics: {type(error).__name__}")
            return False
        return True

    def _read(self, consumer: barnabas.Consumer, count: int) -> int:
        """Return how many records of the incarnation the consumer does not return in time."""
        missing = {code_in(value_of(self._incarnations, number)) for number in range(count)}
        deadline = time.monotonic() + PATIENCE_S
        while missing and time.monotonic() < deadline:
            try:
                missing -= {code_in(record.value) for record in consumer.poll(0.2)}
                consumer.commit()
            except ClientError as error:
                self.options.errors.add(f"recreated topics: {str(error)[:ERROR_CHARACTERS]}")
                # Some errors are raised again at once.
                time.sleep(PAUSE_S)
        return len(missing)

    def judge(self) -> Verdict:
        """Return the incarnations that were not read completely."""
        return self._verdict

    def leftovers(self) -> Leftovers:
        """Return the producers, of which each has one partition, and the fetch sessions."""
        made = self._incarnations
        return Leftovers(producers_in_partitions=made, fetch_sessions=made)

    def figures(self) -> dict[str, int]:
        """Return how often the topic was made anew."""
        return {"incarnations": self._incarnations}


class GrowingTopicLoad(SideLoad):
    """A producer without keys to a topic that gets more partitions."""

    name = "added partitions"
    TOPIC = "chaos-growing"
    topics: ClassVar = {TOPIC: TopicShape(1)}
    PARTITIONS_MAX = 8
    # Records between two additions, at least.
    RECORDS = 200
    KINDS = ("unused", "growing")

    def __init__(self, options: SideOptions) -> None:
        super().__init__(options)
        self._verdict = Verdict(self.KINDS)
        self._sent: set[int] = set()
        # Partition and offset of acknowledged records, by number.
        self._acknowledged: dict[int, tuple[int, int]] = {}
        self._partitions = 1
        self._next = 0

    def _run(self) -> None:
        keys = {
            **OWN_KEYS,
            "metadata.max.age.ms": METADATA_MS,
            "delivery.timeout.ms": DELIVERY_TIMEOUT_MS,
            "linger.ms": 0,
            # After this number of bytes, the producer chooses another partition.
            "batch.size": 1_000,
        }
        with (
            barnabas.Client(self.options.bootstrap, **OWN_KEYS) as client,
            barnabas.Producer(self.options.bootstrap, **keys) as producer,
        ):
            while not self._stopping.is_set():
                for _ in range(self.RECORDS):
                    self._send(producer)
                if self._partitions < self.PARTITIONS_MAX:
                    self._grow(client, producer)
            producer.flush()

    def _send(self, producer: barnabas.Producer) -> None:
        number, self._next = self._next, self._next + 1

        def on_delivery(metadata: object, error: ClientError | None) -> None:
            if metadata is not None:
                self._acknowledged[number] = (metadata.partition, metadata.offset)
            else:
                self.options.errors.add(f"added partitions: {type(error).__name__}")

        producer.send(self.TOPIC, value_of(0, number, b"growing"), on_delivery=on_delivery)
        producer.poll(0)
        self._stopping.wait(0.01)

    def _grow(self, client: barnabas.Client, producer: barnabas.Producer) -> None:
        """Add a partition, and wait until the producer uses it."""
        try:
            client.create_partitions({self.TOPIC: self._partitions + 1})
        except ClientError as error:
            # The addition may have been done: the next one has the same number and fails then.
            self.options.errors.add(f"added partitions: {type(error).__name__}")
            self._partitions = len(client.partitions_for(self.TOPIC)[self.TOPIC])
            return
        self._partitions += 1
        new = self._partitions - 1
        deadline = time.monotonic() + PATIENCE_S
        while all(partition != new for partition, _ in list(self._acknowledged.values())):
            if time.monotonic() > deadline:
                self._verdict.add("unused", f"no record came to partition {new}")
                return
            self._send(producer)

    def judge(self) -> Verdict:
        """Return lost, doubled and misplaced records, and partitions that were not used."""
        logs: dict[int, PartitionLog] = {}
        places: dict[int, tuple[int, int]] = {}
        for partition in range(self._partitions):
            logs[partition] = read_log(self.options.bootstrap, self.TOPIC, partition)
            for offset, code in zip(logs[partition].offsets, logs[partition].codes, strict=True):
                if code in places:
                    text = f"record {code} is at {places[code]} and {(partition, offset)}"
                    self._verdict.add("growing", text)
                places[code] = (partition, offset)
        for number, place in self._acknowledged.items():
            if places.get(number) != place:
                text = f"record {number}, acknowledged at {place}, is at {places.get(number)}"
                self._verdict.add("growing", text)
        return self._verdict

    def figures(self) -> dict[str, int]:
        """Return the numbers of records and partitions."""
        return {"records": self._next, "partitions": self._partitions}
