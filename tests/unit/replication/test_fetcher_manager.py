"""The assignment of partitions to fetchers, and the change to a follower."""

from __future__ import annotations

import pytest

from barnabas.metrics import names
from barnabas.metrics.registry import MetricsRegistry
from barnabas.protocol.errors import ErrorCode
from barnabas.replication.fetcher.fetch_states import InitialFetchState
from barnabas.replication.fetcher.leader_endpoint import FetcherKey, fetcher_id
from barnabas.replication.partition.fetch_params import FetchParams, FetchPartitionData
from barnabas.replication.replica_gauges import publish_replica_metrics
from barnabas.sim.disk import DiskFault
from barnabas.storage.files.checkpoint import HIGH_WATERMARKS, OffsetCheckpoint
from barnabas.storage.results import FetchIsolation
from barnabas.storage.topic_partition import TopicIdPartition, TopicPartition
from unit.replication.following_broker import FollowingBroker, data, records
from unit.replication.replicated_cluster import (
    DATA,
    PARTITION,
    TOPIC,
    ReplicatedCluster,
    topic_id_of,
)


@pytest.mark.parametrize(
    ("topic", "partition", "fetchers", "expected"),
    # As java.lang.String.hashCode has it.
    [
        ("test", 0, 4, (3556498 * 31) % 4),
        ("a", 3, 1 << 30, 97 * 31 + 3),
        ("polygenelubricants", 0, 7, 0),
        # Hashes below zero: -1198270554 and -1207109187, of which the absolute value counts.
        ("arrivals", 0, 7, 1198270554 % 7),
        ("orders", 2, 7, 1207109187 % 7),
        ("\u00e9\U0001f600", 1, 1 << 30, None),
    ],
)
def test_a_partition_has_the_same_fetcher_id_as_in_kafka(
    topic, partition, fetchers, expected
) -> None:
    """Fetcher id = hash(topic, partition) mod num.replica.fetchers."""
    if expected is None:
        units = [0xE9, 0xD83D, 0xDE00]
        hashed = 0
        for unit in units:
            hashed = hashed * 31 + unit
        hashed = (hashed * 31 + partition) & 0xFFFF_FFFF
        signed = hashed - (1 << 32) if hashed >> 31 else hashed
        expected = abs(signed) % fetchers
    assert fetcher_id(TopicPartition(topic, partition), fetchers) == expected


def test_a_hundred_partitions_of_one_leader_need_one_fetcher_and_one_request() -> None:
    """One fetcher per (leader, fetcher id) has one request in flight."""
    broker = FollowingBroker(partitions=100)
    assert len(broker.channels.opened) == 1
    assert len(broker.asked()) == 100
    assert broker.leader.client_id == "broker-1-fetcher-0"


def test_partitions_of_two_leaders_have_two_fetchers_and_move_with_the_leadership() -> None:
    """Adds, removes and moves partitions; idle fetchers are closed."""
    broker = FollowingBroker(partitions=2)
    broker.lead(3, broker.key(1))
    assert [key for key, _ in broker.fetchers.fetchers()] == [FetcherKey(2, 0), FetcherKey(3, 0)]
    assert [channel.broker_id for channel in broker.channels.opened] == [2, 3]
    assert list(broker.asked()) == [broker.key(1)]
    broker.lead(3, broker.key(0))
    assert [key for key, _ in broker.fetchers.fetchers()] == [FetcherKey(3, 0)]
    assert broker.channels.opened[0].closed == 1
    broker.lead(1, broker.key(0))
    broker.lead(1, broker.key(1))
    assert len(broker.fetchers) == 0


def test_fetchers_are_resized_while_the_broker_runs() -> None:
    """Partitions continue in the new fetchers at their offsets."""
    broker = FollowingBroker(partitions=8)
    broker.leader.give(
        {broker.key(index): data(records(b"a"), high_watermark=1) for index in range(8)}
    )
    broker.node.manager.followed.resize(3)
    assert {key.fetcher_id for key, _ in broker.fetchers.fetchers()} == {0, 1, 2}
    for index in range(8):
        key = broker.key(index)
        found = [each for each, fetcher in broker.fetchers.fetchers() if fetcher.states.get(key)]
        assert found == [FetcherKey(2, fetcher_id(key, 3))]
        assert broker.state(key).fetch_offset == 1
    broker.node.manager.followed.resize(1)
    assert [key for key, _ in broker.fetchers.fetchers()] == [FetcherKey(2, 0)]
    assert len(broker.fetchers._fetchers[FetcherKey(2, 0)]) == 8


