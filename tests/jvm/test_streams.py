"""A Kafka Streams application, unchanged, on Barnabas: word count, at least once and exactly once.

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
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
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
    """Lines in, counts out, and the expected counts."""

    def __init__(self, bootstrap: str, directory: Path, **settings: object) -> None:
        """`settings` are those of the application, with "_" for "."."""
        self.bootstrap = bootstrap
        self._settings = {key.replace("_", "."): value for key, value in settings.items()}
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
            # A restarted instance takes the place of the killed one.
            "group.instance.id": "instance",
            "auto.offset.reset": "earliest",
            **self._settings,
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
        return {key: values[-1] for key, values in self.values_by_key(topic).items()}

    def values_by_key(self, topic: str) -> dict[str, list[int]]:
        """All committed values of each key, in order, with all that is in the topic now."""
        with reader(self.bootstrap, enable_partition_eof=True) as consumer:
            unread = set(range(PARTITIONS))
            consumer.assign([TopicPartition(topic, partition, 0) for partition in unread])
            found: dict[str, list[int]] = {}
            while unread:
                for record in consumer.consume(1000, 0.2):
                    if record.error() is not None:
                        assert record.error().code() == KafkaError._PARTITION_EOF, record.error()
                        unread.discard(record.partition())
                        continue
                    value = int.from_bytes(record.value(), "big")
                    found.setdefault(record.key().decode(), []).append(value)
        return found

    def await_counts(self) -> None:
        """Wait until every count is as expected, and all offsets are committed."""
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


def reader(bootstrap: str, *, enable_partition_eof: bool = False) -> Consumer:
    """A consumer that is no member of the group; it has the group's id to see its commits."""
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": APPLICATION,
            "enable.auto.commit": False,
            "enable.partition.eof": enable_partition_eof,
            "isolation.level": "read_committed",
        }
    )


def test_words_are_counted_despite_a_stop_a_kill_and_a_state_loss(
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
        # The application deletes records of the repartition topic after it has read them.
        with reader(broker.bootstrap) as consumer:
            place = TopicPartition(REPARTITION, 0)
            eventually(lambda: consumer.get_watermark_offsets(place, TIMEOUT_S)[0] > 0)
        assert program.end_input() == 0
    assert pipeline.last_by_key(CHANGELOG) == pipeline.expected


def restored(program: JavaApplication) -> int:
    """Records of the changelog that stores were filled from."""
    said = [line for line in program.log().splitlines() if line.startswith("restored counts ")]
    return sum(int(line.split()[-1]) for line in said)


def test_words_are_counted_exactly_once_despite_kills(
    broker: BrokerProcess | KafkaProcess, tmp_path: Path
) -> None:
    pipeline = Pipeline(
        broker.bootstrap,
        tmp_path,
        processing_guarantee="exactly_once_v2",
        # Each word is counted in a record of its own.
        statestore_cache_max_bytes=0,
        # The transactions of a killed instance end soon, although its successor has other ids.
        transaction_timeout_ms=10_000,
    )
    with pipeline.start() as program:
        pipeline.feed(300)
        eventually(lambda: pipeline.values_by_key("counts"), "no count is committed")
        program.kill()
    with pipeline.start() as program:
        before = sum(map(len, pipeline.values_by_key("counts").values()))
        pipeline.feed(300)
        eventually(
            lambda: sum(map(len, pipeline.values_by_key("counts").values())) > before,
            "no further count is committed",
        )
        broker.kill()
        broker.start()
        pipeline.feed(300)
        eventually_equal(lambda: pipeline.last_by_key("counts"), dict(pipeline.expected))
        assert program.end_input() == 0
    # A word that was counted twice would skip a number or repeat one.
    counted = {word: list(range(1, count + 1)) for word, count in pipeline.expected.items()}
    assert pipeline.values_by_key("counts") == counted
