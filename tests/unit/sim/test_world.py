"""Virtual time, and a simulated network whose failures depend on the seed."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from barnabas.sim.world import SimWorld
from unit.runtime.streams import Recorder


def joined(world: SimWorld) -> tuple[Recorder, Recorder]:
    server, client = Recorder(), Recorder()
    port = world.host("a").runtime.sockets.listen("", 0, lambda: server).port
    world.host("b").runtime.sockets.connect("a", port, client, pytest.fail, 1000)
    assert world.run_until(lambda: client.stream is not None and server.stream is not None)
    return server, client


def story(seed: int) -> tuple[int, float, bytes]:
    world = SimWorld(seed)
    server, client = joined(world)
    for number in range(50):
        client.stream.write([bytes([number]) * number])
    world.run_until(lambda: len(server.data) == 49 * 25)
    return world.scheduler.events_run, world.scheduler.now_ms, bytes(server.data)


def test_one_seed_gives_the_same_run_and_another_seed_another_run() -> None:
    assert story(5) == story(5)
    assert story(5)[:2] != story(6)[:2]
    assert story(5)[2] == story(6)[2]


def test_an_hour_passes_at_once() -> None:
    world = SimWorld(1)
    runtime = world.host("a").runtime
    began = runtime.clock.wall_ms()
    fired: list[float] = []
    runtime.timer.call_later(3_600_000, lambda: fired.append(runtime.clock.monotonic_ms()))
    world.run_for(3_600_000)
    assert fired == [3_600_000]
    assert runtime.clock.wall_ms() - began == 3_600_000


def test_timers_of_the_same_time_fire_in_the_order_of_their_creation() -> None:
    world = SimWorld(1)
    timer = world.host("a").runtime.timer
    fired: list[int] = []
    for number in range(5):
        timer.call_later(10, lambda number=number: fired.append(number))
    world.run_for(10)
    assert fired == [0, 1, 2, 3, 4]


def test_a_network_partition_delays_bytes_until_it_heals() -> None:
    world = SimWorld(1)
    server, client = joined(world)
    world.network.partition("a", "b")
    client.stream.write([b"late"])
    world.run_for(10_000)
    assert server.data == b""
    world.network.heal()
    world.run_for(10)
    assert server.data == b"late"


def test_a_killed_process_resets_its_connections() -> None:
    world = SimWorld(1)
    server, client = joined(world)
    world.host("a").kill()
    world.run_for(10)
    assert isinstance(client.error, ConnectionResetError)
    assert not server.closed


def test_a_machine_without_power_sends_nothing() -> None:
    world = SimWorld(1)
    _, client = joined(world)
    world.host("a").lose_power()
    client.stream.write([b"anybody?"])
    world.run_for(10_000)
    assert not client.closed


def test_no_callback_of_a_dead_process_runs_in_the_next_one() -> None:
    world = SimWorld(1)
    server, client = joined(world)
    host = world.host("a")
    host.runtime.timer.call_later(50, lambda: pytest.fail("a dead timer"))
    client.stream.write([b"x"])
    host.kill()
    host.start()
    world.run_for(100)
    assert server.data == b""


def test_connections_can_be_reset() -> None:
    world = SimWorld(1)
    server, client = joined(world)
    assert world.network.reset_connections("a", "b") == 1
    world.run_for(10)
    assert server.closed
    assert client.closed


def test_an_unreliable_network_resets_some_connections() -> None:
    world = SimWorld(1)
    world.network.conditions = replace(world.network.conditions, reset_chance=0.5)
    server, client = joined(world)
    for _ in range(50):
        client.stream.write([b"x"])
    world.run_for(100)
    assert client.closed
    assert server.closed


def test_a_resumed_process_runs_overdue_callbacks_in_order() -> None:
    world = SimWorld(1)
    host = world.host("a")
    seen: list[str] = []
    host.timer.call_later(10, lambda: seen.append("first"))
    host.timer.call_later(20, lambda: seen.append("second"))
    host.timer.pause(100)
    world.run_for(99)
    assert seen == []
    world.run_for(2)
    assert seen == ["first", "second"]


def test_an_overdue_callback_of_a_paused_process_can_be_canceled() -> None:
    world = SimWorld(1)
    host = world.host("a")
    seen: list[str] = []
    second = host.timer.call_later(20, lambda: seen.append("second"))
    host.timer.call_later(10, second.cancel)
    host.timer.pause(100)
    world.run_for(200)
    assert seen == []
