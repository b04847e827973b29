"""Actions of aiokafka."""

import asyncio
import time

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import KafkaError, OffsetOutOfRangeError, ProducerFenced
from frame import PATIENCE_S, Partitions, data, end_of_input, main, record, report, text, visited


async def retention(client, topic, expected):
    """Return retention.ms, after it is `expected` or a timeout."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        (response,) = await client.describe_configs([resource])
        found = next(row[1] for row in response.resources[0][4] if row[0] == "retention.ms")
        if found == expected:
            break
        await asyncio.sleep(0.02)
    return found


async def partitions_of(client, topic):
    if topic not in await client.list_topics():
        return None
    (found,) = await client.describe_topics([topic])
    return found["partitions"]


async def count_of(client, topic, expected):
    """Return the number of partitions (None without the topic), when `expected` or at a timeout."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        found = await partitions_of(client, topic)
        if (None if found is None else len(found)) == expected:
            break
        await asyncio.sleep(0.02)
    return None if found is None else len(found)


async def admin(bootstrap, topic):
    client = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await client.start()
    new = NewTopic(topic, 2, 1, topic_configs={"retention.ms": "60000"})
    made = await client.create_topics([new])
    assert made.topic_errors[0][1] == 0
    result = {"partitions": await count_of(client, topic, 2), "listed": True}
    result["config"] = await retention(client, topic, "60000")
    result["again"] = (await client.create_topics([new])).topic_errors[0][1]
    await client.create_partitions({topic: NewPartitions(4)})
    result["grown"] = await count_of(client, topic, 4)
    changed = ConfigResource(ConfigResourceType.TOPIC, topic, configs={"retention.ms": "120000"})
    await client.alter_configs([changed])
    result["altered"] = await retention(client, topic, "120000")
    assert (await client.delete_topics([topic])).topic_error_codes[0][1] == 0
    result["left"] = await count_of(client, topic, None) is not None
    result["unknown"] = (await client.delete_topics([topic])).topic_error_codes[0][1]
    await client.close()
    return result


async def produce(bootstrap, topic, compression, records):
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        compression_type=None if compression == "none" else compression,
        enable_idempotence=True,
        linger_ms=50,
    )
    await producer.start()
    futures = [
        await producer.send(
            topic,
            key=data(each["key"]),
            value=data(each["value"]),
            headers=[(name, data(value)) for name, value in each["headers"]],
            timestamp_ms=each["timestamp"],
        )
        for each in records
    ]
    offsets = [(await future).offset for future in futures]
    await producer.stop()
    return {"offsets": offsets}


async def transactional(bootstrap, transactional_id):
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id)
    await producer.start()
    return producer


async def transactions(bootstrap, topic, transactional_id, group, transactions, count):
    producer = await transactional(bootstrap, transactional_id)
    for each in transactions:
        await producer.begin_transaction()
        for partition, value in enumerate(each["values"]):
            await producer.send(topic, value.encode(), partition=partition)
        offsets = {TopicPartition(topic, 0): each["offset"]}
        await producer.send_offsets_to_transaction(offsets, group)
        if each["commits"]:
            await producer.commit_transaction()
        else:
            await producer.flush()
            await producer.abort_transaction()
    await producer.stop()
    consumer, _ = await assigned(bootstrap, topic, isolation="read_committed")
    found = [text((await consumer.getone()).value) for _ in range(count)]
    await consumer.stop()
    return {"read": found}


async def fence(bootstrap, topic, transactional_id):
    old = await transactional(bootstrap, transactional_id)
    await old.begin_transaction()
    await old.send_and_wait(topic, b"old", partition=0)
    new = await transactional(bootstrap, transactional_id)
    async with new.transaction():
        await new.send(topic, b"successor", partition=0)
    await new.stop()
    try:
        await old.commit_transaction()
    except ProducerFenced:
        return {"fenced": True}
    return {"fenced": False}


