"""What every client has to be able to do with a broker; the same for all of them.

A scenario takes a `ClientProgram` and a topic's name of its own. Topics of groups are filled by
librdkafka, so that a client is not its own witness.
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
from waiting import PATIENCE_S, eventually, eventually_equal

_numbers = itertools.count(1)
SESSION_TIMEOUT_MS = 2_000
# Not over before a program has started anew, on a busy machine either.
LONG_SESSION_MS = 120_000

UNKNOWN_TOPIC_OR_PARTITION = 3
MESSAGE_TOO_LARGE = 10
TOPIC_ALREADY_EXISTS = 36


def new_name(client: str) -> str:
    return f"{client}-{os.getpid()}-{next(_numbers)}"


def make_topic(client: ClientProgram, partitions: int = 1, **config: str) -> str:
    """A topic of its own, made by librdkafka."""
    admin = AdminClient({"bootstrap.servers": client.bootstrap})
    name = new_name("clients")
    settings = {key.replace("_", "."): value for key, value in config.items()}
    created = admin.create_topics([NewTopic(name, partitions, 1, config=settings)])
    created[name].result(PATIENCE_S)
    await_leaders(admin, name, partitions)
    return name


def admin(client: ClientProgram) -> None:
    """A topic is made, described, listed, grown, configured and deleted."""
    wanted = {
        "partitions": 2,
        "config": "60000",
        "listed": True,
        "again": TOPIC_ALREADY_EXISTS,
        "grown": 4,
        "altered": "120000",
        "left": False,
        "unknown": UNKNOWN_TOPIC_OR_PARTITION,
    }
    # Kafka's broker may hear of a change a little after the answer to who asked for it.
    within_s = PATIENCE_S if os.environ.get("BARNABAS_CONFORMANCE_BOOTSTRAP") else 0
    eventually_equal(lambda: client.call("admin", topic=new_name("admin")), wanted, within_s)


def produce_and_consume(
    client: ClientProgram,
    compressions: Sequence[str],
    headers: bool = True,
    timestamps: bool = True,
) -> None:
    """Keys, null keys, null values, headers, timestamps and each compression come back."""
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
        asked = {"topic": topic, "compression": compression, "records": sent}
        calls += [("produce", asked), ("consume", {"topic": topic, "count": 30})]
    results = iter(client.call_all(calls))
    for compression, topic in topics.items():
        wanted = [{"offset": i, **record} for i, record in enumerate(sent)]
        assert next(results) == {"offsets": list(range(30))}
        found = next(results)["records"]
        if not timestamps:
            for record in (*wanted, *found):
                record.pop("timestamp")
        assert found == wanted, compression
        assert stored_compression(client, topic) == {compression}


def stored_compression(client: ClientProgram, topic: str) -> set[str]:
    """How the batches lie in the log: what the client says it did."""
    from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
    from barnabas.record.batch import batches
    from barnabas.record.compression import NAMES
    from conformance.raw_client import RawClient

    raw = RawClient(client.bootstrap)
    asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic=topic, partitions=[asked])]
    )
    records = raw.ask(request, 11).responses[0].partitions[0].records
    raw.close()
    return {NAMES[header.compression] for _, header in batches(bytes(records))}


def seek_by_time(client: ClientProgram) -> None:
    """A consumer starts at the first record of a time, and at the end for a later one."""
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
    """A paused partition gives nothing, and all of it when it is resumed."""
    topic = make_topic(client, partitions=2)
    for partition in (0, 1):
        fill(client, topic, [f"v{i}" for i in range(20)], partition=partition)
    found = client.call("pause", topic=topic, count=20)
    assert found == {"paused": {"0": 0, "1": 20}, "resumed": {"0": 20, "1": 20}}


def errors(client: ClientProgram, out_of_range: object = 1) -> None:
    """Errors have the names that clients know."""
    topic = make_topic(client, max_message_bytes="2000")
    found = client.call("errors", topic=topic)
    assert found == {"too_large": MESSAGE_TOO_LARGE, "out_of_range": out_of_range}


def rebalances(client: ClientProgram, members: int = 3, **options: Any) -> None:
    """Members come, die, leave and return: each partition has one owner, no record is lost."""
    group = Group(client, partitions=max(12, members), **options)
    with group:
        for _ in range(members):
            group.start()
        group.settle(members)
        group.fill_and_read(60)
        # Two die without a word, while records come.
        for victim in group.members[:2]:
            victim.kill()
        group.fill(60)
        group.settle(members - 2)
        group.read_all()
        # One comes back, one leaves.
        group.start()
        group.settle(members - 1)
        group.fill_and_read(60)
        if members > 3:
            for _ in range(2):
                group.start()
            group.settle(members + 1)
            group.fill_and_read(60)
        group.living()[0].leave()
        group.settle(len(group.living()))
        group.fill_and_read(60)
        while group.living():
            group.living()[0].leave()
        group.check_committed()


def static_membership(client: ClientProgram, **options: Any) -> None:
    """A member with an instance id that dies and returns in time has its partitions again."""
    group = Group(client, partitions=6, session_timeout_ms=LONG_SESSION_MS, **options)
    with group:
        first = group.start(instance_id="first")
        second = group.start(instance_id="second")
        group.settle(2)
        had, others = first.partitions, second.partitions
        history = len(second.history)
        group.fill_and_read(30)
        first.kill()
        first = group.start(instance_id="first")
        eventually(lambda: first.partitions == had, lambda: (had, first.partitions, first.errors))
        assert second.partitions == others
        assert len(second.history) == history, "the other one was disturbed"
        group.fill_and_read(30)


def cooperative(client: ClientProgram, **options: Any) -> None:
    """With the cooperative protocol a member keeps what it does not have to give away."""
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
        assert first.history[-len(held) :] == held, "it never gave away everything"
        for earlier, later in itertools.pairwise(held):
            assert later < earlier, "it was given nothing, and lost what it did not have to"
        group.fill_and_read(45)


def fill(
    client: ClientProgram,
    topic: str,
    values: list[str],
    partition: int = 0,
    timestamp: Callable[[int], int] | None = None,
) -> None:
    """Put values into a partition, one batch each, by librdkafka."""
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
    """A group of members of one client, over a topic of its own."""

    def __init__(self, client: ClientProgram, partitions: int, **options: Any) -> None:
        self._client = client
        self._partitions = partitions
        self._options = {"session_timeout_ms": SESSION_TIMEOUT_MS, **options}
        self.topic = make_topic(client, partitions)
        self.name = f"group-of-{self.topic}"
        self.members: list[Member] = []
        # All values put into the topic.
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

    def living(self) -> list[Member]:
        return [member for member in self.members if member.is_running]

    def settle(self, count: int) -> None:
        """Wait until `count` members own all partitions, each partition once, evenly."""

        def is_settled() -> bool:
            assert not any(member.has_failed for member in self.members), self._state()
            owned = [member.partitions for member in self.living()]
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
        """Put new values into all partitions."""
        began = len(self._filled)
        values = [f"value-{number}" for number in range(began, began + count)]
        for partition in range(self._partitions):
            mine = values[partition :: self._partitions]
            if mine:
                fill(self._client, self.topic, mine, partition)
        self._filled |= set(values)

    def read_all(self) -> None:
        """Wait until every value has come to some member."""

        def seen() -> set[str]:
            return {value for member in self.members for value in member.values}

        eventually(lambda: seen() >= self._filled, lambda: (self._filled - seen(), self._state()))

    def fill_and_read(self, count: int) -> None:
        self.fill(count)
        self.read_all()

    def check_committed(self) -> None:
        """What the group committed is the end of each partition."""
        consumer = Consumer({"bootstrap.servers": self._client.bootstrap, "group.id": self.name})
        asked = [TopicPartition(self.topic, index) for index in range(self._partitions)]
        for found in consumer.committed(asked, PATIENCE_S):
            _, end = consumer.get_watermark_offsets(found, PATIENCE_S)
            assert found.offset == end or (end == 0 and found.offset < 0), found
        consumer.close()
