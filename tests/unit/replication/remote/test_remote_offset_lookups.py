"""ListOffsets on a partition with a remote tier: special timestamps, and searches by time."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.replication.partition.offset_lookup import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    offsets_before,
    visible_result,
)
from barnabas.replication.partition.results import ListOffsetResult
from barnabas.replication.requests.delayed_offset_lookups import (
    DelayedOffsetLookups,
    PendingLookup,
)
from barnabas.storage.results import FetchIsolation
from barnabas.waiting.steps import ImmediateSteps, run_steps
from unit.replication.remote.tiered_broker import TieredBroker
from unit.replication.replica_set import PARTITION

# Offsets 0 to 4 are only in the tier. The log ends at 6. Record n has timestamp 1000 * n.
TIERED = 5


@pytest.fixture
def broker() -> TieredBroker:
    broker = TieredBroker((1, 2), local_retention_bytes=1, segment_bytes=150)
    broker.change(isr=[1])
    for number in range(TIERED + 1):
        broker.fill(1, timestamp=1_000 * number)
    broker.wait()
    broker.log.delete_old_segments(broker.runtime.clock.wall_ms())
    assert broker.log.local_log_start_offset == TIERED
    return broker


class Canceled(ImmediateSteps):
    """Runs searches at once; a job that has ended cannot be canceled."""

    def submit(self, lane: object, steps: Any, on_done: Any) -> Canceled:
        super().submit(lane, steps, on_done)
        return self

    def cancel(self) -> None:
        """Do nothing: the job has ended."""


class Lookups:
    """The lookups of one request."""

    def __init__(self, broker: TieredBroker, *timestamps: int, epoch: int = -1) -> None:
        self.broker = broker
        self.results: dict[int, ListOffsetResult] = {}
        self.is_done = False
        pending: list[PendingLookup] = []
        for timestamp in timestamps:
            lookup = look_up(broker, timestamp).remote
            assert lookup is not None
            pending.append(PendingLookup(PARTITION, lookup, epoch, True, self._note(timestamp)))
        assert broker.manager.remote_lookups is not None
        self.operation = DelayedOffsetLookups(
            1_000, pending, broker.manager, broker.reads, Canceled(), self._on_done
        )
        self.operation.start(broker.manager.remote_lookups)

    def _note(self, timestamp: int) -> Any:
        return lambda result: self.results.update({timestamp: result})

    def _on_done(self) -> None:
        assert not self.is_done
        self.is_done = True

    def wait(self, milliseconds: int = 900) -> None:
        self.broker.world.run_for(milliseconds)


def look_up(
    broker: TieredBroker,
    timestamp: int,
    isolation: FetchIsolation = FetchIsolation.HIGH_WATERMARK,
) -> ListOffsetResult:
    return run_steps(broker.manager.list_offset(PARTITION, timestamp, isolation, -1))


def found(broker: TieredBroker, timestamp: int) -> tuple[int, int, int]:
    result = look_up(broker, timestamp)
    assert result.error is ErrorCode.NONE
    return result.timestamp, result.offset, result.leader_epoch


def test_special_timestamps_tell_the_tiers_apart(broker: TieredBroker) -> None:
    assert found(broker, EARLIEST) == (-1, 0, 0)
    assert found(broker, EARLIEST_LOCAL) == (-1, 5, 0)
    assert found(broker, LATEST_TIERED) == (-1, 4, 0)
    assert found(broker, EARLIEST_PENDING_UPLOAD) == (-1, 5, 0)
    assert found(broker, LATEST) == (-1, 6, 0)
    assert found(broker, MAX_TIMESTAMP) == (5_000, 5, 0)
    broker.log.maybe_increment_log_start_offset(2, "test")
    assert found(broker, EARLIEST) == (-1, 2, 0)
    assert found(broker, EARLIEST_LOCAL) == (-1, 5, 0)


def test_the_oldest_version_finds_the_beginning_in_the_tier(broker: TieredBroker) -> None:
    isolation = FetchIsolation.HIGH_WATERMARK
    broker.log.maybe_increment_log_start_offset(2, "test")
    listed = {
        timestamp: offsets_before(broker.partition, timestamp, 10, isolation, 10**15)
        for timestamp in (EARLIEST, LATEST, 1)
    }
    assert listed == {EARLIEST: [2], LATEST: [6, 5, 2], 1: [2]}


def test_before_the_first_copy_nothing_is_tiered() -> None:
    broker = TieredBroker(segment_bytes=150)
    for timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        assert found(broker, timestamp) == (-1, -1, -1)
    broker.fill(1)
    assert found(broker, LATEST_TIERED) == (-1, -1, -1)
    assert found(broker, EARLIEST_PENDING_UPLOAD) == (-1, 0, 0)
    assert found(broker, EARLIEST_LOCAL) == (-1, 0, 0)


def test_without_the_tier_the_special_timestamps_have_no_offset() -> None:
    broker = TieredBroker(is_remote=False, segment_bytes=150)
    broker.fill(2)
    for timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        assert found(broker, timestamp) == (-1, -1, -1)
    assert found(broker, EARLIEST_LOCAL) == (-1, 0, 0)


def test_times_are_searched_in_both_tiers(broker: TieredBroker) -> None:
    lookups = Lookups(broker, 0, 1_500, 4_000, 4_500, 6_000)
    assert not lookups.is_done
    assert broker.manager.waiting()["RemoteListOffsets"] == 1
    lookups.wait()
    assert lookups.is_done
    assert {at: (each.timestamp, each.offset) for at, each in lookups.results.items()} == {
        0: (0, 0),
        1_500: (2_000, 2),
        4_000: (4_000, 4),
        4_500: (5_000, 5),
        6_000: (-1, -1),
    }
    assert broker.manager.waiting()["RemoteListOffsets"] == 0


def test_a_lookup_in_local_records_only_needs_no_tier(broker: TieredBroker) -> None:
    broker.log.maybe_increment_log_start_offset(TIERED, "test")
    assert look_up(broker, 0).remote is None
    assert found(broker, 0) == (5_000, 5, 0)


def test_lookups_that_take_too_long_time_out(broker: TieredBroker) -> None:
    broker.runtime.worker_pool.delay_max_ms = 1e9
    lookups = Lookups(broker, 0, 1_000)
    lookups.wait(1_100)
    assert lookups.is_done
    assert [each.error for each in lookups.results.values()] == [ErrorCode.REQUEST_TIMED_OUT] * 2
    assert broker.metrics.list_offsets_expires[PARTITION] == 2


def test_a_client_that_is_gone_gets_nothing(broker: TieredBroker) -> None:
    lookups = Lookups(broker, 0)
    lookups.operation.cancel()
    lookups.wait()
    assert not lookups.is_done
    assert not lookups.results


def test_failures_of_the_store_are_reported_for_the_partition(broker: TieredBroker) -> None:
    assert broker.store is not None
    broker.store.faults.unavailable = 1.0
    lookups = Lookups(broker, 0)
    lookups.wait()
    assert lookups.results[0].error is ErrorCode.UNKNOWN_SERVER_ERROR


def test_metadata_that_is_not_ready_is_reported(broker: TieredBroker) -> None:
    broker.metadata.is_ready = False
    assert Lookups(broker, 0).results[0].error is ErrorCode.REPLICA_NOT_AVAILABLE


def test_the_access_is_checked_after_the_search(broker: TieredBroker) -> None:
    lookups = Lookups(broker, 0, epoch=0)
    broker.resign()
    lookups.wait()
    assert lookups.results[0].error is ErrorCode.FENCED_LEADER_EPOCH


def test_a_result_above_the_visible_end_is_not_returned(broker: TieredBroker) -> None:
    isolation = FetchIsolation.HIGH_WATERMARK
    assert visible_result(broker.partition, (5_000, 5, 0), isolation).offset == 5
    assert visible_result(broker.partition, (6_000, 6, 0), isolation).offset == -1
    assert visible_result(broker.partition, None, isolation).offset == -1
