"""Loading, committing and losing a state partition."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from barnabas.coordinator.runtime.coordinator_record import CoordinatorResult
from barnabas.coordinator.runtime.loader import Loader
from barnabas.coordinator.runtime.shard import ShardState
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.committed_offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from barnabas.protocol.records.topics import PartitionChangeRecord
from barnabas.record.batch import set_crc
from steps import finish
from unit.coordinator.coordinator_world import OFFSETS_ID, CoordinatorWorld
from unit.storage.control_batches import control_batch


def test_offsets_survive_a_restart() -> None:
    world = CoordinatorWorld()
    world.load()
    for offset in range(3_000):
        world.commit(offset, partition=0, group=f"g{offset % 7}")
    world.coordinator = world.new_coordinator()
    world.coordinator.runtime.on_elected(0, 1)
    assert world.committed(group="g1")[0] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert world.commit() == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    world.replicas.world.run_for(50)
    assert [world.committed(group=f"g{n}")[1] for n in range(7)] == [
        max(offset for offset in range(3_000) if offset % 7 == n) for n in range(7)
    ]


def test_a_broker_that_does_not_lead_the_partition_returns_not_coordinator() -> None:
    world = CoordinatorWorld()
    assert world.commit() == ErrorCode.NOT_COORDINATOR
    assert world.committed()[0] == ErrorCode.NOT_COORDINATOR


def test_a_commit_to_a_partition_of_another_broker_returns_not_coordinator() -> None:
    """Clients retry NOT_COORDINATOR; INVALID_COMMIT_OFFSET_SIZE is fatal for them."""
    world = CoordinatorWorld()
    world.coordinator.runtime.partition_count = 2
    group = next(
        f"g{n}" for n in range(50) if world.coordinator.runtime.partition_for(f"g{n}") == 1
    )
    assert world.commit(group=group) == ErrorCode.NOT_COORDINATOR


def test_a_damaged_control_batch_does_not_prevent_loading() -> None:
    """It has no offsets and no producer, so the log does not check it."""
    world = CoordinatorWorld()
    world.load()
    assert world.commit(5) == ErrorCode.NONE
    damaged = control_batch(b"x", None, offset=1)
    damaged[43:51] = b"\xff" * 8
    damaged[61] = 0x7E
    set_crc(damaged, 0, len(damaged))
    world.log.appender.append_as_follower(bytes(damaged))
    world.log.update_high_watermark(2)
    world.coordinator = world.new_coordinator()
    world.load(1)
    assert world.coordinator.runtime.state(0) is ShardState.ACTIVE
    assert world.committed()[1] == 5


class RaisingShard:
    """A shard whose replay raises an unexpected error."""

    def replay(self, *_: object) -> None:
        raise RuntimeError("not foreseen")


def test_an_unexpected_error_while_loading_is_reported_to_the_runtime(caplog) -> None:
    """Otherwise the partition would be loading forever."""
    world = CoordinatorWorld()
    world.load()
    world.commit()
    outcomes: list[bool] = []
    runtime = world.replicas.runtime
    shard: Any = RaisingShard()
    Loader(world.log, shard, runtime.timer, runtime.executor, outcomes.append).start()
    world.replicas.world.run_for(50)
    assert outcomes == [False]
    assert "RuntimeError: not foreseen" in caplog.text


def unexpected_error(_shard: object) -> None:
    raise RuntimeError("not foreseen")


def test_an_unexpected_error_fails_only_its_request(caplog) -> None:
    """As in Kafka's CoordinatorRuntime: UNKNOWN_SERVER_ERROR."""
    world = CoordinatorWorld()
    world.load()
    runtime = world.coordinator.runtime
    unexpected = ErrorCode.UNKNOWN_SERVER_ERROR
    answers: list[object] = []
    runtime.write("g", unexpected_error, lambda response, error: answers.append((response, error)))
    assert answers == [(None, unexpected)]
    assert runtime.read("g", unexpected_error) is unexpected
    assert caplog.text.count("RuntimeError: not foreseen") == 2
    assert world.commit(7) == ErrorCode.NONE
    assert world.committed()[1] == 7


def test_an_unexpected_error_of_one_group_does_not_affect_other_groups_of_an_offset_fetch() -> None:
    world = CoordinatorWorld()
    world.load()
    world.commit(7, group="good")
    groups = [
        OffsetFetchRequestGroup(
            group_id=each,
            topics=[OffsetFetchRequestTopics(name="flights", partition_indexes=indexes)],
        )
        # A list is no key: nothing that a client can send.
        for each, indexes in (("bad", [[]]), ("good", [0]))
    ]
    answer = finish(world.coordinator.offsets.fetch(OffsetFetchRequest(groups=groups), 8))
    bad, good = answer.groups
    assert (bad.error_code, bad.topics) == (ErrorCode.UNKNOWN_SERVER_ERROR, [])
    assert (good.error_code, good.topics[0].partitions[0].committed_offset) == (0, 7)


def test_stable_offsets_are_confirmed_by_the_followers_of_the_coordinator() -> None:
    world = CoordinatorWorld((1, 2))
    world.load()
    confirmed: list[Mapping[int, ErrorCode]] = []
    world.coordinator.offsets.confirm({0}, confirmed.append)
    world.follow(0)
    assert confirmed == []
    world.follow(0)
    assert confirmed == [{}]