def syncing_follower() -> FollowingBroker:
    """Return a follower whose appended record is being synced for 200 ms."""
    broker = FollowingBroker(log_settings={"flush_messages": 1})
    broker.node.host.runtime.executor.delay_max_ms = 200.0
    broker.leader.give({PARTITION: data(records(b"a"), high_watermark=1)})
    assert broker.state().is_syncing
    return broker


def fetched_offsets(broker: FollowingBroker) -> list[int]:
    """Return the fetch offset of the pending fetch of the newest fetcher, if there is one."""
    channel = broker.leader
    return [] if channel.waiting is None else [broker.asked(channel)[PARTITION].fetch_offset]


def test_a_resize_waits_for_the_sync_of_appended_records() -> None:
    """The next fetch reports that the records before its offset are on disk."""
    broker = syncing_follower()
    broker.node.manager.followed.resize(3)
    assert fetched_offsets(broker) == []
    broker.run_for(250)
    assert fetched_offsets(broker) == [1]
    assert broker.log.recovery_point == 1


def test_the_fetcher_of_a_new_leader_waits_for_the_sync_of_appended_records() -> None:
    broker = syncing_follower()
    leader_epoch = broker.state().current_leader_epoch + 1
    broker.fetchers.remove([PARTITION])
    initial = InitialFetchState(topic_id_of(TOPIC), 3, leader_epoch, 1, is_in_isr=True)
    broker.fetchers.add({PARTITION: initial})
    assert broker.leader.broker_id == 3
    assert fetched_offsets(broker) == []
    broker.run_for(250)
    assert fetched_offsets(broker) == [1]
    assert broker.log.recovery_point == 1


def test_all_fetchers_are_closed_at_shutdown() -> None:
    """No fetcher starts afterwards."""
    broker = FollowingBroker(partitions=2)
    broker.lead(3, broker.key(1))
    broker.node.manager.shutdown()
    assert all(channel.closed == 1 for channel in broker.channels.opened)
    broker.lead(2, broker.key(1))
    assert len(broker.channels.opened) == 2


def test_fetcher_metrics_have_kafkas_names() -> None:
    """Total lag and lag per partition, rates, requests and bytes, failed and dead fetchers."""
    broker = FollowingBroker(partitions=2)
    registry = MetricsRegistry(broker.node.host.clock)
    publish_replica_metrics(broker.node.manager, registry, lambda leader: (f"host-{leader}", 9092))
    first, second = broker.key(0), broker.key(1)
    content = records(b"a")
    broker.leader.give(
        {
            first: data(content, high_watermark=5),
            second: data(error_code=ErrorCode.FENCED_LEADER_EPOCH),
        }
    )
    seen = {
        (family.name, *tags): value
        for family in registry.families()
        for tags, value in family.samples
    }
    replica = ("clientId", "Replica")
    thread = ("clientId", "ReplicaFetcherThread-0-2")
    assert seen[names.MAX_LAG, replica] == 4
    assert seen[names.MIN_FETCH_RATE, replica] == 0.0
    assert seen[names.FAILED_PARTITIONS, replica] == 1
    assert seen[names.DEAD_FETCHERS, replica] == 0
    leader = (("brokerHost", "host-2"), ("brokerPort", "9092"))
    assert seen[names.FETCHER_REQUESTS, thread, *leader] == 2
    assert seen[names.FETCHER_BYTES, thread, *leader] == len(content)
    assert seen[names.CONSUMER_LAG, thread, ("topic", TOPIC), ("partition", "0")] == 4
    assert seen[names.REPLICATION_BYTES_IN,] == len(content)


