"""Rules of the consumer's core: buffering, requests and errors."""

from __future__ import annotations

import asyncio
import re
import threading
from typing import Any

import pytest

import barnabas
import barnabas.aio
from barnabas.client.connections.metadata_cache import PartitionInfo, TopicInfo
from barnabas.client.consumer import consumer_plans
from barnabas.client.consumer.assignment.subscription import Subscription
from barnabas.client.consumer.assignment.topic_partition_state import PositionState
from barnabas.client.consumer.commits import CommitDependencies, Commits
from barnabas.client.consumer.consumer_calls import ConsumerCalls, ConsumerIterator
from barnabas.client.consumer.errors import (
    ConcurrentUseError,
    InvalidGroupIdError,
    SubscriptionError,
    WakeupError,
)
from barnabas.client.errors import ClientClosedError, ClientError, OffsetOutOfRangeError
from barnabas.client.group.group_offsets import CommittedOffset
from barnabas.client.group.membership import GroupGeneration
from barnabas.client.topic_partition import TopicPartition
from barnabas.protocol.messages.log_offsets import ListOffsetsRequest
from barnabas.record.builder import BatchBuilder
from unit.client.consumer.assignment.reading import TP, Reading
from unit.client.consumer.silent_core import Silent, core_over
from unit.client.scripted_cluster import ScriptedCluster

OTHER = TopicPartition("u", 0)


def topic(name: str) -> TopicInfo:
    return TopicInfo(name, name.encode().ljust(16), False, {0: PartitionInfo(0, 1, 4)})


# Subscribing


def test_subscribing_needs_a_group() -> None:
    for keys in ({"group.id": None}, {"group.id": " "}):
        with pytest.raises(InvalidGroupIdError):
            core_over(Silent(**keys)).subscribe(["t"], None)


def test_a_new_pattern_discards_the_topics_of_the_old_pattern() -> None:
    subscription = Subscription()
    subscription.subscribe(re.compile("t.*"), None)
    assert subscription.match([topic("t"), topic("u")])
    assert subscription.topics == {"t"}
    subscription.subscribe(re.compile("u.*"), None)
    assert subscription.topics == frozenset()


def test_metadata_is_requested_only_for_unknown_topics() -> None:
    cluster = Silent()
    core = core_over(cluster)
    core.subscribe(["t"], None)
    assert cluster.refreshed == []
    core.subscribe(["t", "new"], None)
    assert cluster.refreshed == [["new"]]
    assert cluster.tracked == {"t", "new"}


def test_records_of_unsubscribed_topics_are_not_returned() -> None:
    reading = Reading(**{"group.id": "g"})
    core = reading.core
    core.subscription.unsubscribe()
    core.subscribe(["t"], None)
    core.subscription.assign_by_group([TP])
    core.positions.seek(TP, 0)
    reading.answer_records(0, 5)
    assert core.fetcher.buffer
    core.subscribe(["u"], None)
    assert not core.fetcher.buffer
    assert core.subscription.assignment[TP].is_revoking
    assert reading.read() == []


def test_records_of_unassigned_partitions_are_dropped() -> None:
    reading = read_ahead()
    reading.core.assign([TopicPartition("t", 1)])
    assert not reading.core.fetcher.buffer


def read_ahead(**keys: object) -> Reading:
    """A consumer with the records 0 to 4 in its buffer."""
    reading = Reading(**keys)
    reading.core.positions.seek(TP, 0)
    reading.answer_records(0, 5)
    assert reading.core.fetcher.buffer
    return reading


def test_a_seek_drops_fetched_records() -> None:
    reading = read_ahead()
    reading.core.positions.seek(TP, 0)
    assert not reading.core.fetcher.buffer


def test_no_records_of_a_paused_partition_are_returned() -> None:
    reading = read_ahead()
    reading.core.pause([TP])
    assert reading.read() == []
    reading.core.resume([TP])
    assert reading.read() == [0, 1, 2, 3, 4]


def test_a_paused_partition_is_not_fetched_after_a_seek() -> None:
    reading = Reading()
    reading.core.pause([TP])
    reading.core.positions.seek(TP, 3)
    assert not reading.cluster.calls
    reading.core.resume([TP])
    assert reading.answer_records(3, 1).topics[0].partitions[0].fetch_offset == 3
    assert reading.read() == [3]


