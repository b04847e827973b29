"""The consumer with broken batches, recreated topics and closing, on our broker and Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import barnabas
import barnabas.aio
from barnabas.client.consumer.errors import NoOffsetError
from barnabas.client.errors import CorruptRecordsError
from barnabas.client.facade import Client
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.fetch import FetchRequest
from conformance.client_brokers import broker
from conformance.raw_client import RawClient
from conformance.troubled_topics import Broker, broken_topic, client, make_topic, write
from waiting import PATIENCE_S, eventually

pytestmark = pytest.mark.conformance
__all__ = ["broken_topic", "broker", "client"]


Break = Callable[[bytearray, int, int], None]


def read_until_corrupt(consumer: barnabas.Consumer, values: list[str]) -> CorruptRecordsError:
    """Poll until a batch cannot be read and all records of partition 1 have arrived."""
    corrupt: list[CorruptRecordsError] = []

    def has_read_all_else() -> bool:
        try:
            records = consumer.poll(1.0)
        except CorruptRecordsError as error:
            corrupt.append(error)
        else:
            for part in records.batches():
                try:
                    values.extend(record.value.decode() for record in part)
                except CorruptRecordsError as error:
                    corrupt.append(error)
        return bool(corrupt) and {*"rstuvw"} <= {*values}

    eventually(has_read_all_else, lambda: (values, corrupt))
    return corrupt[-1]


def test_only_the_partition_with_a_broken_batch_stops_and_a_seek_goes_past_it(
    broker: Broker, broken_topic: str
) -> None:
    with barnabas.Consumer(
        bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([(broken_topic, 0), (broken_topic, 1)])
        values: list[str] = []
        error = read_until_corrupt(consumer, values)
        assert sorted(values) == [*"abcrstuvw"]
        assert (error.partition, error.offset, error.next_offset) == ((broken_topic, 0), 3, 6)
        assert consumer.position((broken_topic, 0)) == 3
        assert consumer.position((broken_topic, 1)) == 6
        consumer.seek(error.partition, error.next_offset)
        values += poll_values(consumer, 3)
        assert sorted(values) == [*"abcghirstuvw"]


def test_an_iteration_returns_all_other_records_before_it_raises(
    broker: Broker, broken_topic: str
) -> None:
    with barnabas.Consumer(
        bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=2_000
    ) as consumer:
        consumer.assign([(broken_topic, 0), (broken_topic, 1)])
        values: list[str] = []
        corrupt: list[CorruptRecordsError] = []

        def has_read_all() -> bool:
            try:
                for record in consumer:
                    values.append(record.value.decode())
                    if len(values) == 12:
                        break
            except CorruptRecordsError as error:
                corrupt.append(error)
                assert consumer.position((broken_topic, 0)) == 3
                if {*"rstuvw"} <= {*values}:
                    consumer.seek(error.partition, error.next_offset)
            return len(values) >= 12

        eventually(has_read_all, lambda: values)
        assert corrupt
        assert sorted(values) == [*"abcghirstuvw"]


def test_a_deserializer_gets_the_records_before_a_broken_batch(
    broker: Broker, broken_topic: str
) -> None:
    async def scenario() -> None:
        async with barnabas.aio.Consumer(
            bootstrap_servers=broker.bootstrap,
            auto_offset_reset="earliest",
            value_deserializer=bytes.decode,
        ) as consumer:
            consumer.assign([(broken_topic, 0)])
            values: list[str] = []
            while len(values) < 3:
                values += [record.value for record in await consumer.poll(1.0)]
            with pytest.raises(CorruptRecordsError) as raised:
                await consumer.poll(PATIENCE_S)
            assert values == [*"abc"]
            assert await consumer.position((broken_topic, 0)) == 3
            consumer.seek((broken_topic, 0), raised.value.next_offset)
            while len(values) < 6:
                values += [record.value for record in await consumer.poll(1.0)]
            assert values == [*"abcghi"]

    asyncio.run(asyncio.wait_for(scenario(), PATIENCE_S))


def read_tables(consumer: barnabas.Consumer) -> None:
    while True:
        consumer.poll(1.0).to_arrow()


def read_columns(consumer: barnabas.Consumer) -> None:
    while True:
        for part in consumer.poll(1.0).batches():
            assert part.values == [b"a", b"b", b"c"]


def test_columns_of_a_broken_batch_name_it_too(broker: Broker, broken_topic: str) -> None:
    with barnabas.Consumer(
        bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([(broken_topic, 0)])
        with pytest.raises(CorruptRecordsError) as raised:
            read_tables(consumer)
        assert (raised.value.offset, raised.value.next_offset) == (3, 6)
        consumer.seek((broken_topic, 0), 0)
        with pytest.raises(CorruptRecordsError):
            read_columns(consumer)


# Fetch sessions


def session_errors(broker: Broker, sessions: dict[int, int]) -> list[ErrorCode]:
    """Return the broker's errors for an epoch that these sessions do not have."""

    def request(session_id: int) -> FetchRequest:
        return FetchRequest(
            max_wait_ms=0, min_bytes=0, topics=[], session_id=session_id, session_epoch=99_999
        )

    raw = RawClient(broker.bootstrap)
    responses: list[Any] = [raw.ask(request(session_id), 12) for session_id in sessions.values()]
    raw.close()
    return [ErrorCode(response.error_code) for response in responses]


