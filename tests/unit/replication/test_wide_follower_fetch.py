"""A follower's fetch of many partitions in steps: its state, and the checks of leadership."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.records.topics import PartitionChangeRecord
from barnabas.replication.partition.fetch_params import FetchParams
from barnabas.replication.requests import delayed_fetch
from barnabas.storage.results import FetchIsolation
from barnabas.storage.topic_partition import TopicPartition
from barnabas.waiting.steps import run_to_end
from unit.replication.checked_leadership import Checking
from unit.replication.idle_scene import PARTITIONS, Scene, at, where
from unit.replication.replica_set import TOPIC, TOPIC_ID

if TYPE_CHECKING:
    from collections.abc import Generator

FOLLOWER, OTHER = 2, 3


@pytest.fixture(autouse=True)
def one_partition_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delayed_fetch, "_AT_ONCE", 1)


@pytest.fixture
def scene() -> Scene:
    """A leader of partitions whose ISR has one follower besides itself."""
    made = Scene()
    set_isr(made, 1, FOLLOWER)
    return made


def set_isr(scene: Scene, *isr: int) -> None:
    scene.replicas.replay(
        *(
            PartitionChangeRecord(partition_id=index, topic_id=TOPIC_ID, isr=list(isr))
            for index in range(PARTITIONS)
        )
    )


class WideFollower:
    """A follower that fetches all partitions from offset 0, without a session."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self.results: list[Any] = []
        self.later: list[Generator[None, None, None]] = []

    def fetch(self, max_wait_ms: int = 500) -> Generator[None, None, None]:
        """Return the steps of the first read."""
        params = FetchParams(
            17, FOLLOWER, 100 + FOLLOWER, max_wait_ms, 1, 1 << 20, FetchIsolation.LOG_END
        )
        asked = [(where(index), at(0)) for index in range(PARTITIONS)]
        self._scene.replicas.manager.fetch(
            params, asked, self.results.append, run=self.later.append
        )
        return self.later.pop()

    def complete(self) -> None:
        """Run the steps after the wait, up to the response."""
        while self.later:
            run_to_end(self.later.pop())
        assert self.results, "the fetch has no response"
        self.results.clear()


def ends(scene: Scene) -> list[int]:
    """Return the log end of the follower that the leader knows, by partition."""
    found = []
    for index in range(PARTITIONS):
        partition: Any = scene.replicas.manager.partition(TopicPartition(TOPIC, index))
        found.append(partition.leader.remote_replicas[FOLLOWER].log_end_offset)
    return found


def test_a_partition_takes_the_state_of_the_follower_in_the_turn_of_its_read(scene: Scene) -> None:
    steps = WideFollower(scene).fetch()
    assert ends(scene) == [-1, -1, -1]
    next(steps)
    assert ends(scene) == [0, -1, -1]
    next(steps)
    assert ends(scene) == [0, 0, -1]


@pytest.mark.parametrize("index", range(PARTITIONS))
def test_a_fetch_whose_reads_began_before_a_check_does_not_confirm_the_leader(
    scene: Scene, index: int
) -> None:
    """The check begins after the second step: the follower has sent the fetch before."""
    follower = WideFollower(scene)
    steps = follower.fetch()
    next(steps)
    next(steps)
    checking = Checking(scene.replicas.manager, TopicPartition(TOPIC, index))
    checking.begin()
    run_to_end(steps)
    follower.complete()
    assert checking.results == []
    run_to_end(follower.fetch())
    assert checking.results == [ErrorCode.NONE]


def test_a_partition_is_not_idle_during_a_check(scene: Scene) -> None:
    set_isr(scene, 1, FOLLOWER, OTHER)
    followers = [scene.idle_follower(FOLLOWER), scene.idle_follower(OTHER)]
    checking = Checking(scene.replicas.manager)
    checking.begin()
    for _ in range(3):
        followers[0].fetch()
        assert followers[0].read == [0]
    followers[1].fetch()
    followers[1].fetch()
    assert checking.results == [ErrorCode.NONE]
    for follower in followers:
        follower.fetch()
        follower.fetch()
        assert follower.read == []
