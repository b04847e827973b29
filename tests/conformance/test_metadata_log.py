"""Content of the metadata log survives kill -9, through a snapshot and later records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from barnabas.testing.broker_process import BrokerProcess
from waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

WAIT_S = 60.0
BOOTSTRAP_SNAPSHOT = "00000000000000000000-0000000000.checkpoint"


def snapshots(broker: BrokerProcess) -> list[str]:
    found = (broker.data_directory / "__cluster_metadata-0").glob("*.checkpoint")
    return sorted(path.name for path in found if path.name != BOOTSTRAP_SNAPSHOT)


def test_topics_and_configs_are_restored_from_a_snapshot_and_later_records(
    tmp_path: Path,
) -> None:
    # Records of some ten topics are a kilobyte: snapshots are written all the time.
    settings = {"metadata.log.max.record.bytes.between.snapshots": "1000"}
    with BrokerProcess(tmp_path, settings) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        names = [f"topic-{number}" for number in range(60)]
        for name in names:
            new = NewTopic(name, 2, 1, config={"retention.ms": "123456789"})
            admin.create_topics([new])[name].result(WAIT_S)
        admin.delete_topics(["topic-7"])["topic-7"].result(WAIT_S)
        eventually(lambda: snapshots(broker), "no snapshot was written")
        broker.kill()
        broker.start()
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        topics = admin.list_topics(timeout=WAIT_S).topics
        assert set(topics) == set(names) - {"topic-7"}
        assert {len(topic.partitions) for topic in topics.values()} == {2}
        resource = ConfigResource(ResourceType.TOPIC, "topic-59")
        configs = admin.describe_configs([resource])[resource].result(WAIT_S)
        assert configs["retention.ms"].value == "123456789"
