"""A broker whose wall clock jumps: nothing expires by a time that may be wrong."""

from __future__ import annotations

from barnabas.storage.topic_partition import TopicPartition
from unit.server.handlers.offset_requests import broker_with_groups, commit, committed
from unit.server.simulated_broker import SimulatedBroker

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
EIGHT_DAYS_MS = 8 * DAY_MS
# Retention has looked at the logs by then.
RETENTION_MS = 10 * 60_000
KEY = TopicPartition("t", 0)
HOLD_MS = 6 * HOUR_MS


def broker_with_records() -> SimulatedBroker:
    broker = SimulatedBroker()
    broker.make_topic("t", retention_ms=str(7 * DAY_MS))
    answer = broker.produce("t", b"1", b"2", producer_id=9, producer_epoch=0, base_sequence=0)
    assert answer.base_offset == 0
    return broker


def log_start(broker: SimulatedBroker) -> int:
    return broker.node.broker.logs.logs[KEY].log_start_offset


def known_producers(broker: SimulatedBroker) -> list[int]:
    return list(broker.node.broker.logs.logs[KEY].producer_state.entries)


def test_a_clock_that_is_eight_days_ahead_for_a_while_deletes_nothing() -> None:
    broker = broker_with_records()
    broker.host.clock.wall_offset_ms += EIGHT_DAYS_MS
    broker.world.run_for(RETENTION_MS)
    assert log_start(broker) == 0
    assert known_producers(broker) == [9]
    broker.host.clock.wall_offset_ms = 0
    broker.world.run_for(DAY_MS / 2)
    assert log_start(broker) == 0
    assert known_producers(broker) == [9]


def test_records_expire_by_a_clock_that_stays_ahead() -> None:
    broker = broker_with_records()
    broker.host.clock.wall_offset_ms += EIGHT_DAYS_MS
    broker.world.run_for(HOLD_MS - RETENTION_MS)
    assert log_start(broker) == 0
    broker.world.run_for(3 * RETENTION_MS)
    assert log_start(broker) == 2
    assert known_producers(broker) == []


def test_restarts_under_a_clock_that_is_ahead_delete_nothing() -> None:
    broker = broker_with_records()
    broker.world.run_for(RETENTION_MS)
    broker.host.clock.wall_offset_ms += EIGHT_DAYS_MS
    broker.stop()
    broker.restart()
    broker.world.run_for(RETENTION_MS)
    assert log_start(broker) == 0
    assert known_producers(broker) == [9]
    broker.host.kill()
    broker.restart()
    broker.world.run_for(RETENTION_MS)
    assert log_start(broker) == 0
    assert known_producers(broker) == [9]
    broker.world.run_for(HOLD_MS)
    assert log_start(broker) == 2


def test_a_kill_does_not_make_a_clock_ahead_trusted() -> None:
    broker = broker_with_records()
    broker.world.run_for(RETENTION_MS)
    broker.host.clock.wall_offset_ms += EIGHT_DAYS_MS
    broker.world.run_for(RETENTION_MS)
    broker.host.kill()
    broker.restart()
    broker.world.run_for(RETENTION_MS)
    assert log_start(broker) == 0


def test_a_broker_that_was_off_for_a_month_keeps_its_records_for_some_hours() -> None:
    broker = broker_with_records()
    broker.stop()
    broker.world.run_for(30 * DAY_MS)
    broker.restart()
    broker.world.run_for(RETENTION_MS)
    assert log_start(broker) == 0
    broker.world.run_for(HOLD_MS + RETENTION_MS)
    assert log_start(broker) == 2


def test_without_the_clock_file_checkpoints_give_the_trusted_time() -> None:
    broker = broker_with_records()
    broker.stop()
    broker.host.disk.remove("/data/retention-clock-checkpoint")
    broker.world.run_for(30 * DAY_MS)
    broker.restart()
    broker.world.run_for(RETENTION_MS)
    assert log_start(broker) == 0


def test_offsets_do_not_expire_by_a_clock_ahead() -> None:
    broker = broker_with_groups()
    broker.make_topic("t")
    assert commit(broker, 7) == 0
    broker.host.clock.wall_offset_ms += EIGHT_DAYS_MS
    # Their expiry is looked at every ten minutes.
    for _ in range(6):
        broker.world.run_for(5 * 60_000)
        assert committed(broker) == 7
