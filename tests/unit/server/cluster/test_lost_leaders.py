"""How long Metadata requests are held after the connection to a leader has closed."""

from __future__ import annotations

import pytest

from barnabas.metadata.image import ClusterDelta
from barnabas.server.cluster.lost_leaders import (
    DELAY_MS,
    DELAY_WITHOUT_CONTROLLER_MS,
    LostLeaders,
)
from barnabas.sim.world import SimWorld
from barnabas.waiting.timing_wheel import TimingWheel
from unit.metadata.clusters import broker, image_of, partition, topic

IMAGE = image_of(broker(1), broker(2), topic("t", 1), partition(1, replicas=(1, 2)))


class Scene:
    """A broker that follows broker 1, and its clients' requests for topic t."""

    def __init__(self) -> None:
        self.world = SimWorld(1)
        runtime = self.world.host("broker").runtime
        wheel = TimingWheel(runtime.clock, runtime.timer)
        self.leaders = LostLeaders(runtime.clock, wheel)
        self.served: list[str] = []

    def request(self, name: str) -> bool:
        """Return whether the request is held."""
        topics = [IMAGE.topics.by_name("t")]
        return self.leaders.delay(topics, lambda: self.served.append(name))

    def fence(self, broker_id: int) -> None:
        delta = ClusterDelta(IMAGE)
        delta.replay(broker(broker_id, epoch=6, fenced=True))
        self.leaders.on_change(delta)
        self.world.run_for(1)


def test_only_requests_for_partitions_of_the_lost_leader_are_held() -> None:
    scene = Scene()
    assert not scene.request("before")
    scene.leaders.on_connection_lost(2)
    assert not scene.request("other leader")
    scene.leaders.on_connection_lost(1)
    assert scene.request("a")
    assert scene.served == []
    scene.fence(2)
    assert scene.served == []
    scene.fence(1)
    assert scene.served == ["a"]
    assert not scene.request("after")


def test_a_request_is_held_for_a_second_at_most_however_often_the_connection_closes() -> None:
    scene = Scene()
    scene.leaders.on_connection_lost(1)
    scene.request("a")
    scene.world.run_for(DELAY_MS - 100)
    scene.leaders.on_connection_lost(1)
    assert scene.served == []
    scene.world.run_for(200)
    assert scene.served == ["a"]


def test_a_second_loss_holds_requests_for_its_own_time() -> None:
    scene = Scene()
    scene.leaders.on_connection_lost(1)
    scene.fence(1)
    scene.world.run_for(DELAY_MS - 100)
    scene.leaders.on_connection_lost(1)
    assert scene.request("a")
    # The end of the first loss's time.
    scene.world.run_for(200)
    assert scene.served == []
    scene.world.run_for(DELAY_MS)
    assert scene.served == ["a"]


@pytest.mark.parametrize("is_controller_first", [True, False])
def test_requests_are_held_for_an_election_if_the_controller_is_lost_too(
    is_controller_first: bool,
) -> None:
    scene = Scene()
    losses = [scene.leaders.on_controller_lost, lambda: scene.leaders.on_connection_lost(1)]
    for lose in losses if is_controller_first else reversed(losses):
        lose()
        scene.world.run_for(DELAY_MS / 2)
    assert scene.request("a")
    scene.world.run_for(DELAY_MS + 100)
    assert scene.served == []
    scene.fence(1)
    assert scene.served == ["a"]
    assert not scene.request("after")


def test_repeated_losses_of_the_controller_extend_the_time_once() -> None:
    scene = Scene()
    scene.leaders.on_connection_lost(1)
    scene.request("a")
    for _ in range(4):
        scene.leaders.on_controller_lost()
        scene.world.run_for(DELAY_WITHOUT_CONTROLLER_MS / 4 + 100)
    assert scene.served == ["a"]


def test_a_loss_of_the_controller_long_ago_does_not_extend_the_time() -> None:
    scene = Scene()
    scene.leaders.on_controller_lost()
    scene.world.run_for(DELAY_MS + 100)
    scene.leaders.on_connection_lost(1)
    scene.request("a")
    scene.world.run_for(DELAY_MS + 100)
    assert scene.served == ["a"]
