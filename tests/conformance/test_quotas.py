"""Client quotas with real clients; no test measures time."""

from __future__ import annotations

import itertools
import os
import time
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.java_collections import string_hash
from barnabas.protocol.messages.configs import (
    AlterClientQuotasRequest,
    ComponentData,
    DescribeClientQuotasRequest,
    EntityDataRequest,
    EntryDataRequest,
    OpData,
)
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.protocol.messages.topics import (
    CreatableTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)
from barnabas.record.builder import BatchBuilder
from conformance.raw_client import RawClient
from waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Entity = dict[str, str | None]
INVALID = ErrorCode.INVALID_REQUEST
_numbers = itertools.count(1)


def alteration(entity: Entity, values: dict[str, float | None]) -> EntryDataRequest:
    return EntryDataRequest(
        entity=[EntityDataRequest(entity_type=kind, entity_name=n) for kind, n in entity.items()],
        ops=[
            OpData(key=key, value=0.0 if value is None else value, remove=value is None)
            for key, value in values.items()
        ],
    )


@pytest.fixture
def set_quota(bootstrap: str, raw: RawClient) -> Iterator[Callable[[Entity, str, float], None]]:
    """Set one quota, and remove it at the end."""
    made: list[tuple[Entity, str]] = []

    def alter(client: RawClient, entity: Entity, key: str, value: float | None) -> None:
        request = AlterClientQuotasRequest(
            entries=[alteration(entity, {key: value})], validate_only=False
        )
        response: Any = client.ask(request, 1)
        assert response.entries[0].error_code == 0, response

    def set_one(entity: Entity, key: str, value: float) -> None:
        made.append((entity, key))
        alter(raw, entity, key, value)
        await_quota(raw, entity, key, value)

    yield set_one
    # Use another connection, because that of the test may be throttled.
    other = RawClient(bootstrap)
    for entity, key in made:
        alter(other, entity, key, None)
    other.close()


def describe(raw: RawClient, *components: ComponentData, strict: bool) -> Any:
    return raw.ask(DescribeClientQuotasRequest(components=list(components), strict=strict), 1)


def await_quota(raw: RawClient, entity: Entity, key: str, value: float) -> None:
    """Brokers apply the records of the controller a little after their commit."""
    components = [
        ComponentData(entity_type=kind, match_type=int(name is None), match=name)
        for kind, name in entity.items()
    ]

    def is_known() -> bool:
        entries = describe(raw, *components, strict=True).entries
        return bool(entries) and (key, value) in [(e.key, e.value) for e in entries[0].values]

    eventually(is_known)


@pytest.fixture
def client_id() -> str:
    """A unique client id."""
    return f"quota-client-{os.getpid()}-{next(_numbers)}"


@pytest.mark.parametrize(
    ("entity", "values", "error"),
    [
        ({"user": "u"}, {"producer_byte_rate": 1e6, "request_percentage": 12.5}, 0),
        ({"client-id": None}, {"consumer_byte_rate": 1e6}, 0),
        ({"ip": "10.1.2.3"}, {"connection_creation_rate": 5}, 0),
        ({"user": "u"}, {"unknown": None}, 0),
        ({}, {"producer_byte_rate": 1}, INVALID),
        ({"group": "g"}, {"producer_byte_rate": 1}, INVALID),
        ({"user": ""}, {"producer_byte_rate": 1}, INVALID),
        ({"ip": "10.1.2.3", "user": "u"}, {"connection_creation_rate": 1}, INVALID),
        ({"ip": "256.1.1.1.1"}, {"connection_creation_rate": 1}, INVALID),
        ({"ip": "10.1.2.3"}, {"producer_byte_rate": 1}, INVALID),
        ({"user": "u"}, {"connection_creation_rate": 1}, INVALID),
        ({"user": "u"}, {"unknown": 1}, INVALID),
        ({"user": "u"}, {"producer_byte_rate": 0}, INVALID),
        ({"user": "u"}, {"producer_byte_rate": 1.5}, INVALID),
        ({"user": "u"}, {"producer_byte_rate": 1e300}, INVALID),
        ({"user": "u"}, {"request_percentage": float("inf")}, INVALID),
        ({"ip": None}, {"connection_creation_rate": 3e9}, INVALID),
    ],
)
@pytest.mark.parametrize("version", [0, 1])
def test_validate_only_checks_quotas_without_setting_them(
    raw: RawClient, entity: Entity, values: dict[str, float | None], error: int, version: int
) -> None:
    request = AlterClientQuotasRequest(entries=[alteration(entity, values)], validate_only=True)
    response: Any = raw.ask(request, version)
    [entry] = response.entries
    assert entry.error_code == error, entry.error_message
    assert {each.entity_type: each.entity_name for each in entry.entity} == entity


