"""Each rule of idle partitions separately, with manual fetches of a follower's session.

With more partitions than one sweep reads, these rules decide a leader's knowledge of its followers.
With few partitions, the sweep (twice a second) hides most of them, so each test runs within one
sweep.
"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.fetch_session_handler import next_epoch
from barnabas.replication.partition.fetch_params import SessionPartition
from barnabas.replication.partition.isr import AlterPartitionResult
from barnabas.replication.partition.results import EpochEndOffset, FetchResult
from barnabas.storage.results import AppendOrigin
from barnabas.storage.topic_partition import TopicPartition
from unit.replication.idle_scene import PARTITIONS, Follower, Scene, at, where
from unit.replication.replica_set import PARTITION, TOPIC, TOPIC_ID, batch


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_each_fetch_of_the_session_updates_the_caught_up_time(scene: Scene) -> None:
    follower = scene.idle_follower()
    scene.run_for(100)
    follower.fetch()
    assert follower.read == []
    replica = scene.replica()
    assert replica.last_fetch_ms == replica.last_caught_up_ms == scene.now_ms


def test_each_fetch_counts_partitions_that_are_not_read(scene: Scene) -> None:
    follower = scene.idle_follower()
    before = scene.replicas.manager.metrics.topics[TOPIC].fetch_requests
    follower.fetch()
    assert scene.replicas.manager.metrics.topics[TOPIC].fetch_requests == before + PARTITIONS


def test_a_fetch_with_a_new_broker_epoch_is_read(scene: Scene) -> None:
    follower = scene.idle_follower()
    follower.epoch += 1
    follower.fetch()
    assert follower.read == [0, 1, 2]
    follower.fetch()
    assert follower.read == []


def test_a_fetch_with_a_replaced_broker_epoch_is_read(scene: Scene) -> None:
    """KIP-903: each partition refuses the fetch, and it does not count."""
    follower = scene.idle_follower()
    brokers = scene.replicas.manager._brokers
    image = scene.replicas.image
    newer = {**image.brokers, 2: replace(image.brokers[2], epoch=200)}
    brokers.image = replace(image, brokers=newer)
    scene.run_for(50)
    follower.fetch()
    assert follower.read == [0, 1, 2]
    assert {each.error for each in follower.answers[-1].values()} == {
        ErrorCode.NOT_LEADER_OR_FOLLOWER
    }
    assert scene.replica().last_fetch_ms < scene.now_ms


def test_a_partition_with_the_follower_outside_the_isr_is_read(scene: Scene) -> None:
    """Otherwise its fetches would not add it to the ISR again."""
    follower = scene.idle_follower()
    scene.replicas.change(isr=[1, 3])
    for _ in range(2):
        follower.fetch()
        assert follower.read == [0]
        _, on_done = scene.replicas.sender.sent.pop()
        on_done(AlterPartitionResult(ErrorCode.INELIGIBLE_REPLICA))


def test_a_partition_whose_high_watermark_the_follower_lacks_is_read(scene: Scene) -> None:
    follower, other = scene.idle_follower(2), scene.idle_follower(3)
    scene.replicas.produce(b"a")
    follower.fetch({0: at(1)})
    assert scene.replicas.log.high_watermark == 0
    other.fetch({0: at(1)})
    assert scene.replicas.log.high_watermark == 1
    follower.fetch()
    assert follower.read == [0]
    assert follower.answers[-1][0].high_watermark == 1


def test_a_partition_on_which_the_follower_lags_is_read(scene: Scene) -> None:
    follower = scene.idle_follower()
    scene.replicas.produce(b"a")
    for _ in range(3):
        follower.fetch()
        assert follower.read == [0]
        assert len(follower.answers[-1][0].records) > 0
    assert PARTITION not in scene.idle_keys()


def test_a_partition_omitted_from_a_full_response_is_read(scene: Scene) -> None:
    """The response limit omits records, and no later change announces them."""
    follower = scene.idle_follower()
    for index in (0, 1):
        key = TopicPartition(TOPIC, index)
        entries = {key: batch(b"x")}
        manager = scene.replicas.manager
        manager.append_records(1_000, 1, entries, AppendOrigin.CLIENT, lambda _: None)
    follower.fetch(max_bytes=1)
    assert [index for index, each in follower.answers[-1].items() if len(each.records)] == [0]
    follower.fetch(max_bytes=1)
    assert 1 in follower.read


def result(**fields: Any) -> FetchResult:
    return FetchResult(ErrorCode.NONE, 5, 5, 0, b"", **fields)


def test_a_session_returns_changes_other_than_offsets() -> None:
    """A diverging epoch, a preferred replica; and all partitions after a diverging epoch."""
    partition = SessionPartition((TOPIC_ID, 0), where(0), at(0))
    partition.note(result())
    assert not partition.has_changes(result())
    assert partition.has_changes(result(preferred_read_replica=2))
    diverging = result(diverging_epoch=EpochEndOffset(0, 3))
    assert partition.has_changes(diverging)
    partition.note(diverging)
    assert partition.has_changes(result()), "the follower looked at nothing but where to cut"


def test_records_that_arrive_during_the_wait_complete_the_fetch(scene: Scene) -> None:
    follower = scene.idle_follower()
    answers = len(follower.answers)
    follower.fetch(max_wait_ms=400)
    assert follower.read == []
    scene.run_for(100)
    assert len(follower.answers) == answers
    scene.replicas.produce(b"a")
    assert len(follower.answers) == answers + 1
    assert len(follower.answers[-1][0].records) > 0


def test_a_changed_partition_notifies_every_session(scene: Scene) -> None:
    followers = scene.idle_follower(2), scene.idle_follower(3)
    scene.replicas.produce(b"a")
    for follower in followers:
        follower.fetch()
        assert follower.read == [0]


def test_a_changed_partition_keeps_the_time_of_the_last_fetch(scene: Scene) -> None:
    """From then on, each fetch is recorded in the partition again, or not at all."""
    follower = scene.idle_follower()
    scene.run_for(100)
    follower.fetch()
    fetched_ms = scene.now_ms
    scene.replicas.produce(b"a")
    replica = scene.replica()
    assert not replica.idle_fetches
    assert (replica.last_fetch_ms, replica.last_caught_up_ms) == (fetched_ms, fetched_ms)
    scene.run_for(100)
    follower.fetch(forgotten=(0,))
    assert replica.last_caught_up_ms == fetched_ms


def test_a_partition_named_in_the_request_is_read(scene: Scene) -> None:
    follower = scene.idle_follower()
    follower.fetch({1: at(0)})
    assert follower.read == [1]


def test_a_request_with_another_leader_epoch_is_answered_without_changes(
    scene: Scene,
) -> None:
    """A follower drops responses of an earlier leader epoch."""
    follower = scene.idle_follower()
    follower.fetch({1: at(0)})
    assert follower.answers[-1] == {}
    follower.fetch({1: at(0, current_leader_epoch=0)})
    assert set(follower.answers[-1]) == {1}


def test_a_forgotten_partition_is_removed_from_the_session(scene: Scene) -> None:
    follower = scene.idle_follower()
    follower.fetch(forgotten=(0,))
    assert PARTITION not in scene.idle_keys()
    assert not scene.replica().idle_fetches
    scene.replicas.produce(b"a")
    follower.fetch()
    assert follower.read == []


def test_a_closed_session_leaves_no_state(scene: Scene) -> None:
    follower = scene.idle_follower()
    follower.session_epoch = -1
    follower.fetch({})
    assert scene.idle_keys() == set()
    assert not scene.replica().idle_fetches
    scene.replicas.produce(b"a")


@pytest.mark.parametrize("leaving", [0, 1], ids=["the first", "the second"])
def test_a_partition_that_leaves_one_session_keeps_the_times_of_the_other(
    scene: Scene, leaving: int
) -> None:
    """A partition moves to another fetcher of the follower: both sessions have it for a time."""
    sessions = [scene.idle_follower(), scene.idle_follower()]
    scene.run_for(100)
    sessions.pop(leaving).fetch(forgotten=(0,))
    (remaining,) = sessions
    scene.run_for(100)
    remaining.fetch()
    assert remaining.read == []
    replica = scene.replica()
    assert (replica.last_fetch_ms, replica.last_caught_up_ms) == (scene.now_ms, scene.now_ms)


def test_a_fetch_in_one_session_keeps_the_times_of_the_other(scene: Scene) -> None:
    first, second = scene.idle_follower(), scene.idle_follower()
    second.fetch({0: at(0)})
    scene.run_for(100)
    first.fetch()
    assert first.read == []
    assert scene.replica().last_caught_up_ms == scene.now_ms


def test_a_closed_session_does_not_affect_another_session(scene: Scene) -> None:
    """A follower may start a session before its last one is removed."""
    first = scene.idle_follower()
    second = scene.idle_follower()
    first.session_epoch = -1
    first.fetch({})
    scene.run_for(100)
    second.fetch()
    assert second.read == []
    assert scene.replica().last_fetch_ms == scene.now_ms


def test_a_log_start_that_moved_during_the_wait_is_in_the_next_response(scene: Scene) -> None:
    """It does not complete the delayed fetch, whose response has the earlier one."""
    for broker_id in (2, 3):
        scene.idle_follower(broker_id)
    follower = Follower(scene.replicas, scene.sessions, 2)
    scene.replicas.produce(b"a")
    for broker_id in (2, 3):
        scene.replicas.follow(broker_id, 1, log_start_offset=0)
    assert scene.replicas.log.high_watermark == 1
    follower.fetch({0: at(1)})
    follower.fetch({0: at(1)}, max_wait_ms=200)
    scene.run_for(100)
    scene.replicas.log.maybe_increment_log_start_offset(1, "retention")
    scene.run_for(150)
    assert 0 not in follower.answers[-1]
    follower.fetch()
    assert follower.answers[-1][0].log_start_offset == 1


def test_session_epochs_wrap_around() -> None:
    assert [next_epoch(each) for each in (0, 1, (1 << 31) - 1)] == [1, 2, 1]