def test_close_ends_the_fetch_sessions(broker: Broker, client: Client) -> None:
    topic = make_topic(client, partitions=1)
    write(client, topic, 0, "a")

    def closing_ends_them() -> bool:
        with barnabas.Consumer(
            bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest"
        ) as consumer:
            consumer.assign([(topic, 0)])
            assert poll_values(consumer, 1) == ["a"]
            sessions = consumer._core.fetcher.session_ids
            assert len(sessions) == 1
            assert session_errors(broker, sessions) == [ErrorCode.INVALID_FETCH_SESSION_EPOCH]
        return session_errors(broker, sessions) == [ErrorCode.FETCH_SESSION_ID_NOT_FOUND]

    # Closing does not wait long for a slow broker, so several attempts may be necessary.
    eventually(closing_ends_them)


def test_close_of_the_asyncio_consumer_ends_the_fetch_sessions(
    broker: Broker, client: Client
) -> None:
    topic = make_topic(client)
    write(client, topic, 0, "a")

    async def scenario() -> dict[int, int]:
        async with barnabas.aio.Consumer(
            bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest", group_id=topic
        ) as consumer:
            consumer.subscribe([topic])
            while not await consumer.poll(0.5):
                pass
            return consumer._core.fetcher.session_ids

    def closing_ends_them() -> bool:
        sessions = asyncio.run(asyncio.wait_for(scenario(), PATIENCE_S))
        assert len(sessions) == 1
        return session_errors(broker, sessions) == [ErrorCode.FETCH_SESSION_ID_NOT_FOUND]

    eventually(closing_ends_them)


# Recreated topics


def recreate(client: Client, topic: str, *values: str) -> None:
    assert client.admin.delete_topics([topic]) == {topic: None}
    # Until the deletion is applied, the broker accepts records for the old topic.
    eventually(lambda: topic not in client.topics())
    client.create_topic(topic, partitions=1, replication_factor=1)
    write(client, topic, 0, *values)


@pytest.mark.parametrize("reset", ["earliest", "none"])
def test_a_position_after_the_end_of_a_recreated_topic_is_reset(
    broker: Broker, client: Client, reset: str
) -> None:
    topic = make_topic(client, partitions=1)
    write(client, topic, 0, *"abcdef")
    with barnabas.Consumer(
        bootstrap_servers=broker.bootstrap, auto_offset_reset=reset, metadata_max_age_ms=1_000
    ) as consumer:
        consumer.assign([(topic, 0)])
        consumer.seek((topic, 0), 0)
        assert poll_values(consumer, 6) == [*"abcdef"]
        recreate(client, topic, *"xyz")
        if reset == "none":
            with pytest.raises(NoOffsetError, match="deleted and created again") as raised:
                poll_values(consumer, 1)
            assert raised.value.partitions == ((topic, 0),)
        else:
            assert poll_values(consumer, 3) == [*"xyz"]


def test_a_position_within_a_recreated_topic_is_reset(broker: Broker, client: Client) -> None:
    """Java keeps the position, and so skips the first records of the new topic."""
    topic = make_topic(client, partitions=1)
    write(client, topic, 0, *"ab")
    with barnabas.Consumer(
        bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest", metadata_max_age_ms=1_000
    ) as consumer:
        consumer.assign([(topic, 0)])
        assert poll_values(consumer, 2) == [*"ab"]
        recreate(client, topic, *"wxyz")
        assert poll_values(consumer, 4) == [*"wxyz"]


def test_committed_offsets_of_a_deleted_topic_are_removed(broker: Broker, client: Client) -> None:
    topic = make_topic(client, partitions=1)
    write(client, topic, 0, *"abc")
    keys: dict[str, Any] = {
        "bootstrap_servers": broker.bootstrap,
        "auto_offset_reset": "earliest",
        "group_id": topic,
    }
    with barnabas.Consumer(topic, **keys) as consumer:
        assert poll_values(consumer, 3) == [*"abc"]
    assert client.committed(topic)
    recreate(client, topic, *"vwxyz")
    eventually(lambda: not client.committed(topic))
    with barnabas.Consumer(topic, **keys) as consumer:
        assert poll_values(consumer, 5) == [*"vwxyz"]


def poll_values(consumer: barnabas.Consumer, count: int) -> list[str]:
    values: list[str] = []

    def has_read() -> bool:
        values.extend(record.value.decode() for record in consumer.poll(0.5))
        return len(values) >= count

    eventually(has_read, lambda: values)
    return values
