"""One fetcher and a leader with scripted responses: the loop, fetches and responses."""

from __future__ import annotations

import logging

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.fetch import FetchRequest
from barnabas.protocol.messages.log_offsets import ListOffsetsRequest
from barnabas.replication.fetcher.fetch_states import FetchPhase
from barnabas.replication.partition.partition_roles import Fetched, OffsetMismatchError
from barnabas.sim.disk import DiskFault
from barnabas.storage.errors import KafkaStorageError
from barnabas.storage.topic_partition import TopicPartition
from unit.replication.following_broker import (
    SESSION,
    FollowingBroker,
    broker,
    data,
    give_one,
    records,
)
from unit.replication.replicated_cluster import DATA, PARTITION, TOPIC, topic_id_of

__all__ = ["broker"]

BACKOFF_MS = 1_000


# The loop.


def test_the_next_fetch_is_sent_after_the_response(broker) -> None:
    """The loop truncates if needed, then fetches; one request is in flight (asserted there)."""
    for offset in range(3):
        content = records(b"%d" % offset, offset=offset)
        broker.leader.give({PARTITION: data(content, high_watermark=offset)})
        assert isinstance(broker.leader.waiting, FetchRequest)
    assert broker.node.values() == [b"0", b"1", b"2"]
    assert broker.state().fetch_offset == 3


def test_an_empty_log_is_fetched_without_truncation(broker) -> None:
    """A log is truncated before it is fetched, in the same turn if no request is needed."""
    assert broker.state().phase.name == "FETCHING"
    assert broker.asked()[PARTITION].last_fetched_epoch == -1


def test_a_partition_with_data_or_an_error_moves_to_the_end_of_the_order() -> None:
    """Partitions are fetched fairly."""
    broker = FollowingBroker(partitions=3)
    first, second, third = (broker.key(index) for index in range(3))
    broker.leader.give(
        {
            first: data(records(b"a"), high_watermark=1),
            second: data(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER),
            third: data(),
        },
        session_id=0,
    )
    order = [key for _, fetcher in broker.fetchers.fetchers() for key, _ in fetcher.states.items()]
    assert order == [third, first, second]


def test_without_partitions_the_fetcher_waits_for_the_backoff(broker) -> None:
    """No request and almost no event occurs until the backoff has passed."""
    broker.leader.give({PARTITION: data(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)})
    # The partitions that the leader may still have in the session are forgotten, then there is
    # silence.
    assert broker.leader.waiting.forgotten_topics_data[0].partitions == [0]
    broker.leader.give({}, session_id=0)
    assert broker.leader.waiting is None
    events = broker.cluster.world.scheduler.events_run
    broker.run_for(BACKOFF_MS - 20)
    assert broker.leader.waiting is None
    assert broker.cluster.world.scheduler.events_run - events < 50
    broker.run_for(40)
    assert list(broker.asked()) == [PARTITION]


def test_an_added_partition_ends_the_wait(broker) -> None:
    """The fetcher waits until a partition is added."""
    broker.leader.give({PARTITION: data(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)}, 0)
    assert broker.leader.waiting is None
    broker.cluster.make_topic("other", replicas=(2, 1))
    assert [topic.topic_id for topic in broker.leader.waiting.topics] == [topic_id_of("other")]


def test_an_added_partition_cancels_a_fetch_delayed_at_the_leader(broker) -> None:
    """The connection and the session of that fetch are closed."""
    give_one(broker)
    broker.run_for(100)
    broker.cluster.make_topic("other", replicas=(2, 1))
    broker.run_for(25)
    assert broker.leader.closed == 1
    assert broker.leader.waiting.session_epoch == 0
    assert {topic.topic_id for topic in broker.leader.waiting.topics} == {
        topic_id_of(TOPIC),
        topic_id_of("other"),
    }


def test_an_unexpected_error_ends_only_its_fetcher(broker, caplog) -> None:
    """The error is logged and counted; the next leadership starts another fetcher."""
    broker.cluster.make_topic("other", replicas=(3, 1))
    mine, others = broker.channels.opened

    class Broken:
        @property
        def responses(self):
            raise RuntimeError("not foreseen")

    mine.answer(Broken())
    assert broker.fetchers.dead_count == 1
    assert "Fetcher stopped by an unexpected error" in caplog.text
    assert others.waiting is not None
    broker.lead(2)
    assert broker.fetchers.dead_count == 0
    assert broker.leader is not mine
    assert broker.leader.waiting is not None


