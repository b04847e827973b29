"""Client quotas on a whole broker in virtual time."""

from __future__ import annotations

import math
from typing import Any

import pytest

from barnabas.metrics import names
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.configs import ComponentData, DescribeClientQuotasRequest
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.protocol.messages.topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)
from barnabas.server.metrics.node_metrics import quota_families
from barnabas.server.quotas.client_quotas import THROTTLE_MS_MAX, CountedRequest
from barnabas.server.quotas.rate import ENTRIES_MAX
from unit.server.quotas.client_quotas import CLIENT, Entity, set_quota
from unit.server.simulated_broker import SimulatedBroker, SimulatedClient, produce_request


def describe(broker: SimulatedBroker, *components: ComponentData, strict: bool = False) -> Any:
    request = DescribeClientQuotasRequest(components=list(components), strict=strict)
    return broker.ask(request, 1)


def component(kind: str, match_type: int, match: str | None = None) -> ComponentData:
    return ComponentData(entity_type=kind, match_type=match_type, match=match)


def produced(broker: SimulatedBroker, size: int, acks: int = -1) -> Any:
    return broker.ask(produce_request("t", broker.batch(bytes(size)), acks), 9)


def fetched(client: SimulatedClient, **options: int) -> Any:
    session_id, epoch = options.get("session_id", 0), options.get("epoch", -1)
    max_bytes = options.get("max_bytes", 1 << 20)
    partition = FetchPartition(
        partition=0, fetch_offset=0, partition_max_bytes=max_bytes, current_leader_epoch=-1
    )
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 20,
        session_id=session_id,
        session_epoch=epoch,
        topics=[] if session_id else [FetchTopic(topic="t", partitions=[partition])],
        forgotten_topics_data=[],
    )
    return client.ask(request, 12)


def records_of(answer: Any) -> int:
    return sum(len(part.records or b"") for topic in answer.responses for part in topic.partitions)


def test_a_producer_over_its_quota_is_throttled_and_muted() -> None:
    broker = SimulatedBroker()
    broker.make_topic("t")
    set_quota(broker, CLIENT, "producer_byte_rate", 1000)
    answer = produced(broker, 20_000)
    # About 20 kB over 10 s is twice the limit: another 10 s of silence make it right.
    assert answer.throttle_time_ms == pytest.approx(10_200, rel=0.02)
    started = broker.host.clock.monotonic_ms()
    assert broker.ask(MetadataRequest(topics=[]), 12).throttle_time_ms == 0
    waited = broker.host.clock.monotonic_ms() - started
    assert waited == pytest.approx(answer.throttle_time_ms, rel=0.01)


def test_a_producer_with_acks_0_is_throttled() -> None:
    broker = SimulatedBroker()
    broker.make_topic("t")
    set_quota(broker, CLIENT, "producer_byte_rate", 1000)
    broker.client.channel.send(
        produce_request("t", broker.batch(bytes(20_000)), acks=0), 9, None, 30_000
    )
    started = broker.host.clock.monotonic_ms()
    broker.ask(MetadataRequest(topics=[]), 12)
    assert broker.host.clock.monotonic_ms() - started > 9_000


def test_other_clients_are_not_throttled() -> None:
    broker = SimulatedBroker()
    broker.make_topic("t")
    set_quota(broker, CLIENT, "producer_byte_rate", 1000)
    other = SimulatedClient(broker.world, "other")
    request = produce_request("t", broker.batch(bytes(20_000)))
    assert other.ask(request, 9).throttle_time_ms == 0


def test_a_consumer_over_its_quota_gets_no_records_and_a_throttle_time() -> None:
    broker = SimulatedBroker()
    broker.make_topic("t")
    produced(broker, 900)
    set_quota(broker, CLIENT, "consumer_byte_rate", 1000)
    clock = broker.host.clock
    started, total, throttled = clock.monotonic_ms(), 0, 0
    while clock.monotonic_ms() - started < 100_000:
        answer = fetched(broker.client, max_bytes=1000)
        total += records_of(answer)
        if answer.throttle_time_ms:
            throttled += 1
            assert not answer.responses
        broker.world.run_for(1)
    assert throttled
    # 10 kB at once, and 1 kB a second from then on.
    assert 80_000 < total < 120_000


