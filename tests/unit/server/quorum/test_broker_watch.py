"""The controller considers a broker dead only if its listener does not respond either."""

from __future__ import annotations

import logging
import struct
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from barnabas.metadata.broker_registration import BrokerRegistration, Endpoint
from barnabas.network.channel import ChannelDependencies
from barnabas.network.framed_protocol import new_receive_buffer
from barnabas.raft.listener import LeaderAndEpoch
from barnabas.server.quorum.broker_watch import BrokerWatch
from barnabas.sim.world import SimWorld
from barnabas.waiting.timing_wheel import TimingWheel
from unit.runtime.streams import Recorder

BROKER, EPOCH, PORT = 2, 7, 9092
CONNECTION: Any = object()


class Responding(Recorder):
    """A listener that responds to ApiVersions without any API."""

    def on_received(self, count: int) -> None:
        super().on_received(count)
        assert self.stream is not None
        # The request may come in pieces.
        if len(self.data) < 4 or len(self.data) < 4 + struct.unpack_from(">i", self.data)[0]:
            return
        (correlation_id,) = struct.unpack_from(">i", self.data, 8)
        self.stream.write([struct.pack(">iihi", 10, correlation_id, 0, 0)])


class Controller:
    """An active controller with one registered broker; it notes its reports."""

    def __init__(self) -> None:
        endpoint = Endpoint("broker", PORT, 0)
        broker = BrokerRegistration(
            BROKER, EPOCH, bytes(16), {"PLAINTEXT": endpoint}, {}, fenced=False
        )
        self.image: Any = SimpleNamespace(brokers={BROKER: broker})
        self.suspected: list[int] = []
        self.lost: list[int] = []

    def on_broker_suspected(self, broker_id: int, broker_epoch: int) -> None:
        self.suspected.append(broker_id)

    def on_broker_lost(self, broker_id: int, broker_epoch: int) -> None:
        self.lost.append(broker_id)


def watched(world: SimWorld, *, is_new: bool = False) -> tuple[BrokerWatch, Controller]:
    """Return a watch that has the heartbeat connection of the broker, unless it is new."""
    runtime = world.host("controller").runtime
    wheel = TimingWheel(runtime.clock, runtime.timer)
    channels = ChannelDependencies(
        runtime.clock, runtime.timer, runtime.sockets, wheel, new_receive_buffer()
    )
    controller = Controller()
    watch = BrokerWatch(1, controller, runtime.timer, lambda: channels, "PLAINTEXT")
    if not is_new:
        watch.on_heartbeat(CONNECTION, BROKER, EPOCH)
    return watch, controller


def test_a_broker_whose_listener_refuses_connections_is_dead() -> None:
    world = SimWorld(1)
    world.host("broker")
    watch, controller = watched(world)
    watch.on_closed(CONNECTION)
    assert controller.suspected == [BROKER]
    assert world.run_until(lambda: controller.lost == [BROKER], 2_000)


@pytest.mark.parametrize(
    ("fenced", "logged"),
    [
        (True, "Process of a fenced broker has ended: id=2"),
        (False, "Broker lost: id=2 reason=no response at broker:9092"),
    ],
    ids=["after its shutdown", "while it serves"],
)
def test_the_end_of_a_broker_is_a_warning_unless_the_broker_is_fenced(
    fenced: bool, logged: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    world = SimWorld(1)
    world.host("broker")
    watch, controller = watched(world)
    brokers = controller.image.brokers
    brokers[BROKER] = replace(brokers[BROKER], fenced=fenced)
    watch.on_closed(CONNECTION)
    # The session ends in both cases, so that a new process can register at once.
    assert world.run_until(lambda: controller.lost == [BROKER], 2_000)
    (record,) = [each for each in caplog.records if "broker_watch" in each.name]
    assert record.getMessage() == logged
    assert record.levelno == (logging.INFO if fenced else logging.WARNING)


@pytest.mark.parametrize("reconnects", [False, True], ids=["no connection", "a new connection"])
def test_a_broker_that_lost_its_heartbeat_connection_and_responds_is_alive(
    reconnects: bool,
) -> None:
    world = SimWorld(1)
    world.host("broker").runtime.sockets.listen("", PORT, Responding)
    watch, controller = watched(world)
    watch.on_closed(CONNECTION)
    if reconnects:
        watch.on_heartbeat(object(), BROKER, EPOCH)
    world.run_until(lambda: bool(controller.lost), 10_000)
    assert controller.suspected == [BROKER]
    assert controller.lost == []


def test_a_broker_that_lost_its_heartbeat_connection_and_its_host_is_dead() -> None:
    world = SimWorld(1)
    world.host("broker").runtime.sockets.listen("", PORT, Responding)
    watch, controller = watched(world)
    world.network.partition("controller", "broker")
    watch.on_closed(CONNECTION)
    assert world.run_until(lambda: controller.lost == [BROKER], 2_000)


def test_a_broker_that_accepts_connections_and_does_not_respond_keeps_its_session() -> None:
    world = SimWorld(1)
    world.host("broker").runtime.sockets.listen("", PORT, Recorder)
    watch, controller = watched(world)
    watch.on_closed(CONNECTION)
    world.run_until(lambda: bool(controller.lost), 10_000)
    assert controller.lost == []


def test_a_new_controller_does_not_take_a_host_that_does_not_respond_for_dead() -> None:
    world = SimWorld(1)
    world.host("broker").runtime.sockets.listen("", PORT, Responding)
    watch, controller = watched(world, is_new=True)
    world.network.partition("controller", "broker")
    watch.on_leader_change(LeaderAndEpoch(1, 1))
    world.run_until(lambda: bool(controller.lost), 10_000)
    assert controller.lost == []