def test_entities_and_values_have_an_order(
    raw: RawClient, set_quota: Callable[..., None], client_id: str
) -> None:
    both: Entity = {"user": client_id, "client-id": client_id}
    for key in ("producer_byte_rate", "consumer_byte_rate", "request_percentage"):
        set_quota(both, key, 1e6)
    # In Java's hash table, which of them comes first depends on their number too.
    names = [f"{client_id}-{number}" for number in range(6)]
    for name in names:
        set_quota({"user": name}, "producer_byte_rate", 1e6)
    found = describe(raw, strict=False).entries
    (pair,) = [each for each in found if len(each.entity) == 2]
    assert [each.entity_type for each in pair.entity] == ["client-id", "user"]
    keys = [each.key for each in pair.values]
    assert keys == ["consumer_byte_rate", "producer_byte_rate", "request_percentage"]
    buckets = [bucket({e.entity_type: e.entity_name for e in each.entity}) for each in found]
    assert 7 <= len(buckets) <= 12
    assert buckets == sorted(buckets)


def bucket(entity: Entity) -> int:
    """Return the bucket of an entity in a hash table of Java that has 7 to 12 keys."""
    parts = (
        string_hash(kind) ^ (0 if name is None else string_hash(name))
        for kind, name in entity.items()
    )
    code = (31 + sum(parts)) & 0xFFFF_FFFF
    return (code ^ code >> 16) & 15


def test_quotas_are_found_by_exact_default_and_any_names(
    raw: RawClient, set_quota: Callable[..., None], client_id: str
) -> None:
    both: Entity = {"user": client_id, "client-id": None}
    set_quota({"user": client_id}, "producer_byte_rate", 1e9)
    set_quota(both, "consumer_byte_rate", 2e9)
    exact = ComponentData(entity_type="user", match_type=0, match=client_id)
    any_client = ComponentData(entity_type="client-id", match_type=2, match=None)
    found = describe(raw, exact, strict=False).entries
    assert sorted(len(each.entity) for each in found) == [1, 2]
    [alone] = describe(raw, exact, strict=True).entries
    assert [(each.key, each.value) for each in alone.values] == [("producer_byte_rate", 1e9)]
    [pair] = describe(raw, exact, any_client, strict=True).entries
    assert {each.entity_type: each.entity_name for each in pair.entity} == both
    assert describe(raw, strict=True).entries == []


@pytest.mark.parametrize(
    ("components", "error"),
    [
        ([("", 2, None)], INVALID),
        ([("user", 2, None), ("user", 1, None)], INVALID),
        ([("group", 2, None)], ErrorCode.UNSUPPORTED_VERSION),
        ([("user", 0, None)], INVALID),
        ([("user", 1, "u")], INVALID),
        ([("user", 2, "u")], INVALID),
        ([("user", 7, None)], INVALID),
        ([("ip", 2, None), ("user", 2, None)], INVALID),
    ],
)
def test_an_invalid_filter_is_refused(
    raw: RawClient, components: list[tuple[str, int, str | None]], error: int
) -> None:
    response = describe(
        raw,
        *[ComponentData(entity_type=k, match_type=t, match=m) for k, t, m in components],
        strict=False,
    )
    assert response.error_code == error
    assert response.entries is None


def test_the_throttle_time_brings_the_rate_back_to_the_quota(
    raw: RawClient, topic: str, set_quota: Callable[..., None]
) -> None:
    set_quota({"client-id": "raw"}, "producer_byte_rate", 20_000)
    batch = BatchBuilder()
    batch.append(int(time.time() * 1000), None, os.urandom(400_000))
    data = PartitionProduceData(index=0, records=bytes(batch.build()))
    request = ProduceRequest(
        acks=1,
        timeout_ms=10_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )

    def throttle_time_ms() -> int:
        response: Any = raw.ask(request, 9)
        assert response.responses[0].partition_responses[0].error_code == 0
        time_ms: int = response.throttle_time_ms
        return time_ms

    # 400 kB in a window of 10 s are twice the quota: 10 s without traffic compensate them. Requests
    # from before Kafka's broker applied the quota count, too, and add 20 s each.
    assert 9_000 < eventually(throttle_time_ms) % 20_000 < 11_000