async def assigned(
    bootstrap, topic, partitions=(0,), reset="earliest", isolation="read_uncommitted"
):
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap, auto_offset_reset=reset, isolation_level=isolation
    )
    await consumer.start()
    assignment = [TopicPartition(topic, index) for index in partitions]
    consumer.assign(assignment)
    return consumer, assignment


async def consume(bootstrap, topic, count, timestamp=None):
    consumer, (partition,) = await assigned(bootstrap, topic)
    if timestamp is not None:
        found = await consumer.offsets_for_times({partition: timestamp})
        consumer.seek(partition, found[partition].offset)
    records = [await consumer.getone() for _ in range(count)]
    await consumer.stop()
    return {
        "records": [
            record(each.offset, each.key, each.value, each.timestamp, each.headers)
            for each in records
        ]
    }


async def offsets(bootstrap, topic, timestamps):
    consumer, (partition,) = await assigned(bootstrap, topic)
    found = [
        (await consumer.offsets_for_times({partition: at}))[partition].offset for at in timestamps
    ]
    await consumer.stop()
    return {"offsets": found}


async def visit(bootstrap, topic, isolation, visits):
    """Read from several offsets with one consumer; null is its first position."""
    consumer, (partition,) = await assigned(bootstrap, topic, isolation=isolation)
    found = []
    for start, count in visits:
        if start is not None:
            consumer.seek(partition, start)
        records = [await consumer.getone() for _ in range(count)]
        found.append([visited(each.offset, each.value) for each in records])
    await consumer.stop()
    return {"visits": found}


async def pause(bootstrap, topic, count):
    consumer, (first, second) = await assigned(bootstrap, topic, (0, 1))
    got = {first: 0, second: 0}

    async def poll():
        for partition, batch in (await consumer.getmany(timeout_ms=200)).items():
            got[partition] += len(batch)

    def shown():
        return {str(partition.partition): got[partition] for partition in got}

    consumer.pause(first)
    while got[second] < count:
        await poll()
    await poll()
    paused = shown()
    consumer.resume(first)
    while got[first] < count:
        await poll()
    await consumer.stop()
    return {"paused": paused, "resumed": shown()}


async def errors(bootstrap, topic):
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
    await producer.start()
    too_large = 0
    try:
        await producer.send_and_wait(topic, b"x" * 5000)
    except KafkaError as error:
        too_large = error.errno
    await producer.stop()
    consumer, (partition,) = await assigned(bootstrap, topic, reset="none")
    consumer.seek(partition, 1000)
    out_of_range = 0
    try:
        await consumer.getone()
    except OffsetOutOfRangeError as error:
        out_of_range = error.errno
    await consumer.stop()
    return {"too_large": too_large, "out_of_range": out_of_range}


async def member(bootstrap, topic, group, session_timeout_ms, instance_id=None, strategy="range"):
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        group_instance_id=instance_id,
        session_timeout_ms=session_timeout_ms,
        heartbeat_interval_ms=300,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        partition_assignment_strategy=[
            StickyPartitionAssignor if strategy == "sticky" else RangePartitionAssignor
        ],
    )
    ended, partitions = end_of_input(), Partitions()
    await consumer.start()
    while not ended.is_set():
        batches = await consumer.getmany(timeout_ms=100)
        partitions.note(each.partition for each in consumer.assignment())
        values = [text(each.value) for batch in batches.values() for each in batch]
        if values:
            try:
                await consumer.commit()
            except KafkaError as error:
                # The group has removed this member; the new owner of the partition reads the
                # records again.
                report({"commit": str(error)})
                for partition in batches.keys() & consumer.assignment():
                    consumer.seek(partition, batches[partition][0].offset)
                continue
            report({"values": values})
    await consumer.stop()


def blocking(action):
    return lambda **arguments: asyncio.run(action(**arguments))


main(
    {
        "admin": blocking(admin),
        "produce": blocking(produce),
        "consume": blocking(consume),
        "offsets": blocking(offsets),
        "visit": blocking(visit),
        "pause": blocking(pause),
        "errors": blocking(errors),
        "transactions": blocking(transactions),
        "fence": blocking(fence),
        "member": blocking(member),
    }
)
