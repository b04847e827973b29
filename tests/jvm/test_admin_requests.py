"""The requests of the pytest plugin, on Apache Kafka: their bytes are what Kafka reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas import Admin
from barnabas.testing.admin_requests import (
    READ,
    TOPIC,
    AdminEndpoint,
    AdminRequestError,
    AdminRequests,
    Grant,
)
from jvm.kafka_process import KafkaProcess

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


def test_kafka_creates_the_same_topics_users_and_rights(tmp_path: Path) -> None:
    kafka = KafkaProcess(tmp_path, SETTINGS)
    kafka.start()
    try:
        with AdminRequests(AdminEndpoint(kafka.host, kafka.port)) as requests:
            requests.create_topics(["orders", "events"], 2, 1, {"retention.ms": "1000"})
            with pytest.raises(AdminRequestError, match="TOPIC_ALREADY_EXISTS"):
                requests.create_topics(["orders"])
            requests.create_acls("ann", [Grant(TOPIC, "ord*", READ)])
            requests.set_password("ann", "ann-secret")
            requests.await_user("ann")
        with Admin(kafka.bootstrap) as admin:
            topics = admin.describe_topics(["orders", "events"])
            assert [len(topic.partitions) for topic in topics.values()] == [2, 2]
            [entry] = admin.describe_acls()
            assert (entry.resource_name, entry.principal) == ("ord", "User:ann")
            assert list(admin.describe_scram_credentials()) == ["ann"]
    finally:
        kafka.kill()
