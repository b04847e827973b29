"""What a client does on Windows: `windows_client.py ACTION BOOTSTRAP` prints a result.

Each action uses its own topic, which does not exist before.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable

import barnabas
from barnabas import ConfigResource, NewTopic, ResourceType, aio

# More than the kernel takes at once, and more than one piece of the stream.
LARGE = os.urandom(600_000)


def read(bootstrap: str, topic: str, count: int, **config: object) -> list[bytes | None]:
    """Return the values of the first records, read by a member of a group."""
    values: list[bytes | None] = []
    with barnabas.Consumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=f"readers-of-{topic}",
        auto_offset_reset="earliest",
        **config,
    ) as consumer:
        while len(values) < count:
            values += [record.value for record in consumer.poll(1.0)]
        consumer.commit()
    return values


def produce_and_consume(bootstrap: str) -> object:
    with barnabas.Producer(bootstrap, acks="all", compression_type="lz4") as producer:
        for number in range(1000):
            producer.send("plain", b"%d" % number, partition=0)
    return read(bootstrap, "plain", 1000) == [b"%d" % number for number in range(1000)]


def large_records(bootstrap: str) -> object:
    with barnabas.Producer(bootstrap, max_request_size=1 << 20) as producer:
        for _ in range(30):
            producer.send("large", LARGE, partition=0)
    return read(bootstrap, "large", 30) == [LARGE] * 30


def transactions(bootstrap: str) -> object:
    with barnabas.Producer(bootstrap, transactional_id="payments") as producer:
        producer.init_transactions()
        for number in range(4):
            producer.begin_transaction()
            producer.send("payments", b"%d" % number, partition=0)
            if number % 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    return read(bootstrap, "payments", 2, isolation_level="read_committed")


def administration(bootstrap: str) -> object:
    with barnabas.Admin(bootstrap) as admin:
        admin.create_topics([NewTopic("administered", 3)])
        return sorted(name for name in admin.list_topics() if name == "administered")


def asynchronous(bootstrap: str) -> object:
    async def run() -> list[bytes | None]:
        async with aio.Admin(bootstrap) as admin:
            await admin.create_topics([NewTopic("flights", 1)])
        async with aio.Producer(bootstrap, transactional_id="flights") as producer:
            await producer.init_transactions()
            async with producer.transaction():
                await producer.send("flights", LARGE)
                await producer.send("flights", b"small")
        values: list[bytes | None] = []
        consumer = aio.Consumer(
            "flights", bootstrap_servers=bootstrap, group_id="g", auto_offset_reset="earliest"
        )
        async with consumer:
            while len(values) < 2:
                values += [record.value for record in await consumer.poll(1.0)]
        return values

    return asyncio.run(run()) == [LARGE, b"small"]


def share_group(bootstrap: str) -> object:
    with barnabas.Admin(bootstrap) as admin:
        group = ConfigResource(ResourceType.GROUP, "workers")
        admin.alter_configs(group, {"share.auto.offset.reset": "earliest"})
        admin.create_topics([NewTopic("jobs", 1)])
    with barnabas.Producer(bootstrap) as producer:
        producer.send("jobs", b"job")
    values: list[bytes | None] = []
    consumer = barnabas.ShareConsumer("jobs", bootstrap_servers=bootstrap, group_id="workers")
    with consumer:
        while not values:
            values += [record.value for record in consumer.poll(1.0)]
    return values


ACTIONS: dict[str, Callable[[str], object]] = {
    each.__name__: each
    for each in (
        produce_and_consume,
        large_records,
        transactions,
        administration,
        asynchronous,
        share_group,
    )
}

if __name__ == "__main__":
    print(ACTIONS[sys.argv[1]](sys.argv[2]))
