"""Client channels and their pool, against a small broker in a simulated world."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from barnabas.network.channel import Channel
from barnabas.network.connection_pool import ConnectionPool, Node, PoolSettings
from barnabas.network.network_error import NetworkError, NetworkErrorKind
from barnabas.network.reconnect_backoff import ReconnectBackoff
from barnabas.protocol.messages.connection import ApiVersionsRequest
from barnabas.runtime.rng import SeededRng
from barnabas.sim.world import SimWorld
from unit.network.scripted_broker import Broker


class Client:
    """A pool on host "c", and its results."""

    def __init__(self, world: SimWorld, settings: PoolSettings, prepare: Any = None) -> None:
        self.world = world
        self.pool = ConnectionPool(world.host("c").runtime, settings, prepare)
        self.node = Node(1, "b", 9092)
        self.ready: list[tuple[Channel | None, NetworkError | None]] = []
        self.answers: list[tuple[Any, NetworkError | None]] = []

    def acquire(self) -> None:
        self.pool.acquire(self.node, lambda channel, error: self.ready.append((channel, error)))

    def channel(self) -> Channel:
        self.ready.clear()
        self.acquire()
        assert self.world.run_until(lambda: bool(self.ready))
        channel, error = self.ready[0]
        assert channel is not None, error
        return channel

    def send(self, channel: Channel, timeout_ms: float = 1000) -> None:
        channel.send(
            ApiVersionsRequest(), 0, lambda *answer: self.answers.append(answer), timeout_ms
        )


def client_of(
    seed: int, settings: PoolSettings | None = None, prepare: Any = None
) -> tuple[SimWorld, Broker, Client]:
    world = SimWorld(seed)
    return world, Broker(world), Client(world, settings or PoolSettings(client_id="me"), prepare)


@pytest.mark.parametrize("seed", range(5))
def test_every_request_gets_its_response(seed: int) -> None:
    world, _, client = client_of(seed)
    channel = client.channel()
    for _ in range(100):
        client.send(channel)
    assert channel.in_flight == 100
    assert world.run_until(lambda: len(client.answers) == 100)
    assert all(response.error_code == 35 and error is None for response, error in client.answers)
    assert channel.in_flight == 0
    # The timer of idle channels, and that of all requests.
    assert client.pool.wheel.waiting_count == 2
    world.run_for(1010)
    assert client.pool.wheel.waiting_count == 1


def test_a_later_request_may_time_out_first() -> None:
    world, broker, client = client_of(1)
    broker.answering = False
    channel = client.channel()
    client.send(channel, timeout_ms=5000)
    client.send(channel, timeout_ms=500)
    assert world.run_until(lambda: len(client.answers) == 2)
    kinds = [error.kind for _, error in client.answers if error]
    assert kinds == [NetworkErrorKind.TIMED_OUT, NetworkErrorKind.DISCONNECTED]
    assert world.scheduler.now_ms < 600


def test_a_request_gets_its_whole_timeout_after_others_were_answered() -> None:
    world, broker, client = client_of(1)
    channel = client.channel()
    client.send(channel)
    world.run_for(900)
    assert client.answers.pop()[1] is None
    broker.answering = False
    sent_ms = world.scheduler.now_ms
    client.send(channel)
    assert world.run_until(lambda: bool(client.answers))
    assert world.scheduler.now_ms - sent_ms == pytest.approx(1000, abs=2)
    assert client.pool.wheel.waiting_count == 1


def test_a_request_timeout_closes_the_connection() -> None:
    world, broker, client = client_of(1)
    broker.answering = False
    channel = client.channel()
    client.send(channel, timeout_ms=500)
    client.send(channel, timeout_ms=5000)
    assert world.run_until(lambda: len(client.answers) == 2)
    kinds = [error.kind for _, error in client.answers if error]
    assert kinds == [NetworkErrorKind.TIMED_OUT, NetworkErrorKind.DISCONNECTED]
    assert world.scheduler.now_ms < 600
    assert not channel.is_open


def test_pending_requests_fail_when_the_broker_dies() -> None:
    world, broker, client = client_of(1)
    broker.answering = False
    channel = client.channel()
    for _ in range(3):
        client.send(channel)
    assert world.run_until(lambda: broker.requests == 1)
    world.host("b").kill()
    assert world.run_until(lambda: len(client.answers) == 3)
    assert {error.kind for _, error in client.answers if error} == {NetworkErrorKind.DISCONNECTED}


def test_sending_on_a_closed_channel_fails_asynchronously() -> None:
    world, _, client = client_of(1)
    channel = client.channel()
    channel.close()
    client.send(channel)
    assert client.answers == []
    world.run_for(1)
    assert client.answers[0][1].kind is NetworkErrorKind.DISCONNECTED


def test_a_caller_that_comes_while_an_idle_channel_is_closed_gets_a_new_one() -> None:
    world, broker, client = client_of(1, PoolSettings(idle_max_ms=1_000))
    idle = client.channel()
    client.ready.clear()
    assert world.run_until(lambda: not idle.is_open)
    client.acquire()
    assert client.ready == []
    assert world.run_until(lambda: bool(client.ready))
    channel, error = client.ready[0]
    assert error is None
    assert channel is not idle
    assert broker.accepted == 2


def failing(_result: object, _error: NetworkError | None) -> None:
    raise KeyError("a callback with a fault")


def test_a_callback_that_raises_does_not_keep_other_requests_from_failing() -> None:
    world, broker, client = client_of(1)
    broker.answering = False
    channel = client.channel()
    channel.send(ApiVersionsRequest(), 0, failing, 60_000)
    client.send(channel, timeout_ms=60_000)
    assert world.run_until(lambda: channel.in_flight == 2 and broker.requests == 1)
    world.host("b").kill()
    with pytest.raises(KeyError):
        world.run_for(10_000)
    assert world.run_until(lambda: bool(client.answers))
    assert client.answers[0][1].kind is NetworkErrorKind.DISCONNECTED
    # The pool knows that the channel is lost, and connects again.
    client.ready.clear()
    client.acquire()
    assert world.run_until(lambda: bool(client.ready))
    assert client.ready[0][1].kind is NetworkErrorKind.CONNECT_FAILED


def test_a_caller_that_raises_does_not_keep_others_from_the_channel() -> None:
    world, _, client = client_of(1)
    client.pool.acquire(client.node, failing)
    client.acquire()
    with pytest.raises(KeyError):
        world.run_for(10_000)
    assert world.run_until(lambda: bool(client.ready))
    assert client.ready[0][0] is not None


def test_callers_share_one_connection_attempt() -> None:
    world, broker, client = client_of(1)
    for _ in range(3):
        client.acquire()
    assert world.run_until(lambda: len(client.ready) == 3)
    assert broker.accepted == 1
    assert len({id(channel) for channel, _ in client.ready}) == 1


def test_a_channel_is_returned_after_its_preparation() -> None:
    def prepare(channel: Channel, done: Callable[[NetworkError | None], None]) -> None:
        def on_response(response: Any, error: NetworkError | None) -> None:
            channel.versions = {18: (0, 4)}
            done(error)

        channel.send(ApiVersionsRequest(), 0, on_response, 1000)

    _, broker, client = client_of(1, prepare=prepare)
    assert client.channel().versions == {18: (0, 4)}
    assert broker.requests == 1


def test_after_a_failure_the_next_caller_waits_for_the_backoff() -> None:
    settings = PoolSettings(backoff=ReconnectBackoff(100, 1000))
    world, broker, client = client_of(1, settings)
    world.host("b").kill()
    for _ in range(4):
        client.acquire()
        assert world.run_until(lambda: bool(client.ready))
        assert client.ready.pop()[1].kind is NetworkErrorKind.CONNECT_FAILED
    assert client.pool.is_backing_off(1)
    # Three waits of 100, 200 and 400 ms, each spread by a fifth.
    assert 700 * 0.8 <= world.scheduler.now_ms <= 700 * 1.2 + 20
    world.host("b").start()
    broker.start()
    assert client.channel().is_open


def test_an_idle_channel_is_closed() -> None:
    world, broker, client = client_of(1, PoolSettings(idle_max_ms=1000))
    channel = client.channel()
    world.run_for(900)
    client.send(channel)
    world.run_for(900)
    assert channel.is_open
    world.run_for(200)
    assert not channel.is_open
    assert not client.pool.is_backing_off(1)
    assert client.channel() is not channel
    assert broker.accepted == 2


def test_a_node_that_moved_gets_a_new_channel() -> None:
    world, _, client = client_of(1)
    old = client.channel()
    moved = Broker(world, "b2")
    client.node = Node(1, "b2", 9092)
    new = client.channel()
    assert moved.accepted == 1
    assert new.is_open
    assert not old.is_open


def test_closing_the_pool_fails_pending_calls() -> None:
    world, broker, client = client_of(1)
    broker.answering = False
    client.send(client.channel())
    client.pool.close()
    client.acquire()
    assert world.run_until(lambda: bool(client.answers))
    assert client.answers[0][1].kind is NetworkErrorKind.CLOSED
    assert client.ready[-1][1].kind is NetworkErrorKind.CLOSED


def test_an_unreachable_broker_times_out() -> None:
    world, _, client = client_of(1, PoolSettings(connect_timeout_ms=300))
    world.network.partition("b", "c")
    client.acquire()
    assert world.run_until(lambda: bool(client.ready))
    assert world.scheduler.now_ms == pytest.approx(300, abs=1)


def test_the_backoff_doubles_up_to_its_limit() -> None:
    backoff = ReconnectBackoff(50, 1000)
    delay = partial(backoff.delay_ms, rng=SeededRng(1))
    assert delay(0) == 0
    for failures, full in ((1, 50), (2, 100), (5, 800), (6, 1000), (10_000, 1000)):
        assert full * 0.8 <= delay(failures) <= full * 1.2