def test_the_user_may_pause_while_records_are_partly_taken() -> None:
    reading = read_ahead()
    reading.answer_records(5, 5)
    reading.answer_records(10, 5)
    records = reading.core.take(2)
    assert records is not None
    reading.core.pause([TP])
    assert reading.read() == []
    reading.core.resume([TP])
    # The second set was kept, the third is fetched again.
    assert reading.read() == [2, 3, 4, 5, 6, 7, 8, 9]
    assert reading.core.subscription.partition(TP).fetch_offset == 10


def test_records_are_returned_after_a_canceled_revocation() -> None:
    reading, _committed = auto_committing()
    reading.answer_records(7, 5)
    reading.core.host.commit_before_revoke([TP], lambda _error: None)
    assert reading.read() == []
    reading.core.host.assign([TP], [], lambda _error: None)
    assert reading.read() == [7, 8, 9, 10, 11]
    assert reading.core.subscription.partition(TP).is_fetchable


def test_reading_continues_after_a_topic_is_subscribed_again() -> None:
    reading = Reading(**{"group.id": "g"})
    core = reading.core
    core.subscription.unsubscribe()
    core.subscribe(["t"], None)
    core.subscription.assign_by_group([TP])
    core.positions.seek(TP, 0)
    reading.answer_records(0, 5)
    core.subscribe(["u"], None)
    core.subscribe(["t"], None)
    core.host.assign([TP], [], lambda _error: None)
    assert reading.read() == [0, 1, 2, 3, 4]


def test_a_revoked_partition_stays_held_when_the_user_resumes_it() -> None:
    reading = read_ahead()
    state = reading.core.subscription.partition(TP)
    reading.core.pause([TP])
    reading.core.collector.revoke(state)
    reading.core.resume([TP])
    assert reading.read() == []
    reading.core.collector.cancel_revocation(state)
    assert reading.read() == [0, 1, 2, 3, 4]


# Polls


def test_a_poll_without_a_subscription_is_an_error() -> None:
    core = core_over(Silent())
    with pytest.raises(SubscriptionError, match="nothing to poll"):
        core.begin_poll()


def test_a_wakeup_is_raised_once_before_any_request() -> None:
    reading = Reading()
    reading.core.is_wakeup_wanted = True
    with pytest.raises(WakeupError):
        reading.core.round()
    assert not reading.cluster.calls
    reading.core.round()
    assert reading.cluster.calls


def test_a_poll_returns_at_most_max_poll_records() -> None:
    reading = read_ahead()
    assert [len(reading.core.take(2) or ()) for _ in range(4)] == [2, 2, 1, 0]


def test_the_next_fetch_is_sent_before_the_records_are_returned() -> None:
    reading = Reading(queued_max_bytes=10)
    reading.core.positions.seek(TP, 0)
    reading.answer_records(0, 5)
    assert not reading.cluster.calls
    assert reading.read() == [0, 1, 2, 3, 4]
    assert len(reading.cluster.calls) == 1


def test_a_response_with_only_markers_moves_the_position_and_ends_the_poll() -> None:
    reading = Reading()
    reading.core.positions.seek(TP, 0)
    marker = BatchBuilder(base_offset=0, producer_id=7, producer_epoch=0, control=True)
    marker.append(0, b"\0\0\0\1", b"\0\0\0\0\0\0")
    reading.answer_fetch(records=bytes(marker.build()))
    records = reading.core.take(100)
    assert records is not None
    assert len(records) == 0
    assert reading.core.subscription.partition(TP).offset == 1


def test_a_failure_is_raised_after_the_records_before_it_are_returned() -> None:
    reading = read_ahead()
    reading.answer_fetch(code=87)
    assert reading.read() == [0, 1, 2, 3, 4]
    with pytest.raises(ClientError):
        reading.core.take(100)


def test_the_position_moves_with_the_returned_records() -> None:
    reading = read_ahead()
    position = reading.core.subscription.partition(TP)
    assert position.offset == 0
    reading.core.take(2)
    assert position.offset == 2


