"""The word count of WordCount.java: its input, its instances, and the expected counts."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from jvm.java import QUICK, java_command
from jvm.java_application import JavaApplication
from waiting import eventually_equal

SOURCE = Path(__file__).parent / "WordCount.java"
APPLICATION = "word-count"
REPARTITION = f"{APPLICATION}-by-word-repartition"
CHANGELOG = f"{APPLICATION}-counts-changelog"
PARTITIONS = 2
# A limit for what hangs.
TIMEOUT_S = 90.0
# Several processes run side by side.
SMALL = (*QUICK, "-Xmx160m")
WORDS = ("log", "event", "offset", "broker", "leader", "epoch", "group")


class Pipeline:
    """Lines in, counts out, and the expected counts."""

    def __init__(self, bootstrap: str, directory: Path, **settings: object) -> None:
        """`settings` are those of the application, with "_" for "."."""
        self.bootstrap = bootstrap
        self._settings = _dotted(settings)
        self.expected: Counter[str] = Counter()
        self.state = directory / "state"
        self._directory = directory
        self._words = itertools.cycle(WORDS)
        admin = AdminClient({"bootstrap.servers": bootstrap})
        for made in admin.create_topics(
            [NewTopic("lines", PARTITIONS, 1), NewTopic("counts", PARTITIONS, 1)]
        ).values():
            made.result(TIMEOUT_S)

    def start(self, name: str = "streams", **settings: object) -> JavaApplication:
        """Start a process with one instance of the application, and wait until it runs.

        Args:
            name: of the process, for its log file and client ids.
            settings: more settings of the application, with "_" for ".".
        """
        program = self.launch(name, **settings)
        program.await_said("^state 1 RUNNING$")
        return program

    def launch(self, name: str = "streams", **settings: object) -> JavaApplication:
        """Start a process with one instance of the application; see `start`."""
        every = {
            "application.id": APPLICATION,
            "bootstrap.servers": self.bootstrap,
            "client.id": name,
            "state.dir": self.state / name,
            "num.stream.threads": 2,
            "commit.interval.ms": 100,
            "repartition.purge.interval.ms": 100,
            "auto.offset.reset": "earliest",
            **self._settings,
            **_dotted(settings),
        }
        words = [f"{key}={value}" for key, value in every.items()]
        command = java_command("kafka-streams", machine=SMALL, source=SOURCE)
        log_file = self._directory / f"{name}.log"
        return JavaApplication([*command, SOURCE.stem, "lines", "counts", *words], log_file)

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


def _dotted(settings: dict[str, object]) -> dict[str, object]:
    return {key.replace("_", "."): value for key, value in settings.items()}


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
