"""Two clusters with a link between them, and comparisons of their logs byte by byte."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.record.batch import batches
from conformance.cli_shell import Shell
from group_offsets import commit_offsets
from waiting import eventually

SECONDS = 60.0
LINK = "prod"
# The leader epoch, which a mirror replaces, lies behind base offset and length.
_EPOCH = slice(12, 16)


def batch_bytes(directory: Path, topic: str, partition: int) -> list[bytes]:
    """Return the batches of a partition in the files of a node, without their leader epochs."""
    found: list[bytes] = []
    for path in sorted((directory / f"{topic}-{partition}").glob("*.log")):
        data = path.read_bytes()
        for position, header in batches(data):
            batch = bytearray(data[position : position + header.size])
            batch[_EPOCH] = bytes(4)
            found.append(bytes(batch))
    return found


def commit_offset(bootstrap: str, group: str, topic: str, offset: int) -> None:
    """Commit an offset of partition 0."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    commit_offsets(consumer, TopicPartition(topic, 0, offset))
    consumer.close()


class Linked:
    """The clients of a test, and the command line of the cluster with the mirrors."""

    def __init__(self, source: str, target: str, directory: Path) -> None:
        self.source, self.target = source, target
        self.directory = directory
        self.shell = Shell(target)
        # More options of the link that `create_link` creates.
        self.options: list[str] = []
        self.source_admin = AdminClient({"bootstrap.servers": source})
        self.target_admin = AdminClient({"bootstrap.servers": target})

    def create_topic(
        self, name: str, partitions: int = 1, config: dict[str, str] | None = None
    ) -> None:
        topic = NewTopic(name, partitions, 1, config=config or {})
        self.source_admin.create_topics([topic])[name].result(SECONDS)

    def create_link(self, topics: str, groups: str = "", **client: str) -> None:
        """Create the link, which copies group offsets often."""
        properties = self.directory / "source.properties"
        keys = {"bootstrap.servers": self.source, **client}
        properties.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
        words = ["--topics", topics, "--groups", groups, "--group-interval", "200"]
        words += self.options
        self.shell.ok("links", "create", LINK, "--config", str(properties), *words)

    def described(self) -> dict[str, Any]:
        return json.loads(self.shell.ok("links", "describe", LINK, "--json"))

    def state(self, topic: str) -> dict[str, Any]:
        """Return the state of a mirror topic; empty before it is known."""
        return next((each for each in self.described()["topics"] if each["topic"] == topic), {})

    def end(self, bootstrap: str, topic: str, partition: int = 0) -> int:
        """Return the high watermark of a partition; -1 if it does not exist."""
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "ends"})
        try:
            return consumer.get_watermark_offsets(TopicPartition(topic, partition), SECONDS)[1]
        except KafkaException:
            # The topic may not exist yet.
            return -1
        finally:
            consumer.close()

    def ends(self, topic: str, partition: int) -> tuple[int, int]:
        """Return where the source and the mirror end; -1 for one that does not respond."""
        return self.end(self.source, topic, partition), self.end(self.target, topic, partition)

    def await_mirrored(self, topic: str, partitions: int = 1) -> None:
        """Wait until the mirror ends where the source ends.

        The source's end is read again each time: it may rise after a producer has its responses,
        by markers of transactions, or when followers have fetched records with acks=1.
        """
        for partition in range(partitions):
            eventually(
                lambda at=partition: self._is_mirrored(topic, at),
                lambda at=partition: self._lag_text(topic, at),
            )

    def _is_mirrored(self, topic: str, partition: int) -> bool:
        source, mirror = self.ends(topic, partition)
        return mirror == source >= 0

    def _lag_text(self, topic: str, partition: int) -> str:
        source, mirror = self.ends(topic, partition)
        found = self.shell.run("links", "describe", LINK)
        where = f"{topic}-{partition}: the source ends at {source}, the mirror at {mirror}"
        return f"{where}\n{found.stdout}{found.stderr}"

    def produce(self, topic: str, values: list[str], **config: Any) -> None:
        producer = Producer({"bootstrap.servers": self.source, **config})
        for value in values:
            producer.produce(topic, value.encode(), key=value.encode(), headers={"h": value})
        assert producer.flush(SECONDS) == 0

    def produce_in_transaction(self, topic: str, values: list[str], *, commit: bool) -> None:
        producer = Producer(
            {"bootstrap.servers": self.source, "transactional.id": f"linked-{topic}"}
        )
        producer.init_transactions(SECONDS)
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value.encode())
        producer.flush(SECONDS)
        if commit:
            producer.commit_transaction(SECONDS)
        else:
            producer.abort_transaction(SECONDS)


def read_all(
    bootstrap: str, topic: str, isolation: str = "read_committed", partition: int = 0
) -> list[tuple[Any, ...]]:
    """Return offset, timestamp, key, value and headers of all visible records of a partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reading",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    found: list[tuple[Any, ...]] = []
    consumer.assign([TopicPartition(topic, partition, 0)])
    try:
        while True:
            message = consumer.poll(SECONDS)
            assert message is not None, f"{topic} has no end"
            error = message.error()
            if error is None:
                found.append(
                    (
                        message.offset(),
                        message.timestamp(),
                        message.key(),
                        message.value(),
                        message.headers(),
                    )
                )
            elif error.code() == KafkaError._PARTITION_EOF:
                return found
    finally:
        consumer.close()
