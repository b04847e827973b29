"""Requests to a complete broker in virtual time that real clients rarely send."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.connection import ApiVersionsRequest
from barnabas.protocol.messages.metadata import (
    FindCoordinatorRequest,
    MetadataRequest,
    MetadataRequestTopic,
)
from barnabas.protocol.messages.security import (
    DescribeUserScramCredentialsRequest,
)
from barnabas.protocol.messages.topics import DeleteTopicsRequest
from barnabas.protocol.messages.transactions import EndTxnRequest, InitProducerIdRequest
from barnabas.protocol.records.security import UserScramCredentialRecord
from barnabas.record.legacy import read_records, write_message_set
from barnabas.record.record import Record
from barnabas.server.dispatch.served_apis import SERVED_APIS
from unit.server.dispatch.sent_requests import alter, describe, fetch_request
from unit.server.simulated_broker import (
    TIMEOUT_MS,
    SimulatedBroker,
    SimulatedClient,
    produce_request,
)

if TYPE_CHECKING:
    from barnabas.network.network_error import NetworkError

TOPIC, BROKER = 2, 4


@pytest.fixture
def broker() -> SimulatedBroker:
    made = SimulatedBroker()
    made.make_topic("t")
    return made


def test_exactly_the_advertised_apis_are_served(broker: SimulatedBroker) -> None:
    advertised = {
        api.api_key: (api.min_version, api.max_version)
        for api in broker.ask(ApiVersionsRequest(), 0).api_keys
    }
    assert advertised == {
        key: (api.first_version, api.last_version) for key, api in SERVED_APIS.items()
    }


def test_a_later_response_does_not_overtake_a_delayed_fetch(
    broker: SimulatedBroker,
) -> None:
    values: list[bytes | None] = []

    def on_fetched(response: Any, _: NetworkError | None) -> None:
        # The records are views, which the next response overwrites.
        records = response.responses[0].partitions[0].records
        values.extend(each.value for each in read_records(bytes(records)))

    request = fetch_request(0, max_wait_ms=10_000, min_bytes=1)
    broker.client.channel.send(request, 11, on_fetched, TIMEOUT_MS)
    behind = broker.client.send(ApiVersionsRequest(), 0)
    broker.world.run_for(5_000)
    assert not values
    assert not behind
    other = SimulatedClient(broker.world, "other")
    other.ask(produce_request("t", broker.batch(b"now")), 9)
    assert broker.world.run_until(lambda: bool(behind))
    assert values == [b"now"]


def test_a_delayed_fetch_without_records_gets_an_empty_response(broker: SimulatedBroker) -> None:
    started = broker.host.clock.monotonic_ms()
    response = broker.ask(fetch_request(0, max_wait_ms=2_000, min_bytes=1), 11)
    assert broker.host.clock.monotonic_ms() - started >= 2_000
    assert bytes(response.responses[0].partitions[0].records) == b""


@pytest.mark.parametrize(("version", "magic"), [(0, 0), (1, 0), (2, 0), (0, 1), (2, 1)])
def test_old_produce_versions_are_accepted_and_converted(
    broker: SimulatedBroker, version: int, magic: int
) -> None:
    records = [
        Record(offset=n, timestamp=1000, timestamp_type=0, key=b"k", value=b"%d" % n, headers=[])
        for n in range(3)
    ]
    request = produce_request("t", write_message_set(magic, records, 0), acks=1)
    answer = broker.ask(request, version).responses[0].partition_responses[0]
    assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 0)
    response = broker.ask(fetch_request(0, max_wait_ms=0, min_bytes=0), 11)
    found = read_records(bytes(response.responses[0].partitions[0].records))
    assert [(record.offset, record.value) for record in found] == [(0, b"0"), (1, b"1"), (2, b"2")]


def test_garbage_in_an_old_produce_version_is_corrupt(broker: SimulatedBroker) -> None:
    request = produce_request("t", b"\x00" * 40, acks=1)
    answer = broker.ask(request, 2).responses[0].partition_responses[0]
    assert answer.error_code == ErrorCode.CORRUPT_MESSAGE


def test_a_transactional_batch_belongs_to_no_transaction(broker: SimulatedBroker) -> None:
    batch = bytearray(broker.batch(b"a", producer_id=1, producer_epoch=0, base_sequence=0))
    batch[22] |= 0x10
    answer = broker.ask(produce_request("t", bytes(batch)), 9)
    refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert answer.responses[0].partition_responses[0].error_code == refused


def test_producing_to_internal_topics_is_refused(broker: SimulatedBroker) -> None:
    broker.ask(FindCoordinatorRequest(coordinator_keys=["g"], key_type=0), 4)
    broker.world.run_for(1000)
    assert broker.produce("__consumer_offsets", b"a").error_code == (
        ErrorCode.INVALID_TOPIC_EXCEPTION
    )


def test_producer_ids_are_unique_even_after_a_kill(
    broker: SimulatedBroker,
) -> None:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
    given = [broker.ask(request, 4).producer_id for _ in range(3)]
    broker.host.kill()
    broker.restart()
    given += [broker.ask(request, 4).producer_id for _ in range(1500)]
    assert len(set(given)) == len(given)
    assert min(given) >= 0


def test_a_transactional_producer_gets_an_epoch_and_fences_its_predecessor(
    broker: SimulatedBroker,
) -> None:
    find = FindCoordinatorRequest(coordinator_keys=["tx"], key_type=1)
    assert broker.ask(find, 4).coordinators[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    broker.world.run_for(500)
    assert broker.ask(find, 4).coordinators[0].error_code == ErrorCode.NONE
    request = InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=1000)
    first, second = broker.ask(request, 4), broker.ask(request, 4)
    assert (first.error_code, first.producer_epoch) == (ErrorCode.NONE, 0)
    assert (second.producer_id, second.producer_epoch) == (first.producer_id, 1)
    end = EndTxnRequest(
        transactional_id="tx", producer_id=first.producer_id, producer_epoch=0, committed=False
    )
    assert broker.ask(end, 4).error_code == ErrorCode.PRODUCER_FENCED


def test_a_missing_topic_is_created_once_by_metadata(broker: SimulatedBroker) -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="new")])
    first = broker.ask(request, 9).topics[0].error_code
    assert first == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    broker.world.run_for(100)
    assert broker.ask(request, 9).topics[0].error_code == ErrorCode.NONE


def test_no_topic_is_created_if_auto_creation_is_disabled() -> None:
    broker = SimulatedBroker(auto_create_topics_enable="false")
    request = MetadataRequest(topics=[MetadataRequestTopic(name="new")])
    for _ in range(2):
        assert broker.ask(request, 9).topics[0].error_code == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        broker.world.run_for(100)


def test_the_source_of_a_topic_config_is_described(
    broker: SimulatedBroker,
) -> None:
    key, synonym = "retention.ms", "log.retention.ms"
    default = ("log.retention.hours", "168", 5)
    # As with Kafka, a synonym in another unit shows only behind one of the key's own.
    assert describe(broker, TOPIC, "t", key) == ("604800000", 5, [])
    assert alter(broker, BROKER, "", synonym, "300000") == ErrorCode.NONE
    assert describe(broker, TOPIC, "t", key)[:2] == ("300000", 3)
    assert alter(broker, BROKER, "1", synonym, "200000") == ErrorCode.NONE
    assert describe(broker, TOPIC, "t", key)[:2] == ("200000", 2)
    assert alter(broker, TOPIC, "t", key, "100000") == ErrorCode.NONE
    assert describe(broker, TOPIC, "t", key) == (
        "100000",
        1,
        [
            (key, "100000", 1),
            (synonym, "200000", 2),
            (synonym, "300000", 3),
            default,
        ],
    )
    assert alter(broker, TOPIC, "t", key, None) == ErrorCode.NONE
    assert describe(broker, TOPIC, "t", key)[:2] == ("200000", 2)


def test_static_broker_config_is_a_separate_source() -> None:
    broker = SimulatedBroker(log_retention_hours="24", log_segment_bytes="2000000")
    broker.make_topic("t")
    assert describe(broker, TOPIC, "t", "retention.ms") == ("86400000", 5, [])
    value, source, synonyms = describe(broker, TOPIC, "t", "segment.bytes")
    assert (value, source) == ("2000000", 4)
    assert synonyms == [("log.segment.bytes", "2000000", 4), ("log.segment.bytes", "1073741824", 5)]


def test_a_changed_default_is_applied_to_logs(broker: SimulatedBroker) -> None:
    assert alter(broker, BROKER, "", "message.max.bytes", "1000") == ErrorCode.NONE
    assert broker.produce("t", b"x" * 2000).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert alter(broker, TOPIC, "t", "max.message.bytes", "5000") == ErrorCode.NONE
    assert broker.produce("t", b"x" * 2000).error_code == ErrorCode.NONE


def test_a_malformed_request_closes_only_its_own_connection(
    broker: SimulatedBroker,
) -> None:
    bad = SimulatedClient(broker.world, "bad")
    frame = struct.pack(">hhih", 3, 1, 1, -1) + struct.pack(">i", 1_000_000)
    stream = bad.channel._stream
    assert stream is not None
    stream.write([struct.pack(">i", len(frame)) + frame])
    assert broker.world.run_until(lambda: bool(bad.closed))
    assert broker.ask(ApiVersionsRequest(), 0).error_code == ErrorCode.NONE


def test_scram_credentials_are_described_without_secrets(broker: SimulatedBroker) -> None:
    records = [
        (
            UserScramCredentialRecord(
                name="alice",
                mechanism=mechanism,
                salt=b"s",
                stored_key=b"k",
                server_key=b"v",
                iterations=4096 * mechanism,
            ),
            0,
        )
        for mechanism in (1, 2)
    ]
    broker.node.shared.quorum.append(records, lambda *_: None)
    broker.world.run_for(100)
    request = DescribeUserScramCredentialsRequest(users=None)
    (result,) = broker.ask(request, 0).results
    assert (result.user, result.error_code) == ("alice", ErrorCode.NONE)
    assert [(each.mechanism, each.iterations) for each in result.credential_infos] == [
        (1, 4096),
        (2, 8192),
    ]


@pytest.mark.parametrize(
    ("version", "error"),
    [(1, ErrorCode.INVALID_REQUEST), (4, ErrorCode.TOPIC_DELETION_DISABLED)],
)
def test_disabled_topic_deletion_returns_the_error_of_the_version(
    version: int, error: ErrorCode
) -> None:
    broker = SimulatedBroker(delete_topic_enable="false")
    broker.make_topic("t")
    request = DeleteTopicsRequest(topic_names=["t"], timeout_ms=5000)
    assert broker.ask(request, version).responses[0].error_code == error
