"""Side loads of a campaign with a remote tier: readers from old offsets, and a topic that expires.

The readers begin at offset 0, or anywhere, again and again. The checker of the campaign compares
what they got with the log. In addition, they find:

skipped     the first record is not that of the offset where the reader began
refused     the leader said that an offset of the log does not exist

A topic with a small `retention.bytes` expires from the tier meanwhile:

lost        acknowledged, above the log start, but not in the log
gap         offsets of the log are not dense
"""

from __future__ import annotations

import time
from typing import ClassVar

import confluent_kafka
from confluent_kafka import TopicPartition

import barnabas
from barnabas.client.errors import ClientError, OffsetOutOfRangeError
from chaos.cluster_view import NoAnswerError
from chaos.history import Run, code_in, code_of, value_of
from chaos.load import plain_consumer, read_each
from chaos.side.side_load import OWN_KEYS, SideLoad, SideOptions, TopicShape
from chaos.stress import TOPIC
from chaos.tier.tier_store import SEGMENT_BYTES
from chaos.verdict import Verdict

# With `auto.offset.reset=error`, librdkafka reports this for an offset that does not exist.
_REFUSED = (
    confluent_kafka.KafkaError.OFFSET_OUT_OF_RANGE,
    confluent_kafka.KafkaError._AUTO_OFFSET_RESET,
)


class TierReading(SideLoad):
    """A client that reads the topic of the load from old offsets, by librdkafka or our client."""

    name = "reading from the tier"
    KINDS = ("skipped", "refused")
    PAUSE_S = 0.5
    RECORDS_MAX = 3_000
    # A fault may hold back records for longer than this.
    READ_S = 10.0

    def __init__(self, options: SideOptions) -> None:
        super().__init__(options)
        self._verdict = Verdict(self.KINDS)
        self.runs: list[Run] = []
        self._records = 0

    def _run(self) -> None:
        while not self._stopping.wait(self.PAUSE_S):
            try:
                partitions = self.options.view.partitions(TOPIC)
            except (NoAnswerError, OSError):
                continue
            partition = self.rng.choice(list(partitions))
            end = self._end(partition)
            if end > 0:
                start = self.rng.choice((0, 0, self.rng.randrange(end)))
                read = self.rng.choice((self._read_by_librdkafka, self._read_by_ours))
                run = Run(f"{read.__name__} from {start}", partition)
                read(run, start, min(end, start + self.RECORDS_MAX))
                self._note(run, start)

    def _end(self, partition: int) -> int:
        """Return the end of a partition; 0 if its leader does not answer."""
        consumer = plain_consumer(self.options.bootstrap, "reads-tier")
        try:
            found = consumer.get_watermark_offsets(TopicPartition(TOPIC, partition), 2.0)
        except confluent_kafka.KafkaException:
            return 0
        finally:
            consumer.close()
        return 0 if found is None else int(found[1])

    def _note(self, run: Run, start: int) -> None:
        self._records += len(run.offsets)
        self.runs.append(run)
        if run.offsets and run.offsets[0] != start:
            text = f"partition {run.partition}: {run.reader} got {run.offsets[0]} first"
            self._verdict.add("skipped", text)

    def _read_by_librdkafka(self, run: Run, start: int, end: int) -> None:
        consumer = plain_consumer(self.options.bootstrap, "reads-tier")
        deadline = time.monotonic() + self.READ_S
        offset = start
        try:
            consumer.assign([TopicPartition(TOPIC, run.partition, start)])
            while offset < end and time.monotonic() < deadline and not self._stopping.is_set():
                for message in consumer.consume(500, 0.2):
                    error = message.error()
                    if error is None:
                        offset = int(message.offset()) + 1
                        run.add(offset - 1, code_in(message.value()))
                        continue
                    self.options.errors.add(f"reader of the tier: {error.name()}")
                    if error.code() in _REFUSED:
                        self._refused(run, offset, str(error))
        finally:
            consumer.close()

    def _read_by_ours(self, run: Run, start: int, end: int) -> None:
        deadline = time.monotonic() + self.READ_S
        offset = start
        ranges = {(TOPIC, run.partition): (start, end)}
        try:
            with (
                barnabas.Client(self.options.bootstrap, **OWN_KEYS) as client,
                client.stream(ranges) as stream,
            ):
                while offset < end and time.monotonic() < deadline and not self._stopping.is_set():
                    for record in stream.poll_records(100):
                        offset = record.offset + 1
                        run.add(record.offset, code_in(record.value))
        except ClientError as error:
            self.options.errors.add(f"reader of the tier: {type(error).__name__}")
            if isinstance(error, OffsetOutOfRangeError):
                self._refused(run, offset, str(error))

    def _refused(self, run: Run, offset: int, error: str) -> None:
        self._verdict.add("refused", f"partition {run.partition}: {offset}: {error}")

    def judge(self) -> Verdict:
        """Return what was skipped or refused. The checker of the campaign gets the runs."""
        return self._verdict

    def figures(self) -> dict[str, int]:
        """Return the number of reads and of records."""
        return {"reads": len(self.runs), "records": self._records}


