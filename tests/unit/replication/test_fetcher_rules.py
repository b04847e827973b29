"""Rules of a follower's fetchers, each with a test that fails without the rule."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.log_offsets import ListOffsetsRequest
from barnabas.replication.fetcher.fetch_states import FetchPhase
from barnabas.replication.partition.fetch_params import FetchParams, FetchPartitionData
from barnabas.replication.partition.partition import Partition
from barnabas.replication.partition.partition_roles import Fetched, OffsetMismatchError
from barnabas.storage.results import FetchIsolation
from barnabas.storage.topic_partition import TopicIdPartition
from unit.replication.following_broker import FollowingBroker, data, records
from unit.replication.replicated_cluster import PARTITION, TOPIC, topic_id_of

if TYPE_CHECKING:
    from collections.abc import Callable


BACKOFF_MS = 1_000


@pytest.fixture
def broker() -> FollowingBroker:
    return FollowingBroker()


def read_at_end(broker: FollowingBroker) -> list[Any]:
    """Let a consumer wait at the follower's log end; return the list of its responses."""
    responses: list[Any] = []
    params = FetchParams(12, -1, -1, 60_000, 1, 1 << 20, FetchIsolation.HIGH_WATERMARK)
    where = TopicIdPartition(topic_id_of(TOPIC), TOPIC, 0)
    asked = FetchPartitionData(broker.log.log_end_offset, 1 << 20)
    broker.node.manager.fetch(params, [(where, asked)], responses.append)
    assert not responses
    return responses


def give_two(broker: FollowingBroker) -> None:
    """Give the follower two committed records."""
    content = records(b"a")
    broker.leader.give({PARTITION: data(content, high_watermark=2)}, session_id=0)
    content = records(b"b", offset=1)
    broker.leader.give({PARTITION: data(content, high_watermark=2)}, session_id=0)
    assert broker.log.high_watermark == broker.log.log_end_offset == 2


def diverge(broker: FollowingBroker) -> None:
    part = data(high_watermark=1, diverging=(0, 1))
    broker.leader.give({PARTITION: part}, session_id=0)


def leave_range_above(broker: FollowingBroker) -> None:
    """The leader's log ends below the follower's."""
    broker.leader.give({PARTITION: data(error_code=ErrorCode.OFFSET_OUT_OF_RANGE)}, session_id=0)
    broker.leader.give_offset(PARTITION, 1)


def leave_range_below(broker: FollowingBroker) -> None:
    """The leader's log starts above the follower's end."""
    broker.leader.give({PARTITION: data(error_code=ErrorCode.OFFSET_OUT_OF_RANGE)}, session_id=0)
    broker.leader.give_offset(PARTITION, 9)
    broker.leader.give_offset(PARTITION, 5)


@pytest.mark.parametrize("change", [diverge, leave_range_above, leave_range_below])
def test_a_truncation_completes_reads_that_wait(
    broker: FollowingBroker, change: Callable[[FollowingBroker], None]
) -> None:
    give_two(broker)
    responses = read_at_end(broker)
    change(broker)
    assert broker.log.log_end_offset != 2
    assert len(responses) == 1


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_a_full_fetch_with_a_session_error_is_repeated_after_the_backoff(
    broker: FollowingBroker, error: ErrorCode
) -> None:
    (_, fetcher), *_ = broker.fetchers.fetchers()
    assert broker.leader.waiting.session_epoch == 0
    requests = fetcher.requests
    broker.leader.give({}, session_id=0, error=error)
    assert broker.is_delayed()
    broker.run_for(BACKOFF_MS - 50)
    assert fetcher.requests == requests
    broker.run_for(100)
    assert fetcher.requests == requests + 1
    assert broker.leader.waiting.session_epoch == 0


def test_an_error_during_a_delay_does_not_extend_it() -> None:
    broker = FollowingBroker(partitions=2)
    delayed, other = broker.key(0), broker.key(1)
    parts = {delayed: data(error_code=ErrorCode.UNKNOWN_SERVER_ERROR), other: data()}
    broker.leader.give(parts, session_id=0)
    until_ms = broker.state(delayed).delayed_until_ms
    broker.run_for(BACKOFF_MS / 2)
    assert broker.leader.waiting is not None
    # The failure of a whole request delays all partitions.
    broker.leader.fail()
    assert broker.state(other).delayed_until_ms > until_ms
    assert broker.state(delayed).delayed_until_ms == until_ms
    broker.run_for(BACKOFF_MS / 2 + 50)
    assert list(broker.asked()) == [delayed]


def test_an_error_of_a_response_that_closes_the_fetchers_is_silent(
    broker: FollowingBroker, caplog: pytest.LogCaptureFixture
) -> None:
    class Last:
        @property
        def responses(self) -> object:
            broker.node.manager.shutdown()
            raise RuntimeError("not foreseen")

    with caplog.at_level(logging.INFO):
        broker.leader.answer(Last())  # type: ignore[arg-type]  # a response that raises
    assert not [each for each in caplog.records if "fetcher" in each.name]


def test_a_failed_partition_is_not_counted_once_this_broker_leads_it(
    broker: FollowingBroker,
) -> None:
    broker.leader.give({PARTITION: data(error_code=ErrorCode.FENCED_LEADER_EPOCH)})
    assert broker.fetchers.failed == [PARTITION]
    broker.lead(broker.node.id)
    assert broker.node.partition().is_leader
    assert broker.fetchers.failed == []


def test_a_partition_whose_transition_raised_is_not_fetched(
    broker: FollowingBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def become_follower(*_: object) -> bool:
        raise RuntimeError("not foreseen")

    monkeypatch.setattr(Partition, "become_follower", become_follower)
    assert broker.state() is not None
    broker.lead(2)
    assert broker.node.manager.offline_partitions == {PARTITION}
    assert broker.state() is None


def test_an_append_below_the_log_end_without_records_is_refused(broker: FollowingBroker) -> None:
    give_two(broker)
    with pytest.raises(OffsetMismatchError):
        broker.node.partition().follower.append(1, Fetched(b"", 2, 0), lambda _: None)


@pytest.mark.parametrize("with_epoch", [False, True])
def test_a_truncation_of_an_offline_partition_fails_it(with_epoch: bool) -> None:
    """Kafka: a truncation that fails marks the partition as failed."""
    broker = FollowingBroker(partitions=2)
    offline, other = broker.key(0), broker.key(1)
    if with_epoch:
        broker.node.log(offline).appender.append_as_follower(records(b"a"))
        broker.lead(3, offline)
        broker.lead(2, offline)
    state = broker.state(offline)
    assert state is not None
    state.phase = FetchPhase.TRUNCATING
    fetcher = next(each for _, each in broker.fetchers.fetchers() if each.states.get(offline))
    fetcher.states.mark_changed(offline)
    # The directory fails, and the fetchers are not told yet.
    broker.node.manager._registry.take_offline(offline)
    if with_epoch:
        end = data(diverging=(0, 0)).diverging_epoch
        fetcher._queries.truncation.truncate_diverging({offline: end})
    else:
        fetcher._queries.truncation.truncate_without_epoch()
    assert broker.fetchers.failed == [offline]
    assert broker.state(other) is not None
    assert not isinstance(broker.leader.waiting, ListOffsetsRequest)
