"""Admin calls about security and log directories, against Apache Kafka.

The broker has an authorizer, a SASL and an open listener, two log directories, and tokens.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import barnabas
from barnabas.client.admin import credentials
from barnabas.client.admin.cluster import UpgradeType
from barnabas.client.admin.group_descriptions import StreamsGroupDescription
from barnabas.client.admin.log_dirs import ReplicaDirectories
from barnabas.client.admin.sender import AdminCall
from barnabas.client.admin.topics import NewTopic
from barnabas.client.admin.transactions import AbortableTransaction, TransactionDescription
from barnabas.client.errors import BrokerError, ProducerFencedError
from barnabas.client.topic_partition import TopicPartition
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.connection import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from barnabas.protocol.messages.streams_groups import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    Topology,
)
from barnabas.testing.free_ports import free_ports
from conformance.raw_client import RawClient
from jvm.kafka_process import KafkaProcess
from unit.client.admin.call_keeper import call_of
from waiting import eventually, eventually_equal

pytestmark = pytest.mark.conformance


class SecuredKafka(KafkaProcess):
    """An Apache Kafka with these settings; users of its open listener have all rights."""

    def __init__(self, directory: Any) -> None:
        super().__init__(directory)
        (self.sasl_port,) = free_ports(1)
        self.directories = [str(directory / "data"), str(directory / "data-2")]

    def settings(self) -> dict[str, str]:
        usual = super().settings()
        sasl = f",SASL_PLAINTEXT://127.0.0.1:{self.sasl_port}"
        plain = "org.apache.kafka.common.security.plain.PlainLoginModule"
        scram = "org.apache.kafka.common.security.scram.ScramLoginModule"
        prefix = "listener.name.sasl_plaintext"
        return {
            **usual,
            "listeners": usual["listeners"] + sasl,
            "advertised.listeners": usual["advertised.listeners"] + sasl,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,"
            "SASL_PLAINTEXT:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            f"{prefix}.plain.sasl.jaas.config": f'{plain} required user_admin="secret";',
            f"{prefix}.scram-sha-256.sasl.jaas.config": f"{scram} required;",
            f"{prefix}.scram-sha-512.sasl.jaas.config": f"{scram} required;",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS;User:admin",
            "log.dirs": ",".join(self.directories),
            "delegation.token.secret.key": "a secret of the brokers",
            "transaction.state.log.num.partitions": "3",
        }


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    made = SecuredKafka(tmp_path_factory.mktemp("secured"))
    made.start()
    try:
        yield made
    finally:
        made.kill()


@pytest.fixture(scope="module")
def admin(kafka: SecuredKafka) -> Iterator[barnabas.Admin]:
    with barnabas.Admin(kafka.bootstrap) as made:
        yield made


@pytest.fixture
def topic(kafka: SecuredKafka) -> str:
    name = f"secured-{uuid.uuid4().hex[:8]}"
    with barnabas.Client(kafka.bootstrap) as client:
        client.create_topic(name, 1, 1)
    return name


def test_tokens_are_refused_to_unauthenticated_clients(admin: barnabas.Admin) -> None:
    calls: list[Callable[[], object]] = [
        admin.create_delegation_token,
        admin.describe_delegation_tokens,
        lambda: admin.renew_delegation_token(b"x"),
        lambda: admin.expire_delegation_token(b"x"),
    ]
    for call in calls:
        with pytest.raises(BrokerError) as caught:
            call()
        assert caught.value.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


def test_tokens_are_created_renewed_listed_and_expired(kafka: SecuredKafka) -> None:
    """Raw requests over an authenticated connection."""
    raw = RawClient(f"127.0.0.1:{kafka.sasl_port}")
    try:
        handshake = raw.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        assert isinstance(handshake, SaslHandshakeResponse)
        assert handshake.error_code == 0
        done = raw.ask(SaslAuthenticateRequest(auth_bytes=b"\0admin\0secret"), 2)
        assert isinstance(done, SaslAuthenticateResponse)
        assert done.error_code == 0

        def execute(call: AdminCall[Any], version: int) -> Any:
            return call.read(raw.ask(call.build(version), version))

        creation = call_of(
            credentials.create_delegation_token,
            ["User:helper"],
            owner="User:owner",
            max_lifetime_ms=3_600_000,
        )
        made = execute(creation, 3)
        assert (made.owner, made.requester, made.renewers) == (
            "User:owner",
            "User:admin",
            ("User:helper",),
        )
        assert made.max_timestamp - made.issue_timestamp == 3_600_000
        eventually(
            lambda: (
                execute(call_of(credentials.describe_delegation_tokens, ["User:owner"]), 3)
                == [made]
            )
        )
        assert made in execute(call_of(credentials.describe_delegation_tokens, None), 3)
        with pytest.raises(BrokerError) as caught:
            execute(call_of(credentials.renew_delegation_token, b"no such token", -1), 2)
        assert caught.value.error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
        own = execute(call_of(credentials.create_delegation_token), 3)
        eventually(lambda: own in execute(call_of(credentials.describe_delegation_tokens, None), 3))
        assert own.owner == "User:admin"
        assert (
            execute(call_of(credentials.renew_delegation_token, own.hmac, 1_000_000), 2)
            > own.issue_timestamp
        )
        execute(call_of(credentials.expire_delegation_token, own.hmac, -1), 2)
        eventually(
            lambda: [made] == execute(call_of(credentials.describe_delegation_tokens, None), 3)
        )
    finally:
        raw.close()


def test_features_are_finalized_or_refused(admin: barnabas.Admin) -> None:
    before = admin.describe_versions().finalized_features
    assert before["group.version"] == 1
    admin.update_features({"group.version": 0}, kind=UpgradeType.SAFE_DOWNGRADE, validate_only=True)
    assert admin.describe_versions().finalized_features == before
    with pytest.raises(BrokerError, match=r"no\.such\.feature"):
        admin.update_features({"no.such.feature": 1})
    lower, kind = {"streams.version": 0}, UpgradeType.SAFE_DOWNGRADE
    admin.update_features(lower, kind=kind)
    eventually(lambda: "streams.version" not in admin.describe_versions().finalized_features)
    admin.update_features({"streams.version": 1})
    eventually(lambda: admin.describe_versions().finalized_features == before)


def test_an_unregistered_broker_cannot_be_unregistered(admin: barnabas.Admin) -> None:
    with pytest.raises(BrokerError) as caught:
        admin.unregister_broker(77)
    assert caught.value.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    with pytest.raises(BrokerError):
        admin.unregister_controller(77)


def test_a_replica_is_moved_to_another_log_directory(
    kafka: SecuredKafka, admin: barnabas.Admin, topic: str
) -> None:
    replica = (1, TopicPartition(topic, 0))

    def place() -> ReplicaDirectories:
        found = admin.describe_replica_log_dirs([replica])[replica]
        assert isinstance(found, ReplicaDirectories)
        return found

    def place_and_future() -> tuple[str | None, str | None]:
        found = place()
        return found.path, found.future_path

    eventually(lambda: bool(place().path))
    before = place().path
    (target,) = (path for path in kafka.directories if path != before)
    assert admin.alter_replica_log_dirs({replica: target}) == {replica: None}
    eventually_equal(place_and_future, (target, None))
    absent = (1, TopicPartition(topic, 9))
    found = admin.describe_replica_log_dirs([absent])[absent]
    assert found == ReplicaDirectories()
    refused = admin.alter_replica_log_dirs({replica: "/not/a/log/directory"}, raise_errors=False)[
        replica
    ]
    assert isinstance(refused, BrokerError)
    assert refused.error_code == ErrorCode.LOG_DIR_NOT_FOUND


def test_transactions_are_listed_described_and_fenced(
    kafka: SecuredKafka, admin: barnabas.Admin, topic: str
) -> None:
    name = f"id-{topic}"
    with barnabas.Producer(kafka.bootstrap, transactional_id=name) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"x", partition=0)
        producer.flush()
        (listed,) = admin.list_transactions(states=["Ongoing"], pattern=f"id-{topic}.*")
        assert (listed.transactional_id, listed.state) == (name, "Ongoing")
        assert admin.list_transactions([listed.producer_id]) == [listed]
        assert admin.list_transactions(duration_ms=600_000, pattern=name) == []
        described = admin.describe_transactions([name, "nobody"])
        found = described[name]
        assert isinstance(found, TransactionDescription)
        assert (found.state, found.producer_id, found.coordinator_id) == (
            "Ongoing",
            listed.producer_id,
            1,
        )
        assert found.partitions == (TopicPartition(topic, 0),)
        absent = described["nobody"]
        assert isinstance(absent, BrokerError)
        assert absent.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        fenced = admin.fence_producers([name], raise_errors=False)[name]
        assert not isinstance(fenced, Exception)
        assert fenced.producer_id == found.producer_id
        assert fenced.producer_epoch > found.producer_epoch
        with pytest.raises(ProducerFencedError):
            producer.commit_transaction()


def test_an_open_transaction_is_terminated(
    kafka: SecuredKafka, admin: barnabas.Admin, topic: str
) -> None:
    name = f"id-{topic}"
    with barnabas.Producer(kafka.bootstrap, transactional_id=name) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"x", partition=0)
        producer.flush()
        admin.terminate_transaction(name)
        with pytest.raises(ProducerFencedError):
            producer.commit_transaction()
    eventually(lambda: admin.list_transactions(states=["Ongoing"], pattern=name) == [])


def test_a_hanging_transaction_is_aborted_in_its_partition(
    kafka: SecuredKafka, admin: barnabas.Admin, topic: str
) -> None:
    tp = TopicPartition(topic, 0)
    with barnabas.Producer(kafka.bootstrap, transactional_id=f"id-{topic}") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"x", partition=0)
        producer.flush()
        active = admin.describe_producers([tp])[tp]
        assert isinstance(active, list)
        (state,) = active
        assert state.current_transaction_start_offset == 0
        hanging = AbortableTransaction(tp, state.producer_id, state.producer_epoch)
        admin.abort_transaction(hanging)
        found = admin.describe_producers([tp])[tp]
        assert isinstance(found, list)
        assert [each.current_transaction_start_offset for each in found] == [-1]
        producer.abort_transaction()


def test_a_streams_group_is_described(
    kafka: SecuredKafka, admin: barnabas.Admin, topic: str
) -> None:
    group, member = f"streams-{topic}", "AAAAAAAAAAAAAAAAAAAAAg"
    raw = RawClient(kafka.bootstrap)
    try:
        request = StreamsGroupHeartbeatRequest(
            group_id=group,
            member_id=member,
            member_epoch=0,
            endpoint_information_epoch=0,
            rebalance_timeout_ms=30_000,
            topology=Topology(
                epoch=1,
                subtopologies=[
                    Subtopology(
                        subtopology_id="sub-0",
                        source_topics=[topic],
                        source_topic_regex=[],
                        state_changelog_topics=[],
                        repartition_sink_topics=[],
                        repartition_source_topics=[],
                        copartition_groups=[],
                    )
                ],
            ),
            active_tasks=[],
            standby_tasks=[],
            warmup_tasks=[],
            process_id="process-1",
            client_tags=[],
        )

        def beat() -> bool:
            response = raw.ask(request, 0)
            assert isinstance(response, StreamsGroupHeartbeatResponse)
            if response.error_code:
                return False
            # Later heartbeats contain only changes, and nothing changes.
            request.member_epoch = response.member_epoch
            request.topology = request.process_id = request.client_tags = None
            request.active_tasks = request.standby_tasks = request.warmup_tasks = None
            request.rebalance_timeout_ms = -1
            return True

        eventually(lambda: admin.coordinators([group])[group] == 1 and beat())
        described = admin.describe_streams_groups([group, "nobody"])
        found = described[group]
        assert isinstance(found, StreamsGroupDescription)
        (described_member,) = found.members
        assert (described_member.member_id, described_member.process_id) == (member, "process-1")
        assert [each.source_topics for each in found.subtopologies] == [(topic,)]
        eventually(lambda: beat() and active(admin, group) == (("sub-0", 0),))
        absent = described["nobody"]
        assert isinstance(absent, BrokerError)
        assert absent.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    finally:
        raw.close()


def active(admin: barnabas.Admin, group: str) -> object:
    found = admin.describe_streams_groups([group])[group]
    assert isinstance(found, StreamsGroupDescription)
    return found.members[0].target.active


def test_topics_are_created_by_assignment_and_deleted_by_id(admin: barnabas.Admin) -> None:
    name = f"assigned-{uuid.uuid4().hex[:8]}"
    assert admin.create_topics([NewTopic(name, assignments={0: [1], 1: [1]})]) == {name: None}
    eventually(lambda: name in admin.describe_topic_partitions())
    described = admin.describe_topic_partitions([name])[name]
    assert not isinstance(described, Exception)
    assert sorted(described.partitions) == [0, 1]
    assert admin.delete_topics_by_id([described.topic_id]) == {described.topic_id: None}
    eventually(lambda: name not in admin.describe_topic_partitions())
    again = admin.delete_topics_by_id([described.topic_id], raise_errors=False)[described.topic_id]
    assert isinstance(again, BrokerError)
    assert again.error_code == ErrorCode.UNKNOWN_TOPIC_ID
