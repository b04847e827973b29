"""One budget for the memory of incomplete requests."""

from __future__ import annotations

import struct

from barnabas.network.connection import Connection
from barnabas.network.connection_limits import (
    AGE_MAX_MS,
    EXEMPT_MS,
    FREE_BYTES,
    ConnectionDependencies,
    ConnectionLimits,
    FrameBudget,
)
from barnabas.sim.world import SimWorld
from unit.network.connected_server import Server, frame
from unit.network.frame_budgets import MEGABYTE, Holder, budget_of
from unit.runtime.streams import Recorder


def test_within_the_budget_all_connections_read() -> None:
    _, budget = budget_of(10)
    holders = [Holder(budget, 5 * MEGABYTE) for _ in range(2)]
    for holder in holders:
        holder.grow(5 * MEGABYTE)
    assert budget.held_bytes == 10 * MEGABYTE
    assert budget.waiting == 0
    for holder in holders:
        holder.finish()
    assert budget.held_bytes == 0


def test_above_the_budget_one_connection_reads_and_the_others_wait() -> None:
    _, budget = budget_of(10)
    holders = [Holder(budget, 100 * MEGABYTE) for _ in range(20)]
    for holder in holders:
        holder.grow(MEGABYTE)
    reading = [each for each in holders if not each.is_waiting]
    # Ten fit, the next one may exceed the budget, and nine wait as soon as they hold anything.
    assert len(reading) == 11
    assert budget.waiting == 9


def test_small_requests_never_wait() -> None:
    _, budget = budget_of(1)
    large = Holder(budget, 2 * MEGABYTE)
    large.grow(2 * MEGABYTE)
    small = Holder(budget, FREE_BYTES)
    small.grow(FREE_BYTES)
    assert not small.is_waiting


def test_the_loan_passes_from_one_connection_to_the_next() -> None:
    _, budget = budget_of(10)
    holders = [Holder(budget, 10 * MEGABYTE) for _ in range(30)]
    for holder in holders:
        holder.grow(MEGABYTE)
    left = list(holders)
    most = 0
    while left:
        reading = [each for each in left if not each.is_waiting]
        assert reading, "a standstill"
        holder = reading[-1]
        holder.grow(holder.whole)
        most = max(most, budget.held_bytes)
        if not holder.is_waiting:
            holder.finish()
            left.remove(holder)
    assert budget.held_bytes == 0
    assert most <= (10 + 30 + 10) * MEGABYTE


def test_the_connection_with_the_fewest_missing_bytes_is_first() -> None:
    _, budget = budget_of(1)
    first, large, small = (Holder(budget, size * MEGABYTE) for size in (3, 50, 2))
    first.grow(2 * MEGABYTE)
    large.grow(MEGABYTE)
    small.grow(MEGABYTE)
    assert (large.is_waiting, small.is_waiting) == (True, True)
    first.finish()
    assert (large.is_waiting, small.is_waiting) == (True, False)


def test_a_slow_exempt_connection_is_dropped_while_others_wait() -> None:
    world, budget = budget_of(1)
    slow, other = Holder(budget, 9 * MEGABYTE), Holder(budget, 10 * MEGABYTE)
    slow.grow(2 * MEGABYTE)
    other.grow(MEGABYTE)
    assert (slow.is_waiting, other.is_waiting) == (False, True)
    world.run_for(EXEMPT_MS + 2_000)
    assert "too slowly" in slow.dropped
    assert not other.is_waiting
    assert not other.dropped


def test_a_slow_request_continues_while_no_other_waits() -> None:
    world, budget = budget_of(1)
    slow = Holder(budget, 9 * MEGABYTE)
    slow.grow(2 * MEGABYTE)
    world.run_for(AGE_MAX_MS * 3)
    assert not slow.dropped


def test_old_unfinished_requests_are_dropped_while_others_wait() -> None:
    world, budget = budget_of(10)
    old = [Holder(budget, 100 * MEGABYTE) for _ in range(10)]
    for holder in old:
        holder.grow(MEGABYTE)
    world.run_for(AGE_MAX_MS)
    polite = [Holder(budget, 2 * MEGABYTE) for _ in range(4)]
    for holder in polite:
        holder.grow(MEGABYTE)
    assert [holder.is_waiting for holder in polite] == [False, True, True, True]
    world.run_for(2_000)
    assert [bool(holder.dropped) for holder in old].count(True) >= 3
    for holder in polite:
        assert not holder.is_waiting
        holder.finish()
    assert not any(holder.dropped for holder in polite)


