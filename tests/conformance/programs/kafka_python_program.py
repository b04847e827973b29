"""Actions of kafka-python, for all versions from 1.4.7 on."""

import functools
import os

import kafka
from frame import (
    Partitions,
    data,
    end_of_input,
    eventually,
    main,
    record,
    report,
    text,
    visited,
)
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, NewPartitions, NewTopic
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import KafkaError, OffsetOutOfRangeError
from kafka.structs import OffsetAndMetadata

MAJOR = int(kafka.__version__.split(".")[0])
# The assumed version of the broker; if missing, the client requests it from the broker.
if "API_VERSION" in os.environ:
    api_version = tuple(map(int, os.environ["API_VERSION"].split(".")))
    KafkaConsumer = functools.partial(KafkaConsumer, api_version=api_version)
    KafkaProducer = functools.partial(KafkaProducer, api_version=api_version)


def code_of(call, *arguments):
    """Return the error code of a call; 0 if it succeeds."""
    try:
        response = call(*arguments)
    except KafkaError as error:
        return error.errno
    # 1.4.7 returns most responses with their errors instead of raising exceptions.
    errors = getattr(response, "topic_errors", None) or getattr(response, "topic_error_codes", ())
    return next((each[1] for each in errors if each[1]), 0)


def retention(admin, topic):
    resource = ConfigResource(ConfigResourceType.TOPIC, topic)
    result = admin.describe_configs([resource])
    if MAJOR > 1:
        found = result["topic"][topic]["retention.ms"] if isinstance(result, dict) else result
        return found["value"] if isinstance(found, dict) else found
    responses = result if isinstance(result, list) else [result]
    rows = [row for each in responses for resource in each.resources for row in resource[4]]
    return next(row[1] for row in rows if row[0] == "retention.ms")


