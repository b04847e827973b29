"""Side loads whose records the broker converts: other compressions, and old clients.

`ConversionLoad` sends large records to topics whose `compression.type` differs from the producer's,
two of them at once, so that conversions compete for their memory. `OldClientLoad` sends and fetches
with versions whose record format is older than the stored one.
"""

from __future__ import annotations

import random
import time
import zlib
from collections.abc import Iterator
from typing import ClassVar

import confluent_kafka

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.record.legacy import read_records, write_message_set
from barnabas.record.record import Record
from chaos.checker import check
from chaos.cluster_view import NoAnswerError
from chaos.history import History, PartitionLog, Run, Sends, code_in, value_of
from chaos.load import DELIVERY_TIMEOUT_MS, LibrdkafkaProducing, offset_of, read_each, read_log
from chaos.side.side_load import SideLoad, SideOptions, TopicShape
from chaos.verdict import Verdict

# The topic of each pair is stored with the first compression and gets the second one.
COMPRESSIONS = (("lz4", "zstd"), ("zstd", "gzip"), ("gzip", "lz4"), ("uncompressed", "snappy"))
PARTITIONS = 2
KIB = 1024
RECORD_BYTES = (100 * KIB, 2048 * KIB)
# Random bytes before the zeros of a record that is small on the wire and large in memory.
RANDOM_BYTES = 128 * KIB
PAUSE_S = 2.0
RANDOM, TEXT, ZEROS = "random", "text", "zeros"
KINDS_OF_CONTENT = (RANDOM, TEXT, ZEROS, ZEROS)


