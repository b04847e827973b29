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
# Timeout for operations that hang.
TIMEOUT_S = 90.0
# Little memory, because several processes run at the same time.
SMALL = (*QUICK, "-Xmx160m")
WORDS = ("log", "event", "offset", "broker", "leader", "epoch", "group")


class Pipeline:
    """The topics of the word count, its instances, and the expected counts."""

    def __init__(self, bootstrap: str, directory: Path, **settings: object) -> None:
        """Create the topics.

        Args:
            bootstrap: addresses of the cluster.
            directory: contains the state of the stores and the log files.
            settings: settings of the application, with "_" for ".".
        """
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
            name: the name of the process, for its log file and client ids.
            settings: more settings of the application, with "_" for ".".
        """
        program = self.launch(name, **settings)
        program.await_output("^state 1 RUNNING$")
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
        """Produce lines with the words in a fixed cycle."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 5})
        for number in range(count):
            words = list(itertools.islice(self._words, 1 + number % 5))
            self.expected.update(words)
            producer.produce("lines", " ".join(words), partition=number % PARTITIONS)
        assert producer.flush(TIMEOUT_S) == 0

    def last_by_key(self, topic: str) -> dict[str, int]:
        """Return the last value of each key."""
        return {key: values[-1] for key, values in self.values_by_key(topic).items()}

    def values_by_key(self, topic: str) -> dict[str, list[int]]:
        """Return all committed values of each key, in order."""
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
        """Wait until the counts are as expected, and all offsets are committed."""
        eventually_equal(lambda: self.last_by_key("counts"), dict(self.expected))
        eventually_equal(self.uncommitted, 0)

    def uncommitted(self) -> int:
        """Return the number of records whose offsets the group has not committed."""
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
    """Return a consumer with the group's id, to read its commits, that is not a member."""
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": APPLICATION,
            "enable.auto.commit": False,
            "enable.partition.eof": enable_partition_eof,
            "isolation.level": "read_committed",
        }
    )