def count_of(bootstrap, topic):
    """Return the number of partitions; None without the topic."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap)
    listed = topic in consumer.topics()
    found = consumer.partitions_for_topic(topic) if listed else None
    consumer.close()
    return None if found is None else len(found)


def admin(bootstrap, topic):
    client = KafkaAdminClient(bootstrap_servers=bootstrap)
    new = NewTopic(topic, 2, 1, topic_configs={"retention.ms": "60000"})
    assert code_of(client.create_topics, [new]) == 0
    result = {"partitions": eventually(lambda: count_of(bootstrap, topic), 2), "listed": True}
    result["config"] = eventually(lambda: retention(client, topic), "60000")
    result["again"] = code_of(client.create_topics, [new])
    client.create_partitions({topic: NewPartitions(4)})
    result["grown"] = eventually(lambda: count_of(bootstrap, topic), 4)
    changed = ConfigResource(ConfigResourceType.TOPIC, topic, configs={"retention.ms": "120000"})
    client.alter_configs([changed])
    result["altered"] = eventually(lambda: retention(client, topic), "120000")
    assert code_of(client.delete_topics, [topic]) == 0
    result["left"] = eventually(lambda: count_of(bootstrap, topic), None) is not None
    result["unknown"] = code_of(client.delete_topics, [topic])
    client.close()
    return result


def produce(bootstrap, topic, compression, records):
    producer = KafkaProducer(
        bootstrap_servers=bootstrap,
        compression_type=None if compression == "none" else compression,
        acks="all",
        linger_ms=50,
    )
    futures = [
        producer.send(
            topic,
            key=data(each["key"]),
            value=data(each["value"]),
            headers=[(name, data(value)) for name, value in each["headers"]],
            timestamp_ms=each["timestamp"],
        )
        for each in records
    ]
    producer.flush(30)
    offsets = [future.get(10).offset for future in futures]
    producer.close()
    return {"offsets": offsets}


def transactional(bootstrap, transactional_id):
    producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id)
    producer.init_transactions()
    return producer


def transactions(bootstrap, topic, transactional_id, group, transactions, count):
    producer = transactional(bootstrap, transactional_id)
    for each in transactions:
        producer.begin_transaction()
        for partition, value in enumerate(each["values"]):
            producer.send(topic, value.encode(), partition=partition)
        offsets = {TopicPartition(topic, 0): OffsetAndMetadata(each["offset"], "", -1)}
        producer.send_offsets_to_transaction(offsets, group)
        if each["commits"]:
            producer.commit_transaction()
        else:
            producer.flush()
            producer.abort_transaction()
    producer.close()
    consumer, _ = assigned(bootstrap, topic, isolation_level="read_committed")
    found = []
    while len(found) < count:
        for batch in consumer.poll(timeout_ms=500).values():
            found += [text(each.value) for each in batch]
    consumer.close()
    return {"read": found}


def fence(bootstrap, topic, transactional_id):
    old = transactional(bootstrap, transactional_id)
    old.begin_transaction()
    old.send(topic, b"old", partition=0)
    old.flush()
    new = transactional(bootstrap, transactional_id)
    new.begin_transaction()
    new.send(topic, b"successor", partition=0)
    new.commit_transaction()
    new.close()
    try:
        old.commit_transaction()
    except KafkaError:
        return {"fenced": True}
    return {"fenced": False}


def assigned(bootstrap, topic, partitions=(0,), **settings):
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", **settings)
    assignment = [TopicPartition(topic, index) for index in partitions]
    consumer.assign(assignment)
    return consumer, assignment


def consume(bootstrap, topic, count, timestamp=None):
    consumer, (partition,) = assigned(bootstrap, topic)
    if timestamp is not None:
        found = consumer.offsets_for_times({partition: timestamp})
        consumer.seek(partition, found[partition].offset)
    records = []
    while len(records) < count:
        for batch in consumer.poll(timeout_ms=500).values():
            records += batch
    consumer.close()
    return {
        "records": [
            record(each.offset, each.key, each.value, each.timestamp, each.headers)
            for each in records
        ]
    }


def offsets(bootstrap, topic, timestamps):
    consumer, (partition,) = assigned(bootstrap, topic)
    found = [consumer.offsets_for_times({partition: at})[partition].offset for at in timestamps]
    consumer.close()
    return {"offsets": found}


def visit(bootstrap, topic, isolation, visits):
    """Read from several offsets with one consumer; null is its first position."""
    consumer, (partition,) = assigned(bootstrap, topic, isolation_level=isolation)
    found = []
    for start, count in visits:
        records = []
        if start is not None:
            consumer.seek(partition, start)
        while len(records) < count:
            polled = consumer.poll(timeout_ms=500, max_records=count - len(records))
            for batch in polled.values():
                records += [visited(each.offset, each.value) for each in batch]
        found.append(records)
    consumer.close()
    return {"visits": found}


def pause(bootstrap, topic, count):
    consumer, (first, second) = assigned(bootstrap, topic, (0, 1))
    got = {first: 0, second: 0}

    def poll():
        for partition, batch in consumer.poll(timeout_ms=200).items():
            got[partition] += len(batch)

    def shown():
        return {str(partition.partition): got[partition] for partition in got}

    consumer.pause(first)
    while got[second] < count:
        poll()
    poll()
    paused = shown()
    consumer.resume(first)
    while got[first] < count:
        poll()
    consumer.close()
    return {"paused": paused, "resumed": shown()}


def errors(bootstrap, topic):
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    too_large = code_of(producer.send(topic, b"x" * 5000).get, 10)
    producer.close()
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="none")
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek(partition, 1000)
    out_of_range = 0
    while not out_of_range:
        try:
            consumer.poll(timeout_ms=200)
        except OffsetOutOfRangeError as error:
            out_of_range = error.errno
    consumer.close()
    return {"too_large": too_large, "out_of_range": out_of_range}


def assignors(strategy):
    if strategy == "cooperative-sticky":
        from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor

        return [CooperativeStickyAssignor]
    return [RangePartitionAssignor]


def member(bootstrap, topic, group, session_timeout_ms, instance_id=None, strategy="range"):
    options = {"group_instance_id": instance_id} if instance_id else {}
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        session_timeout_ms=session_timeout_ms,
        heartbeat_interval_ms=300,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        partition_assignment_strategy=assignors(strategy),
        metadata_max_age_ms=60000,
        **options,
    )
    # Wait before the join: 3.0 may lose the assignment of a join that new metadata triggers, if a
    # poll ends meanwhile.
    eventually(lambda: topic in consumer.topics(), True)
    ended, partitions = end_of_input(), Partitions()
    while not ended.is_set():
        batches = consumer.poll(timeout_ms=100)
        partitions.note(each.partition for each in consumer.assignment())
        values = [text(each.value) for batch in batches.values() for each in batch]
        if values:
            try:
                consumer.commit()
            except KafkaError as error:
                # The group has removed this member; the new owner of the partition reads the
                # records again.
                report({"commit": str(error)})
                for partition in batches.keys() & consumer.assignment():
                    consumer.seek(partition, batches[partition][0].offset)
                continue
            report({"values": values})
    consumer.close()


main(
    {
        "version": lambda bootstrap: {"version": kafka.__version__},
        "admin": admin,
        "produce": produce,
        "consume": consume,
        "offsets": offsets,
        "visit": visit,
        "pause": pause,
        "errors": errors,
        "transactions": transactions,
        "fence": fence,
        "member": member,
    }
)
