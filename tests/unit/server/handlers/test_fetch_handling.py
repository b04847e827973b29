"""Handling of fetches: refusals, waiting, statistics and throttling."""

from __future__ import annotations

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.configs import (
    AlterClientQuotasRequest,
    EntityDataRequest,
    EntryDataRequest,
    OpData,
)
from barnabas.protocol.messages.fetch import (
    FetchPartition,
    FetchTopic,
)
from barnabas.protocol.schema import ZERO_UUID
from barnabas.server.handlers.records.fetch import REFUSED_WAITING_MAX
from unit.server.handlers.fetch_requests import (
    RECORDS,
    SIZE,
    WAIT_MS,
    errors,
    fetch,
    named,
    part,
    replicated,
)
from unit.server.quotas.client_quotas import CLIENT, set_quota
from unit.server.simulated_broker import SimulatedBroker
from unit.server.simulated_cluster import SimulatedCluster, three_nodes

UNKNOWN_ID = b"\x07" * 16
NAMES, IDS = 12, 13


def by_id(topic_id: bytes, *partitions: FetchPartition) -> FetchTopic:
    return FetchTopic(topic_id=topic_id, partitions=list(partitions) or [part()])


@pytest.fixture
def broker() -> SimulatedBroker:
    made = SimulatedBroker()
    made.make_topic("t", 2)
    made.produce("t", b"a record")
    return made


def now(broker: SimulatedBroker) -> float:
    return broker.host.clock.monotonic_ms()


def test_unknown_topics_and_partitions_by_name_return_an_error(
    broker: SimulatedBroker,
) -> None:
    started = now(broker)
    answer = broker.ask(fetch([named("absent"), named("t", part(7))]), NAMES)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert errors(answer) == [("absent", 0, unknown), ("t", 7, unknown)]
    for topic in answer.responses:
        for each in topic.partitions:
            assert (each.high_watermark, each.last_stable_offset, each.records) == (-1, -1, b"")
    assert now(broker) - started < WAIT_MS / 4, "with nothing to read nothing is waited for"


def test_an_unknown_topic_id_returns_unknown_topic_id(broker: SimulatedBroker) -> None:
    known = broker.metadata("t").topics[0].topic_id
    answer = broker.ask(fetch([by_id(UNKNOWN_ID), by_id(known, part(7)), by_id(ZERO_UUID)]), IDS)
    # Such ids come first, as Kafka has them.
    assert errors(answer) == [
        (UNKNOWN_ID, 0, ErrorCode.UNKNOWN_TOPIC_ID),
        (ZERO_UUID, 0, ErrorCode.UNKNOWN_TOPIC_ID),
        (known, 7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


def test_refused_partitions_are_answered_together_with_records(broker: SimulatedBroker) -> None:
    answer = broker.ask(fetch([named("absent"), named("t")]), NAMES)
    assert errors(answer) == [
        ("t", 0, ErrorCode.NONE),
        ("absent", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert len(answer.responses[0].partitions[0].records) > 0


def test_refused_partitions_do_not_shorten_the_wait(broker: SimulatedBroker) -> None:
    started = now(broker)
    answer = broker.ask(fetch([named("absent"), named("t", part(1))]), NAMES)
    assert now(broker) - started == pytest.approx(WAIT_MS, rel=0.1)
    assert {(topic, error) for topic, _, error in errors(answer)} == {
        ("t", ErrorCode.NONE),
        ("absent", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    }


def test_a_fetch_of_very_many_unknown_partitions_does_not_wait(broker: SimulatedBroker) -> None:
    unknown = [part(number) for number in range(10, 10 + REFUSED_WAITING_MAX)]
    before = now(broker)
    broker.ask(fetch([named("t", part(1)), named("u", *unknown)]), NAMES)
    assert now(broker) - before >= WAIT_MS
    before = now(broker)
    unknown.append(part(9))
    fetched = broker.ask(fetch([named("t", part(1)), named("u", *unknown)]), NAMES)
    assert now(broker) - before < WAIT_MS
    assert len(errors(fetched)) == 2 + REFUSED_WAITING_MAX


def test_bytes_out_of_each_topic_count_the_sent_bytes(broker: SimulatedBroker) -> None:
    broker.make_topic("u")
    broker.produce("u", b"another record, and longer")
    sent = {"t": 0, "u": 0}
    for asked in (["t"], ["t", "u"], ["u"]):
        answer = broker.ask(fetch(map(named, asked)), NAMES)
        for topic in answer.responses:
            sent[topic.topic] += sum(len(each.records) for each in topic.partitions)
    counted = broker.node.broker.replicas.metrics.topics
    assert {name: counted[name].bytes_out for name in sent} == sent
    assert sent["t"] != sent["u"] != 0


def test_a_throttled_answer_counts_no_bytes_out(broker: SimulatedBroker) -> None:
    set_quota(broker, CLIENT, "consumer_byte_rate", 100)
    answers = [broker.ask(fetch([named("t")], max_wait_ms=0), NAMES) for _ in range(30)]
    sent = sum(
        len(each.records) for a in answers for topic in a.responses for each in topic.partitions
    )
    assert any(answer.throttle_time_ms for answer in answers)
    assert broker.node.broker.replicas.metrics.topics["t"].bytes_out == sent


# Followers


def limit_all_clients(cluster: SimulatedCluster) -> None:
    """Set a default quota for all clients: one kilobyte a second."""
    entry = EntryDataRequest(
        entity=[EntityDataRequest(entity_type="client-id", entity_name=None)],
        ops=[OpData(key="consumer_byte_rate", value=1_000.0, remove=False)],
    )
    request = AlterClientQuotasRequest(entries=[entry], validate_only=False)
    assert cluster.ask(1, request, 1).entries[0].error_code == ErrorCode.NONE
    cluster.until(
        lambda: all(cluster.nodes[each].shared.quotas.is_active for each in cluster.ready)
    )


def test_client_quotas_never_throttle_followers() -> None:
    cluster = three_nodes()
    limit_all_clients(cluster)
    started = cluster.world.scheduler.now_ms
    leader = replicated(cluster)
    # acks=all: each record was acknowledged by both followers, at a hundred times the quota.
    assert cluster.world.scheduler.now_ms - started < RECORDS * SIZE / 1_000 * 1_000 / 10
    consumer = [
        cluster.ask(leader, fetch([named("t")], max_wait_ms=0), NAMES).throttle_time_ms
        for _ in range(3)
    ]
    assert any(consumer), "the quota holds for clients"


def test_bytes_sent_to_followers_count_as_replication_bytes_out() -> None:
    cluster = three_nodes()
    leader = replicated(cluster)
    metrics = cluster.nodes[leader].broker.replicas.metrics
    assert metrics.replication_bytes_out >= 2 * RECORDS * SIZE
    assert metrics.topics["t"].bytes_out == 0
    size = sum(
        len(each.records)
        for topic in cluster.ask(leader, fetch([named("t")]), NAMES).responses
        for each in topic.partitions
    )
    assert metrics.topics["t"].bytes_out == size > 0
