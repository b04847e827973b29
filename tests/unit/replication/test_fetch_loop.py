"""One fetcher and a leader whose answers the test gives: the loop, fetches and responses."""

from __future__ import annotations

import logging

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.fetch import FetchRequest
from barnabas.protocol.messages.list_offsets import ListOffsetsRequest
from barnabas.replication.fetcher.fetch_state import FetchPhase
from barnabas.replication.partition.follower_role import Fetched, OffsetMismatchError
from barnabas.sim.disk import DiskFault
from barnabas.storage.errors import KafkaStorageError
from barnabas.storage.topic_partition import TopicPartition
from unit.replication.following_broker import SESSION, FollowingBroker, data, records
from unit.replication.replicated_cluster import DATA, PARTITION, TOPIC, topic_id_of

BACKOFF_MS = 1_000


@pytest.fixture
def broker() -> FollowingBroker:
    return FollowingBroker()


def give_one(broker: FollowingBroker, **fields: object) -> None:
    """The first record of an empty log, in a session."""
    broker.leader.give({PARTITION: data(records(b"a"), high_watermark=1, **fields)})


# The loop.


def test_a_fetch_follows_every_answer_and_none_is_sent_before(broker) -> None:
    """Forever maybe truncate, then maybe fetch; one request in flight (asserted there)."""
    for offset in range(3):
        content = records(b"%d" % offset, offset=offset)
        broker.leader.give({PARTITION: data(content, high_watermark=offset)})
        assert isinstance(broker.leader.waiting, FetchRequest)
    assert broker.node.values() == [b"0", b"1", b"2"]
    assert broker.state().fetch_offset == 3


def test_an_empty_log_has_nothing_to_cut_and_is_fetched_at_once(broker) -> None:
    """A log is truncated before it is fetched, in the same turn if no request is needed."""
    assert broker.state().phase.name == "FETCHING"
    assert broker.asked()[PARTITION].last_fetched_epoch == -1


def test_who_had_data_or_an_error_goes_to_the_back_of_the_order() -> None:
    """Fairness."""
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
    order = [key for _, fetcher in broker.fetchers.fetchers() for key, _ in fetcher._states.items()]
    assert order == [third, first, second]


def test_with_nothing_to_fetch_it_waits_for_the_back_off_and_does_not_spin(broker) -> None:
    """No request and hardly an event until the back-off is over."""
    broker.leader.give({PARTITION: data(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)})
    # What the leader may still have in the session is forgotten, then there is silence.
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
    """Waits until a partition is added."""
    broker.leader.give({PARTITION: data(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)}, 0)
    assert broker.leader.waiting is None
    broker.cluster.make_topic("other", replicas=(2, 1))
    assert [topic.topic_id for topic in broker.leader.waiting.topics] == [topic_id_of("other")]


def test_an_added_partition_does_not_wait_for_a_fetch_that_waits_at_the_leader(broker) -> None:
    """That fetch is given up, with its connection and session."""
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


def test_an_error_that_escapes_ends_that_fetcher_only(broker, caplog) -> None:
    """Logged, counted dead; the next leadership begins with another one."""
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
    """With the next leadership of one of them."""
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


def test_an_error_while_shutting_down_is_silent(broker, caplog) -> None:
    """Silent while shutting down."""
    leader = broker.leader
    request, _, on_response = leader.sent[-1]
    broker.node.manager.shutdown()
    with caplog.at_level(logging.INFO):
        on_response(None, None)
    assert not caplog.records
    assert request is leader.sent[-1][0]


# Building the fetch.


def test_what_a_fetch_says(broker) -> None:
    """Offsets, epochs and limits of the partition, and those of the request."""
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


def test_a_session_names_changes_only(broker) -> None:
    """Full once, then only what was changed; nothing if nothing was (KIP-227)."""
    give_one(broker)
    request = broker.leader.waiting
    assert (request.session_id, request.session_epoch) == (SESSION, 1)
    assert list(broker.asked()) == [PARTITION]
    broker.leader.give({})
    assert broker.leader.waiting.session_epoch == 2
    assert broker.asked() == {}


