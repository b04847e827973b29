"""Actions of librdkafka, through confluent-kafka."""

import contextlib

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)
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


def code_of(futures):
    """Return the error code of the only future; 0 if it succeeds."""
    (future,) = futures.values()
    try:
        future.result(10)
    except KafkaException as problem:
        return problem.args[0].code()
    return 0


def count_of(client, topic):
    """Return the number of partitions; None without the topic."""
    found = client.list_topics(timeout=10).topics.get(topic)
    return None if found is None else len(found.partitions)


def retention(client, resource):
    (future,) = client.describe_configs([resource]).values()
    return future.result(10)["retention.ms"].value


def admin(bootstrap, topic):
    client = AdminClient({"bootstrap.servers": bootstrap})
    new = NewTopic(topic, 2, 1, config={"retention.ms": "60000"})
    assert code_of(client.create_topics([new])) == 0
    result = {"partitions": eventually(lambda: count_of(client, topic), 2), "listed": True}
    resource = ConfigResource("topic", topic)
    result["config"] = eventually(lambda: retention(client, resource), "60000")
    result["again"] = code_of(client.create_topics([new]))
    assert code_of(client.create_partitions([NewPartitions(topic, 4)])) == 0
    result["grown"] = eventually(lambda: count_of(client, topic), 4)
    entry = ConfigEntry("retention.ms", "120000", incremental_operation=AlterConfigOpType.SET)
    changed = ConfigResource("topic", topic, incremental_configs=[entry])
    assert code_of(client.incremental_alter_configs([changed])) == 0
    result["altered"] = eventually(lambda: retention(client, resource), "120000")
    assert code_of(client.delete_topics([topic])) == 0
    result["left"] = eventually(lambda: count_of(client, topic), None) is not None
    result["unknown"] = code_of(client.delete_topics([topic]))
    return result


def produce(bootstrap, topic, compression, records):
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": compression,
            "linger.ms": 50,
            "enable.idempotence": True,
        }
    )
    offsets = {}
    for number, each in enumerate(records):
        producer.produce(
            topic,
            key=data(each["key"]),
            value=data(each["value"]),
            headers=[(name, data(value)) for name, value in each["headers"]],
            timestamp=each["timestamp"],
            partition=0,
            on_delivery=lambda error, message, number=number: offsets.__setitem__(
                number, -1 if error else message.offset()
            ),
        )
    assert producer.flush(20) == 0
    return {"offsets": [offsets[number] for number in range(len(records))]}


def transactional(bootstrap, transactional_id):
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id})
    producer.init_transactions(60)
    return producer


def transactions(bootstrap, topic, transactional_id, group, transactions, count):
    producer = transactional(bootstrap, transactional_id)
    member = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    for each in transactions:
        producer.begin_transaction()
        for partition, value in enumerate(each["values"]):
            producer.produce(topic, value, partition=partition)
        offsets = [TopicPartition(topic, 0, each["offset"])]
        producer.send_offsets_to_transaction(offsets, member.consumer_group_metadata(), 60)
        if each["commits"]:
            producer.commit_transaction(60)
        else:
            producer.flush(60)
            producer.abort_transaction(60)
    member.close()
    found = consume(bootstrap, topic, count)["records"]
    return {"read": [each["value"] for each in found]}


def fence(bootstrap, topic, transactional_id):
    old = transactional(bootstrap, transactional_id)
    old.begin_transaction()
    old.produce(topic, "old", partition=0)
    old.flush(60)
    new = transactional(bootstrap, transactional_id)
    new.begin_transaction()
    new.produce(topic, "successor", partition=0)
    new.commit_transaction(60)
    try:
        old.commit_transaction(60)
    except KafkaException as problem:
        return {"fenced": problem.args[0].fatal()}
    return {"fenced": False}


def consumer_of(bootstrap, reset="earliest", **more):
    options = {"bootstrap.servers": bootstrap, "group.id": "none", "auto.offset.reset": reset}
    return Consumer({**options, **more})


def offsets(bootstrap, topic, timestamps):
    consumer = consumer_of(bootstrap)
    found = [
        consumer.offsets_for_times([TopicPartition(topic, 0, at)], 10)[0].offset
        for at in timestamps
    ]
    consumer.close()
    return {"offsets": found}


