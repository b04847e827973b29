"""The requests with which the fixtures create topics and users, and what a broker makes of them."""

from __future__ import annotations

import os

import pytest

from barnabas import Admin, ConfigResource, ResourceType
from barnabas.testing import AdminRequestError, BrokerProcess
from barnabas.testing.admin_requests import READ, TOPIC, AdminRequests, Grant


def new_name() -> str:
    return f"topic-{os.urandom(4).hex()}"


def test_topics_have_partitions_and_configs(broker: BrokerProcess) -> None:
    names = [new_name() for _ in range(3)]
    broker.create_topics(names, 2, {"retention.ms": "1000", "cleanup.policy": "compact"})
    with Admin(broker.bootstrap) as admin:
        topics = admin.describe_topics(names)
        assert [len(topics[name].partitions) for name in names] == [2, 2, 2]
        resource = ConfigResource(ResourceType.TOPIC, names[2])
        configs = {each.name: each.value for each in admin.describe_configs([resource])[resource]}
    assert (configs["retention.ms"], configs["cleanup.policy"]) == ("1000", "compact")


@pytest.mark.parametrize(
    ("name", "partitions", "configs", "error"),
    [
        ("no/slash", 1, {}, r"topic no/slash: INVALID_TOPIC_EXCEPTION"),
        ("bad-count", 0, {}, r"topic bad-count: INVALID_PARTITIONS"),
        ("bad-config", 1, {"retention.ms": "soon"}, r"topic bad-config: INVALID_CONFIG: .*soon"),
    ],
)
def test_a_refusal_names_the_topic_and_the_reason(
    broker: BrokerProcess, name: str, partitions: int, configs: dict[str, str], error: str
) -> None:
    with pytest.raises(AdminRequestError, match=error):
        broker.create_topic(name, partitions, configs)


def test_an_existing_topic_is_refused(broker: BrokerProcess) -> None:
    name = new_name()
    broker.create_topic(name)
    with pytest.raises(AdminRequestError, match="TOPIC_ALREADY_EXISTS") as raised:
        broker.create_topic(name)
    assert raised.value.code == 36


def test_a_user_is_known_once_its_password_is_set(broker: BrokerProcess) -> None:
    with AdminRequests(broker.admin_endpoint()) as requests:
        requests.set_password("ann", "ann-secret")
        requests.await_user("ann")
    with Admin(broker.bootstrap) as admin:
        assert list(admin.describe_scram_credentials(["ann"])) == ["ann"]


def test_a_broker_without_authorizer_refuses_rights(broker: BrokerProcess) -> None:
    with (
        AdminRequests(broker.admin_endpoint()) as requests,
        pytest.raises(AdminRequestError, match="rights of ann: SECURITY_DISABLED"),
    ):
        requests.create_acls("ann", [Grant(TOPIC, "orders", READ)])
