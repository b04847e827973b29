"""Incremental fetch sessions: requests, responses, and eviction."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.replication.partition.fetch_params import FetchPartitionData
from barnabas.replication.partition.results import FetchResult, failed_fetch
from barnabas.replication.requests import fetch_session_cache
from barnabas.replication.requests.fetch_session import answer_in_steps
from barnabas.replication.requests.fetch_session_cache import (
    SIZE_MAX,
    UNKNOWN_MAX,
    FetchSessionCache,
    SessionRequest,
)
from barnabas.runtime.rng import SeededRng
from barnabas.sim.clock import SimClock, SimScheduler
from barnabas.storage.topic_partition import TopicIdPartition
from barnabas.waiting.steps import run_to_end

EVICTION_MS = 1_000


def where(partition: int, topic: str = "t", topic_id: bytes = b"i" * 16) -> TopicIdPartition:
    return TopicIdPartition(topic_id, topic, partition)


def asked(*partitions: int, offset: int = 0) -> list:
    return [(where(each), FetchPartitionData(offset, 100)) for each in partitions]


def result(high_watermark: int = 5, records: bytes = b"") -> FetchResult:
    return FetchResult(ErrorCode.NONE, high_watermark, high_watermark, 0, records)


@dataclass
class Client:
    """Uses the cache as a fetcher does."""

    cache: FetchSessionCache
    follower: bool = False
    uses_topic_ids: bool = True
    names: dict = field(default_factory=dict)

    def open(self, session_id: int, epoch: int, entries: list, forgotten: tuple = ()):
        request = SessionRequest(
            session_id, epoch, entries, list(forgotten), self.follower, self.uses_topic_ids
        )
        return self.cache.open(request, self.names.get)

    def begin(self, *partitions: int) -> int:
        context = self.open(0, 0, asked(*partitions))
        context.update([(where(each), result()) for each in partitions])
        return context.session_id


@pytest.fixture
def scheduler() -> SimScheduler:
    return SimScheduler()


@pytest.fixture
def cache(scheduler: SimScheduler) -> FetchSessionCache:
    return FetchSessionCache(2, EVICTION_MS, SimClock(scheduler), SeededRng(1))


@pytest.fixture
def client(cache: FetchSessionCache) -> Client:
    return Client(cache)


def numbers(entries: list) -> list[int]:
    return [each[0].partition for each in entries]


def test_a_full_fetch_returns_all_partitions_and_starts_a_session(client: Client) -> None:
    context = client.open(0, 0, asked(0, 1))
    answer = context.update([(where(0), result()), (where(1), result())])
    assert numbers(answer) == [0, 1]
    assert context.session_id > 0
    assert client.cache.partition_count == 2


def test_a_final_epoch_starts_no_session_and_closes_the_named_session(client: Client) -> None:
    session = client.begin(0)
    context = client.open(session, -1, asked(0))
    assert context.session_id == 0
    assert numbers(context.partitions()) == [0]
    assert len(client.cache) == 0


def test_an_incremental_fetch_returns_only_changed_partitions(client: Client) -> None:
    session = client.begin(0, 1, 2)
    context = client.open(session, 1, [])
    assert numbers(context.partitions()) == [0, 1, 2]
    answer = context.update([(where(0), result()), (where(1), result(6)), (where(2), result())])
    assert numbers(answer) == [1]
    assert context.session_id == session


def test_a_truncation_of_the_log_is_a_change(client: Client) -> None:
    session = client.begin(0, 1)
    truncated = FetchResult(ErrorCode.NONE, 5, 5, 0, b"", truncations=1)
    unchanged = [(where(0), truncated), (where(1), result())]
    assert numbers(client.open(session, 1, []).update(unchanged)) == [0]
    assert numbers(client.open(session, 2, []).update(unchanged)) == []


def test_partitions_are_added_changed_and_forgotten(client: Client) -> None:
    session = client.begin(0, 1)
    context = client.open(session, 1, asked(1, 2, offset=7), (where(0),))
    assert [(each.partition, data.fetch_offset) for each, data in context.partitions()] == [
        (1, 7),
        (2, 7),
    ]


def test_a_partition_with_records_moves_to_the_end_of_the_order(client: Client) -> None:
    session = client.begin(0, 1)
    context = client.open(session, 1, [])
    context.update([(where(0), result(5, b"records")), (where(1), result())])
    assert numbers(client.open(session, 2, []).partitions()) == [1, 0]


def test_the_start_and_the_end_of_an_error_are_returned(client: Client) -> None:
    session = client.begin(0)
    failed = failed_fetch(ErrorCode.KAFKA_STORAGE_ERROR)
    assert numbers(client.open(session, 1, []).update([(where(0), failed)])) == [0]
    assert numbers(client.open(session, 2, []).update([(where(0), failed)])) == [0]
    assert numbers(client.open(session, 3, []).update([(where(0), result())])) == [0]
    assert numbers(client.open(session, 4, []).update([(where(0), result())])) == []


def test_unknown_sessions_wrong_epochs_and_other_topic_naming_are_refused(client: Client) -> None:
    session = client.begin(0)
    unknown = client.open(session ^ 1, 1, [])
    assert unknown.error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert client.open(session, 2, []).error is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    by_name = Client(client.cache, uses_topic_ids=False)
    assert by_name.open(session, 1, []).error is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert client.open(session, 1, []).error is ErrorCode.NONE


def test_a_request_with_an_outdated_session_epoch_gets_an_error(client: Client) -> None:
    session = client.begin(0)
    slow = client.open(session, 1, [])
    client.open(session, 2, [])
    assert slow.update([(where(0), result(9))]) == []
    assert slow.error is ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_forgetting_the_last_partition_ends_the_session(client: Client) -> None:
    session = client.begin(0)
    context = client.open(session, 1, [], (where(0),))
    assert (context.error, context.session_id) == (ErrorCode.NONE, 0)
    assert len(client.cache) == 0


def test_a_request_that_forgets_all_partitions_is_sessionless(
    client: Client,
) -> None:
    context = client.open(0, 0, asked(0, 1))
    context.update([(where(0), result()), (where(1), result())])
    last = client.open(context.session_id, 1, asked(1), (where(0), where(1)))
    assert (last.session_id, last.partitions()) == (0, asked(1))


def test_an_unknown_topic_id_gets_its_name_later(client: Client) -> None:
    nameless = where(0, topic="")
    context = client.open(0, 0, [(nameless, FetchPartitionData(0, 100))])
    context.update([(nameless, failed_fetch(ErrorCode.UNKNOWN_TOPIC_ID))])
    client.names[b"i" * 16] = "t"
    assert client.open(context.session_id, 1, []).partitions()[0][0] == where(0)


def test_a_partition_with_a_new_topic_id_is_a_new_partition(client: Client) -> None:
    session = client.begin(0)
    new = where(0, topic_id=b"n" * 16)
    context = client.open(session, 1, [(new, FetchPartitionData(0, 100))], (where(0),))
    assert [each for each, _ in context.partitions()] == [new]


def test_a_full_cache_starts_no_session_for_a_consumer(client: Client) -> None:
    client.begin(0)
    client.begin(0)
    assert client.begin(0) == 0
    assert client.cache.evictions == 0


def test_the_least_recently_used_session_is_evicted(
    client: Client, scheduler: SimScheduler
) -> None:
    first, second = client.begin(0), client.begin(0)
    scheduler.run_for(EVICTION_MS)
    client.open(first, 1, [])
    scheduler.run_for(1)
    assert client.begin(0) > 0
    assert client.open(second, 1, []).error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert client.open(first, 2, []).error is ErrorCode.NONE


def test_a_follower_evicts_the_smallest_consumer_session(client: Client) -> None:
    large, small = client.begin(0, 1), client.begin(0)
    assert Client(client.cache, follower=True).begin(0) > 0
    assert client.open(small, 1, []).error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert client.open(large, 1, []).error is ErrorCode.NONE


def test_without_cache_slots_every_fetch_is_full(scheduler: SimScheduler) -> None:
    cache = FetchSessionCache(0, EVICTION_MS, SimClock(scheduler), SeededRng(1))
    assert Client(cache).begin(0) == 0


def limited(scheduler: SimScheduler, slots: int = 1000, partitions: int = 5) -> Client:
    """Return a cache for a cluster with this number of partitions."""
    cache = FetchSessionCache(
        slots, EVICTION_MS, SimClock(scheduler), SeededRng(1), partition_count=lambda: partitions
    )
    return Client(cache)


def test_a_session_with_more_partitions_than_the_cluster_is_removed(
    scheduler: SimScheduler,
) -> None:
    client = limited(scheduler)
    session = client.begin(0)
    context = client.open(session, 1, asked(*range(1, UNKNOWN_MAX + 5)))
    assert context.error is ErrorCode.NONE
    context.update([])
    context = client.open(session, 2, asked(UNKNOWN_MAX + 5))
    assert context.error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert client.cache.partition_count == len(client.cache) == 0
    # The whole of it is answered, without a session.
    context = client.open(0, 0, asked(*range(UNKNOWN_MAX + 6)))
    assert len(context.partitions()) == UNKNOWN_MAX + 6
    context.update([])
    assert (context.error, context.session_id) == (ErrorCode.NONE, 0)


def test_invalid_topic_names_count_by_their_length(scheduler: SimScheduler) -> None:
    client = limited(scheduler)
    client.uses_topic_ids = False
    long = [(where(0, f"{number}" * 8_000), FetchPartitionData(0, 100)) for number in range(10, 60)]
    context = client.open(0, 0, long[:10])
    context.update([])
    assert context.session_id > 0
    context = client.open(context.session_id, 1, long)
    assert context.error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_the_memory_of_all_sessions_is_limited(scheduler: SimScheduler) -> None:
    count = 50_000
    client = limited(scheduler, partitions=count)
    data = FetchPartitionData(0, 100)
    entries = [(where(each), data) for each in range(count)]
    sessions = []
    for _ in range(SIZE_MAX // count + 5):
        context = client.open(0, 0, entries)
        context.update([])
        sessions.append(context.session_id)
    assert all(sessions[: SIZE_MAX // count])
    assert not any(sessions[SIZE_MAX // count :])
    # A follower comes first, and unused sessions leave in time.
    follower = Client(client.cache, follower=True)
    context = follower.open(0, 0, entries)
    context.update([])
    assert context.session_id > 0
    scheduler.run_for(EVICTION_MS + 1)
    context = client.open(0, 0, entries)
    context.update([])
    assert context.session_id > 0
    assert client.cache.partition_count <= SIZE_MAX


def test_forgotten_partitions_free_their_memory(scheduler: SimScheduler) -> None:
    client = limited(scheduler)
    session = client.begin(0)
    for round_ in range(5):
        first = 1 + round_ * UNKNOWN_MAX
        added = range(first, first + UNKNOWN_MAX)
        assert client.open(session, 1 + 2 * round_, asked(*added)).error is ErrorCode.NONE
        gone = tuple(where(each) for each in added)
        assert client.open(session, 2 + 2 * round_, [], gone).error is ErrorCode.NONE
    assert client.cache.partition_count == 1


MANY = range(450)


def test_a_request_of_many_partitions_is_applied_in_steps(client: Client) -> None:
    session_id = client.begin(0)
    request = SessionRequest(session_id, 1, asked(*MANY), [where(3)], False, True)
    steps = client.cache.open_in_steps(request, client.names.get)
    next(steps)
    assert 1 < client.cache.partition_count < len(MANY)
    context = run_to_end(steps)
    assert numbers(context.partitions()) == [each for each in MANY if each != 3]
    assert client.open(session_id, 2, []).error is ErrorCode.NONE


def test_a_request_of_many_partitions_with_a_wrong_epoch_changes_nothing(client: Client) -> None:
    session_id = client.begin(0)
    request = SessionRequest(session_id, 2, asked(*MANY), [where(0)], False, True)
    context = run_to_end(client.cache.open_in_steps(request, client.names.get))
    assert context.error is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert client.cache.partition_count == 1


def test_a_session_of_many_partitions_is_created_in_steps(client: Client) -> None:
    context = client.open(0, 0, asked(*MANY))
    results = [(where(each), result()) for each in MANY]
    assert run_to_end(answer_in_steps(context, results)) == results
    later = client.open(context.session_id, 1, [])
    assert run_to_end(answer_in_steps(later, results)) == []


def test_a_session_evicted_before_it_is_complete_is_not_returned(
    client: Client, scheduler: SimScheduler
) -> None:
    context = client.open(0, 0, asked(*MANY))
    steps = answer_in_steps(context, [(where(each), result()) for each in MANY])
    next(steps)
    scheduler.run_for(EVICTION_MS + 1)
    others = client.begin(0), client.begin(1)
    assert 0 not in others
    run_to_end(steps)
    assert context.session_id == 0
    assert client.cache.partition_count == 2


def test_sessions_created_at_the_same_time_share_the_limit(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_session_cache, "SIZE_MAX", 2 * len(MANY) - 1)
    contexts = [client.open(0, 0, asked(*MANY)) for _ in range(2)]
    results = [(where(each), result()) for each in MANY]
    steps = [answer_in_steps(each, results) for each in contexts]
    for each in steps:
        next(each)
    for each in steps:
        run_to_end(each)
    assert contexts[0].session_id > 0
    assert contexts[1].session_id == 0
    assert client.cache.partition_count == len(MANY)


@pytest.mark.parametrize("count", [0, len(MANY)])
def test_a_request_overtaken_before_or_between_steps_gets_an_error(
    client: Client, count: int
) -> None:
    session_id = client.begin(*MANY)
    context = client.open(session_id, 1, [])
    steps = answer_in_steps(context, [(where(each), result(6)) for each in MANY[:count]])
    if count:
        next(steps)
    client.open(session_id, 2, [])
    assert run_to_end(steps) == []
    assert context.error is ErrorCode.INVALID_FETCH_SESSION_EPOCH