def throttled_times(config: dict[str, Any], times: list[float]) -> dict[str, Any]:
    return {**config, "throttle_cb": lambda event: times.append(event.throttle_time)}


def test_a_producer_is_throttled(
    bootstrap: str, topic: str, set_quota: Callable[..., None], client_id: str
) -> None:
    set_quota({"client-id": client_id}, "producer_byte_rate", 10_000)
    times: list[float] = []
    config = {
        "bootstrap.servers": bootstrap,
        "client.id": client_id,
        "batch.size": 10_000,
        "linger.ms": 0,
    }
    producer = Producer(throttled_times(config, times))
    for _ in range(30):
        producer.produce(topic, os.urandom(9_000))

    def is_throttled() -> bool:
        producer.poll(0.1)
        return any(times)

    eventually(is_throttled)
    producer.purge()


def test_a_consumer_is_throttled_and_gets_no_more_than_its_quota(
    bootstrap: str, topic: str, set_quota: Callable[..., None], client_id: str
) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "batch.size": 10_000})
    for _ in range(60):
        producer.produce(topic, os.urandom(9_000))
    assert producer.flush(60) == 0
    rate, response_bytes = 5_000, 20_000
    set_quota({"client-id": client_id}, "consumer_byte_rate", rate)
    times: list[float] = []
    config = {
        "bootstrap.servers": bootstrap,
        "client.id": client_id,
        "group.id": client_id,
        "fetch.message.max.bytes": response_bytes,
        "fetch.max.bytes": response_bytes,
        "message.max.bytes": response_bytes,
        "enable.auto.commit": False,
    }
    consumer = Consumer(throttled_times(config, times))
    consumer.assign([TopicPartition(topic, 0, 0)])
    received = 0
    began = time.monotonic()

    def is_throttled() -> bool:
        nonlocal received
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            received += len(message.value() or b"")
        return any(times)

    eventually(is_throttled)
    # Bytes that a window of 11 s and the elapsed time allow, without the last two responses.
    assert received <= rate * (11 + time.monotonic() - began) + 2 * response_bytes
    consumer.close()


def new_topic(name: str, partitions: int) -> CreateTopicsRequest:
    topic = CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
    )
    return CreateTopicsRequest(topics=[topic], timeout_ms=10_000, validate_only=False)


def test_mutations_over_the_quota_are_refused(
    raw: RawClient, set_quota: Callable[..., None], client_id: str
) -> None:
    # The window of 11 s at 0.01 per second allows part of a mutation; one request may exceed it.
    set_quota({"client-id": "raw"}, "controller_mutation_rate", 0.01)
    numbers = itertools.count()

    def throttle_time_ms() -> int:
        response: Any = raw.ask(new_topic(f"{client_id}-{next(numbers)}", 2), 5)
        time_ms: int = response.throttle_time_ms
        return time_ms

    # The controller enforces the quota, and may apply it later than the broker.
    assert eventually(throttle_time_ms) > 10_000


def test_a_strict_version_gets_the_error(
    bootstrap: str, topic: str, set_quota: Callable[..., None], client_id: str
) -> None:
    # The excess is not compensated before this test ends.
    set_quota({"client-id": "raw"}, "controller_mutation_rate", 0.01)
    numbers = itertools.count()

    def refusal() -> Any:
        # Use new connections, because a throttled connection is not served for some time.
        client = RawClient(bootstrap)
        response: Any = client.ask(new_topic(f"{client_id}-strict-{next(numbers)}", 2), 7)
        client.close()
        return response.topics[0].error_code and response

    refused = eventually(refusal)
    assert refused.topics[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert refused.throttle_time_ms > 0
    client = RawClient(bootstrap)
    deleted: Any = client.ask(DeleteTopicsRequest(topic_names=[topic], timeout_ms=1000), 5)
    client.close()
    assert deleted.responses[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
