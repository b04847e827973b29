"""A client without rights at a broker with an authorizer: nothing, and see nothing."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.log_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.protocol.messages.metadata import (
    DescribeClusterRequest,
    MetadataRequest,
    MetadataRequestTopic,
)
from barnabas.protocol.messages.security import DescribeAclsRequest
from barnabas.protocol.messages.topics import (
    CreatableTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)
from barnabas.protocol.resources import AclOperation, AclPermission, AclResourceType, PatternType
from barnabas.replication.requests import fetch_session_cache
from unit.server.security.authorizer.secured_broker import MARY, SecuredBroker, allowing
from unit.server.simulated_broker import produce_request

if TYPE_CHECKING:
    from collections.abc import Iterator

READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
PREFIXED = PatternType.PREFIXED


@pytest.fixture
def broker() -> Iterator[SecuredBroker]:
    made = SecuredBroker()
    yield made
    assert not made.failures


def fetch(topic: str, offset: int = 0, session: tuple[int, int] = (0, 0)) -> FetchRequest:
    partition = FetchPartition(
        partition=0, fetch_offset=offset, partition_max_bytes=1 << 20, log_start_offset=-1
    )
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
        session_id=session[0],
        session_epoch=session[1],
        topics=[FetchTopic(topic=topic, partitions=[partition])] if topic else [],
        forgotten_topics_data=[],
    )


def metadata(*names: str, creates: bool = False) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=creates)


def produced(broker: SecuredBroker, topic: str) -> int:
    answer = broker.mary.ask(produce_request(topic, broker.batch(b"x")), 9)
    code: int = answer.responses[0].partition_responses[0].error_code
    return code


def test_a_permission_applies_from_its_creation_to_its_deletion(
    broker: SecuredBroker,
) -> None:
    broker.make_topic("orders")
    assert produced(broker, "orders") == REFUSED
    broker.allow(allowing(WRITE, "ord", pattern=PREFIXED))
    assert produced(broker, "orders") == ErrorCode.NONE
    broker.allow(allowing(WRITE, "orders", permission=AclPermission.DENY))
    assert produced(broker, "orders") == REFUSED
    broker.revoke()
    assert produced(broker, "orders") == REFUSED


def test_a_refused_name_gets_the_same_answer_whether_it_exists_or_not(
    broker: SecuredBroker,
) -> None:
    broker.make_topic("orders")
    answers = [broker.mary.ask(metadata(name), 12).topics[0] for name in ("orders", "absent")]
    assert [(each.error_code, each.topic_id, each.partitions) for each in answers] == [
        (REFUSED, bytes(16), [])
    ] * 2
    assert produced(broker, "orders") == produced(broker, "absent") == REFUSED
    codes = [
        broker.mary.ask(fetch(name), 11).responses[0].partitions[0].error_code
        for name in ("orders", "absent")
    ]
    assert codes == [REFUSED] * 2


def test_a_list_of_all_topics_has_those_that_the_client_may_describe(
    broker: SecuredBroker,
) -> None:
    for name in ("orders", "payments"):
        broker.make_topic(name)
    every = MetadataRequest(topics=None, allow_auto_topic_creation=False)
    for version, request in ((12, every), (0, MetadataRequest(topics=[]))):
        assert broker.mary.ask(request, version).topics == []
    broker.allow(allowing(DESCRIBE, "orders"))
    for version, request in ((12, every), (0, MetadataRequest(topics=[]))):
        listed = broker.mary.ask(request, version).topics
        assert [each.name for each in listed] == ["orders"]


def test_a_request_of_version_0_for_refused_topics_does_not_list_all(
    broker: SecuredBroker,
) -> None:
    broker.make_topic("orders")
    answer = broker.mary.ask(metadata("absent", creates=True), 0)
    assert [(each.name, each.error_code) for each in answer.topics] == [("absent", REFUSED)]


def test_a_topic_is_created_on_demand_for_clients_that_may_create_it(
    broker: SecuredBroker,
) -> None:
    broker.allow(allowing(DESCRIBE, "*"), allowing(AclOperation.CREATE, "mine", pattern=PREFIXED))
    refused = broker.mary.ask(metadata("theirs", creates=True), 12).topics[0]
    assert refused.error_code == REFUSED
    broker.mary.ask(metadata("mine-1", creates=True), 12)
    broker.world.run_until(lambda: broker.metadata("mine-1").topics[0].error_code == 0)
    assert broker.metadata("theirs").topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_fetch_session_returns_no_records_after_the_permission_is_deleted(
    broker: SecuredBroker,
) -> None:
    broker.make_topic("orders")
    broker.produce("orders", b"one")
    broker.allow(allowing(READ, "orders"))
    first = broker.mary.ask(fetch("orders"), 11)
    assert first.responses[0].partitions[0].records
    broker.produce("orders", b"two")
    broker.revoke()
    later = broker.mary.ask(fetch("", session=(first.session_id, 1)), 11)
    partition = later.responses[0].partitions[0]
    assert (partition.error_code, bytes(partition.records or b"")) == (REFUSED, b"")


def test_a_partition_that_a_fetch_session_skips_is_refused_after_the_permission_is_deleted(
    broker: SecuredBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_session_cache, "CHECKED_MAX", 0)
    broker.make_topic("orders")
    broker.allow(allowing(READ, "orders"))
    session_id = broker.mary.ask(fetch("orders"), 11).session_id
    for epoch in (1, 2):
        assert broker.mary.ask(fetch("", session=(session_id, epoch)), 11).responses == []
    broker.revoke()
    later = broker.mary.ask(fetch("", session=(session_id, 3)), 11)
    assert later.responses[0].partitions[0].error_code == REFUSED


def test_a_follower_fetch_needs_cluster_permission(broker: SecuredBroker) -> None:
    broker.make_topic("orders")
    broker.produce("orders", b"one")
    broker.allow(allowing(READ, "orders"))
    request = fetch("orders")
    request.replica_id = 1
    assert broker.mary.ask(request, 11).responses[0].partitions[0].error_code == REFUSED


def test_a_refused_producer_without_acknowledgements_loses_its_connection(
    broker: SecuredBroker,
) -> None:
    broker.make_topic("orders")
    broker.mary.send(produce_request("orders", broker.batch(b"x"), acks=0), 9)
    assert broker.world.run_until(lambda: bool(broker.mary.closed))


def test_requests_to_the_controller_of_the_process_are_checked(broker: SecuredBroker) -> None:
    broker.make_topic("orders")
    new = CreatableTopic(
        name="mine", num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    creation = CreateTopicsRequest(topics=[new], timeout_ms=1000)
    deletion = DeleteTopicsRequest(topic_names=["orders"], timeout_ms=1000)
    assert broker.mary.ask(creation, 5).topics[0].error_code == REFUSED
    assert broker.mary.ask(deletion, 5).responses[0].error_code == REFUSED
    assert [each.error_code for each in broker.metadata("orders", "mine").topics] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


def test_entries_are_shown_and_changed_only_with_rights_on_the_cluster(
    broker: SecuredBroker,
) -> None:
    wanted = DescribeAclsRequest(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    assert broker.mary.ask(wanted, 3).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    broker.allow(allowing(DESCRIBE, "kafka-cluster", AclResourceType.CLUSTER))
    (resource,) = broker.mary.ask(wanted, 3).resources
    assert (resource.resource_name, len(resource.acls)) == ("kafka-cluster", 1)


def test_entries_survive_a_restart(broker: SecuredBroker) -> None:
    broker.make_topic("orders")
    broker.allow(allowing(WRITE, "orders"))
    broker.stop()
    broker.restart()
    broker.mary = broker.client_of(MARY)
    assert produced(broker, "orders") == ErrorCode.NONE


def test_a_large_request_is_checked_in_many_steps_and_its_allowed_part_is_served(
    broker: SecuredBroker,
) -> None:
    broker.make_topic("orders")
    broker.allow(allowing(DESCRIBE, "orders"))
    names = [f"another-topic-with-a-long-name-{number}" for number in range(3000)]
    partitions = [ListOffsetsPartition(partition_index=0, timestamp=-1)]
    request = ListOffsetsRequest(
        replica_id=-1,
        topics=[ListOffsetsTopic(name=name, partitions=partitions) for name in [*names, "orders"]],
    )
    answer = broker.mary.ask(request, 5)
    codes = {each.name: each.partitions[0].error_code for each in answer.topics}
    assert codes == {**dict.fromkeys(names, REFUSED), "orders": ErrorCode.NONE}
    listed = broker.mary.ask(metadata(*names, "orders"), 12).topics
    assert {each.name: each.error_code for each in listed} == codes


def test_listed_operations_are_those_of_the_client(broker: SecuredBroker) -> None:
    broker.make_topic("orders")
    broker.allow(allowing(READ, "orders"))
    request = metadata("orders")
    request.include_topic_authorized_operations = True
    found = broker.mary.ask(request, 12).topics[0].topic_authorized_operations
    assert found == 1 << READ | 1 << DESCRIBE
    cluster = DescribeClusterRequest(include_cluster_authorized_operations=True)
    assert broker.mary.ask(cluster, 0).cluster_authorized_operations == 0


def test_refusals_are_logged_at_a_limited_rate(
    broker: SecuredBroker, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "barnabas.authorizer"):
        for number in range(300):
            broker.mary.ask(metadata(f"topic-{number}"), 12)
    lines = [each.getMessage() for each in caplog.records if each.name == "barnabas.authorizer"]
    assert lines[0] == (
        "authorizer denied principal=User:mary operation=DESCRIBE resource=TOPIC:topic-0 "
        "host=mary-1 api=Metadata"
    )
    assert 100 <= len(lines) < 150


def test_a_name_with_a_line_break_makes_one_line_of_the_log(
    broker: SecuredBroker, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "barnabas.authorizer"):
        broker.mary.ask(metadata("a\nauthorizer denied principal=User:bob"), 12)
    (line,) = [each.getMessage() for each in caplog.records if each.name == "barnabas.authorizer"]
    assert "\n" not in line