def test_a_dead_fetcher_hands_its_partitions_to_its_successor() -> None:
    """The next leadership of one of its partitions starts the successor."""
    broker = FollowingBroker(partitions=2)
    dead = broker.leader

    class Broken:
        @property
        def responses(self):
            raise RuntimeError("not foreseen")

    dead.answer(Broken())
    assert broker.fetchers.dead_count == 1
    broker.lead(2, broker.key(0))
    assert broker.leader is not dead
    assert broker.fetchers.dead_count == 0
    broker.run_for(50)
    assert set(broker.asked()) == {broker.key(0), broker.key(1)}


def test_an_error_during_the_shutdown_is_not_logged(broker, caplog) -> None:
    leader = broker.leader
    request, _, on_response = leader.sent[-1]
    broker.node.manager.shutdown()
    with caplog.at_level(logging.INFO):
        on_response(None, None)
    assert not caplog.records
    assert request is leader.sent[-1][0]


# Building the fetch.


def test_a_fetch_contains_offsets_epochs_and_limits(broker) -> None:
    request, asked = broker.leader.waiting, broker.asked()[PARTITION]
    assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (500, 1, 10 << 20)
    assert (request.session_id, request.session_epoch) == (0, 0)
    assert request.replica_state.replica_id == 1
    assert request.replica_state.replica_epoch == broker.node.epoch
    assert (asked.fetch_offset, asked.log_start_offset) == (0, 0)
    assert (asked.partition_max_bytes, asked.current_leader_epoch) == (1 << 20, 0)
    assert (broker.leader.version, broker.leader.timeout_ms) == (18, 30_000)
    give_one(broker)
    asked = broker.asked()[PARTITION]
    assert (asked.fetch_offset, asked.last_fetched_epoch) == (1, 0)


def test_a_session_request_names_only_changed_partitions(broker) -> None:
    """The first request is full, and later ones contain only changes (KIP-227)."""
    give_one(broker)
    request = broker.leader.waiting
    assert (request.session_id, request.session_epoch) == (SESSION, 1)
    assert list(broker.asked()) == [PARTITION]
    broker.leader.give({})
    assert broker.leader.waiting.session_epoch == 2
    assert broker.asked() == {}


def test_a_request_with_only_forgotten_partitions_is_sent() -> None:
    broker = FollowingBroker(partitions=2)
    broker.leader.give({broker.key(0): data(), broker.key(1): data()})
    broker.lead(3, broker.key(1))
    first = broker.channels.opened[0]
    first.give({})
    assert first.waiting.topics == []
    assert [each.partitions for each in first.waiting.forgotten_topics_data] == [[1]]