def test_a_broker_without_followed_partitions_has_no_fetcher() -> None:
    """Its metrics are 0."""
    cluster = ReplicatedCluster(1)
    cluster.make_topic(replicas=(1,))
    assert cluster[1].manager.followed.fetchers is None
    registry = MetricsRegistry(cluster[1].host.clock)
    publish_replica_metrics(cluster[1].manager, registry)
    found = {family.name: list(family.samples) for family in registry.families()}
    assert found[names.MAX_LAG] == [((("clientId", "Replica"),), 0)]


def test_a_leader_becomes_a_follower_in_a_fixed_order() -> None:
    """Refuse appends, stop the fetcher, respond to waiting requests, then fetch from the new leader
    with its epoch, from the log end."""
    broker = FollowingBroker(leader=1, partitions=0)
    broker.cluster.make_topic(replicas=(1, 2))
    produced = broker.node.produce(b"a")
    waiting: list[object] = []
    params = FetchParams(10, -1, -1, 10_000, 1, 1 << 20, FetchIsolation.HIGH_WATERMARK)
    where = TopicIdPartition(topic_id_of(TOPIC), TOPIC, 0)
    broker.node.manager.fetch(params, [(where, FetchPartitionData(0, 1 << 20))], waiting.append)
    assert not produced
    assert not waiting
    order: list[str] = []
    manager = broker.node.manager
    wake = manager.wake

    def waking(key: TopicPartition) -> None:
        order.append("wake")
        assert not broker.node.partition().is_leader
        wake(key)

    manager.wake = waking
    opened = broker.channels.open

    def opening(broker_id: int, client_id: str) -> object:
        order.append("fetch")
        return opened(broker_id, client_id)

    broker.channels.open = opening
    broker.lead(2)
    assert order == ["wake", "fetch"]
    assert produced[0].error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert waiting[0][0][1].error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert broker.node.produce(b"b", acks=1)[0].error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    asked = broker.asked()[PARTITION]
    assert (asked.current_leader_epoch, asked.fetch_offset) == (1, 1)


SLOW_MS = 200.0


def checkpointed(broker: FollowingBroker, key: TopicPartition = PARTITION) -> int | None:
    """Return the high watermark in the checkpoint file; None if the file has no such partition."""
    checkpoint = OffsetCheckpoint(broker.node.host.disk, DATA, HIGH_WATERMARKS)
    return checkpoint.read().get(key)


def slow_disk(broker: FollowingBroker) -> None:
    broker.node.host.runtime.executor.delay_max_ms = SLOW_MS


@pytest.mark.parametrize("was_leader", [False, True])
def test_the_high_watermark_is_checkpointed_before_the_first_fetch(was_leader: bool) -> None:
    """This holds for a follower, and for a leader that did not follow since its start."""
    broker = FollowingBroker(partitions=0)
    broker.cluster.make_topic(replicas=(1, 2) if was_leader else (2, 1), isr=(1,))
    if was_leader:
        broker.node.produce(b"a", acks=1)
        assert broker.node.manager.followed.fetchers is None
    else:
        broker.leader.give({PARTITION: data(records(b"a"), high_watermark=1)})
    assert broker.log.high_watermark == 1
    assert checkpointed(broker) in (None, 0)
    slow_disk(broker)
    seen: list[int | None] = []
    opened = broker.channels.open

    def opening(broker_id: int, client_id: str) -> object:
        seen.append(checkpointed(broker))
        return opened(broker_id, client_id)

    broker.channels.open = opening
    broker.lead(3)
    assert not broker.node.partition().is_leader
    assert broker.node.produce(b"b", acks=1)[0].error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert seen == []
    broker.run_for(2 * SLOW_MS)
    assert seen == [1]
    assert broker.leader.broker_id == 3
    assert list(broker.asked()) == [PARTITION]


def test_the_old_leader_is_not_fetched_during_the_checkpoint() -> None:
    """The fetcher is stopped first."""
    broker = FollowingBroker()
    slow_disk(broker)
    old = broker.leader
    broker.lead(3)
    assert broker.state() is None
    old.give({PARTITION: data(records(b"a"), high_watermark=1)})
    assert broker.log.log_end_offset == 0


