"""The remote segments of deleted topics are deleted, also after failures and restarts."""

from __future__ import annotations

from barnabas.storage.remote.config import RemoteLogConfig
from barnabas.storage.topic_partition import TopicIdPartition
from unit.replication.remote.tiered_broker import WHERE, TieredBroker

GONE = TopicIdPartition(b"topic-of-the-old", "old", 3)


def test_the_leader_deletes_all_segments_and_then_forgets_the_partition() -> None:
    broker = TieredBroker()
    broker.fill(5)
    broker.wait()
    broker.remove_topic()
    assert WHERE in broker.metadata.assigned
    broker.wait()
    assert broker.segments(None) == []
    assert broker.store.names() == []
    assert WHERE not in broker.metadata.assigned


def test_a_copy_in_progress_leaves_nothing() -> None:
    broker = TieredBroker()
    broker.fill(3)
    assert broker.world.run_until(lambda: bool(broker.metadata.states))
    broker.remove_topic()
    broker.sweep()
    assert broker.segments(None) == []
    assert broker.store.names() == []


def test_a_follower_only_forgets_the_partition() -> None:
    broker = TieredBroker(replicas=(1, 2))
    broker.fill(3)
    broker.follow(2, 3)
    broker.wait()
    broker.resign()
    broker.remove_topic()
    broker.wait()
    assert broker.segments() == [(0, 0), (1, 1)]
    assert WHERE not in broker.metadata.assigned


def test_deletions_that_fail_are_repeated_until_all_are_gone() -> None:
    broker = TieredBroker()
    broker.fill(5)
    broker.wait()
    broker.store.faults.unavailable = 0.7
    broker.remove_topic()
    for _ in range(20):
        broker.sweep()
    broker.store.faults.unavailable = 0.0
    broker.sweep()
    assert broker.segments(None) == []
    assert len(broker.tier.deleted_topics) == 0


def test_a_topic_that_is_created_again_keeps_its_own_segments() -> None:
    broker = TieredBroker()
    broker.fill(3)
    broker.wait()
    broker.remove_topic()
    broker.create_topic(b"another-topic-id")
    broker.fill(2)
    broker.wait()
    again = TopicIdPartition(b"another-topic-id", *WHERE.topic_partition)
    assert broker.segments(None) == []
    kept = broker.metadata.events_of(again).segments()
    assert [each.start_offset for each in kept] == [0]


def test_a_deleted_topic_leaves_the_metrics() -> None:
    broker = TieredBroker()
    broker.fill(3)
    broker.wait()
    broker.remove_topic()
    broker.wait()
    assert "flights" not in broker.metrics.topics
    assert broker.metrics.all_topics().copy_requests == 2
    assert broker.metrics.partitions == {}


def test_segments_of_topics_that_were_deleted_before_are_found() -> None:
    config = RemoteLogConfig(barnabas_remote_orphan_age_ms=120_000)
    broker = TieredBroker(config=config)
    segment = broker.foreign_segment(
        0, 9, topic=GONE.topic, topic_id=GONE.topic_id, partition=GONE.partition
    )
    broker.metadata.add(GONE, segment)
    broker.metadata.left_over = [GONE]
    broker.tier.deleted_topics.search_later(0)
    broker.wait(100_000)
    # The topic may be newer than the metadata of this broker, so the events have to be old.
    assert broker.metadata.events_of(GONE).count == 1
    broker.wait(200_000)
    assert broker.metadata.events_of(GONE).count == 0
    assert GONE not in broker.metadata.assigned


def test_found_segments_of_a_topic_that_exists_stay() -> None:
    broker = TieredBroker()
    broker.fill(3)
    broker.wait()
    broker.tier.deleted_topics._on_found([TopicIdPartition(*WHERE)])
    broker.wait(10_000)
    assert broker.segments() == [(0, 0), (1, 1)]
