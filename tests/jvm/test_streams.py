"""A Kafka Streams application, unchanged, on Barnabas: word count, at least once.

Its repartition and changelog topics are internal topics of its own; its group is a classic one with
an assignor of its own; its state comes back from the changelog.
"""

from __future__ import annotations

import itertools
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.testing.broker_process import BrokerProcess
from jvm.java import java_command
from jvm.java_application import JavaApplication
from jvm.kafka_process import KafkaProcess
from jvm.reference import broker_under_test
from jvm.topics import topic_configs
from waiting import eventually, eventually_equal

SOURCE = Path(__file__).parent / "WordCount.java"
APPLICATION = "word-count"
REPARTITION = f"{APPLICATION}-by-word-repartition"
CHANGELOG = f"{APPLICATION}-counts-changelog"
PARTITIONS = 2
# A limit for what hangs.
TIMEOUT_S = 90.0
WORDS = ("log", "event", "offset", "broker", "leader", "epoch", "group")
SETTINGS = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1"}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess | KafkaProcess]:
    with broker_under_test(tmp_path / "broker", SETTINGS) as process:
        yield process


class Pipeline:
    """Lines in, counts out, and what they have to be."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        self.bootstrap = bootstrap
        self.expected: Counter[str] = Counter()
        self.state = directory / "state"
        self._log_file = directory / "streams.log"
        self._words = itertools.cycle(WORDS)
        admin = AdminClient({"bootstrap.servers": bootstrap})
        for made in admin.create_topics(
            [NewTopic("lines", PARTITIONS, 1), NewTopic("counts", PARTITIONS, 1)]
        ).values():
            made.result(TIMEOUT_S)

    def start(self) -> JavaApplication:
        """The application, once it runs."""
        settings = {
            "application.id": APPLICATION,
            "bootstrap.servers": self.bootstrap,
            "state.dir": self.state,
            "num.stream.threads": 2,
            "commit.interval.ms": 100,
            "repartition.purge.interval.ms": 100,
            # What was restarted takes the place of what it was, though that was killed.
            "group.instance.id": "instance",
            "auto.offset.reset": "earliest",
        }
        words = [f"{key}={value}" for key, value in settings.items()]
        command = java_command("kafka-streams", source=SOURCE)
        program = JavaApplication(
            [*command, SOURCE.stem, "lines", "counts", *words], self._log_file
        )
        program.await_said("^state RUNNING$")
        return program

    def feed(self, count: int) -> None:
        """Lines with words in the order of a wheel."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 5})
        for number in range(count):
            words = list(itertools.islice(self._words, 1 + number % 5))
            self.expected.update(words)
            producer.produce("lines", " ".join(words), partition=number % PARTITIONS)
        assert producer.flush(TIMEOUT_S) == 0

    def last_by_key(self, topic: str) -> dict[str, int]:
        """The last value of each key, with all that is in the topic now."""
        with reader(self.bootstrap) as consumer:
            ends = {}
            for partition in range(PARTITIONS):
                low, high = consumer.get_watermark_offsets(
                    TopicPartition(topic, partition), TIMEOUT_S
                )
                if low < high:
                    ends[partition] = high
            consumer.assign([TopicPartition(topic, partition, 0) for partition in ends])
            found: dict[str, int] = {}
            while ends:
                for record in consumer.consume(1000, 0.2):
                    assert record.error() is None, record.error()
                    found[record.key().decode()] = int.from_bytes(record.value(), "big")
                    if record.offset() + 1 == ends.get(record.partition()):
                        del ends[record.partition()]
        return found

    def await_counts(self) -> None:
        """Wait until every count is what it has to be, and all of it is committed."""
        eventually_equal(lambda: self.last_by_key("counts"), dict(self.expected))
        eventually_equal(self.uncommitted, 0)

    def uncommitted(self) -> int:
        """Records that the application's group has still to read, or to commit."""
        places = [TopicPartition(t, p) for t in ("lines", REPARTITION) for p in range(PARTITIONS)]
        with reader(self.bootstrap) as consumer:
            left = 0
            for place in consumer.committed(places, TIMEOUT_S):
                _, end = consumer.get_watermark_offsets(place, TIMEOUT_S)
                left += end - max(place.offset, 0)
        return left


def reader(bootstrap: str) -> Consumer:
    """A consumer that looks, and belongs to no group; named so to see its commits."""
    settings = {"bootstrap.servers": bootstrap, "group.id": APPLICATION}
    return Consumer({**settings, "enable.auto.commit": False})


def test_words_are_counted_over_a_stop_a_kill_and_the_loss_of_the_state(
    broker: BrokerProcess | KafkaProcess, tmp_path: Path
) -> None:
    pipeline = Pipeline(broker.bootstrap, tmp_path)
    with pipeline.start() as program:
        pipeline.feed(300)
        pipeline.await_counts()
        assert program.end_input() == 0
        assert "closed" in program.log().splitlines()
    assert topic_configs(broker.bootstrap, CHANGELOG)["cleanup.policy"] == "compact"
    repartition = topic_configs(broker.bootstrap, REPARTITION)
    assert (repartition["cleanup.policy"], repartition["retention.ms"]) == ("delete", "-1")

    # The broker and the application's own state go, and nothing else is lost.
    broker.restart()
    shutil.rmtree(pipeline.state)
    with pipeline.start() as program:
        # Threads that run already may still hand tasks to one another.
        eventually(lambda: restored(program) >= len(WORDS), "the counts are not restored")
        pipeline.feed(301)
        pipeline.await_counts()
        program.kill()

    with pipeline.start() as program:
        pipeline.feed(302)
        pipeline.await_counts()
        # What was read from the repartition topic is deleted from it as the application goes.
        with reader(broker.bootstrap) as consumer:
            place = TopicPartition(REPARTITION, 0)
            eventually(lambda: consumer.get_watermark_offsets(place, TIMEOUT_S)[0] > 0)
        assert program.end_input() == 0
    assert pipeline.last_by_key(CHANGELOG) == pipeline.expected


def restored(program: JavaApplication) -> int:
    """Records of the changelog that stores were filled from."""
    said = [line for line in program.log().splitlines() if line.startswith("restored counts ")]
    return sum(int(line.split()[-1]) for line in said)
