"""Partitions whose replica is not in the ISR have a fetcher of their own."""

from __future__ import annotations

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.replication.fetcher.fetch_states import FetchStates
from barnabas.replication.fetcher.leader_endpoint import FetcherKey
from barnabas.storage.topic_partition import TopicPartition
from barnabas.waiting import steps
from unit.replication.following_broker import FollowingBroker, ScriptedChannel, data, records
from unit.replication.many_partitions import COUNT, many
from unit.replication.replicated_cluster import TOPIC, ReplicatedCluster

IN_SYNC = FetcherKey(2, 0)
CATCH_UP = FetcherKey(2, 1)
WAIT_MS = 500


class Follower(FollowingBroker):
    """Follows two partitions of broker 2. Its replica of the first one leaves the ISR."""

    def __init__(self, **settings: object) -> None:
        super().__init__(partitions=2, **settings)
        self.lagging, self.in_sync = self.key(0), self.key(1)
        self.answer_in_sync()
        self.leave_isr()
        self.in_sync_channel, self.catch_up_channel = self.channels.opened[0], self.leader

    def leave_isr(self) -> None:
        """Apply metadata, and let the fetcher of both partitions send its next request."""
        self.change_isr(2)
        self.answer_in_sync()

    def change_isr(self, *isr: int) -> None:
        self.cluster.controller.change(self.lagging, isr=list(isr))
        self.run_for(5)

    def answer_in_sync(self) -> None:
        """Answer the pending fetch of the fetcher that was opened first, without records."""
        channel = self.channels.opened[0]
        is_full = channel.waiting.session_epoch == 0
        channel.give({self.key(each): data() for each in range(2)} if is_full else {})

    def answer_catch_up(self, *values: bytes, **fields: int) -> None:
        offset = self.node.log(self.lagging).log_end_offset
        content = records(*values, offset=offset) if values else b""
        is_full = self.catch_up_channel.waiting.session_epoch == 0
        given = {self.lagging: data(content, **fields)} if values or is_full else {}
        self.catch_up_channel.give(given)

    def fetchers_of(self, key: object) -> list[FetcherKey]:
        return [each for each, fetcher in self.fetchers.fetchers() if fetcher.states.get(key)]

    def forgotten(self, channel: ScriptedChannel) -> list[int]:
        return [
            index for topic in channel.waiting.forgotten_topics_data for index in topic.partitions
        ]


def test_a_replica_outside_the_isr_is_fetched_over_another_connection() -> None:
    broker = FollowingBroker(partitions=0)
    broker.cluster.make_topic(replicas=(2, 1), isr=(2,))
    assert [key for key, _ in broker.fetchers.fetchers()] == [CATCH_UP]
    broker.cluster.make_topic("other", replicas=(2, 1))
    assert [key for key, _ in broker.fetchers.fetchers()] == [CATCH_UP, IN_SYNC]
    assert [each.client_id for each in broker.channels.opened] == [
        "broker-1-fetcher-1",
        "broker-1-fetcher-0",
    ]