def test_a_session_error_falls_back_to_a_full_fetch(broker) -> None:
    """The response is dropped; an unknown session is not even closed."""
    give_one(broker)
    broker.leader.give({}, session_id=0, error=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
    request = broker.leader.waiting
    assert (request.session_id, request.session_epoch) == (SESSION, 0)
    assert list(broker.asked()) == [PARTITION]
    broker.leader.give({PARTITION: data()}, session_id=SESSION + 1)
    broker.leader.give({}, session_id=0, error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    request = broker.leader.waiting
    assert (request.session_id, request.session_epoch) == (0, 0)


def test_a_topic_id_error_of_the_session_delays_all_partitions(broker) -> None:
    """The request as a whole fails."""
    give_one(broker)
    broker.leader.give({}, session_id=0, error=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
    assert broker.is_delayed()


def test_a_response_with_unrequested_partitions_is_dropped(broker) -> None:
    """No record of it is appended."""
    broker.leader.give({PARTITION: data(records(b"a")), broker.key(7): data(records(b"b"))})
    assert broker.log.log_end_offset == 0
    assert broker.is_delayed()


def fail_directory(broker: FollowingBroker, key: TopicPartition) -> None:
    """Make the disk fail under a partition's directory; the broker detects it at the next write."""
    log = broker.node.log(key)
    directory = log.directory.rpartition("/")[0]
    broker.node.host.disk.faults.append(DiskFault(directory, ("write",)))
    with pytest.raises(KafkaStorageError):
        log.appender.append_as_follower(records(b"lost", offset=log.log_end_offset))
    assert broker.node.failures == [directory]
    assert key in broker.node.manager.offline_partitions


def two_directories() -> tuple[FollowingBroker, TopicPartition, TopicPartition]:
    """A broker with two partitions in separate directories."""
    broker = FollowingBroker(partitions=2, node_settings={"directories": [DATA, "/more"]})
    first, second = broker.key(0), broker.key(1)
    parents = {broker.node.log(key).directory.rpartition("/")[0] for key in (first, second)}
    assert len(parents) == 2
    return broker, first, second


def test_a_partition_in_a_failed_directory_is_not_fetched_and_others_are() -> None:
    """A response for it that arrives later is ignored."""
    broker, bad, good = two_directories()
    fail_directory(broker, bad)
    assert broker.state(bad) is None
    answer = {
        bad: data(records(b"a"), high_watermark=1), good: data(records(b"b"), high_watermark=1),
    }  # fmt: skip
    broker.leader.give(answer, session_id=0)
    assert broker.node.values(good) == [b"b"]
    assert list(broker.asked()) == [good]
    assert broker.fetchers.dead_count == 0


def test_a_partition_that_goes_offline_while_delayed_is_not_fetched() -> None:
    """The next fetch omits it and contains the other partitions.

    The fetcher is not notified here, as when a single partition goes offline.
    """
    broker = FollowingBroker(partitions=2)
    bad, good = broker.key(0), broker.key(1)
    parts = {bad: data(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER), good: data()}
    broker.leader.give(parts, session_id=0)
    broker.leader.give({good: data()}, session_id=0)
    broker.node.manager._registry.take_offline(bad)
    broker.run_for(BACKOFF_MS + 20)
    broker.leader.give({good: data()}, session_id=0)
    assert broker.fetchers.dead_count == 0
    assert list(broker.asked()) == [good]
    assert broker.is_delayed(bad)


def test_a_response_for_an_offline_partition_delays_it() -> None:
    """It was requested before; nothing can be appended, and other partitions are not affected."""
    broker = FollowingBroker(partitions=2)
    bad, good = broker.key(0), broker.key(1)
    broker.node.manager._registry.take_offline(bad)
    broker.leader.give({bad: data(), good: data()}, session_id=0)
    assert list(broker.asked()) == [good]
    assert broker.is_delayed(bad)


# Processing the response.


def test_a_failed_request_delays_all_partitions_and_resets_the_session() -> None:
    """The connection is closed, and the request is counted."""
    broker = FollowingBroker(partitions=2)
    broker.leader.give({broker.key(0): data(), broker.key(1): data()})
    broker.leader.fail()
    assert broker.leader.closed == 1
    assert all(broker.is_delayed(broker.key(index)) for index in (0, 1))
    ((_, fetcher),) = broker.fetchers.fetchers()
    assert fetcher.requests == 2
    broker.run_for(BACKOFF_MS + 20)
    assert broker.leader.waiting.session_epoch == 0
    assert len(broker.asked()) == 2


def test_a_stale_response_is_ignored(broker) -> None:
    """The requested offset must be the current one, and the partition must still be followed."""
    on_response = broker.leader.sent[-1][2]
    waiting = broker.leader.waiting
    broker.state().fetch_offset = 5
    broker.leader.give({PARTITION: data(records(b"a"))})
    assert broker.log.log_end_offset == 0
    assert waiting is not broker.leader.waiting
    assert on_response is not broker.leader.sent[-1][2]


def test_a_response_for_a_removed_partition_is_ignored() -> None:
    broker = FollowingBroker(partitions=2)
    broker.lead(1, broker.key(0))
    content = data(records(b"a"), high_watermark=1)
    broker.channels.opened[0].give({broker.key(0): content, broker.key(1): data()})
    assert broker.node.log(broker.key(0)).log_end_offset == 0


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_an_error_of_a_partition_delays_only_this_partition(error: ErrorCode) -> None:
    """Each of these errors means delayed."""
    broker = FollowingBroker(partitions=2)
    bad, good = broker.key(0), broker.key(1)
    parts = {bad: data(error_code=error), good: data(records(b"a"), high_watermark=1)}
    broker.leader.give(parts, session_id=0)
    assert broker.is_delayed(bad)
    assert broker.node.values(good) == [b"a"]
    assert list(broker.asked()) == [good]
    broker.leader.give({good: data()}, session_id=0)
    broker.run_for(BACKOFF_MS + 20)
    broker.leader.give({good: data()}, session_id=0)
    assert bad in broker.asked()


def test_a_fenced_current_epoch_fails_the_partition_until_a_new_leadership(broker) -> None:
    """FENCED_LEADER_EPOCH, failed at once."""
    broker.leader.give({PARTITION: data(error_code=ErrorCode.FENCED_LEADER_EPOCH)})
    assert broker.fetchers.failed == [PARTITION]
    assert broker.state() is None
    broker.run_for(10 * BACKOFF_MS)
    assert broker.state() is None
    broker.lead(3)
    assert broker.fetchers.failed == []
    assert broker.asked()[PARTITION].current_leader_epoch == 1


def test_a_fenced_earlier_epoch_only_delays_the_partition() -> None:
    """FENCED_LEADER_EPOCH is the response to a request of an earlier epoch.

    The same broker leads in the next epoch; the fetch with the earlier epoch is answered before it
    is canceled.
    """
    broker = FollowingBroker(partitions=2)
    fenced, other = broker.key(0), broker.key(1)
    leader = broker.leader
    first = {fenced: data(records(b"a"), high_watermark=1), other: data()}
    leader.give(first, session_id=0)
    assert broker.asked()[fenced].current_leader_epoch == 0
    broker.lead(2, fenced)
    assert broker.leader is leader
    assert broker.state(fenced).current_leader_epoch == 1
    parts = {fenced: data(error_code=ErrorCode.FENCED_LEADER_EPOCH), other: data()}
    broker.leader.give(parts, session_id=0)
    assert broker.is_delayed(fenced)
    assert broker.fetchers.failed == []
    broker.leader.give({other: data()}, session_id=0)
    broker.run_for(BACKOFF_MS + 20)
    broker.leader.give({other: data()}, session_id=0)
    assert broker.asked()[fenced].current_leader_epoch == 1


def warnings(caplog) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]


def test_a_leader_change_logs_no_warnings(broker, caplog) -> None:
    """A fenced epoch and a leader without the partition are normal during a leader change."""
    broker.leader.give({PARTITION: data(error_code=ErrorCode.FENCED_LEADER_EPOCH)})
    broker.lead(3)
    for error in (ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER,
                  ErrorCode.UNKNOWN_TOPIC_ID):  # fmt: skip
        broker.leader.give({PARTITION: data(error_code=error)}, session_id=0)
        broker.run_for(BACKOFF_MS + 20)
    broker.leader.give({PARTITION: data()}, session_id=0)
    assert warnings(caplog) == []


def test_a_persistent_usual_error_logs_one_warning(broker, caplog) -> None:
    for _ in range(20):
        broker.leader.give({PARTITION: data(error_code=ErrorCode.UNKNOWN_TOPIC_ID)}, session_id=0)
        broker.run_for(BACKOFF_MS + 20)
    expected = [f"Fetch failed at the leader: partition={PARTITION} error=UNKNOWN_TOPIC_ID"]
    assert warnings(caplog) == expected


def test_a_persistent_unusual_error_is_logged_immediately_and_once(broker, caplog) -> None:
    for error in 4 * [ErrorCode.KAFKA_STORAGE_ERROR] + 3 * [ErrorCode.UNKNOWN_SERVER_ERROR]:
        broker.leader.give({PARTITION: data(error_code=error)}, session_id=0)
        broker.run_for(BACKOFF_MS + 20)
    assert [each.rpartition("=")[2] for each in warnings(caplog)] == [
        "KAFKA_STORAGE_ERROR",
        "UNKNOWN_SERVER_ERROR",
    ]
    broker.leader.give({PARTITION: data()}, session_id=0)
    broker.leader.give({PARTITION: data(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)}, session_id=0)
    assert len(warnings(caplog)) == 3


def test_each_new_reason_of_a_failed_partition_is_logged_once(broker, caplog) -> None:
    broker.leader.give({PARTITION: data(records(b"x", b"y"), high_watermark=1)})
    broker.leader.give({PARTITION: data(records(b"a", offset=1), high_watermark=1)})
    assert broker.fetchers.failed == [PARTITION]
    assert len(warnings(caplog)) == 1
    assert "Replication of a partition failed until its leader changes" in warnings(caplog)[0]


def test_an_unreachable_leader_logs_one_warning(broker, caplog) -> None:
    for _ in range(5):
        broker.leader.fail()
        broker.run_for(BACKOFF_MS + 20)
    assert len(warnings(caplog)) == 1
    broker.leader.give({PARTITION: data()}, session_id=0)
    broker.leader.fail()
    assert len(warnings(caplog)) == 2


def test_a_response_for_another_fetch_offset_is_dropped(broker) -> None:
    """The fetch offset has changed, or the log is to be truncated."""
    content = records(b"a")
    broker.state().fetch_offset = 7
    broker.leader.give({PARTITION: data(content, high_watermark=1)})
    assert (broker.log.log_end_offset, broker.fetchers.failed) == (0, [])
    broker.state().fetch_offset = 0
    broker.run_for(500)
    broker.leader.give({PARTITION: data()}, session_id=0)
    broker.state().phase = FetchPhase.TRUNCATING
    broker.leader.give({PARTITION: data(content, high_watermark=1)}, session_id=0)
    assert (broker.log.log_end_offset, broker.fetchers.failed) == (0, [])


def test_a_follower_appends_only_at_its_log_end_offset(broker) -> None:
    fetched = Fetched(records(b"a", offset=2), 3, 0)
    with pytest.raises(OffsetMismatchError):
        broker.node.partition().follower.append(2, fetched, lambda _: None)
    assert broker.log.size == 0


def test_the_high_watermark_is_limited_by_the_leaders(broker) -> None:
    """It is the smaller of the leader's high watermark and the follower's log end offset."""
    broker.leader.give({PARTITION: data(records(b"a", b"b", b"c"), high_watermark=1)})
    assert (broker.log.high_watermark, broker.log.log_end_offset) == (1, 3)


def out_of_range(broker: FollowingBroker, records_there: int = 2) -> None:
    """Return a follower with records whose next offset does not exist at the leader."""
    content = records(*[b"%d" % n for n in range(records_there)])
    broker.leader.give({PARTITION: data(content, high_watermark=1)}, session_id=0)
    broker.leader.give({PARTITION: data(error_code=ErrorCode.OFFSET_OUT_OF_RANGE)}, session_id=0)
    asked = broker.leader.waiting.topics[0].partitions[0]
    assert isinstance(broker.leader.waiting, ListOffsetsRequest)
    assert (asked.timestamp, asked.current_leader_epoch) == (-1, 0)
    assert broker.leader.waiting.replica_id == 1


def test_out_of_range_above_the_leaders_end_truncates_the_log(broker) -> None:
    """OFFSET_OUT_OF_RANGE; the leader's end is below the follower's."""
    broker.leader.give({PARTITION: data(records(b"a"))}, session_id=0)
    broker.leader.give({PARTITION: data(records(b"b", offset=1))}, session_id=0)
    broker.leader.give({PARTITION: data(error_code=ErrorCode.OFFSET_OUT_OF_RANGE)}, session_id=0)
    broker.leader.give_offset(PARTITION, 1)
    assert broker.node.values() == [b"a"]
    assert broker.asked()[PARTITION].fetch_offset == 1
    assert broker.state().lag == 0


def test_out_of_range_below_the_leaders_start_empties_the_log(broker) -> None:
    """OFFSET_OUT_OF_RANGE; the leader's start is above the follower's end."""
    out_of_range(broker)
    broker.leader.give_offset(PARTITION, 9)
    assert broker.leader.waiting.topics[0].partitions[0].timestamp == -2
    broker.leader.give_offset(PARTITION, 5)
    assert (broker.log.log_start_offset, broker.log.log_end_offset) == (5, 5)
    assert broker.asked()[PARTITION].fetch_offset == 5
    assert broker.state().lag == 4


def test_out_of_range_within_the_leaders_range_continues_at_the_log_end(broker) -> None:
    """OFFSET_OUT_OF_RANGE; after a backoff, the follower fetches from its end again."""
    out_of_range(broker)
    broker.leader.give_offset(PARTITION, 9)
    broker.leader.give_offset(PARTITION, 1)
    assert broker.node.values() == [b"0", b"1"]
    broker.run_for(BACKOFF_MS + 20)
    assert broker.asked()[PARTITION].fetch_offset == 2


def test_out_of_range_with_equal_ends_requests_the_leaders_log_start(broker) -> None:
    """The leader's end is not below the follower's, so nothing is truncated."""
    out_of_range(broker)
    broker.leader.give_offset(PARTITION, 2)
    assert isinstance(broker.leader.waiting, ListOffsetsRequest)
    assert broker.leader.waiting.topics[0].partitions[0].timestamp == -2


def test_out_of_range_with_the_leaders_start_at_the_log_end_keeps_the_log(broker) -> None:
    """Only a start above the follower's end leaves a gap."""
    out_of_range(broker)
    broker.leader.give_offset(PARTITION, 9)
    broker.leader.give_offset(PARTITION, 2)
    assert broker.node.values() == [b"0", b"1"]
    assert (broker.log.log_start_offset, broker.log.log_end_offset) == (0, 2)


@pytest.mark.parametrize("question", [0, 1])
def test_out_of_range_with_a_failed_offset_request_delays_or_fails_the_partition(
    broker, question: int
) -> None:
    out_of_range(broker)
    if question:
        broker.leader.give_offset(PARTITION, 9)
    broker.leader.give_offset(PARTITION, -1, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert broker.is_delayed()
    broker.run_for(BACKOFF_MS + 20)
    broker.leader.give({PARTITION: data(error_code=ErrorCode.OFFSET_OUT_OF_RANGE)}, session_id=0)
    broker.leader.fail()
    assert broker.is_delayed()
    broker.run_for(BACKOFF_MS + 20)
    broker.leader.give({PARTITION: data(error_code=ErrorCode.OFFSET_OUT_OF_RANGE)}, session_id=0)
    broker.leader.give_offset(PARTITION, -1, ErrorCode.FENCED_LEADER_EPOCH)
    assert broker.fetchers.failed == [PARTITION]


def test_damaged_records_are_never_appended_and_delay_the_partition() -> None:
    """Corrupt records mean delayed; other partitions are not affected."""
    broker = FollowingBroker(partitions=2)
    damaged = bytearray(records(b"a"))
    damaged[-1] ^= 1
    bad, good = broker.key(0), broker.key(1)
    broker.leader.give(
        {bad: data(bytes(damaged), high_watermark=1), good: data(records(b"b"), high_watermark=1)},
        session_id=0,
    )
    assert broker.node.log(bad).size == 0
    assert broker.is_delayed(bad)
    assert broker.node.values(good) == [b"b"]


def test_a_failing_disk_takes_only_its_directory_offline() -> None:
    """A storage error occurs during an append."""
    broker = FollowingBroker(partitions=2, node_settings={"directories": [DATA, "/more"]})
    bad, good = broker.key(0), broker.key(1)
    directory = broker.node.log(bad).directory
    assert not broker.node.log(good).directory.startswith(directory.rsplit("/", 1)[0] + "/")
    broker.node.host.disk.faults.append(DiskFault(directory, ("write",)))
    broker.leader.give(
        {bad: data(records(b"a"), high_watermark=1), good: data(records(b"b"), high_watermark=1)},
        session_id=0,
    )
    assert broker.node.failures == [directory.rsplit("/", 1)[0]]
    assert bad in broker.node.manager.offline_partitions
    assert broker.state(bad) is None
    assert broker.node.values(good) == [b"b"]
    assert list(broker.asked()) == [good]


def test_an_unexpected_error_of_an_append_fails_the_partition(broker) -> None:
    """A leader never sends records that begin below the requested offset."""
    broker.leader.give({PARTITION: data(records(b"a", b"b"))}, session_id=0)
    broker.leader.give({PARTITION: data(records(b"x", offset=0))}, session_id=0)
    assert broker.fetchers.failed == [PARTITION]
    assert broker.node.values() == [b"a", b"b"]