def consume(bootstrap, topic, count, timestamp=None):
    consumer = consumer_of(bootstrap)
    start = TopicPartition(topic, 0, 0)
    if timestamp is not None:
        (start,) = consumer.offsets_for_times([TopicPartition(topic, 0, timestamp)], 10)
    consumer.assign([start])
    records = []
    while len(records) < count:
        for each in consumer.consume(count, 0.5):
            assert each.error() is None, each.error()
            records.append(each)
    consumer.close()
    return {
        "records": [
            record(
                each.offset(), each.key(), each.value(), each.timestamp()[1], each.headers() or ()
            )
            for each in records
        ]
    }


def visit(bootstrap, topic, isolation, visits):
    """Read from several offsets with one consumer; null is its first position."""
    consumer = consumer_of(bootstrap, **{"isolation.level": isolation})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found = []
    for start, count in visits:
        records = []
        if start is not None:
            consumer.seek(TopicPartition(topic, 0, start))
        while len(records) < count:
            for each in consumer.consume(count - len(records), 0.5):
                assert each.error() is None, each.error()
                records.append(visited(each.offset(), each.value()))
        found.append(records)
    consumer.close()
    return {"visits": found}


def pause(bootstrap, topic, count):
    consumer = consumer_of(bootstrap)
    first, second = TopicPartition(topic, 0, 0), TopicPartition(topic, 1, 0)
    consumer.assign([first, second])
    got = {"0": 0, "1": 0}

    def poll():
        for each in consumer.consume(count, 0.2):
            assert each.error() is None, each.error()
            got[str(each.partition())] += 1

    consumer.pause([first])
    while got["1"] < count:
        poll()
    poll()
    paused = dict(got)
    consumer.resume([first])
    while got["0"] < count:
        poll()
    consumer.close()
    return {"paused": paused, "resumed": got}


def errors(bootstrap, topic):
    found = {}
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(
        topic, b"x" * 5000, on_delivery=lambda error, _: found.update(too_large=error.code())
    )
    producer.flush(20)
    consumer = consumer_of(bootstrap, reset="error")
    consumer.assign([TopicPartition(topic, 0, 1000)])
    while "out_of_range" not in found:
        message = consumer.poll(0.5)
        if message is not None and message.error():
            # librdkafka's error code for a position without a reset policy.
            found["out_of_range"] = message.error().code()
    consumer.close()
    return found


def member(bootstrap, topic, group, session_timeout_ms, **more):
    options = {"group.instance.id": more["instance_id"]} if "instance_id" in more else {}
    if more.get("protocol") == "consumer":
        options["group.protocol"] = "consumer"
    else:
        options["session.timeout.ms"] = session_timeout_ms
        options["heartbeat.interval.ms"] = 300
        options["partition.assignment.strategy"] = more.get("strategy", "range")
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **options,
        }
    )
    consumer.subscribe([topic])
    ended, partitions = end_of_input(), Partitions()
    while not ended.is_set():
        messages = consumer.consume(500, 0.1)
        partitions.note(each.partition for each in consumer.assignment())
        messages = [each for each in messages if each.error() is None]
        if messages:
            try:
                done = consumer.commit(asynchronous=False)
            except KafkaException as error:
                # The group has removed this member; the new owner of the partition reads the
                # records again.
                report({"commit": str(error)})
                seek_back(consumer, messages)
                continue
            # librdkafka may have revoked a partition after `consume`. Then the commit has it not.
            offsets = {each.partition: each.offset for each in done if each.error is None}
            kept = [each for each in messages if offsets.get(each.partition(), 0) > each.offset()]
            report({"values": [text(each.value()) for each in kept]})
            seek_back(consumer, [each for each in messages if each not in kept])
    consumer.close()


def seek_back(consumer, messages):
    """Read these records again if this member still owns the partition."""
    for each in reversed(messages):
        with contextlib.suppress(KafkaException):
            consumer.seek(TopicPartition(each.topic(), each.partition(), each.offset()))


main(
    {
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
