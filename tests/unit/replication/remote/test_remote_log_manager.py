"""Roles, failures and the sweep of tiered partitions."""

from __future__ import annotations

import pytest

from barnabas.protocol.records.topics import PartitionRecord, TopicRecord
from barnabas.storage.topic_partition import TopicPartition
from unit.replication.remote.tiered_broker import LEADER, PARTITION, WHERE, TieredBroker


def test_replicas_that_are_not_tiered_have_no_metadata() -> None:
    broker = TieredBroker(is_remote=False)
    assert broker.metadata.assigned == set()


@pytest.mark.parametrize("is_leader", [False, True])
def test_each_replica_of_a_tiered_partition_reads_its_metadata(is_leader: bool) -> None:
    broker = TieredBroker(replicas=(1, 2))
    if not is_leader:
        broker.resign()
    assert broker.metadata.assigned == {WHERE}


def test_a_failed_directory_ends_all_tasks() -> None:
    broker = TieredBroker()
    broker.fill(2)
    broker.wait()
    broker.manager.on_directory_failed("/data")
    broker.wait()
    assert list(broker.tier.waiting_segments()) == []
    assert broker.metadata.assigned == set()
    assert broker.segments() == [(0, 0)]


def partitions_of(name: str, topic_id: bytes, count: int) -> list[object]:
    """Return the records of a topic whose partitions broker 1 leads."""
    return [
        TopicRecord(name=name, topic_id=topic_id),
        *(
            PartitionRecord(
                partition_id=partition,
                topic_id=topic_id,
                replicas=[LEADER],
                isr=[LEADER],
                removing_replicas=[],
                adding_replicas=[],
                leader=LEADER,
                leader_epoch=0,
                partition_epoch=0,
                directories=[],
            )
            for partition in range(count)
        ),
    ]


def test_a_failing_partition_does_not_stop_the_sweep(caplog) -> None:
    broker = TieredBroker()
    broker.fill(3)
    broker.wait()
    broker.configure(retention_bytes=0)
    broker.replay(*partitions_of("failing", b"a-failing-topic!", 1))
    replicas = broker.tier._replicas
    failing = TopicPartition("failing", 0)
    replicas[failing].verification = None
    # The failing partition comes first.
    broker.tier._replicas = {failing: replicas[failing], PARTITION: replicas[PARTITION]}
    broker.sweep()
    assert "Unexpected error in the remote tier" in caplog.text
    assert broker.segments(None) == []


def test_a_sweep_stops_after_each_partition() -> None:
    """So a sweep of many partitions runs in short turns."""
    broker = TieredBroker()
    broker.replay(*partitions_of("many", b"many-partitions!", 300))
    assert sum(1 for _ in broker.tier._sweep_steps()) >= 301


def test_the_pools_are_closed_once_and_then_the_caller_is_told() -> None:
    broker = TieredBroker()
    broker.fill(3)
    assert broker.world.run_until(lambda: bool(broker.metadata.states))
    closed: list[bool] = []
    broker.tier.close(lambda: closed.append(True))
    broker.wait(10_000)
    assert closed == [True]
    assert broker.segments() == []
