"""Loading, committing and losing a state partition."""

from __future__ import annotations

from barnabas.coordinator.driver import ShardState
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.records.partition_change_record import PartitionChangeRecord
from unit.coordinator.coordinator_world import OFFSETS_ID, CoordinatorWorld


def test_offsets_are_there_again_after_a_restart() -> None:
    world = CoordinatorWorld()
    world.load()
    for offset in range(3_000):
        world.commit(offset, partition=0, group=f"g{offset % 7}")
    world.coordinator = world.new_coordinator()
    world.coordinator.driver.on_elected(0, 1)
    assert world.committed(group="g1")[0] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert world.commit() == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    world.replicas.world.run_for(50)
    assert [world.committed(group=f"g{n}")[1] for n in range(7)] == [
        max(offset for offset in range(3_000) if offset % 7 == n) for n in range(7)
    ]


def test_a_broker_that_does_not_lead_sends_its_askers_elsewhere() -> None:
    world = CoordinatorWorld()
    assert world.commit() == ErrorCode.NOT_COORDINATOR
    assert world.committed()[0] == ErrorCode.NOT_COORDINATOR


def test_an_answer_waits_until_its_offsets_are_committed_and_so_do_readers() -> None:
    world = CoordinatorWorld((1, 2))
    world.load()
    assert world.commit(5) is None
    assert world.committed()[1] == -1, "nothing is shown that a fail-over can take back"
    world.follow(1)
    assert world.error() == ErrorCode.NONE
    assert world.committed()[1] == 5


def test_answers_come_in_the_order_of_their_writes() -> None:
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


def test_a_write_that_is_not_committed_in_time_fails_and_may_show_up_later() -> None:
    world = CoordinatorWorld((1, 2))
    world.load()
    world.commit(5)
    world.replicas.world.run_for(5_010)
    assert world.error() == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.committed()[1] == -1
    world.follow(1)
    assert world.committed()[1] == 5
    assert len(world.responses) == 1


def test_losing_the_leadership_answers_those_who_wait_once() -> None:
    world = CoordinatorWorld((1, 2))
    world.load()
    world.commit(5)
    world.resign()
    world.coordinator.driver.on_resigned(0)
    assert [each.topics[0].partitions[0].error_code for each in world.responses] == [
        ErrorCode.NOT_COORDINATOR
    ]
    assert world.coordinator.driver.state(0) is None


def test_too_few_replicas_refuse_the_commit_and_leave_no_trace() -> None:
    world = CoordinatorWorld((1, 2))
    world.load()
    config = world.log.config.__class__(min_insync_replicas=2)
    world.log.update_config(config)
    world.replicas.replay(PartitionChangeRecord(partition_id=0, topic_id=OFFSETS_ID, isr=[1]))
    assert world.commit(5) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.log.log_end_offset == 0
    assert world.committed()[1] == -1


def test_a_new_leader_shows_nothing_before_all_it_loaded_is_known_to_be_committed() -> None:
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


def test_a_newer_epoch_cancels_the_loading_of_an_older_one() -> None:
    world = CoordinatorWorld()
    world.load()
    world.commit(5)
    driver = world.coordinator.driver
    driver.on_elected(0, 1)
    driver.on_elected(0, 2)
    driver.on_elected(0, 2)
    assert driver.state(0) is ShardState.LOADING
    world.replicas.world.run_for(5)
    assert world.committed()[1] == 5


def test_an_answer_without_records_waits_for_those_before_it_and_not_for_ever() -> None:
    world = CoordinatorWorld((1, 2))
    world.load()
    world.commit(5)
    assert world.commit(6, generation=3, version=9) is None
    world.replicas.world.run_for(5_010)
    assert len(world.responses) == 2
    assert world.error() == ErrorCode.COORDINATOR_NOT_AVAILABLE