class BudgetedServer(Server):
    def __init__(self, world: SimWorld, bytes_max: int) -> None:
        super().__init__(world, ConnectionLimits(), 64 * 1024)
        runtime = world.host("s").runtime
        self.budget = FrameBudget(bytes_max, runtime.clock, runtime.timer)
        self.dependencies = ConnectionDependencies(
            runtime.clock, runtime.timer, self.dependencies.receive_buffer, self.budget
        )
        self.handle = self.echo


def connect(world: SimWorld, server: Server, name: str) -> Recorder:
    client = Recorder()
    sockets = world.host(name).runtime.sockets
    sockets.connect("s", server.port, client, lambda _: None, 1000)
    assert world.run_until(lambda: client.stream is not None)
    return client


def test_slow_large_requests_use_no_more_than_the_budget() -> None:
    world = SimWorld(1)
    server = BudgetedServer(world, 4 * MEGABYTE)
    senders = [connect(world, server, f"slow-{number}") for number in range(40)]
    announced = struct.pack(">i", 90 * MEGABYTE)
    for sender in senders:
        assert sender.stream is not None
        sender.stream.write([announced, bytes(MEGABYTE)])
    world.run_for(2_000)
    # Beyond it: the connection that may exceed it, and the buffers from before the others waited.
    assert server.budget.held_bytes <= 4 * MEGABYTE + 2 * MEGABYTE + 40 * 2 * FREE_BYTES
    assert server.budget.is_full
    polite = connect(world, server, "polite")
    assert len(server.connections[-1].get_buffer()) < len(server.dependencies.receive_buffer)
    assert polite.stream is not None
    body = bytes(MEGABYTE)
    polite.stream.write([frame(b"small")])
    polite.stream.write([frame(body)])
    assert world.run_until(lambda: len(polite.data) == 8 + 5 + len(body), 60_000)


def test_a_connection_whose_reads_all_end_within_a_request_is_not_slow() -> None:
    world = SimWorld(4)
    server = BudgetedServer(world, MEGABYTE)
    pipelining = connect(world, server, "pipelining")
    assert pipelining.stream is not None
    whole = frame(bytes(1000))
    pipelining.stream.write([whole[:500]])
    world.run_for(10)
    for number in range(40):
        slow = connect(world, server, f"slow-{number}")
        assert slow.stream is not None
        slow.stream.write([struct.pack(">i", 90 * MEGABYTE), bytes(MEGABYTE)])
    seconds = int(AGE_MAX_MS / 1000) + 5
    for _ in range(seconds):
        pipelining.stream.write([whole[500:] + whole[:500]])
        world.run_for(1_000)
    assert len(pipelining.data) == seconds * len(whole)


def test_large_requests_of_many_connections_all_arrive() -> None:
    world = SimWorld(2)
    server = BudgetedServer(world, MEGABYTE)
    clients = [connect(world, server, f"client-{number}") for number in range(12)]
    body = bytes(range(256)) * (2 * MEGABYTE // 256)
    for client in clients:
        assert client.stream is not None
        client.stream.write([frame(body)])
    assert world.run_until(
        lambda: all(len(client.data) == len(body) + 4 for client in clients), 120_000
    )
    assert server.budget.held_bytes == server.budget.waiting == 0


def test_a_closed_connection_returns_its_memory() -> None:
    world = SimWorld(3)
    server = BudgetedServer(world, MEGABYTE)
    client = connect(world, server, "client")
    assert client.stream is not None
    client.stream.write([struct.pack(">i", 90 * MEGABYTE), bytes(MEGABYTE // 2)])
    assert world.run_until(lambda: server.budget.held_bytes > 0)
    client.stream.abort()
    assert world.run_until(lambda: server.budget.held_bytes == 0)
    assert isinstance(server.connections[0], Connection)
