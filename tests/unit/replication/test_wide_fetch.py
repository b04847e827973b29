"""A fetch of many partitions is read in steps, and misses no change between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.records.topics import PartitionRecord
from barnabas.replication.partition.fetch_params import (
    FetchParams,
    FetchPartitionData,
    SessionPartition,
)
from barnabas.replication.requests import delayed_fetch
from barnabas.replication.requests.idle_partitions import ConsumerIdlePartitions
from barnabas.storage.results import AppendOrigin, FetchIsolation
from barnabas.storage.topic_partition import TopicIdPartition, TopicPartition
from barnabas.waiting.steps import run_to_end
from unit.replication.replica_set import LEADER, TOPIC, TOPIC_ID, ReplicaSet, batch

if TYPE_CHECKING:
    from collections.abc import Generator

    from barnabas.replication.requests.delayed_fetch import DelayedFetch


PARTITIONS = 6
ALL = range(PARTITIONS)
SIZE = len(batch(b"x"))


@pytest.fixture(autouse=True)
def two_partitions_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delayed_fetch, "_AT_ONCE", 2)


def where(index: int) -> TopicIdPartition:
    return TopicIdPartition(TOPIC_ID, TOPIC, index)


class Scene:
    """A leader with six empty partitions, and one consumer."""

    def __init__(self) -> None:
        self.replicas = ReplicaSet()
        self.manager = self.replicas.manager
        self.replicas.replay(
            *(
                PartitionRecord(
                    partition_id=index,
                    topic_id=TOPIC_ID,
                    replicas=[1],
                    isr=[1],
                    removing_replicas=[],
                    adding_replicas=[],
                    leader=LEADER,
                    leader_epoch=0,
                    partition_epoch=0,
                    directories=[],
                )
                for index in ALL[1:]
            )
        )
        # The results of the fetch, once it is complete.
        self.results: list[list[Any]] = []
        # Steps after the fetch has waited.
        self.later: list[Generator[None, None, None]] = []

    def produce(self, *indexes: int) -> None:
        for index in indexes:
            entries = {TopicPartition(TOPIC, index): batch(b"x")}
            self.manager.append_records(1_000, 1, entries, AppendOrigin.CLIENT, lambda _: None)

    def fetch(
        self,
        partitions: list[int] | range = ALL,
        max_wait_ms: int = 500,
        idle: ConsumerIdlePartitions | None = None,
        current_leader_epoch: int = -1,
        **fields: int,
    ) -> tuple[DelayedFetch, Generator[None, None, None]]:
        isolation = FetchIsolation.HIGH_WATERMARK
        given = {"version": 17, "min_bytes": 1, "max_bytes": 1 << 20, **fields}
        params = FetchParams(
            replica_id=-1,
            replica_epoch=-1,
            max_wait_ms=max_wait_ms,
            isolation=isolation,
            **given,
        )
        data = FetchPartitionData(0, 1 << 20, current_leader_epoch=current_leader_epoch)
        asked = [(where(index), data) for index in partitions]
        made = self.manager.fetch(params, asked, self.results.append, idle, self.later.append)
        assert made is not None, "the fetch is complete before its first step"
        return made, self.later.pop()

    def complete(self) -> list[tuple[int, int]]:
        """Run the later steps. Return the partitions of the results, with their bytes."""
        while self.later:
            run_to_end(self.later.pop())
        (results,) = self.results
        return [(each.partition, len(result.records)) for each, result in results]

    @property
    def is_waiting(self) -> bool:
        return not self.results and self.manager.waiting()["Fetch"] == 1

    def expect_nothing_pending(self) -> None:
        assert self.manager.waiting()["Fetch"] == self.manager.watched()["Fetch"] == 0


@pytest.fixture
def scene() -> Scene:
    return Scene()


def sizes(*with_records: int) -> list[tuple[int, int]]:
    return [(index, SIZE if index in with_records else 0) for index in ALL]


def test_the_results_are_in_the_order_of_the_request(scene: Scene) -> None:
    scene.produce(1, 4)
    backwards = list(reversed(ALL))
    run_to_end(scene.fetch(backwards)[1])
    assert scene.complete() == list(reversed(sizes(1, 4)))
    scene.expect_nothing_pending()


def test_each_partition_counts_as_one_fetch(scene: Scene) -> None:
    run_to_end(scene.fetch(max_wait_ms=0)[1])
    assert scene.manager.metrics.topics[TOPIC].fetch_requests == PARTITIONS


def test_the_byte_limit_applies_to_all_steps_together(scene: Scene) -> None:
    scene.produce(*ALL)
    run_to_end(scene.fetch(max_bytes=3 * SIZE)[1])
    assert scene.complete() == sizes(0, 1, 2)


def test_only_the_first_batch_may_exceed_the_byte_limit(scene: Scene) -> None:
    scene.produce(2, 3, 5)
    run_to_end(scene.fetch(max_bytes=1)[1])
    assert scene.complete() == sizes(2)


def test_old_versions_truncate_the_first_batch_only(scene: Scene) -> None:
    scene.produce(2, 5)
    run_to_end(scene.fetch(max_bytes=10, version=2)[1])
    assert scene.complete() == [(index, 10 if index == 2 else 0) for index in ALL]


def test_without_a_wait_the_fetch_completes_after_its_last_step(scene: Scene) -> None:
    _, steps = scene.fetch(max_wait_ms=0)
    for _ in range(PARTITIONS // 2):
        next(steps)
        assert scene.results == []
    run_to_end(steps)
    assert scene.complete() == sizes()
    scene.expect_nothing_pending()


def test_the_minimum_counts_the_bytes_of_all_steps(scene: Scene) -> None:
    scene.produce(0, 5)
    run_to_end(scene.fetch(min_bytes=2 * SIZE)[1])
    assert scene.complete() == sizes(0, 5)
    scene.expect_nothing_pending()


def test_a_fetch_below_the_minimum_waits_for_further_bytes(scene: Scene) -> None:
    scene.produce(0)
    run_to_end(scene.fetch(min_bytes=2 * SIZE)[1])
    assert scene.is_waiting
    scene.produce(3)
    assert scene.complete() == sizes(0, 3)
    scene.expect_nothing_pending()


def test_records_that_arrive_during_the_wait_complete_the_fetch(scene: Scene) -> None:
    run_to_end(scene.fetch()[1])
    assert scene.is_waiting
    scene.produce(4)
    assert scene.complete() == sizes(4)


@pytest.mark.parametrize("index", ALL)
@pytest.mark.parametrize("step", range(PARTITIONS // 2))
def test_records_that_arrive_between_steps_complete_the_fetch_after_the_last(
    scene: Scene, index: int, step: int
) -> None:
    _, steps = scene.fetch()
    for _ in range(step + 1):
        next(steps)
    scene.produce(index)
    assert scene.results == []
    run_to_end(steps)
    assert scene.complete() == sizes(index)
    scene.expect_nothing_pending()


def test_bytes_that_arrive_between_steps_add_up(scene: Scene) -> None:
    _, steps = scene.fetch(min_bytes=2 * SIZE)
    next(steps)
    scene.produce(0)
    next(steps)
    run_to_end(steps)
    assert scene.is_waiting
    scene.produce(1)
    assert scene.complete() == sizes(0, 1)


def test_a_read_limited_by_bytes_counts_what_the_partitions_have(scene: Scene) -> None:
    """A batch above the remaining limit is not returned, but counts for the minimum."""
    scene.produce(0, 5)
    run_to_end(scene.fetch(max_bytes=SIZE + 1, min_bytes=SIZE + 1)[1])
    assert scene.complete() == sizes(0)


def test_a_new_leader_epoch_between_steps_completes_the_fetch(scene: Scene) -> None:
    _, steps = scene.fetch(current_leader_epoch=0)
    next(steps)
    scene.replicas.change(leader=LEADER)
    run_to_end(steps)
    scene.complete()
    errors = [result.error for _, result in scene.results[0]]
    assert errors == [ErrorCode.FENCED_LEADER_EPOCH] + [ErrorCode.NONE] * 5


def test_an_error_completes_the_fetch(scene: Scene) -> None:
    run_to_end(scene.fetch([0, 1, 2, 7])[1])
    scene.complete()
    errors = [result.error for _, result in scene.results[0]]
    assert errors == [ErrorCode.NONE] * 3 + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    scene.expect_nothing_pending()


def test_the_timeout_includes_the_time_of_the_steps(scene: Scene) -> None:
    _, steps = scene.fetch()
    next(steps)
    scene.replicas.world.run_for(502)
    assert scene.manager.metrics.delayed_fetch_consumer_expires == 1
    assert scene.results == []
    run_to_end(steps)
    assert scene.complete() == sizes()
    scene.expect_nothing_pending()


def test_the_timeout_completes_a_fetch_that_waits(scene: Scene) -> None:
    run_to_end(scene.fetch()[1])
    scene.replicas.world.run_for(502)
    assert scene.complete() == sizes()
    assert scene.manager.metrics.delayed_fetch_consumer_expires == 1


def test_a_canceled_fetch_is_no_longer_pending(scene: Scene) -> None:
    operation, steps = scene.fetch()
    next(steps)
    assert scene.is_waiting
    operation.cancel()
    steps.close()
    scene.expect_nothing_pending()
    assert scene.results == []


def test_the_limit_of_pending_fetches_completes_a_fetch_between_steps(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scene.manager._fetches, "_watched_max", 5)
    run_to_end(scene.fetch()[1])
    assert scene.complete() == sizes()
    scene.expect_nothing_pending()


def idle_session(scene: Scene, index: int) -> ConsumerIdlePartitions:
    """Return a session in which one partition is idle."""
    data = FetchPartitionData(0, 1 << 20)
    entry = SessionPartition((TOPIC_ID, index), where(index), data)
    params = FetchParams(17, -1, -1, 0, 1, 1 << 20, FetchIsolation.HIGH_WATERMARK)
    ((_, result),) = scene.manager.read(params, [(where(index), data)])
    entry.note(result)
    idle = scene.manager.idle_partitions.open_for_consumer({entry.key: entry})
    assert idle is not None
    assert idle.maybe_mark_idle(entry, result)
    return idle


def test_an_idle_partition_that_changes_between_steps_is_added(scene: Scene) -> None:
    idle = idle_session(scene, 5)
    operation, steps = scene.fetch(ALL[:5], idle=idle)
    assert idle.operation is operation
    next(steps)
    scene.produce(5)
    run_to_end(steps)
    assert sorted(scene.complete()) == sizes(5)
    assert idle.operation is None


def test_a_fetch_with_only_idle_partitions_completes_before_the_broker_stops(scene: Scene) -> None:
    run_to_end(scene.fetch([], idle=idle_session(scene, 5))[1])
    assert scene.is_waiting
    scene.manager.complete_delayed_fetches()
    assert scene.complete() == []


def test_a_fetch_with_only_idle_partitions_and_no_minimum_completes_at_once(scene: Scene) -> None:
    run_to_end(scene.fetch([], idle=idle_session(scene, 5), min_bytes=0)[1])
    assert scene.complete() == []
    scene.expect_nothing_pending()
