"""The reader follows its topic, also one that is deleted and created anew."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.client.aio.admin import Admin
from barnabas.client.aio.producer import Producer
from barnabas.registry.records import Content, Record, SchemaRecord, StoredSchema, encode
from barnabas.registry.state import RegistryState
from barnabas.registry.topic import TopicReader, prepare_topic
from barnabas.testing.broker_on_loop import running_broker

TOPIC = "_schemas"
SECONDS = 60


def put(subject: str, version: int = 1) -> SchemaRecord:
    return SchemaRecord(subject, version, StoredSchema(subject, version, 1, Content("AVRO", "{}")))


async def write(producer: Producer, *records: Record) -> None:
    for record in records:
        key, value = encode(record)
        await (await producer.send(TOPIC, value, key, 0))


@pytest.mark.parametrize("is_empty", [False, True])
def test_a_topic_that_is_created_anew_is_read_again(is_empty: bool) -> None:
    async def test() -> None:
        state = RegistryState()
        async with running_broker() as broker, Admin(broker.bootstrap) as admin:
            await prepare_topic(admin, TOPIC, -1)
            # A second call finds the topic.
            await prepare_topic(admin, TOPIC, -1)
            reader = TopicReader(broker.bootstrap, {"metadata_max_age_ms": 200}, TOPIC, state)
            reader.start()
            async with Producer(broker.bootstrap) as producer:
                await write(producer, put("a"), put("b"), put("c"))
            await reader.read_to_end(SECONDS)
            assert state.subjects() == ["a", "b", "c"]
            await admin.delete_topics([TOPIC])
            await prepare_topic(admin, TOPIC, -1)
            if not is_empty:
                async with Producer(broker.bootstrap) as producer:
                    await write(producer, put("d"))
            async with asyncio.timeout(SECONDS):
                while state.subjects() != ([] if is_empty else ["d"]):
                    await asyncio.sleep(0.02)
            await reader.read_to_end(SECONDS)
            await reader.close()

    asyncio.run(test())
