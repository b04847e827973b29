"""Each rule of idle partitions alone: a follower's fetches of a session, made by hand.

With more partitions than a sweep looks at these rules decide what a leader knows of its followers;
with few, the sweep of twice a second hides most of them. So all happens within one sweep here.
"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.fetch_metadata import next_epoch
from barnabas.protocol.records.partition_record import PartitionRecord
from barnabas.replication.partition.alter_partition import AlterPartitionResult
from barnabas.replication.partition.fetch_params import FetchParams, FetchPartitionData
from barnabas.replication.partition.results import EpochEndOffset, FetchResult
from barnabas.replication.requests.fetch_session_cache import FetchSessionCache, SessionRequest
from barnabas.replication.requests.session_partition import SessionPartition
from barnabas.storage.append_info import AppendOrigin
from barnabas.storage.read_result import FetchIsolation
from barnabas.storage.topic_partition import TopicIdPartition, TopicPartition
from unit.replication.replica_set import (
    LEADER,
    PARTITION,
    TOPIC,
    TOPIC_ID,
    ReplicaSet,
    batch,
)

PARTITIONS = 3


def where(index: int) -> TopicIdPartition:
    return TopicIdPartition(TOPIC_ID, TOPIC, index)


class Follower:
    """A broker that fetches in one session, from the log end of all partitions at first."""

    def __init__(self, replicas: ReplicaSet, sessions: FetchSessionCache, broker_id: int) -> None:
        self._replicas = replicas
        self._sessions = sessions
        self.id = broker_id
        self.epoch = 100 + broker_id
        self.session_id = 0
        self.session_epoch = 0
        # Of the last fetch: what was read, and the partitions of each answer that came.
        self.read: list[int] = []
        self.answers: list[dict[int, Any]] = []

    def fetch(
        self,
        asked: dict[int, FetchPartitionData] | None = None,
        forgotten: tuple[int, ...] = (),
        max_wait_ms: int = 0,
        max_bytes: int = 1 << 20,
    ) -> None:
        """Send the next request of the session; the first one asks for all partitions."""
        if asked is None:
            asked = {} if self.session_epoch else {each: at(0) for each in range(PARTITIONS)}
        request = SessionRequest(
            self.session_id,
            self.session_epoch,
            [(where(index), data) for index, data in asked.items()],
            [where(index) for index in forgotten],
            is_from_follower=True,
            uses_topic_ids=True,
            replica_id=self.id,
            replica_epoch=self.epoch,
        )
        context = self._sessions.open(request, lambda _: TOPIC)
        assert context.error is ErrorCode.NONE
        readable = context.partitions()
        self.read = [each.partition for each, _ in readable]
        params = FetchParams(
            17, self.id, self.epoch, max_wait_ms, 1, max_bytes, FetchIsolation.LOG_END
        )

        def answered(results: list[Any]) -> None:
            news = context.answer(results)
            self.session_id = context.session_id
            self.answers.append({each.partition: result for each, result in news})

        self.session_epoch = next_epoch(self.session_epoch)
        self._replicas.manager.fetch(params, readable, answered, context.idle)


def at(offset: int, **fields: int) -> FetchPartitionData:
    return FetchPartitionData(offset, 1 << 20, log_start_offset=0, **fields)


class Scene:
    """A leader of three empty partitions, and followers whose sessions are hushed."""

    def __init__(self) -> None:
        self.replicas = ReplicaSet((1, 2, 3))
        self.replicas.replay(
            *(
                PartitionRecord(
                    partition_id=index,
                    topic_id=TOPIC_ID,
                    replicas=[1, 2, 3],
                    isr=[1, 2, 3],
                    removing_replicas=[],
                    adding_replicas=[],
                    leader=LEADER,
                    leader_epoch=0,
                    partition_epoch=0,
                    directories=[],
                )
                for index in range(1, PARTITIONS)
            )
        )
        runtime = self.replicas.runtime
        self.idle = self.replicas.manager.idle_partitions
        self.sessions = FetchSessionCache(10, 120_000, runtime.clock, runtime.rng, self.idle)

    def hushed(self, broker_id: int = 2) -> Follower:
        """A follower of whose partitions there is nothing to be said, just behind a sweep."""
        follower = Follower(self.replicas, self.sessions, broker_id)
        follower.fetch()
        follower.fetch()
        assert follower.read == [0, 1, 2], "the first sweep"
        follower.fetch()
        assert follower.read == []
        return follower

    def run_for(self, duration_ms: float) -> None:
        self.replicas.world.run_for(duration_ms)

    @property
    def now_ms(self) -> float:
        return self.replicas.runtime.clock.monotonic_ms()

    def replica(self, broker_id: int = 2) -> Any:
        return self.replicas.partition.leader.remote_replicas[broker_id]

    def idle_keys(self) -> set[TopicPartition]:
        return set(self.idle.sessions)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_each_fetch_of_the_session_tells_that_the_follower_is_caught_up(scene: Scene) -> None:
    follower = scene.hushed()
    scene.run_for(100)
    follower.fetch()
    assert follower.read == []
    replica = scene.replica()
    assert replica.last_fetch_ms == replica.last_caught_up_ms == scene.now_ms


def test_each_fetch_counts_the_partitions_that_are_not_read(scene: Scene) -> None:
    follower = scene.hushed()
    before = scene.replicas.manager.metrics.topics[TOPIC].fetch_requests
    follower.fetch()
    assert scene.replicas.manager.metrics.topics[TOPIC].fetch_requests == before + PARTITIONS


def test_another_epoch_of_the_broker_is_looked_at_once(scene: Scene) -> None:
    follower = scene.hushed()
    follower.epoch += 1
    follower.fetch()
    assert follower.read == [0, 1, 2]
    follower.fetch()
    assert follower.read == []


def test_an_epoch_that_a_newer_registration_has_replaced_is_looked_at(scene: Scene) -> None:
    """KIP-903: each partition refuses it, and its fetches do not count."""
    follower = scene.hushed()
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


def test_who_is_out_of_the_isr_is_looked_at(scene: Scene) -> None:
    """Else its fetches would not bring it back."""
    follower = scene.hushed()
    scene.replicas.change(isr=[1, 3])
    for _ in range(2):
        follower.fetch()
        assert follower.read == [0]
        _, on_done = scene.replicas.sender.sent.pop()
        on_done(AlterPartitionResult(ErrorCode.INELIGIBLE_REPLICA))


def test_who_does_not_know_the_high_watermark_is_looked_at(scene: Scene) -> None:
    follower, other = scene.hushed(2), scene.hushed(3)
    scene.replicas.produce(b"a")
    follower.fetch({0: at(1)})
    assert scene.replicas.log.high_watermark == 0
    other.fetch({0: at(1)})
    assert scene.replicas.log.high_watermark == 1
    follower.fetch()
    assert follower.read == [0]
    assert follower.answers[-1][0].high_watermark == 1


def test_who_is_behind_is_looked_at(scene: Scene) -> None:
    follower = scene.hushed()
    scene.replicas.produce(b"a")
    for _ in range(3):
        follower.fetch()
        assert follower.read == [0]
        assert len(follower.answers[-1][0].records) > 0
    assert PARTITION not in scene.idle_keys()


def test_who_gets_nothing_because_the_answer_is_full_is_looked_at(scene: Scene) -> None:
    """The limit of the answer leaves records out, of which no change will tell."""
    follower = scene.hushed()
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


def test_what_a_session_answers_though_no_offset_has_changed() -> None:
    """A diverging epoch, another replica to read from; and all again behind a diverging epoch."""
    partition = SessionPartition((TOPIC_ID, 0), where(0), at(0))
    partition.note(result())
    assert not partition.has_news(result())
    assert partition.has_news(result(preferred_read_replica=2))
    diverging = result(diverging_epoch=EpochEndOffset(0, 3))
    assert partition.has_news(diverging)
    partition.note(diverging)
    assert partition.has_news(result()), "the follower looked at nothing but where to cut"


def test_records_that_come_while_the_fetch_waits_are_answered_at_once(scene: Scene) -> None:
    follower = scene.hushed()
    answers = len(follower.answers)
    follower.fetch(max_wait_ms=400)
    assert follower.read == []
    scene.run_for(100)
    assert len(follower.answers) == answers
    scene.replicas.produce(b"a")
    assert len(follower.answers) == answers + 1
    assert len(follower.answers[-1][0].records) > 0


def test_a_partition_that_changes_tells_every_session(scene: Scene) -> None:
    followers = scene.hushed(2), scene.hushed(3)
    scene.replicas.produce(b"a")
    for follower in followers:
        follower.fetch()
        assert follower.read == [0]


def test_a_partition_that_changes_keeps_the_time_of_the_last_fetch(scene: Scene) -> None:
    """From then on each fetch is noted at the partition again, or not at all."""
    follower = scene.hushed()
    scene.run_for(100)
    follower.fetch()
    fetched_ms = scene.now_ms
    scene.replicas.produce(b"a")
    replica = scene.replica()
    assert replica.idle_fetches is None
    assert (replica.last_fetch_ms, replica.last_caught_up_ms) == (fetched_ms, fetched_ms)
    scene.run_for(100)
    follower.fetch(forgotten=(0,))
    assert replica.last_caught_up_ms == fetched_ms


def test_a_partition_that_the_request_names_is_looked_at(scene: Scene) -> None:
    follower = scene.hushed()
    follower.fetch({1: at(0)})
    assert follower.read == [1]


def test_another_leader_epoch_in_the_request_is_answered_though_nothing_has_changed(
    scene: Scene,
) -> None:
    """A follower drops what it was answered in an earlier leader epoch."""
    follower = scene.hushed()
    follower.fetch({1: at(0)})
    assert follower.answers[-1] == {}
    follower.fetch({1: at(0, current_leader_epoch=0)})
    assert set(follower.answers[-1]) == {1}


def test_a_forgotten_partition_is_out_of_the_session(scene: Scene) -> None:
    follower = scene.hushed()
    follower.fetch(forgotten=(0,))
    assert PARTITION not in scene.idle_keys()
    assert scene.replica().idle_fetches is None
    scene.replicas.produce(b"a")
    follower.fetch()
    assert follower.read == []


def test_a_session_that_ends_leaves_nothing_behind(scene: Scene) -> None:
    follower = scene.hushed()
    follower.session_epoch = -1
    follower.fetch({})
    assert scene.idle_keys() == set()
    assert scene.replica().idle_fetches is None
    scene.replicas.produce(b"a")


def test_a_session_that_ends_does_not_end_what_another_one_tells(scene: Scene) -> None:
    """A follower may begin a session before its last one is given up."""
    first = scene.hushed()
    second = scene.hushed()
    first.session_epoch = -1
    first.fetch({})
    scene.run_for(100)
    second.fetch()
    assert second.read == []
    assert scene.replica().last_fetch_ms == scene.now_ms


def test_a_log_start_that_moved_while_the_fetch_waited_is_told_by_the_next(scene: Scene) -> None:
    """Nothing wakes the fetch, whose answer still says the old one."""
    for broker_id in (2, 3):
        scene.hushed(broker_id)
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


def test_session_epochs_begin_anew_behind_the_last() -> None:
    assert [next_epoch(each) for each in (0, 1, (1 << 31) - 1)] == [1, 2, 1]