def test_a_throttled_fetch_does_not_change_its_session() -> None:
    broker = SimulatedBroker()
    broker.make_topic("t")
    produced(broker, 8_000)
    session_id = fetched(broker.client, epoch=0).session_id
    assert session_id
    produced(broker, 8_000)
    set_quota(broker, CLIENT, "consumer_byte_rate", 1000)
    # Another connection of the same client uses up what there is.
    fetched(SimulatedClient(broker.world, "client"))
    throttled = fetched(broker.client, session_id=session_id, epoch=1)
    assert throttled.throttle_time_ms > 0
    assert (throttled.error_code, throttled.session_id) == (ErrorCode.NONE, session_id)
    assert not throttled.responses
    answer = fetched(broker.client, session_id=session_id, epoch=2)
    assert answer.throttle_time_ms == 0
    assert records_of(answer) > 8_000


def test_a_removed_quota_throttles_no_client() -> None:
    broker = SimulatedBroker()
    broker.make_topic("t")
    set_quota(broker, CLIENT, "producer_byte_rate", 1000)
    set_quota(broker, CLIENT, "producer_byte_rate", None)
    assert not broker.node.shared.quotas.is_active
    assert produced(broker, 20_000).throttle_time_ms == 0


def test_quotas_survive_a_restart() -> None:
    broker = SimulatedBroker()
    set_quota(broker, {"user": None}, "producer_byte_rate", 1000)
    broker.stop()
    broker.restart()
    assert broker.node.shared.quotas.is_active
    assert describe(broker).entries[0].values[0].value == 1000


def new_topics(*counts: int, version_says: str = "a") -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=f"{version_says}-{number}",
                num_partitions=count,
                replication_factor=1,
                assignments=[],
                configs=[],
            )
            for number, count in enumerate(counts)
        ],
        timeout_ms=10_000,
    )


def test_mutations_over_the_quota_are_refused_in_versions_with_the_error() -> None:
    broker = SimulatedBroker(controller_quota_window_num="1")
    set_quota(broker, CLIENT, "controller_mutation_rate", 5)
    answer = broker.ask(new_topics(7, 1), 7)
    # The bucket of 5 may be overdrawn once; later requests are refused.
    refused = ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert [topic.error_code for topic in answer.topics] == [ErrorCode.NONE, refused]
    assert answer.throttle_time_ms == pytest.approx(400, abs=20)
    # The connection has been silent for as long, so that there is nothing to wait for any more.
    broker.world.run_for(500)
    more = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name="a-0", count=14, assignments=None)],
        timeout_ms=1000,
        validate_only=False,
    )
    assert broker.ask(more, 3).results[0].error_code == ErrorCode.NONE
    client = SimulatedClient(broker.world, "client")
    gone = client.ask(DeleteTopicsRequest(topic_names=["a-0"], timeout_ms=1000), 5)
    assert gone.responses[0].error_code == refused
    assert gone.throttle_time_ms > 0


def test_mutations_over_the_quota_in_older_versions_are_served_and_throttled() -> None:
    broker = SimulatedBroker(controller_quota_window_num="1")
    set_quota(broker, CLIENT, "controller_mutation_rate", 5)
    answer = broker.ask(new_topics(7, 3), 5)
    assert [topic.error_code for topic in answer.topics] == [ErrorCode.NONE, ErrorCode.NONE]
    assert answer.throttle_time_ms == pytest.approx(1000, abs=20)


def test_request_time_is_counted_and_waits_are_bounded_by_a_window() -> None:
    broker = SimulatedBroker()
    quotas = broker.node.shared.quotas
    set_quota(broker, CLIENT, "request_percentage", 1)
    # Virtual time does not advance in a handler, so the test sets the time: 1 s of 10 is 10 %.
    assert quotas.record_request(CountedRequest(3, "ANONYMOUS", "client", 100, 1000.0), 0) == 1000
    assert quotas.record_request(CountedRequest(3, "ANONYMOUS", "other", 100, 1000.0), 0) == 0


