"""A driver that commits too late gets an error that says so, whatever the coordinator responds."""

from __future__ import annotations

import pytest

from barnabas.client.errors import broker_error
from barnabas.client.transactions.state import fenced
from barnabas.coordinator.transaction.transaction_metadata import Producer, TransactionState
from barnabas.protocol.errors import ErrorCode
from barnabas.spark.topics.transactions import Slice, TransactionError, explained
from unit.coordinator.transaction.transaction_world import ID, P0, TIMEOUT_MS, World

SLICE = Slice(ID, 0, 3, "query")


@pytest.fixture(params=[0, 1, 2])
def world(request: pytest.FixtureRequest) -> World:
    made = World()
    made.version = request.param
    return made


def written(world: World) -> Producer:
    """Leave a transaction with a record open, as a task does; its producer."""
    producer = world.producer()
    assert world.add(producer, P0) is ErrorCode.NONE
    return producer


def committed_late(world: World, producer: Producer, open_ms: float) -> Exception:
    """Commit as the driver does; the error that Spark shows."""
    code = world.end(producer, True)
    assert isinstance(code, ErrorCode), code
    error = fenced(broker_error(code, "EndTxn"), ID)
    assert not error.retriable, code
    return explained(error, SLICE, open_ms, TIMEOUT_MS)


def time_out(world: World) -> None:
    world.run_for(2 * TIMEOUT_MS)
    assert world.state() is TransactionState.PREPARE_ABORT
    world.markers.write()


@pytest.mark.parametrize("is_reloaded", [False, True])
def test_a_commit_after_the_timeout_names_the_timeout(world: World, is_reloaded: bool) -> None:
    """Another coordinator does not know the epoch before the abort."""
    producer = written(world)
    time_out(world)
    if is_reloaded:
        world.start(leader_epoch=1)
    error = committed_late(world, producer, 2 * TIMEOUT_MS)
    assert isinstance(error, TransactionError)
    assert "longer than kafka.transaction.timeout.ms" in str(error)
    assert world.state() is TransactionState.COMPLETE_ABORT


def test_a_commit_while_the_abort_is_written_is_repeated(world: World) -> None:
    producer = written(world)
    world.run_for(2 * TIMEOUT_MS)
    code = world.end(producer, True)
    if world.version == 2:
        assert code is ErrorCode.CONCURRENT_TRANSACTIONS
        assert broker_error(code, "EndTxn").retriable
    world.markers.write()
    assert isinstance(committed_late(world, producer, 2 * TIMEOUT_MS), TransactionError)


@pytest.mark.parametrize("has_ended", [False, True])
def test_a_commit_after_another_run_names_the_other_producer(world: World, has_ended: bool) -> None:
    before = written(world)
    assert world.initialize() is ErrorCode.CONCURRENT_TRANSACTIONS
    world.markers.write()
    after = written(world)
    if has_ended:
        assert not isinstance(world.end(after, True), ErrorCode)
        world.markers.write()
    error = committed_late(world, before, 0)
    assert isinstance(error, TransactionError)
    assert "another producer has taken over" in str(error)
    if not has_ended:
        assert not isinstance(world.end(after, True), ErrorCode)