class ExpiringLoad(SideLoad):
    """A producer to a topic that keeps some segments, most of them in the tier."""

    name = "expiring tier"
    TOPIC = "chaos-expiring"
    topics: ClassVar = {
        TOPIC: TopicShape(
            1,
            {
                "remote.storage.enable": "true",
                "internal.segment.bytes": str(SEGMENT_BYTES // 4),
                "local.retention.bytes": str(SEGMENT_BYTES // 4),
                "retention.bytes": str(2 * SEGMENT_BYTES),
            },
        )
    }
    KINDS = ("lost", "gap")
    PADDING = b"." * 400
    PAUSE_S = 0.02
    READS_MAX = 5

    def __init__(self, options: SideOptions) -> None:
        super().__init__(options)
        # Number of each acknowledged record by its offset.
        self._acknowledged: dict[int, int] = {}
        self._next = 0
        self._start = 0

    def _run(self) -> None:
        keys = {**OWN_KEYS, "delivery.timeout.ms": 120_000, "linger.ms": 2}
        with barnabas.Producer(self.options.bootstrap, **keys) as producer:
            while not self._stopping.wait(self.PAUSE_S):
                self._send(producer)
            producer.flush()

    def _send(self, producer: barnabas.Producer) -> None:
        number, self._next = self._next, self._next + 1

        def on_delivery(metadata: object, error: ClientError | None) -> None:
            if error is not None:
                self.options.errors.add(f"expiring tier: {type(error).__name__}")
                return
            offset = getattr(metadata, "offset", -1)
            if offset >= 0:
                self._acknowledged[offset] = number

        value = value_of(0, number, self.PADDING)
        producer.send(self.TOPIC, value, partition=0, on_delivery=on_delivery)
        producer.poll(0)

    def judge(self) -> Verdict:
        """Return acknowledged records that the log should have, and has not."""
        verdict = Verdict(self.KINDS)
        content = self._content()
        self._start = min(content, default=0)
        end = max(content, default=-1)
        for offset in range(self._start, end):
            if offset not in content:
                verdict.add("gap", f"offset {offset} is missing")
        for offset, number in self._acknowledged.items():
            if offset >= self._start and content.get(offset) != code_of(0, number):
                verdict.add("lost", f"record {number}, acknowledged at {offset}")
        return verdict

    def _content(self) -> dict[int, int]:
        """Return the code of each record by its offset, read from the log start."""
        for _ in range(self.READS_MAX - 1):
            try:
                return self._read()
            except AssertionError:
                # The first records have expired since the consumer began.
                continue
        return self._read()

    def _read(self) -> dict[int, int]:
        found = read_each(self.options.bootstrap, self.TOPIC, 0)
        return {offset: code_in(value) for offset, value in found}

    def figures(self) -> dict[str, int]:
        """Return the number of records, and the first offset that has not expired."""
        return {"records": self._next, "log start": self._start}


TIER_LOADS: tuple[type[SideLoad], ...] = (TierReading, ExpiringLoad)