def test_quotas_are_described_by_their_entities() -> None:
    broker = SimulatedBroker()
    set_quota(broker, {"user": "u"}, "producer_byte_rate", 1)
    set_quota(broker, {"user": None}, "producer_byte_rate", 2)
    set_quota(broker, {"user": "u", "client-id": "c"}, "producer_byte_rate", 3)
    set_quota(broker, {"ip": "10.0.0.1"}, "connection_creation_rate", 4)

    def values(*components: ComponentData, strict: bool = False) -> list[float]:
        answer = describe(broker, *components, strict=strict)
        assert answer.error_code == ErrorCode.NONE
        return sorted(each.values[0].value for each in answer.entries)

    assert values() == [1, 2, 3, 4]
    assert values(strict=True) == []
    assert values(component("user", 2)) == [1, 2, 3]
    assert values(component("user", 2), strict=True) == [1, 2]
    assert values(component("user", 0, "u")) == [1, 3]
    assert values(component("user", 1)) == [2]
    assert values(component("user", 0, "u"), component("client-id", 0, "c")) == [3]
    assert values(component("ip", 0, "10.0.0.1")) == [4]


@pytest.mark.parametrize(
    ("components", "error"),
    [
        ([component("", 2)], ErrorCode.INVALID_REQUEST),
        ([component("user", 2), component("user", 1)], ErrorCode.INVALID_REQUEST),
        ([component("group", 2)], ErrorCode.UNSUPPORTED_VERSION),
        ([component("user", 0)], ErrorCode.INVALID_REQUEST),
        ([component("user", 1, "u")], ErrorCode.INVALID_REQUEST),
        ([component("user", 2, "u")], ErrorCode.INVALID_REQUEST),
        ([component("user", 3)], ErrorCode.INVALID_REQUEST),
        ([component("ip", 2), component("user", 2)], ErrorCode.INVALID_REQUEST),
    ],
)
def test_an_invalid_filter_is_refused(components: list[ComponentData], error: ErrorCode) -> None:
    answer = describe(SimulatedBroker(), *components)
    assert answer.error_code == error
    assert answer.entries is None


@pytest.mark.parametrize("value", [1e-300, 5e-324])
def test_a_tiny_quota_has_a_bounded_throttle_time(value: float) -> None:
    broker = SimulatedBroker()
    broker.make_topic("t")
    for key in ("producer_byte_rate", "consumer_byte_rate", "request_percentage"):
        set_quota(broker, CLIENT, key, value)
    assert 0 < produced(broker, 1000).throttle_time_ms <= THROTTLE_MS_MAX
    another = SimulatedClient(broker.world, "client")
    assert 0 < fetched(another).throttle_time_ms <= THROTTLE_MS_MAX


@pytest.mark.parametrize("version", [5, 6])
def test_a_request_over_a_tiny_mutation_quota_is_answered(version: int) -> None:
    broker = SimulatedBroker()
    set_quota(broker, CLIENT, "controller_mutation_rate", 1e-300)
    codes = set()
    for name in ("a", "b", "c"):
        client = SimulatedClient(broker.world, "client")
        topic = CreatableTopic(
            name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]
        )
        answer = client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=1000), version)
        codes.add(answer.topics[0].error_code)
        assert 0 <= answer.throttle_time_ms <= THROTTLE_MS_MAX
    limited = ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert codes == ({ErrorCode.NONE} if version == 5 else {ErrorCode.NONE, limited})


def test_the_number_of_tracked_client_ids_is_bounded() -> None:
    broker = SimulatedBroker()
    set_quota(broker, {"client-id": None}, "request_percentage", 50.0)
    request = broker.node.shared.quotas.request
    for number in range(3 * ENTRIES_MAX):
        request.record("ANONYMOUS", f"{number}" * 2000, 0.001)
    kept = request.usage()
    assert len(kept) <= ENTRIES_MAX
    assert max(len(client_id) for _, client_id, _ in kept) <= 256


def quota_metrics(broker: SimulatedBroker) -> dict[tuple[str, str, str], float]:
    """Values by name, user and client id."""
    return {
        (family.name, *(text for _, text in tags)): value  # type: ignore[misc]
        for family in quota_families(broker.node.shared.quotas)
        for tags, value in family.samples
        if tags
    }