def test_a_coordinator_without_contact_to_its_followers_returns_no_stable_offsets() -> None:
    world = CoordinatorWorld((1, 2))
    world.load()
    world.commit(5)
    world.follow(1)
    confirmed: list[Mapping[int, ErrorCode]] = []
    world.coordinator.offsets.confirm({0, 1}, confirmed.append)
    world.replicas.world.run_for(2_000)
    (errors,) = confirmed
    assert errors == {0: ErrorCode.NOT_COORDINATOR, 1: ErrorCode.NOT_COORDINATOR}
    groups = [OffsetFetchRequestGroup(group_id="g", topics=None)]
    request = OffsetFetchRequest(groups=groups, require_stable=True)
    (group,) = finish(world.coordinator.offsets.fetch(request, 8, errors)).groups
    assert (group.error_code, group.topics) == (ErrorCode.NOT_COORDINATOR, [])


def test_responses_and_reads_wait_for_the_commit_of_the_offsets() -> None:
    world = CoordinatorWorld((1, 2))
    world.load()
    assert world.commit(5) is None
    assert world.committed()[1] == -1, "nothing is shown that a fail-over can take back"
    world.follow(1)
    assert world.error() == ErrorCode.NONE
    assert world.committed()[1] == 5


def test_responses_are_sent_in_the_order_of_their_writes() -> None:
    world = CoordinatorWorld((1, 2))
    world.load()
    for offset in (5, 6, 7):
        world.commit(offset)
    world.follow(2)
    assert len(world.responses) == 2
    assert world.committed()[1] == 6
    world.follow(3)
    assert len(world.responses) == 3
    assert world.committed()[1] == 7


def test_a_write_that_times_out_may_be_committed_later() -> None:
    world = CoordinatorWorld((1, 2))
    world.load()
    world.commit(5)
    world.replicas.world.run_for(5_010)
    assert world.error() == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.committed()[1] == -1
    world.follow(1)
    assert world.committed()[1] == 5
    assert len(world.responses) == 1


def test_the_loss_of_leadership_fails_each_pending_request_once() -> None:
    world = CoordinatorWorld((1, 2))
    world.load()
    world.commit(5)
    world.resign()
    world.coordinator.runtime.on_resigned(0)
    assert [each.topics[0].partitions[0].error_code for each in world.responses] == [
        ErrorCode.NOT_COORDINATOR
    ]
    assert world.coordinator.runtime.state(0) is None


def test_a_commit_with_too_few_replicas_writes_nothing() -> None:
    world = CoordinatorWorld((1, 2))
    world.load()
    config = world.log.config.__class__(min_insync_replicas=2)
    world.log.update_config(config)
    world.replicas.replay(PartitionChangeRecord(partition_id=0, topic_id=OFFSETS_ID, isr=[1]))
    assert world.commit(5) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.log.log_end_offset == 0
    assert world.committed()[1] == -1


def test_a_new_leader_shows_no_state_before_all_loaded_records_are_committed() -> None:
    world = CoordinatorWorld((1, 2))
    world.load()
    world.commit(5)
    # As if the leader before had answered: whether the other replica has it is not known here.
    world.coordinator = world.new_coordinator()
    world.load()
    assert world.committed()[0] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert world.commit(6) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    world.follow(1)
    assert world.committed()[:2] == (ErrorCode.NONE, 5)


def test_timers_wait_until_the_loaded_records_are_committed() -> None:
    world = CoordinatorWorld((1, 2))
    world.load()
    world.commit(5)
    world.coordinator = world.new_coordinator()
    world.load()
    ran: list[str] = []

    def operation() -> CoordinatorResult[None]:
        ran.append("timer")
        return CoordinatorResult(None)

    (shard,) = world.coordinator.runtime.shards()
    shard._timers.schedule("test", 0, operation)
    world.replicas.world.run_for(10)
    assert ran == []
    world.follow(1)
    world.replicas.world.run_for(10)
    assert ran == ["timer"]


def test_a_newer_epoch_cancels_the_loading_of_an_older_one() -> None:
    world = CoordinatorWorld()
    world.load()
    world.commit(5)
    runtime = world.coordinator.runtime
    runtime.on_elected(0, 1)
    runtime.on_elected(0, 2)
    runtime.on_elected(0, 2)
    assert runtime.state(0) is ShardState.LOADING
    world.replicas.world.run_for(5)
    assert world.committed()[1] == 5


def test_a_response_without_records_waits_for_earlier_records_up_to_a_timeout() -> None:
    world = CoordinatorWorld((1, 2))
    world.load()
    world.commit(5)
    assert world.commit(6, generation=3, version=9) is None
    world.replicas.world.run_for(5_010)
    assert len(world.responses) == 2
    assert world.error() == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_response_without_records_leaves_no_timer_when_it_is_sent() -> None:
    world = CoordinatorWorld((1, 2))
    world.load()
    world.commit(5)
    before = world.replicas.wheel.waiting_count
    for offset in range(100):
        assert world.commit(offset, generation=3, version=9) is None
    assert world.replicas.wheel.waiting_count == before + 100
    world.follow(1)
    assert len(world.responses) == 101
    assert world.replicas.wheel.waiting_count <= before


def test_many_held_responses_that_start_a_write_do_not_exceed_the_recursion_limit() -> None:
    """A DeleteGroups of many groups: each response of the first write starts the second one."""
    world = CoordinatorWorld(replicas=(1, 2))
    world.load()
    runtime = world.coordinator.runtime
    count = 2 * sys.getrecursionlimit()
    answers: list[int] = []

    def nothing(_shard: object) -> CoordinatorResult[None]:
        return CoordinatorResult(None)

    def start_write(number: int) -> None:
        runtime.write("g", nothing, lambda *_: answers.append(number))

    assert world.commit() is None
    for number in range(count):
        runtime.write("g", nothing, lambda *_, number=number: start_write(number))
    assert answers == []
    world.follow(world.log.log_end_offset)
    assert answers == list(range(count))
