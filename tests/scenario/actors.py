"""The clients of a story: producers, group members, and the final reader."""

from __future__ import annotations

import time
from collections.abc import Mapping

import confluent_kafka

from chaos.history import History, PartitionLog, Run, Sends, value_of
from chaos.load import (
    QUICK,
    Errors,
    GroupReading,
    LibrdkafkaProducing,
    LoadOptions,
    OwnProducing,
    offset_of,
    plain_consumer,
    read_log,
    read_values,
)
from group_offsets import committed_offsets
from waiting import PATIENCE_S, eventually

# How long an expected failure of a send may take.
VAIN_TIMEOUT_S = 1.5
# Up to this number of records, each record has a separate batch.
SINGLE_RECORDS_MAX = 100
RATE = 200


class Actors:
    """Clients of one cluster. Each topic has one partition; the history refers to it by number."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._topics: list[str] = []
        self._next_producer = 0
        self._sends: list[Sends] = []
        self._producing: list[LibrdkafkaProducing | OwnProducing] = []
        self._ended: list[LibrdkafkaProducing | OwnProducing] = []
        self._members: list[tuple[str, GroupReading]] = []
        self._former: list[tuple[str, GroupReading]] = []
        # Unused producers by acks and timeout (s).
        self._spares = {("all", PATIENCE_S): self._new_producer("all", PATIENCE_S)}
        self.errors = Errors()

    def close(self) -> None:
        """Stop the background clients; some may have failed because of the state of the cluster."""
        self._spares.clear()
        for worker in [*self._producing, *(member for _, member in self._members)]:
            worker.stop()

    def _new_sends(self, topic: str) -> Sends:
        if topic not in self._topics:
            self._topics.append(topic)
        sends = Sends(self._next_producer, self._topics.index(topic))
        self._next_producer += 1
        self._sends.append(sends)
        return sends

    def produce(self, topic: str, count: int, acks: str) -> None:
        """Send records, in separate batches if they are few. All must be acknowledged."""
        sends = self._new_sends(topic)
        self._send(topic, count, acks, sends, PATIENCE_S)
        assert not sends.failed, f"not acknowledged: {sends.failed}"
        if acks != "all":
            # Records with acks=1 may be lost with their leader.
            for number in range(sends.sent):
                sends.failed[number] = "acks=1"
                sends.offsets[number] = -1

    def produce_and_expect_failure(self, topic: str, count: int, acks: str) -> None:
        """Send records, none of which may be acknowledged."""
        sends = self._new_sends(topic)
        self._send(topic, count, acks, sends, VAIN_TIMEOUT_S)
        assert len(sends.failed) == count, f"acknowledged: {list(sends.offsets)}"

    def _send(self, topic: str, count: int, acks: str, sends: Sends, timeout_s: float) -> None:
        producer = self._unused_producer(acks, timeout_s)

        def on_delivery(number: int, error: object, message: confluent_kafka.Message) -> None:
            if error is not None:
                sends.failed[number] = str(error)
            else:
                sends.acknowledge(number, offset_of(message), time.monotonic())

        for _ in range(count):
            number = sends.next_number()
            producer.produce(
                topic,
                value_of(sends.producer, number),
                partition=0,
                on_delivery=lambda error, message, number=number: on_delivery(
                    number, error, message
                ),
            )
            if count <= SINGLE_RECORDS_MAX:
                producer.flush(timeout_s + PATIENCE_S)
        pending = producer.flush(timeout_s + PATIENCE_S)
        assert not pending, f"{pending} records were neither acknowledged nor failed"

    def _unused_producer(self, acks: str, timeout_s: float) -> confluent_kafka.Producer:
        """Return an unused producer, and create the next one in advance.

        librdkafka takes up to a second to get a producer id.
        """
        producer = self._spares.pop((acks, timeout_s), None)
        self._spares[acks, timeout_s] = self._new_producer(acks, timeout_s)
        return producer or self._new_producer(acks, timeout_s)

    def _new_producer(self, acks: str, timeout_s: float) -> confluent_kafka.Producer:
        return confluent_kafka.Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "acks": acks,
                "enable.idempotence": acks == "all",
                "linger.ms": 0,
                "message.timeout.ms": int(timeout_s * 1000),
                "topic.metadata.refresh.fast.interval.ms": 50,
                "retry.backoff.max.ms": 100,
                "log_level": 0,
                **QUICK,
            }
        )

    def keep_producing(self, topic: str) -> None:
        """Start idempotent producers of librdkafka and of the Barnabas client in the background."""
        for kind in (LibrdkafkaProducing, OwnProducing):
            sends = self._new_sends(topic)
            options = LoadOptions(topic, 1, rate=RATE)
            worker = kind(sends.producer, self._bootstrap, options, self.errors)
            worker.sends = [sends]
            worker.start()
            self._producing.append(worker)

    def stop_producing(self) -> None:
        """Stop the producers, and wait until all records are acknowledged or have failed."""
        for worker in self._producing:
            worker.stop()
        for worker in self._producing:
            worker.join()
        self._ended += self._producing
        self._producing = []

    def failures(self) -> list[str]:
        """Return the reasons of failed background records."""
        workers = self._producing + self._ended
        return [why for each in workers for sends in each.sends for why in sends.failed.values()]

    def keep_consuming(self, topic: str, group: str) -> None:
        """Start a member of a group in the background."""
        options = LoadOptions(topic, 1, group=group)
        worker = GroupReading(f"member of {group}", self._bootstrap, options, self.errors)
        worker.start()
        self._members.append((topic, worker))

    def stop_consuming(self) -> None:
        """Wait until the members have committed the end of all records, and stop them."""
        for topic, worker in self._members:
            values = self.values(topic)
            end = values[-1][0] + 1 if values else 0

            def has_committed_all(worker: GroupReading = worker, end: int = end) -> bool:
                assert worker.death is None, worker.death
                return max((commit.offset for commit in list(worker.commits)), default=0) >= end

            eventually(has_committed_all, f"the group does not commit {end}")
        for _, worker in self._members:
            worker.stop()
        for _, worker in self._members:
            worker.join()
        self._former += self._members
        self._members = []

    def committed(self, topic: str, group: str) -> int:
        """Return a group's committed offset; -1 without one."""
        return committed_offsets(plain_consumer(self._bootstrap, group), topic, [0]).get(0, -1)

    def values(self, topic: str) -> list[tuple[int, bytes | None]]:
        """Return (offset, value) of all records."""
        return read_values(self._bootstrap, topic, 0)

    def read(self, topic: str) -> PartitionLog:
        """Return the log of a topic for the checker."""
        if topic not in self._topics:
            self._topics.append(topic)
        return read_log(self._bootstrap, topic, 0, self._topics.index(topic))

    def history(self, logs: Mapping[str, PartitionLog]) -> History:
        """Return the complete history; the background clients must be stopped."""
        assert not self._producing, "the story ends without: stop producing"
        assert not self._members, "the story ends without: stop consuming"
        history = History(sends=self._sends, logs={log.partition: log for log in logs.values()})
        for topic, member in self._former:
            number = self._topics.index(topic)
            history.member_runs += [_renumbered(run, number) for run in member.runs]
            history.commits += [
                type(commit)(number, commit.offset, commit.started, commit.ended)
                for commit in member.commits
            ]
        return history


def _renumbered(run: Run, number: int) -> Run:
    return Run(run.reader, number, run.offsets, run.codes)