def test_a_leadership_that_ends_during_the_checkpoint_is_not_followed() -> None:
    """Only the newest leader epoch is followed."""
    broker = FollowingBroker()
    slow_disk(broker)
    broker.lead(3)
    broker.lead(2)
    assert len(broker.channels.opened) == 1
    broker.run_for(4 * SLOW_MS)
    assert broker.state().current_leader_epoch == 2
    assert [key.leader_id for key, _ in broker.fetchers.fetchers()] == [2]
    broker.lead(3)
    broker.lead(1)
    broker.run_for(4 * SLOW_MS)
    assert len(broker.fetchers) == 0


def test_a_directory_that_fails_at_the_checkpoint_does_not_delay_others() -> None:
    """It goes offline with its partitions."""
    broker = FollowingBroker(partitions=2, node_settings={"directories": [DATA, "/more"]})
    first = broker.node.log(broker.key(0)).directory.startswith("/more/")
    bad, good = broker.key(int(not first)), broker.key(int(first))
    fault = DiskFault(f"/more/{HIGH_WATERMARKS}", ("write",))
    broker.node.host.disk.faults.append(fault)
    broker.cluster.controller.elect(3, bad, unclean=True)
    broker.lead(3, good)
    assert broker.node.failures == ["/more"]
    assert broker.state(bad) is None
    assert broker.state(good).current_leader_epoch == 1
    assert list(broker.asked()) == [good]


def test_a_fetcher_whose_partitions_change_leaders_keeps_its_connection() -> None:
    """It is not idle during the checkpoint."""
    broker = FollowingBroker()
    old = broker.leader
    slow_disk(broker)
    broker.cluster.controller.change(leader=2)
    broker.run_for(4 * SLOW_MS)
    assert broker.state().current_leader_epoch == 1
    assert broker.channels.opened == [old]


def test_a_log_without_epochs_is_fetched_from_its_high_watermark() -> None:
    """The fetch offset is the log end offset, or the high watermark if the log has no epoch."""
    broker = FollowingBroker()
    broker.log.appender.append_as_follower(records(b"a", b"b", epoch=-1))
    broker.log.update_high_watermark(1)
    assert broker.node.partition().initial_fetch_offset == 1
    broker.lead(3)
    # The batch that holds the high watermark goes as a whole.
    assert broker.asked()[PARTITION].fetch_offset == broker.log.log_end_offset == 0


def test_a_partition_without_a_leader_is_not_fetched() -> None:
    """It stops leading or following nevertheless."""
    broker = FollowingBroker()
    broker.cluster.controller.change(leader=-1)
    broker.run_for(5)
    assert len(broker.fetchers) == 0
    assert broker.node.partition().leader_id == -1


def test_a_repeated_leader_epoch_does_not_restart_the_fetcher() -> None:
    broker = FollowingBroker()
    state = broker.state()
    broker.cluster.controller.change(isr=[2])
    broker.run_for(5)
    assert broker.state() is state


def test_a_broker_that_shuts_down_follows_only_partitions_with_it_in_the_isr() -> None:
    broker = FollowingBroker(partitions=2)
    broker.node.manager.followed.begin_shutdown()
    broker.cluster.controller.change(broker.key(0), leader=3, isr=[3])
    broker.cluster.controller.change(broker.key(1), leader=3, isr=[3, 1])
    broker.run_for(5)
    assert broker.state(broker.key(0)) is None
    assert broker.state(broker.key(1)) is not None


def test_a_storage_error_takes_only_its_partition_offline() -> None:
    """The call returns the partitions that became followers."""
    broker = FollowingBroker(partitions=0, node_settings={"directories": [DATA, "/more"]})
    broker.node.host.disk.faults.append(DiskFault(DATA, ("write",)))
    broker.cluster.make_topic(partitions=2, replicas=(2, 1))
    online = [each.topic_partition for each in broker.node.changes.new_followers]
    offline = broker.node.manager.offline_partitions
    assert len(online) == 1
    assert {*online, *offline} == {broker.key(0), broker.key(1)}
    assert list(broker.asked()) == online