def test_the_time_between_polls_is_measured() -> None:
    reading = Reading()
    for _ in range(3):
        reading.core.begin_poll()
        reading.cluster.time.advance(40)
        reading.core.metrics.on_poll_end()
        reading.cluster.time.advance(60)
    counted = reading.core.metrics.report({}, 0)["consumer-metrics"]
    assert counted["time-between-poll-avg"] == 100
    assert counted["poll-idle-ratio-avg"] == 0.4


def test_only_one_task_at_a_time_may_poll() -> None:
    async def main() -> None:
        async with barnabas.aio.Consumer(bootstrap_servers="127.0.0.1:1") as consumer:
            consumer.assign([("t", 0)])
            polling = asyncio.create_task(consumer.poll(60))
            await asyncio.sleep(0)
            with pytest.raises(ConcurrentUseError, match="another task"):
                await consumer.poll()
            consumer.wakeup()
            with pytest.raises(WakeupError):
                await polling
            # The one that ended lets others poll.
            await consumer.poll()

    asyncio.run(main())


def test_only_one_thread_at_a_time_may_call() -> None:
    with barnabas.Consumer(bootstrap_servers="127.0.0.1:1") as consumer:
        stepper = consumer._session.stepper
        is_inside, may_leave = threading.Event(), threading.Event()

        def stay_inside() -> None:
            assert stepper.enter()
            is_inside.set()
            may_leave.wait()
            stepper.leave()

        other = threading.Thread(target=stay_inside)
        other.start()
        is_inside.wait()
        try:
            with pytest.raises(ConcurrentUseError, match="another thread"):
                consumer.assignment()
        finally:
            may_leave.set()
            other.join()
        assert consumer.assignment() == set()


def test_calls_of_a_closed_consumer_raise() -> None:
    consumer = barnabas.Consumer(bootstrap_servers="127.0.0.1:1")
    consumer.close()
    with pytest.raises(ClientClosedError):
        consumer.assign([("t", 0)])


# Out of range


def test_a_prefetch_out_of_range_restarts_at_the_position_of_the_user() -> None:
    reading = read_ahead()
    reading.core.take(2)
    error = OffsetOutOfRangeError(TP, 5, 0)
    assert reading.core.positions.on_failure(TP, error) is None
    position = reading.core.subscription.partition(TP)
    assert (position.state, position.offset) == (PositionState.FETCHING, 2)
    assert not reading.core.fetcher.buffer
    assert position.fetch_offset == 2


def test_a_position_out_of_range_is_reset() -> None:
    reading = read_ahead()
    assert reading.core.positions.on_failure(TP, OffsetOutOfRangeError(TP, 0, 3)) is None
    assert reading.state is PositionState.AWAIT_RESET


def test_with_reset_none_a_position_out_of_range_raises() -> None:
    reading = read_ahead(**{"auto.offset.reset": "none"})
    error = OffsetOutOfRangeError(TP, 0, 3)
    assert reading.core.positions.on_failure(TP, error) is error


# Isolation


@pytest.mark.parametrize(("level", "number"), [("read_committed", 1), ("read_uncommitted", 0)])
def test_fetches_and_lookups_have_the_isolation_level(level: str, number: int) -> None:
    reading = Reading(isolation_level=level, fetch_min_bytes=7, fetch_max_bytes=1_234_567)
    reading.core.round()
    assert reading.answer_offset(0).isolation_level == number
    request = reading.answer_records(0, 5)
    assert request.isolation_level == number
    assert (request.min_bytes, request.max_bytes) == (7, 1_234_567)
    assert request.max_wait_ms == reading.core.config.fetch_max_wait_ms


@pytest.mark.parametrize(("level", "number"), [("read_committed", 1), ("read_uncommitted", 0)])
def test_lookups_of_the_user_have_the_isolation_level(level: str, number: int) -> None:
    reading = Reading(isolation_level=level)
    stand_in: Any = reading.cluster
    calls = ConsumerCalls(stand_in, reading.core, ConsumerIterator(reading.core))
    next(consumer_plans.end_offsets(calls, [TP]))
    assert reading.answer_offset(9).isolation_level == number


