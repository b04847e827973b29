"""Scenarios that every client must pass; they are the same for all clients.

A scenario gets a `ClientProgram` and a unique topic name. librdkafka fills the topics of groups, so
that the tested client does not verify itself.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Sequence
from typing import Any, Self

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from conformance.client_program import ClientProgram, Member
from conformance.conftest import await_leaders
from group_offsets import find_committed
from waiting import PATIENCE_S, eventually, eventually_equal

_numbers = itertools.count(1)
SESSION_TIMEOUT_MS = 2_000
# Long enough for the restart of a program on a busy machine.
LONG_SESSION_MS = 120_000

UNKNOWN_TOPIC_OR_PARTITION = 3
MESSAGE_TOO_LARGE = 10
TOPIC_ALREADY_EXISTS = 36


def new_name(client: str) -> str:
    return f"{client}-{os.getpid()}-{next(_numbers)}"


def make_topic(client: ClientProgram, partitions: int = 1, **config: str) -> str:
    """Create a topic with librdkafka."""
    admin = AdminClient({"bootstrap.servers": client.bootstrap})
    name = new_name("clients")
    settings = {key.replace("_", "."): value for key, value in config.items()}
    created = admin.create_topics([NewTopic(name, partitions, 1, config=settings)])
    created[name].result(PATIENCE_S)
    await_leaders(admin, name, partitions)
    return name


def admin(client: ClientProgram) -> None:
    """Create, describe, list, extend, configure and delete a topic."""
    expected = {
        "partitions": 2,
        "config": "60000",
        "listed": True,
        "again": TOPIC_ALREADY_EXISTS,
        "grown": 4,
        "altered": "120000",
        "left": False,
        "unknown": UNKNOWN_TOPIC_OR_PARTITION,
    }
    # A Kafka broker may apply a change shortly after the response to the request.
    within_s = PATIENCE_S if os.environ.get("BARNABAS_CONFORMANCE_BOOTSTRAP") else 0
    eventually_equal(lambda: client.call("admin", topic=new_name("admin")), expected, within_s)


def produce_and_consume(
    client: ClientProgram,
    compressions: Sequence[str],
    headers: bool = True,
    timestamps: bool = True,
) -> None:
    """Produce and consume keys, nulls, headers, timestamps and each compression type."""
    topics = {compression: make_topic(client) for compression in compressions}
    began = int(time.time() * 1000) - 50_000
    sent = [
        {
            "key": None if i % 5 == 0 else f"key-{i}",
            "value": None if i % 10 == 3 else f"value-{i}-" + "x" * 50,
            "timestamp": began + i * 1000,
            "headers": [["trace", f"id-{i}"]] if headers and i % 2 else [],
        }
        for i in range(30)
    ]
    calls: list[tuple[str, dict[str, Any]]] = []
    for compression, topic in topics.items():
        calls += [
            ("produce", {"topic": topic, "compression": compression, "records": sent}),
            ("consume", {"topic": topic, "count": 30}),
        ]
    results = iter(client.call_all(calls))
    for compression, topic in topics.items():
        expected = [{"offset": i, **record} for i, record in enumerate(sent)]
        assert next(results) == {"offsets": list(range(30))}
        found = next(results)["records"]
        if not timestamps:
            for record in (*expected, *found):
                record.pop("timestamp")
        assert found == expected, compression
        assert stored_compression(client, topic) == {compression}


def stored_compression(client: ClientProgram, topic: str) -> set[str]:
    """Return the compression types of the batches in the log."""
    from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
    from barnabas.record.batch import batches
    from barnabas.record.compression import NAMES
    from conformance.raw_client import RawClient

    raw = RawClient(client.bootstrap)
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic=topic, partitions=[partition])]
    )
    records = raw.ask(request, 11).responses[0].partitions[0].records
    raw.close()
    return {NAMES[header.compression] for _, header in batches(bytes(records))}


def seek_by_time(client: ClientProgram) -> None:
    """Seek to the first record at a time, and to the end for a time after all records."""
    topic = make_topic(client)
    began = int(time.time() * 1000) - 50_000
    fill(client, topic, [f"v{i}" for i in range(10)], timestamp=lambda i: began + i * 1000)
    times = [0, began + 3500, began + 9000]
    found, consumed = client.call_all(
        [
            ("offsets", {"topic": topic, "timestamps": times}),
            ("consume", {"topic": topic, "count": 6, "timestamp": began + 3500}),
        ]
    )
    assert found == {"offsets": [0, 4, 9]}
    assert [record["offset"] for record in consumed["records"]] == list(range(4, 10))


def pause_and_resume(client: ClientProgram) -> None:
    """Read nothing from a paused partition, and all records after it is resumed."""
    topic = make_topic(client, partitions=2)
    for partition in (0, 1):
        fill(client, topic, [f"v{i}" for i in range(20)], partition=partition)
    found = client.call("pause", topic=topic, count=20)
    assert found == {"paused": {"0": 0, "1": 20}, "resumed": {"0": 20, "1": 20}}


def errors(client: ClientProgram, out_of_range: object = 1) -> None:
    """Check that the client reports errors with their codes."""
    topic = make_topic(client, max_message_bytes="2000")
    found = client.call("errors", topic=topic)
    assert found == {"too_large": MESSAGE_TOO_LARGE, "out_of_range": out_of_range}


def transactions(client: ClientProgram) -> None:
    """Commit and abort transactions with offsets of a group; fence the producer by a successor."""
    topic, group = make_topic(client, 2), new_name("group")
    endings = [True, False, True, True, False, True]
    planned = [
        {"values": [f"{number}-a", f"{number}-b"], "offset": 10 + number, "commits": commits}
        for number, commits in enumerate(endings)
    ]
    arguments = {"topic": topic, "transactional_id": new_name("id"), "group": group}
    kept = [number for number, commits in enumerate(endings) if commits]
    result = client.call("transactions", transactions=planned, count=len(kept), **arguments)
    # The client's own read_committed consumer.
    assert result == {"read": [f"{number}-a" for number in kept]}
    assert client.call("fence", topic=topic, transactional_id=arguments["transactional_id"]) == {
        "fenced": True
    }
    reader = Consumer(
        {
            "bootstrap.servers": client.bootstrap,
            "group.id": group,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    places = [TopicPartition(topic, 0, 0), TopicPartition(topic, 1, 0)]
    (committed, none) = find_committed(reader, *places)
    assert (committed.offset, none.offset) == (10 + kept[-1], -1001)
    reader.assign(places)
    found: dict[int, list[str]] = {0: [], 1: []}
    unread = set(found)
    while unread:
        for each in reader.consume(100, 0.5):
            if each.error() is None:
                found[each.partition()].append(each.value().decode())
            else:
                unread.discard(each.partition())
    reader.close()
    assert found[0] == [*(f"{number}-a" for number in kept), "successor"]
    assert found[1] == [f"{number}-b" for number in kept]


def rebalances(client: ClientProgram, members: int = 3, **options: Any) -> None:
    """Start, kill and restart members: each partition has one owner, and no record is lost."""
    group = Group(client, partitions=max(12, members), **options)
    with group:
        for _ in range(members):
            group.start()
        group.settle(members)
        group.fill_and_read(60)
        # Two members are killed while records arrive.
        for victim in group.members[:2]:
            victim.kill()
        group.fill(60)
        group.settle(members - 2)
        group.read_all()
        # One member returns, and one leaves.
        group.start()
        group.settle(members - 1)
        group.fill_and_read(60)
        if members > 3:
            for _ in range(2):
                group.start()
            group.settle(members + 1)
            group.fill_and_read(60)
        group.running()[0].leave()
        group.settle(len(group.running()))
        group.fill_and_read(60)
        while group.running():
            group.running()[0].leave()
        group.check_committed()


def static_membership(client: ClientProgram, **options: Any) -> None:
    """Kill a static member: if it returns in time, it gets its partitions back."""
    group = Group(client, partitions=6, session_timeout_ms=LONG_SESSION_MS, **options)
    with group:
        first = group.start(instance_id="first")
        second = group.start(instance_id="second")
        group.settle(2)
        before, others = first.partitions, second.partitions
        history = len(second.history)
        group.fill_and_read(30)
        first.kill()
        first = group.start(instance_id="first")
        eventually(
            lambda: first.partitions == before, lambda: (before, first.partitions, first.errors)
        )
        assert second.partitions == others
        assert len(second.history) == history, "the other member lost partitions"
        group.fill_and_read(30)


def cooperative(client: ClientProgram, **options: Any) -> None:
    """Keep all partitions that need not move, under the cooperative protocol."""
    settings = {"strategy": "cooperative-sticky", "session_timeout_ms": LONG_SESSION_MS, **options}
    group = Group(client, partitions=9, **settings)
    with group:
        first = group.start()
        group.settle(1)
        group.start()
        group.settle(2)
        group.start()
        group.settle(3)
        eventually(lambda: all(len(member.partitions) == 3 for member in group.members))
        held = [partitions for partitions in first.history if partitions]
        assert first.history[-len(held) :] == held, "the eager member never revoked all partitions"
        for earlier, later in itertools.pairwise(held):
            assert later < earlier, "the member revoked partitions without need"
        group.fill_and_read(45)


def fill(
    client: ClientProgram,
    topic: str,
    values: list[str],
    partition: int = 0,
    timestamp: Callable[[int], int] | None = None,
) -> None:
    """Produce values to a partition with librdkafka, one batch for each value."""
    producer = Producer({"bootstrap.servers": client.bootstrap, "linger.ms": 0, "acks": "all"})
    failed: list[object] = []
    for i, value in enumerate(values):
        at = timestamp(i) if timestamp else 0
        producer.produce(
            topic,
            value,
            partition=partition,
            timestamp=at,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
        if timestamp:
            producer.flush(PATIENCE_S)
    assert producer.flush(PATIENCE_S) == 0
    assert not failed


class Group:
    """A group with members of one client, and a topic for this group."""

    def __init__(self, client: ClientProgram, partitions: int, **options: Any) -> None:
        self._client = client
        self._partitions = partitions
        self._options = {"session_timeout_ms": SESSION_TIMEOUT_MS, **options}
        self.topic = make_topic(client, partitions)
        self.name = f"group-of-{self.topic}"
        self.members: list[Member] = []
        # All values that were produced to the topic.
        self._filled: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for member in self.members:
            member.kill()

    def start(self, **options: Any) -> Member:
        arguments = {"topic": self.topic, "group": self.name, **self._options, **options}
        member = self._client.member(**arguments)
        self.members.append(member)
        return member

    def running(self) -> list[Member]:
        return [member for member in self.members if member.is_running]

    def settle(self, count: int) -> None:
        """Wait until `count` members own all partitions, each partition once, evenly."""

        def is_settled() -> bool:
            assert not any(member.has_failed for member in self.members), self._state()
            owned = [member.partitions for member in self.running()]
            return (
                len(owned) == count
                and all(owned)
                and sum(map(len, owned)) == self._partitions
                and len(frozenset().union(*owned)) == self._partitions
            )

        eventually(is_settled, self._state)

    def _state(self) -> str:
        lines = [f"{sorted(m.partitions)} {m.is_running}\n{m.errors}" for m in self.members]
        return "\n".join(lines)

    def fill(self, count: int) -> None:
        """Produce new values to all partitions."""
        began = len(self._filled)
        values = [f"value-{number}" for number in range(began, began + count)]
        for partition in range(self._partitions):
            share = values[partition :: self._partitions]
            if share:
                fill(self._client, self.topic, share, partition)
        self._filled |= set(values)

    def read_all(self) -> None:
        """Wait until each value has been received by a member."""

        def seen() -> set[str]:
            return {value for member in self.members for value in member.values}

        eventually(lambda: seen() >= self._filled, lambda: (self._filled - seen(), self._state()))

    def fill_and_read(self, count: int) -> None:
        self.fill(count)
        self.read_all()

    def check_committed(self) -> None:
        """Check that the committed offset of each partition is its end offset."""
        consumer = Consumer({"bootstrap.servers": self._client.bootstrap, "group.id": self.name})
        partitions = [TopicPartition(self.topic, index) for index in range(self._partitions)]
        for found in find_committed(consumer, *partitions):
            _, end = consumer.get_watermark_offsets(found, PATIENCE_S)
            assert found.offset == end or (end == 0 and found.offset < 0), found
        consumer.close()
