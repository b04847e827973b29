"""The state table of shards."""

from __future__ import annotations

from barnabas.coordinator.runtime.shard import SHARD_STATES, ShardEvent, ShardState
from barnabas.protocol.errors import ErrorCode
from unit.coordinator.coordinator_world import CoordinatorWorld


def test_closed_is_the_only_final_state_and_each_event_has_a_row() -> None:
    assert set(SHARD_STATES) == set(ShardState)
    assert [state for state, events in SHARD_STATES.items() if not events] == [ShardState.CLOSED]
    assert {event for events in SHARD_STATES.values() for event in events} == set(ShardEvent)


def test_a_shard_is_loading_then_active_then_closed() -> None:
    world = CoordinatorWorld()
    runtime = world.coordinator.runtime
    runtime.on_elected(0, 0)
    assert runtime.state(0) is ShardState.LOADING
    assert runtime.state_counts()[ShardState.LOADING] == 1
    world.replicas.world.run_for(50)
    assert runtime.state(0) is ShardState.ACTIVE
    runtime.shutdown()
    assert runtime.state(0) is ShardState.CLOSED
    assert world.commit() == ErrorCode.NOT_COORDINATOR
    assert not any(runtime.state_counts().values())


def test_a_second_shutdown_and_a_later_resignation_do_nothing() -> None:
    world = CoordinatorWorld()
    world.load()
    runtime = world.coordinator.runtime
    runtime.shutdown()
    runtime.shutdown()
    assert runtime.state(0) is ShardState.CLOSED
    runtime.on_resigned(0)
    assert runtime.state(0) is None


def test_held_responses_complete_at_their_commit_after_a_shutdown() -> None:
    world = CoordinatorWorld((1, 2))
    world.load()
    assert world.commit(5) is None
    world.coordinator.runtime.shutdown()
    world.follow(1)
    assert world.error() == ErrorCode.NONE
