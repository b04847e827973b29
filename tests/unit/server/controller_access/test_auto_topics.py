"""Clients that name many missing topics neither hold the broker nor fill its log."""

from __future__ import annotations

import pytest

from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.server.controller_access import auto_topics
from barnabas.storage.remote_keys import REMOTE_LOG_TOPIC
from unit.server.simulated_broker import SimulatedBroker


def ask_for(broker: SimulatedBroker, names: list[str]) -> None:
    topics = [MetadataRequestTopic(name=each) for each in names]
    broker.ask(MetadataRequest(topics=topics, allow_auto_topic_creation=True), 9)
    broker.world.run_for(1_000)


def test_only_some_failed_topics_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    broker = SimulatedBroker()
    count = auto_topics._LOGGED_MAX + 5
    for number in range(count):
        broker.make_topic(f"name_{number}")
    ask_for(broker, [f"name.{number}" for number in range(count)])
    lines = [each.getMessage() for each in caplog.records if each.name == auto_topics.__name__]
    assert len(lines) == auto_topics._LOGGED_MAX + 1
    assert "topic=name.0 error=INVALID_TOPIC_EXCEPTION" in lines[0]
    assert "further_topics=5" in lines[-1]


def test_more_topics_than_the_controller_creates_at_once_are_not_sent(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auto_topics, "_TOPICS_MAX", 2)
    broker = SimulatedBroker()
    ask_for(broker, ["a", "b", "c"])
    assert "topics=3 limit=2" in caplog.text
    assert broker.metadata("a").topics[0].partitions == []
    ask_for(broker, ["a", "b"])
    assert len(broker.metadata("a").topics[0].partitions) == 1


def test_clients_do_not_create_the_topic_for_the_metadata_of_remote_segments() -> None:
    names = [REMOTE_LOG_TOPIC, "a"]
    broker = SimulatedBroker(
        remote_log_storage_system_enable="true", barnabas_remote_storage="file:///store"
    )
    ask_for(broker, names)
    cluster = broker.node.shared.cluster
    assert [cluster.partition_count(each) for each in names] == [0, 1]
    # Without a remote tier, it is a topic like any other.
    broker = SimulatedBroker()
    ask_for(broker, names)
    cluster = broker.node.shared.cluster
    assert [cluster.partition_count(each) for each in names] == [1, 1]