def test_metrics_name_those_who_share_a_quota_and_forget_them_after_an_hour() -> None:
    broker = SimulatedBroker()
    broker.make_topic("t")
    set_quota(broker, {"user": "ANONYMOUS"}, "producer_byte_rate", 1000)
    set_quota(broker, {"user": None, "client-id": None}, "request_percentage", 1e6)
    throttle_ms = produced(broker, 20_000).throttle_time_ms
    assert throttle_ms > 0
    values = quota_metrics(broker)
    assert values[names.PRODUCE_QUOTA_RATE, "ANONYMOUS", ""] == pytest.approx(2000, rel=0.02)
    assert values[names.PRODUCE_QUOTA_THROTTLE, "ANONYMOUS", ""] == throttle_ms
    assert (names.REQUEST_QUOTA_RATE, "ANONYMOUS", "client") in values
    # The request quota was not exceeded.
    assert math.isnan(values[names.REQUEST_QUOTA_THROTTLE, "ANONYMOUS", "client"])
    broker.world.run_for(3_500_000)
    assert quota_metrics(broker)[names.PRODUCE_QUOTA_RATE, "ANONYMOUS", ""] == 0
    broker.world.run_for(200_000)
    assert not quota_metrics(broker)


def test_mutations_and_their_tokens_are_measured() -> None:
    broker = SimulatedBroker(controller_quota_window_num="1")
    set_quota(broker, {"user": "ANONYMOUS"}, "controller_mutation_rate", 5)
    answer = broker.ask(new_topics(7, 1), 7)
    values = quota_metrics(broker)
    assert values[names.MUTATION_QUOTA_TOKENS, "ANONYMOUS", ""] == pytest.approx(-2, abs=0.2)
    assert values[names.MUTATION_QUOTA_RATE, "ANONYMOUS", ""] > 0
    throttle = values[names.MUTATION_QUOTA_THROTTLE, "ANONYMOUS", ""]
    assert throttle == answer.throttle_time_ms > 0


def test_clients_without_a_client_id_have_the_quota_of_their_user_only() -> None:
    broker = SimulatedBroker()
    quotas = broker.node.shared.quotas
    set_quota(broker, {"client-id": None}, "producer_byte_rate", 1)
    assert quotas.produce.record("ANONYMOUS", "", 1e6) == 0
    set_quota(broker, {"user": None}, "producer_byte_rate", 1)
    assert quotas.produce.record("ANONYMOUS", "", 1e6) > 0


def test_a_changed_quota_applies_to_open_connections() -> None:
    broker = SimulatedBroker()
    broker.make_topic("t")
    set_quota(broker, {"user": "ANONYMOUS"}, "producer_byte_rate", 1e9)
    assert produced(broker, 20_000).throttle_time_ms == 0
    set_quota(broker, {"user": "ANONYMOUS"}, "producer_byte_rate", 3000)
    first = produced(broker, 20_000).throttle_time_ms
    # A quota of the user and client id precedes that of the user.
    set_quota(broker, {"user": "ANONYMOUS", "client-id": "client"}, "producer_byte_rate", 1e9)
    assert first > 0
    assert produced(broker, 20_000).throttle_time_ms == 0


def test_entities_are_described_in_the_order_of_kafkas_hash_table() -> None:
    broker = SimulatedBroker()
    made: list[Entity] = [
        {"user": "u"},
        {"client-id": "c"},
        {"user": "u", "client-id": "c"},
        {"user": None},
        {"user": "a", "client-id": None},
        {"user": "zz"},
        {"user": "b1"},
        {"user": "b2"},
        {"user": None, "client-id": "c"},
    ]
    for entity in made:
        set_quota(broker, entity, "request_percentage", 9.0)
    described = [
        {part.entity_type: part.entity_name for part in entry.entity}
        for entry in describe(broker).entries
    ]
    # As Apache Kafka 4.4 describes them after the same requests.
    assert [made.index(entity) for entity in described] == [8, 2, 6, 0, 1, 3, 5, 7, 4]
