"""`barnabas why` about share groups, with Barnabas and Apache Kafka as brokers (KIP-932)."""

from __future__ import annotations

import json
from typing import Any

import pytest

import barnabas
from barnabas import AcknowledgeType, TopicPartition
from barnabas.client.admin.share_groups import ShareRecordState, ShareState, ShareStateBatch
from barnabas.client.errors import UnknownTopicError
from barnabas.testing.broker_process import BrokerProcess
from conformance.cli_shell import Shell
from conformance.share_groups import ShareGroup, read, share_broker
from jvm.kafka_process import KafkaProcess
from waiting import eventually

pytestmark = pytest.mark.conformance
__all__ = ["share_broker"]

Broker = BrokerProcess | KafkaProcess
ACCEPT, RELEASE = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE


def why(group: ShareGroup) -> dict[str, dict[str, Any]]:
    """Return the reasons by kind."""
    words = ("why", "--group", group.name, "--json", "--seconds", "0.2")
    done = Shell(group.bootstrap).run_in_process(*words)
    found = json.loads(done.stdout)
    assert done.returncode == (0 if found["well"] else 1)
    (explanation,) = found["answers"]
    assert explanation["subject"] == f"group {group.name}"
    return {reason["kind"]: reason for reason in explanation["reasons"]}


def test_deliveries_and_holders_of_records_are_explained(share_broker: Broker) -> None:
    group = ShareGroup(share_broker.bootstrap, share_delivery_count_limit="2")
    group.produce(b"held", b"released", b"accepted")
    with group.consumer(is_explicit=True, client_id="first") as consumer:
        records = read(consumer, 3)
        reason = why(group)["nothing-acknowledged"]
        assert "first at 127.0.0.1 (member " in reason["what"]
        assert "the only member with this partition" in reason["what"]

        consumer.acknowledge(records[1], RELEASE)
        consumer.acknowledge(records[2], ACCEPT)
        consumer.commit_sync()
        found = why(group)
        assert "limit=2): 1 (1 delivery)" in found["last-delivery"]["what"]
        held = found["records-held"]["what"]
        assert "lag of 2 records from the start offset 0 on" in held
        assert "the only member with this partition" in held

        with group.consumer(is_explicit=True, client_id="second") as other:
            (again,) = read(other, 1)
            assert (again.value, again.delivery_count) == (b"released", 2)
            held = why(group)["records-held"]["what"]
            assert "one of the 2 members with this partition" in held
            assert "first at 127.0.0.1" in held
            assert "second at 127.0.0.1" in held
            other.acknowledge(again, RELEASE)
            other.commit_sync()
        found = why(group)
        assert "limit=2): 1 (2 deliveries)" in found["records-given-up"]["what"]
        assert "lag of 1 record" in found["records-held"]["what"]
    # A closed consumer releases its records.
    found = why(group)
    assert "lag of 1 record" in found["no-members"]["what"]
    assert "limit=2): 0 (1 delivery)" in found["last-delivery"]["what"]
    with group.consumer() as consumer:
        read(consumer, 1)
        consumer.commit_sync()
        # The stored start offset does not follow the last acknowledgement.
        assert set(why(group)) == {"records-given-up", "nothing-to-read"}


def test_a_full_partition_a_missing_topic_and_a_missing_group_are_reported(
    share_broker: Broker,
) -> None:
    group = ShareGroup(share_broker.bootstrap, share_partition_max_record_locks="100")
    assert set(why(group)) == {"no-such-group"}
    group.produce(*(b"%d" % number for number in range(110)))
    with group.consumer(is_explicit=True) as consumer:
        consumer.subscribe([group.topic, f"{group.topic}-missing"])
        finished = 0

        def finish_all_but_one() -> bool:
            nonlocal finished
            for record in consumer.poll(0.1):
                if record.offset:
                    consumer.acknowledge(record, ACCEPT)
                    finished += 1
            consumer.commit_sync()
            return finished >= 99

        eventually(finish_all_but_one)
        found = why(group)
        assert set(found) == {"topic-missing", "in-flight-full", "records-held"}
        assert "from the start offset 0 to 99; the limit is 100" in found["in-flight-full"]["what"]
        assert f"{group.topic}-missing" in found["topic-missing"]["what"]


def test_the_admin_client_reads_the_states_of_records(share_broker: Broker) -> None:
    group = ShareGroup(share_broker.bootstrap)
    group.produce(b"release", b"accept", b"reject")
    zero, missing = TopicPartition(group.topic, 0), TopicPartition("missing", 0)
    with (
        group.consumer(is_explicit=True) as consumer,
        barnabas.Admin(share_broker.bootstrap) as admin,
    ):
        records = read(consumer, 3)
        for record in records:
            consumer.acknowledge(record, AcknowledgeType[record.value.decode().upper()])
        consumer.commit_sync()
        found = admin.describe_share_group_states(group.name, [zero, missing])
        assert found[zero] == ShareState(
            0,
            2,
            (
                ShareStateBatch(0, 0, ShareRecordState.AVAILABLE, 1),
                ShareStateBatch(1, 1, ShareRecordState.ACKNOWLEDGED, 1),
                ShareStateBatch(2, 2, ShareRecordState.ARCHIVED, 1),
            ),
        )
        assert isinstance(found[missing], UnknownTopicError)