def test_a_fetch_of_a_replica_in_the_isr_does_not_wait_for_records_of_other_replicas(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Each step ends a slice: the large response is appended over several turns.
    monkeypatch.setattr(steps, "SLICE_MS", -1.0)
    broker = Follower()
    broker.catch_up_channel.give({broker.lagging: data(memoryview(many()), high_watermark=COUNT)})
    broker.in_sync_channel.give({broker.in_sync: data(records(b"a"), high_watermark=1)})
    assert broker.cluster.until(lambda: broker.in_sync_channel.waiting is not None)
    assert broker.asked(broker.in_sync_channel)[broker.in_sync].fetch_offset == 1
    assert broker.node.log(broker.lagging).log_end_offset < COUNT
    broker.run_for(50)
    assert broker.node.log(broker.lagging).log_end_offset == COUNT


def test_a_catch_up_fetcher_pauses_after_a_large_response() -> None:
    broker = Follower()
    broker.answer_catch_up(b"small")
    assert broker.catch_up_channel.waiting is not None
    large = records(bytes(300_000), offset=1)
    broker.catch_up_channel.give({broker.lagging: data(large)})
    assert broker.node.log(broker.lagging).log_end_offset == 2
    assert broker.catch_up_channel.waiting is None
    assert broker.cluster.until(lambda: broker.catch_up_channel.waiting is not None)
    assert broker.asked(broker.catch_up_channel)[broker.lagging].fetch_offset == 2


def test_a_fetcher_of_replicas_in_the_isr_does_not_pause() -> None:
    broker = Follower()
    broker.in_sync_channel.give({broker.in_sync: data(records(bytes(300_000)))})
    assert broker.asked(broker.in_sync_channel)[broker.in_sync].fetch_offset == 1


def test_a_replica_that_leaves_the_isr_continues_in_the_other_fetcher() -> None:
    broker = Follower()
    assert broker.fetchers_of(broker.lagging) == [CATCH_UP]
    assert broker.fetchers_of(broker.in_sync) == [IN_SYNC]
    assert broker.forgotten(broker.in_sync_channel) == [0]
    assert list(broker.asked(broker.catch_up_channel)) == [broker.lagging]


def test_a_replica_that_enters_the_isr_is_fetched_until_its_new_fetcher_can_include_it() -> None:
    broker = Follower()
    broker.answer_catch_up(b"a", high_watermark=2)
    broker.change_isr(2, 1)
    # The other fetcher has a fetch that may wait for long.
    assert broker.in_sync_channel.waiting.max_wait_ms == WAIT_MS
    broker.answer_catch_up(b"b", high_watermark=2)
    assert broker.asked(broker.catch_up_channel)[broker.lagging].fetch_offset == 2
    broker.answer_in_sync()
    # Its next one waits briefly, so that the partition is soon fetched there.
    assert broker.in_sync_channel.waiting.max_wait_ms < WAIT_MS
    assert broker.fetchers_of(broker.lagging) == [CATCH_UP]
    broker.answer_catch_up(b"c", high_watermark=3)
    assert broker.fetchers_of(broker.lagging) == [IN_SYNC]
    assert broker.forgotten(broker.catch_up_channel) == [0]
    broker.answer_in_sync()
    asked = broker.asked(broker.in_sync_channel)[broker.lagging]
    assert asked.fetch_offset == 3
    assert broker.in_sync_channel.waiting.max_wait_ms == WAIT_MS
    assert broker.state(broker.lagging).lag == 0


def test_no_fetch_is_abandoned_for_a_replica_that_changes_its_fetcher() -> None:
    broker = Follower()
    broker.change_isr(2, 1)
    broker.answer_in_sync()
    broker.answer_catch_up()
    broker.run_for(100)
    assert [each.closed for each in broker.channels.opened] == [0, 0]


def test_a_catch_up_fetcher_without_partitions_ends_its_session_and_closes() -> None:
    broker = Follower()
    broker.change_isr(2, 1)
    broker.answer_in_sync()
    broker.answer_catch_up()
    assert broker.catch_up_channel.waiting.session_epoch > 0
    assert broker.forgotten(broker.catch_up_channel) == [0]
    assert broker.catch_up_channel.closed == 0
    broker.catch_up_channel.give({}, session_id=0)
    assert broker.catch_up_channel.closed == 1
    assert [key for key, _ in broker.fetchers.fetchers()] == [IN_SYNC]


def test_a_replica_that_leaves_the_isr_again_before_its_move_stays() -> None:
    broker = Follower()
    broker.change_isr(2, 1)
    broker.change_isr(2)
    broker.answer_in_sync()
    broker.answer_catch_up()
    assert broker.fetchers_of(broker.lagging) == [CATCH_UP]
    assert broker.in_sync_channel.waiting.max_wait_ms == WAIT_MS


def test_a_move_ends_with_the_leader_epoch() -> None:
    broker = Follower()
    broker.change_isr(2, 1)
    broker.cluster.controller.change(broker.lagging, leader=2, isr=[2])
    broker.run_for(5)
    broker.answer_in_sync()
    assert broker.fetchers_of(broker.lagging) == [CATCH_UP]
    assert broker.state(broker.lagging).current_leader_epoch == 1
    assert broker.in_sync_channel.waiting.max_wait_ms == WAIT_MS


def test_a_failed_partition_does_not_move() -> None:
    broker = Follower()
    broker.change_isr(2, 1)
    broker.catch_up_channel.give({broker.lagging: data(error_code=ErrorCode.FENCED_LEADER_EPOCH)})
    broker.answer_in_sync()
    assert broker.fetchers_of(broker.lagging) == []
    assert broker.fetchers.failed == [broker.lagging]
    assert broker.in_sync_channel.waiting.max_wait_ms == WAIT_MS


def test_a_partition_moves_after_the_sync_of_its_records() -> None:
    broker = Follower(log_settings={"flush_messages": 1})
    broker.node.host.runtime.executor.delay_max_ms = 200.0
    broker.change_isr(2, 1)
    broker.answer_in_sync()
    broker.answer_catch_up(b"a", high_watermark=1)
    assert broker.state(broker.lagging).is_syncing
    broker.answer_in_sync()
    assert broker.fetchers_of(broker.lagging) == [CATCH_UP]
    broker.run_for(250)
    assert broker.fetchers_of(broker.lagging) == [IN_SYNC]


def test_a_dead_catch_up_fetcher_does_not_shorten_the_fetches_of_the_other_fetcher(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = Follower()
    broker.change_isr(2, 1)
    with monkeypatch.context() as broken:
        broken.setattr(FetchStates, "are_ready", property(lambda _: 1 / 0))
        broker.answer_catch_up()
    assert broker.fetchers.dead_count == 1
    broker.answer_in_sync()
    assert broker.in_sync_channel.waiting.max_wait_ms == WAIT_MS
    # A new leader epoch starts a new fetcher.
    broker.cluster.controller.change(broker.lagging, leader=2, isr=[2])
    broker.run_for(5)
    assert broker.fetchers.dead_count == 0
    assert broker.fetchers_of(broker.lagging) == [CATCH_UP]


def test_replicas_outside_the_isr_keep_one_fetcher_when_the_fetchers_are_resized() -> None:
    broker = Follower()
    broker.node.manager.followed.resize(3)
    assert broker.fetchers_of(broker.lagging) == [FetcherKey(2, 3)]
    broker.node.manager.followed.resize(1)
    assert broker.fetchers_of(broker.lagging) == [CATCH_UP]
    assert broker.fetchers_of(broker.in_sync) == [IN_SYNC]
    assert len(broker.fetchers) == 2


def test_a_restarted_follower_catches_up_and_then_has_one_fetcher() -> None:
    """All partitions leave the catch-up fetcher when they are in the ISR again."""
    cluster = ReplicatedCluster()
    cluster.make_topic(partitions=20)
    keys = [TopicPartition(TOPIC, index) for index in range(20)]
    cluster.kill(3)
    for key in keys:
        cluster.produce(b"a", key=key)
    cluster.restart(3)
    assert cluster.until(lambda: all(map(cluster.in_sync, keys)))
    fetchers = cluster[3].manager.followed.fetchers
    assert cluster.until(lambda: [key for key, _ in fetchers.fetchers()] == [FetcherKey(1, 0)])
    assert cluster.produce(b"more", key=keys[7]).error is ErrorCode.NONE
    # One session of each follower, and one of the killed process.
    assert len(cluster[1].sessions) == 3