def content_of(kind: str, rng: random.Random) -> bytes:
    """Return 100 KiB to 2 MiB of random bytes, of text, or of zeros behind random bytes."""
    low, high = RECORD_BYTES
    size = int(low * (high / low) ** rng.random())
    if kind == RANDOM:
        return rng.randbytes(size)
    if kind == TEXT:
        return b"".join(b"line %d\n" % number for number in range(size // 12))
    return rng.randbytes(RANDOM_BYTES) + bytes(high)


class ConversionLoad(SideLoad):
    """Large records that the broker compresses anew, two at once in each topic."""

    name = "conversions"
    KINDS = ("conversion", "changed")
    topics: ClassVar = {
        f"chaos-as-{stored}": TopicShape(
            PARTITIONS,
            {
                "compression.type": stored,
                "max.message.bytes": str(8 << 20),
                "segment.bytes": str(16 << 20),
            },
        )
        for stored, _ in COMPRESSIONS
    }

    def __init__(self, options: SideOptions) -> None:
        super().__init__(options)
        self._producers = [self._producer(sent) for _, sent in COMPRESSIONS]
        # For each topic and partition, in the order of the topics; producers are the topics.
        self._sends = [
            Sends(number, PARTITIONS * number + partition, may_start_new_epochs=True)
            for number in range(len(COMPRESSIONS))
            for partition in range(PARTITIONS)
        ]
        # Checksums of the contents by partition and number.
        self._sums: dict[tuple[int, int], int] = {}

    def _producer(self, compression: str) -> confluent_kafka.Producer:
        return confluent_kafka.Producer(
            {
                **LibrdkafkaProducing.keys(self.options.bootstrap, self.options.errors),
                "compression.type": compression,
                "message.max.bytes": 8 << 20,
            }
        )

    def _run(self) -> None:
        while not self._stopping.wait(PAUSE_S):
            number = self.rng.randrange(len(COMPRESSIONS))
            kind = self.rng.choice(KINDS_OF_CONTENT)
            for sends in self._sends[PARTITIONS * number : PARTITIONS * (number + 1)]:
                self._send(number, sends, content_of(kind, self.rng))
            for producer in self._producers:
                producer.poll(0)
        for producer in self._producers:
            left = producer.flush(DELIVERY_TIMEOUT_MS / 1000)
            assert left == 0, f"{left} records were neither delivered nor given up"

    def _send(self, topic_number: int, sends: Sends, content: bytes) -> None:
        number = sends.next_number()
        self._sums[sends.partition, number] = zlib.crc32(content)

        def on_delivery(error: object, message: confluent_kafka.Message) -> None:
            if error is None:
                sends.acknowledge(number, offset_of(message), time.monotonic())
            else:
                sends.failed[number] = str(error)
                self.options.errors.add(f"conversion: not delivered: {error}")

        try:
            self._producers[topic_number].produce(
                list(self.topics)[topic_number],
                value_of(topic_number, number, content),
                partition=sends.partition % PARTITIONS,
                on_delivery=on_delivery,
            )
        except BufferError:
            sends.failed[number] = "the buffer of the producer is full"

    def judge(self) -> Verdict:
        """Return acknowledged records that are lost, doubled or changed."""
        verdict = Verdict(self.KINDS)
        logs: dict[int, PartitionLog] = {}
        for sends in self._sends:
            log = logs[sends.partition] = PartitionLog(sends.partition)
            topic = list(self.topics)[sends.partition // PARTITIONS]
            place = sends.partition % PARTITIONS
            for offset, value in read_each(self.options.bootstrap, topic, place):
                log.add(offset, code_in(value))
                number = int((value or b"0:-1:").split(b":", 2)[1])
                content = (value or b"").split(b":", 2)[-1]
                if self._sums.get((sends.partition, number)) != zlib.crc32(content):
                    verdict.add("changed", f"{topic}-{place}: offset {offset}, record {number}")
        found = check(History(self._sends, logs))
        for finding in found.findings:
            verdict.add("conversion", str(finding))
        if not found.is_clean and not found.findings:
            verdict.add("conversion", str(found))
        for sends in self._sends:
            for number, reason in sends.failed.items():
                verdict.add("conversion", f"record {number} of {sends.partition}: {reason}")
        return verdict

    def figures(self) -> dict[str, int]:
        """Return the number of large records."""
        return {"records": sum(sends.sent for sends in self._sends)}


class OldClientLoad(SideLoad):
    """A client of before Kafka 0.11: it sends and fetches message sets (Produce and Fetch v2)."""

    name = "old clients"
    TOPIC = "chaos-old"
    topics: ClassVar = {TOPIC: TopicShape(1)}
    VERSION, MAGIC, CODECS = 2, 1, (0, 1, 2, 3)
    SET_RECORDS = 20
    KINDS = ("old client",)

    def __init__(self, options: SideOptions) -> None:
        super().__init__(options)
        self._sends = Sends(0, 0)
        self._run_of_reader = Run("old client", 0)

    def _run(self) -> None:
        while not self._stopping.wait(PAUSE_S):
            try:
                leader = self.options.view.partition(self.TOPIC).leader
                self._send(leader)
                self._fetch(leader)
            except (OSError, NoAnswerError, KeyError) as error:
                self.options.errors.add(f"old client: {type(error).__name__}")

    def _send(self, leader: int) -> None:
        """Send a set once: a repetition could be stored twice."""
        numbers = [self._sends.next_number() for _ in range(self.SET_RECORDS)]
        for number in numbers:
            self._sends.failed[number] = "no response"
        now = int(time.time() * 1000)
        rows = [
            Record(place, now, 0, None, value_of(0, number, b"old"))
            for place, number in enumerate(numbers)
        ]
        records = write_message_set(self.MAGIC, rows, self.rng.choice(self.CODECS))
        data = PartitionProduceData(index=0, records=memoryview(bytearray(records)))
        topic = TopicProduceData(name=self.TOPIC, partition_data=[data])
        request = ProduceRequest(acks=-1, timeout_ms=2000, topic_data=[topic])
        response = self.options.view.ask(leader, request, self.VERSION)
        told = response.responses[0].partition_responses[0]
        if told.error_code == ErrorCode.NONE:
            for place, number in enumerate(numbers):
                del self._sends.failed[number]
                self._sends.acknowledge(number, told.base_offset + place, time.monotonic())
        else:
            self.options.errors.add(f"old client: produce error {told.error_code}")

    def _fetch(self, leader: int) -> None:
        offset = self._run_of_reader.offsets[-1] + 1 if self._run_of_reader.offsets else 0
        partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        topic = FetchTopic(topic=self.TOPIC, partitions=[partition])
        request = FetchRequest(replica_id=-1, max_wait_ms=100, min_bytes=1, topics=[topic])
        response = self.options.view.ask(leader, request, self.VERSION)
        told = response.responses[0].partitions[0]
        if told.error_code != ErrorCode.NONE:
            self.options.errors.add(f"old client: fetch error {told.error_code}")
            return
        for record in self._records_from(bytes(told.records or b""), offset):
            self._run_of_reader.add(record.offset, code_in(record.value))

    @staticmethod
    def _records_from(records: bytes, offset: int) -> Iterator[Record]:
        """Yield the records from `offset` on: a compressed set is returned as a whole."""
        return (record for record in read_records(records) if record.offset >= offset)

    def judge(self) -> Verdict:
        """Return violations by the rules of the load's checker."""
        verdict = Verdict(self.KINDS)
        log = read_log(self.options.bootstrap, self.TOPIC, 0)
        found = check(History([self._sends], {0: log}, [self._run_of_reader]))
        if not found.is_clean:
            verdict.add("old client", str(found))
        return verdict

    def figures(self) -> dict[str, int]:
        """Return the number of records that were sent and fetched."""
        return {"sent": self._sends.sent, "fetched": len(self._run_of_reader.offsets)}