@pytest.mark.parametrize(("level", "end"), [("read_committed", 40), ("read_uncommitted", 100)])
def test_the_lag_is_computed_from_the_end_of_the_isolation_level(level: str, end: int) -> None:
    reading = Reading(isolation_level=level)
    reading.core.positions.seek(TP, 0)
    state = reading.core.subscription.partition(TP)
    state.last_stable_offset, state.high_watermark = 40, 100
    assert reading.core.lag(TP) == end


def test_an_unknown_end_offset_is_requested_again_after_a_backoff() -> None:
    reading = Reading()
    reading.core.round()
    reading.answer_offset(-1)
    reading.core.round()
    assert not reading.cluster.calls
    assert reading.state is PositionState.AWAIT_RESET
    reading.cluster.time.advance(2_000)
    reading.core.round()
    request, _ = reading.cluster.take(7)
    assert isinstance(request, ListOffsetsRequest)


# Groups


def test_a_pattern_is_matched_against_fresh_metadata_of_all_topics_before_a_join() -> None:
    cluster = Silent()
    core = core_over(cluster)
    core.subscribe(re.compile("u.*"), None)
    cluster.refreshed.clear()
    cluster.on_refresh = [lambda: cluster.metadata.topics.update(u=topic("u"))]
    ended: list[BaseException | None] = []
    core.host.refresh_pattern(ended.append)
    core.host.run_scheduled()
    assert ended == [None]
    assert cluster.refreshed == [None]
    assert core.subscription.topics == {"u"}
    assert cluster.tracked == {"u"}


def test_without_a_pattern_no_metadata_is_requested_before_a_join() -> None:
    cluster = Silent()
    core = core_over(cluster)
    core.subscribe(["t"], None)
    ended: list[BaseException | None] = []
    core.host.refresh_pattern(ended.append)
    assert (ended, cluster.refreshed) == ([None], [])


def test_no_records_of_revoked_partitions_are_returned() -> None:
    reading = read_ahead(**{"group.id": "g"})
    kept: list[Any] = []
    reading.core.host._dependencies = reading.core.host._dependencies._replace(
        run_callback=lambda _call, done: kept.append(done)
    )
    reading.core.subscription.listener = barnabas.RebalanceListener()
    reading.core.host.revoke([TP], lambda _error: None)
    assert reading.read() == []
    (end,) = kept
    end(None)
    assert reading.core.subscription.assignment == {}


# Commits


