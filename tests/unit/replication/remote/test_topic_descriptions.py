"""The leader of partition 0 keeps the description of its topic in the store."""

from __future__ import annotations

from barnabas.metadata.configs_image import TOPIC
from barnabas.protocol.records.topics import ConfigRecord
from barnabas.storage.remote.remote_storage import TopicDescription
from unit.replication.remote.tiered_broker import TOPIC_ID, WHERE, TieredBroker


def described(broker: TieredBroker) -> list[TopicDescription]:
    return list(broker.store.objects.list_topics())


def set_config(broker: TieredBroker, key: str, value: str) -> None:
    broker.replay(
        ConfigRecord(resource_type=TOPIC, resource_name=WHERE.topic, name=key, value=value)
    )


def test_a_topic_is_described_with_its_first_copy() -> None:
    broker = TieredBroker()
    set_config(broker, "retention.ms", "1000000")
    broker.sweep()
    assert described(broker) == []
    broker.fill(3)
    broker.wait()
    assert described(broker) == [
        TopicDescription(WHERE.topic, TOPIC_ID, 1, 1, {"retention.ms": "1000000"})
    ]


def test_a_change_is_stored_once_by_the_next_sweep() -> None:
    broker = TieredBroker()
    broker.fill(3)
    broker.wait()
    set_config(broker, "retention.ms", "1000000")
    for _ in range(3):
        broker.sweep()
    (topic,) = described(broker)
    assert topic.configs == {"retention.ms": "1000000"}
    assert broker.store.calls["write_topic"] == 2


def test_a_failed_write_is_repeated() -> None:
    broker = TieredBroker()
    broker.fill(3)
    broker.wait()
    broker.store.faults.unavailable = 1.0
    set_config(broker, "retention.ms", "1000000")
    broker.sweep()
    assert described(broker)[0].configs == {}
    broker.store.faults.unavailable = 0.0
    broker.sweep()
    assert described(broker)[0].configs == {"retention.ms": "1000000"}


def test_a_deleted_topic_loses_its_description() -> None:
    broker = TieredBroker()
    broker.fill(3)
    broker.wait()
    broker.store.faults.unavailable = 1.0
    broker.remove_topic()
    broker.wait()
    assert len(described(broker)) == 1
    broker.store.faults.unavailable = 0.0
    for _ in range(3):
        broker.sweep()
    assert described(broker) == []
    assert broker.segments(None) == []


def test_a_write_in_progress_does_not_outlive_the_deletion() -> None:
    broker = TieredBroker()
    broker.fill(3)
    broker.wait()
    set_config(broker, "retention.ms", "1000000")
    broker.tier.descriptions.check(WHERE)
    broker.remove_topic()
    broker.wait()
    assert described(broker) == []