def test_forgotten_partitions_alone_are_sent_too() -> None:
    """Sent also when there are only forgotten ones."""
    broker = FollowingBroker(partitions=2)
    broker.leader.give({broker.key(0): data(), broker.key(1): data()})
    broker.lead(3, broker.key(1))
    first = broker.channels.opened[0]
    first.give({})
    assert first.waiting.topics == []
    assert [each.partitions for each in first.waiting.forgotten_topics_data] == [[1]]


def test_a_session_error_falls_back_to_a_full_fetch(broker) -> None:
    """The answer is dropped; an unknown session is not even closed."""
    give_one(broker)
    broker.leader.give({}, session_id=0, error=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
    request = broker.leader.waiting
    assert (request.session_id, request.session_epoch) == (SESSION, 0)
    assert list(broker.asked()) == [PARTITION]
    broker.leader.give({PARTITION: data()}, session_id=SESSION + 1)
    broker.leader.give({}, session_id=0, error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    request = broker.leader.waiting
    assert (request.session_id, request.session_epoch) == (0, 0)


def test_a_topic_id_error_of_the_session_delays_all(broker) -> None:
    """The request as a whole fails."""
    give_one(broker)
    broker.leader.give({}, session_id=0, error=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
    assert broker.is_delayed()


def test_an_answer_with_other_partitions_than_asked_is_dropped(broker) -> None:
    """Nothing of it is appended."""
    broker.leader.give({PARTITION: data(records(b"a")), broker.key(7): data(records(b"b"))})
    assert broker.log.log_end_offset == 0
    assert broker.is_delayed()


def fail_directory(broker: FollowingBroker, key: TopicPartition) -> None:
    """The disk fails under a partition's directory, which the broker notices by a write to it."""
    log = broker.node.log(key)
    directory = log.directory.rpartition("/")[0]
    broker.node.host.disk.faults.append(DiskFault(directory, ("write",)))
    with pytest.raises(KafkaStorageError):
        log.append_as_follower(records(b"lost", offset=log.log_end_offset))
    assert broker.node.failures == [directory]
    assert key in broker.node.manager.offline_partitions


def two_directories() -> tuple[FollowingBroker, TopicPartition, TopicPartition]:
    """A broker whose two partitions lie in directories of their own."""
    broker = FollowingBroker(partitions=2, node_settings={"directories": [DATA, "/more"]})
    first, second = broker.key(0), broker.key(1)
    parents = {broker.node.log(key).directory.rpartition("/")[0] for key in (first, second)}
    assert len(parents) == 2
    return broker, first, second


def test_a_partition_whose_directory_fails_is_fetched_no_more_and_the_others_go_on() -> None:
    """Also while an answer for it is on its way, which is ignored."""
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


def test_a_partition_that_goes_offline_while_it_is_delayed_is_not_asked_for() -> None:
    """It goes to the error list when the next fetch is built, the others are asked for.

    Nothing tells the fetcher of it here, as when a partition goes offline alone.
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


def test_an_answer_for_a_partition_that_went_offline_delays_it() -> None:
    """It was asked for before; nothing can be appended, and the others go on."""
    broker = FollowingBroker(partitions=2)
    bad, good = broker.key(0), broker.key(1)
    broker.node.manager._registry.take_offline(bad)
    broker.leader.give({bad: data(), good: data()}, session_id=0)
    assert list(broker.asked()) == [good]
    assert broker.is_delayed(bad)


# Processing the response.


def test_a_request_that_fails_delays_all_and_begins_a_new_session() -> None:
    """Connection closed, all partitions delayed, session reset, still counted."""
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


def test_a_stale_answer_is_ignored(broker) -> None:
    """The offset asked must be the current one, the partition still followed."""
    on_response = broker.leader.sent[-1][2]
    waiting = broker.leader.waiting
    broker.state().fetch_offset = 5
    broker.leader.give({PARTITION: data(records(b"a"))})
    assert broker.log.log_end_offset == 0
    assert waiting is not broker.leader.waiting
    assert on_response is not broker.leader.sent[-1][2]


def test_a_partition_given_up_meanwhile_ignores_its_answer() -> None:
    """Not followed any more."""
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
def test_an_error_of_a_partition_delays_it_and_the_others_go_on(error: ErrorCode) -> None:
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


def test_a_fenced_epoch_that_is_ours_still_fails_the_partition_until_new_leadership(broker) -> None:
    """FENCED_LEADER_EPOCH, failed at once."""
    broker.leader.give({PARTITION: data(error_code=ErrorCode.FENCED_LEADER_EPOCH)})
    assert broker.fetchers.failed == [PARTITION]
    assert broker.state() is None
    broker.run_for(10 * BACKOFF_MS)
    assert broker.state() is None
    broker.lead(3)
    assert broker.fetchers.failed == []
    assert broker.asked()[PARTITION].current_leader_epoch == 1


def test_a_fenced_epoch_that_we_have_left_meanwhile_delays_only() -> None:
    """FENCED_LEADER_EPOCH in the answer to a request of an earlier epoch.

    The partition is led by the same broker in the next epoch; the fetch that names the earlier one
    is answered before it is given up.
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


def test_a_change_of_leaders_is_no_reason_for_warnings(broker, caplog) -> None:
    """A fenced epoch and a leader that knows nothing yet are a part of it."""
    broker.leader.give({PARTITION: data(error_code=ErrorCode.FENCED_LEADER_EPOCH)})
    broker.lead(3)
    for error in (ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER,
                  ErrorCode.UNKNOWN_TOPIC_ID):  # fmt: skip
        broker.leader.give({PARTITION: data(error_code=error)}, session_id=0)
        broker.run_for(BACKOFF_MS + 20)
    broker.leader.give({PARTITION: data()}, session_id=0)
    assert warnings(caplog) == []


def test_a_usual_error_that_goes_on_is_warned_of_once(broker, caplog) -> None:
    for _ in range(20):
        broker.leader.give({PARTITION: data(error_code=ErrorCode.UNKNOWN_TOPIC_ID)}, session_id=0)
        broker.run_for(BACKOFF_MS + 20)
    expected = [f"Fetch failed at the leader: partition={PARTITION} error=UNKNOWN_TOPIC_ID"]
    assert warnings(caplog) == expected


def test_another_error_is_told_at_once_and_once_while_it_lasts(broker, caplog) -> None:
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


def test_a_partition_that_fails_for_another_reason_says_so_once(broker, caplog) -> None:
    broker.leader.give({PARTITION: data(records(b"x", b"y"), high_watermark=1)})
    broker.leader.give({PARTITION: data(records(b"a", offset=1), high_watermark=1)})
    assert broker.fetchers.failed == [PARTITION]
    assert len(warnings(caplog)) == 1
    assert "Replication of a partition failed until its leader changes" in warnings(caplog)[0]


def test_a_leader_that_cannot_be_reached_is_warned_of_once(broker, caplog) -> None:
    for _ in range(5):
        broker.leader.fail()
        broker.run_for(BACKOFF_MS + 20)
    assert len(warnings(caplog)) == 1
    broker.leader.give({PARTITION: data()}, session_id=0)
    broker.leader.fail()
    assert len(warnings(caplog)) == 2


def test_an_answer_to_what_is_no_longer_asked_is_dropped(broker) -> None:
    """The offset asked for is not the fetch offset any more, or the log is to be cut."""
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


def test_a_follower_appends_only_where_its_log_ends(broker) -> None:
    """Refuses unless fetch offset = log end offset."""
    fetched = Fetched(records(b"a", offset=2), 3, 0)
    with pytest.raises(OffsetMismatchError):
        broker.node.partition().follower.append(2, fetched, lambda _: None)
    assert broker.log.size == 0


def test_the_high_watermark_is_the_leaders_if_that_is_lower(broker) -> None:
    """The smaller of the leader's and the own log end offset."""
    broker.leader.give({PARTITION: data(records(b"a", b"b", b"c"), high_watermark=1)})
    assert (broker.log.high_watermark, broker.log.log_end_offset) == (1, 3)


def out_of_range(broker: FollowingBroker, records_there: int = 2) -> None:
    """A follower with records whose next offset the leader does not have."""
    content = records(*[b"%d" % n for n in range(records_there)])
    broker.leader.give({PARTITION: data(content, high_watermark=1)}, session_id=0)
    broker.leader.give({PARTITION: data(error_code=ErrorCode.OFFSET_OUT_OF_RANGE)}, session_id=0)
    asked = broker.leader.waiting.topics[0].partitions[0]
    assert isinstance(broker.leader.waiting, ListOffsetsRequest)
    assert (asked.timestamp, asked.current_leader_epoch) == (-1, 0)
    assert broker.leader.waiting.replica_id == 1


def test_out_of_range_with_the_leaders_end_below_ours_is_cut(broker) -> None:
    """OFFSET_OUT_OF_RANGE, end below ours."""
    broker.leader.give({PARTITION: data(records(b"a"))}, session_id=0)
    broker.leader.give({PARTITION: data(records(b"b", offset=1))}, session_id=0)
    broker.leader.give({PARTITION: data(error_code=ErrorCode.OFFSET_OUT_OF_RANGE)}, session_id=0)
    broker.leader.give_offset(PARTITION, 1)
    assert broker.node.values() == [b"a"]
    assert broker.asked()[PARTITION].fetch_offset == 1
    assert broker.state().lag == 0


def test_out_of_range_with_the_leaders_start_above_ours_begins_anew(broker) -> None:
    """OFFSET_OUT_OF_RANGE, start above ours."""
    out_of_range(broker)
    broker.leader.give_offset(PARTITION, 9)
    assert broker.leader.waiting.topics[0].partitions[0].timestamp == -2
    broker.leader.give_offset(PARTITION, 5)
    assert (broker.log.log_start_offset, broker.log.log_end_offset) == (5, 5)
    assert broker.asked()[PARTITION].fetch_offset == 5
    assert broker.state().lag == 4


def test_out_of_range_within_the_leaders_range_goes_on_from_our_end(broker) -> None:
    """OFFSET_OUT_OF_RANGE, else go on from our end; after a back-off, it was refused once."""
    out_of_range(broker)
    broker.leader.give_offset(PARTITION, 9)
    broker.leader.give_offset(PARTITION, 1)
    assert broker.node.values() == [b"0", b"1"]
    broker.run_for(BACKOFF_MS + 20)
    assert broker.asked()[PARTITION].fetch_offset == 2


def test_out_of_range_with_equal_ends_asks_where_the_leaders_log_begins(broker) -> None:
    """The leader's end is not below ours, so that nothing is cut."""
    out_of_range(broker)
    broker.leader.give_offset(PARTITION, 2)
    assert isinstance(broker.leader.waiting, ListOffsetsRequest)
    assert broker.leader.waiting.topics[0].partitions[0].timestamp == -2


def test_out_of_range_with_the_leaders_start_at_our_end_keeps_our_log(broker) -> None:
    """Only a start above our end leaves a gap."""
    out_of_range(broker)
    broker.leader.give_offset(PARTITION, 9)
    broker.leader.give_offset(PARTITION, 2)
    assert broker.node.values() == [b"0", b"1"]
    assert (broker.log.log_start_offset, broker.log.log_end_offset) == (0, 2)


@pytest.mark.parametrize("question", [0, 1])
def test_out_of_range_when_asking_fails_is_delayed_or_fenced(broker, question: int) -> None:
    """If asking fails: delayed, or as fenced."""
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
    """Corrupt records mean delayed; the neighbour goes on."""
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


def test_a_failing_disk_takes_the_directory_offline_and_the_others_go_on() -> None:
    """A storage error while appending."""
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


def test_anything_unexpected_while_appending_fails_the_partition(broker) -> None:
    """Records that begin below the log end are nothing that a leader sends."""
    broker.leader.give({PARTITION: data(records(b"a", b"b"))}, session_id=0)
    broker.leader.give({PARTITION: data(records(b"x", offset=0))}, session_id=0)
    assert broker.fetchers.failed == [PARTITION]
    assert broker.node.values() == [b"a", b"b"]