class Offsets:
    """Keeps commits, for the test to answer in any order."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, Any]] = []

    def commit(
        self, _speaker: Any, offsets: Any, _ids: Any, _timeout_ms: float, on_done: Any
    ) -> None:
        self.asked.append((offsets, on_done))


class Committing:
    """The commits of a consumer that reads the partition at offset 5, in epoch 3."""

    def __init__(self, interval_ms: float | None = None) -> None:
        cluster: Any = ScriptedCluster()
        self.time = cluster.time
        self.offsets: Any = Offsets()
        self.refusal: ClientError | None = None
        self.changes = 0
        self.subscription = Subscription()
        self.subscription.assign_by_hand([TP])
        self.subscription.partition(TP).seek(5, 3)
        parts = CommitDependencies(
            self.subscription,
            lambda: GroupGeneration("g", 1, "m"),
            lambda: self.refusal,
            lambda _error, _sent_by: None,
            lambda _offsets, _latency: None,
            self._on_change,
        )
        self.commits = Commits(cluster, self.offsets, parts, interval_ms)

    def _on_change(self) -> None:
        self.changes += 1


def test_commit_callbacks_run_in_order_and_only_in_run_callbacks() -> None:
    committing = Committing()
    called: list[int] = []
    for number in range(3):
        offsets = {TP: CommittedOffset(number)}
        committing.commits.commit_later(
            offsets, lambda given, _error: called.append(given[TP].offset)
        )
    (_, first), (_, second), (_, third) = committing.offsets.asked
    third(True, None)
    second(True, None)
    committing.commits.run_callbacks()
    assert called == []
    first(True, None)
    assert called == []
    assert committing.changes == 3
    committing.commits.run_callbacks()
    assert called == [0, 1, 2]


def test_a_poll_runs_the_callbacks_of_ended_commits() -> None:
    reading = Reading(**{"group.id": "g"})
    ended: list[Any] = []
    reading.core.offsets.commit = (  # type: ignore[method-assign]
        lambda _speaker, _offsets, _ids, _timeout_ms, on_done: ended.append(on_done)
    )
    called: list[Any] = []
    reading.core.commit_async({TP: CommittedOffset(1)}, lambda *given: called.append(given))
    (on_done,) = ended
    on_done(True, None)
    assert called == []
    reading.core.positions.seek(TP, 0)
    reading.core.round()
    assert called == [({TP: CommittedOffset(1)}, None)]


def test_the_position_is_committed_with_its_leader_epoch() -> None:
    committing = Committing()
    assert committing.commits.consumed() == {TP: CommittedOffset(5, 3)}
    state = committing.subscription.partition(TP)
    state.validated()
    state.start(5, 3)
    state.fetch_offset = 9
    state.advance(9, 4)
    assert committing.commits.consumed() == {TP: CommittedOffset(9, 4)}
    committing.subscription.assign_by_hand([TP, OTHER])
    assert set(committing.commits.consumed()) == {TP}


def test_an_automatic_commit_is_due_every_interval() -> None:
    committing = Committing(5_000.0)
    committing.time.advance(4_999)
    committing.commits.maybe_auto_commit()
    assert not committing.offsets.asked
    committing.time.advance(1)
    committing.commits.maybe_auto_commit()
    ((offsets, done),) = committing.offsets.asked
    assert offsets == {TP: CommittedOffset(5, 3)}
    done(True, None)
    committing.commits.maybe_auto_commit()
    assert len(committing.offsets.asked) == 1


def test_a_refused_commit_sends_no_request(caplog: pytest.LogCaptureFixture) -> None:
    committing = Committing(5_000.0)
    committing.refusal = ClientError("not a member")
    ended: list[ClientError | None] = []
    committing.commits.commit(
        {TP: CommittedOffset(1)}, 1_000, lambda _done, error: ended.append(error)
    )
    assert ended == [committing.refusal]
    committing.time.advance(5_000)
    committing.commits.maybe_auto_commit()
    assert not committing.offsets.asked
    # It is no failure, and the next interval begins.
    assert not caplog.records
    committing.refusal = None
    committing.commits.maybe_auto_commit()
    assert not committing.offsets.asked


def test_a_consumer_commits_before_it_closes() -> None:
    reading = Reading(**{"group.id": "g", "enable.auto.commit": True})
    reading.core.positions.seek(TP, 7)
    committed: list[Any] = []
    reading.core.offsets.commit = lambda *given: committed.append(given[1])  # type: ignore[method-assign]
    reading.core.begin_close(1_000, lambda: None)
    assert committed == [{TP: CommittedOffset(7)}]


def auto_committing() -> tuple[Reading, list[Any]]:
    """A member that reads the partition at offset 7, and its commits: offsets and their ends."""
    reading = Reading(
        **{"group.id": "g", "enable.auto.commit": True, "auto.commit.interval.ms": 5_000}
    )
    reading.core.positions.seek(TP, 7)
    committed: list[Any] = []
    reading.core.offsets.commit = (  # type: ignore[method-assign]
        lambda _speaker, offsets, _ids, _timeout_ms, on_done: committed.append((offsets, on_done))
    )
    return reading, committed


def test_a_poll_commits_automatically_when_the_interval_has_passed() -> None:
    reading, committed = auto_committing()
    reading.core.round()
    assert committed == []
    reading.cluster.time.advance(5_000)
    reading.core.round()
    assert [offsets for offsets, _ in committed] == [{TP: CommittedOffset(7)}]


def test_partitions_are_revoked_after_their_offsets_are_committed() -> None:
    reading, committed = auto_committing()
    ended: list[BaseException | None] = []
    reading.core.host.commit_before_revoke([TP], ended.append)
    reading.core.host.run_scheduled()
    ((offsets, on_done),) = committed
    assert offsets == {TP: CommittedOffset(7)}
    assert ended == []
    on_done(True, None)
    reading.core.host.run_scheduled()
    assert ended == [None]


def test_no_records_are_returned_during_the_commit_before_a_revocation() -> None:
    reading, _committed = auto_committing()
    reading.answer_records(7, 5)
    reading.core.host.commit_before_revoke([TP], lambda _error: None)
    assert reading.read() == []
