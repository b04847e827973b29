"""A follower skips the records that its leader has only in the remote tier (KIP-405, KIP-1023)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.metadata.metadata_version import METADATA_VERSION
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest
from barnabas.protocol.messages.log_offsets import ListOffsetsRequest, OffsetForLeaderEpochRequest
from barnabas.protocol.records.nodes import FeatureLevelRecord
from barnabas.protocol.records.topics import RemoveTopicRecord
from barnabas.replication.fetcher.fetch_states import USUAL_ERRORS_MAX, FetchPhase
from barnabas.replication.partition.offset_lookup import EARLIEST_LOCAL, EARLIEST_PENDING_UPLOAD
from barnabas.replication.remote.auxiliary_state import TIMEOUT_MS
from barnabas.sim.disk import DiskFault
from barnabas.storage.remote.segment_objects import INDEXES_SUFFIX
from unit.replication.following_broker import FollowingBroker, data, records
from unit.replication.replicated_cluster import PARTITION, TOPIC
from unit.replication.tiered_leader import WHERE, TieredFollower

if TYPE_CHECKING:
    from barnabas.storage.topic_partition import TopicPartition

MOVED = int(ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE)
OUT_OF_RANGE = int(ErrorCode.OFFSET_OUT_OF_RANGE)
# More than the delays of the worker pools, less than the backoff of the fetcher.
SOON_MS = 200.0
BACKOFF_MS = 1_000.0


@pytest.fixture
def broker() -> TieredFollower:
    """Return a new replica. Its leader has offsets 0 to 4, of which 0 to 2 are in the tier."""
    broker = TieredFollower()
    broker.append(b"a", b"b", b"c")
    broker.copy()
    broker.append(b"d", b"e")
    return broker


def answer_moved(
    broker: FollowingBroker, key: TopicPartition = PARTITION, *, start: int = 0, end: int = 5
) -> None:
    """Answer the pending fetch: the records are in the tier only."""
    moved = data(error_code=MOVED, log_start_offset=start, high_watermark=end)
    broker.leader.give({key: moved})


def asked_timestamp(broker: FollowingBroker) -> tuple[int, int]:
    """Return the timestamp and the version of the pending ListOffsets request."""
    request = broker.leader.waiting
    assert isinstance(request, ListOffsetsRequest), request
    (topic,) = request.topics
    return topic.partitions[0].timestamp, broker.leader.version


def next_fetch(broker: TieredFollower) -> FetchPartition:
    """Return the next fetch of the partition, after a short backoff.

    The fetch that was sent during the backoff does not have the partition.
    """
    broker.run_for(SOON_MS)
    if PARTITION not in broker.asked():
        broker.leader.give({})
    asked: FetchPartition = broker.asked()[PARTITION]
    return asked


def start_behind_tier(broker: TieredFollower, offset: int = 3, epoch: int = 0) -> None:
    """Answer as a leader whose local log starts at an offset, until the broker fetches again."""
    answer_moved(broker)
    broker.leader.give_offset(PARTITION, offset, epoch=epoch)
    broker.run_for(SOON_MS)


# The way from the error to the next fetch.


def test_a_new_replica_fetches_from_the_end_of_the_remote_segment(broker) -> None:
    start_behind_tier(broker)
    asked = broker.asked()[PARTITION]
    assert (asked.fetch_offset, asked.last_fetched_epoch, asked.log_start_offset) == (3, 0, 0)
    broker.leader.give({PARTITION: data(broker.source_bytes(3), high_watermark=5)})
    assert broker.offsets() == (0, 3, 5)
    assert broker.node.records(3)[0].value == b"d"
    assert broker.log.high_watermark == 5


def test_the_leader_is_asked_for_the_start_of_its_local_log(broker) -> None:
    answer_moved(broker)
    assert asked_timestamp(broker) == (EARLIEST_LOCAL, 8)
    assert broker.state().phase is FetchPhase.TIERED


def test_the_log_starts_where_the_leaders_log_starts(broker) -> None:
    answer_moved(broker, start=1)
    broker.leader.give_offset(PARTITION, 3, epoch=0)
    broker.run_for(SOON_MS)
    assert broker.offsets() == (1, 3, 3)
    assert broker.asked()[PARTITION].log_start_offset == 1


def test_an_unknown_start_of_the_leaders_log_changes_no_log_start(broker) -> None:
    answer_moved(broker, start=-1)
    broker.leader.give_offset(PARTITION, 3, epoch=0)
    broker.run_for(SOON_MS)
    assert broker.offsets() == (0, 3, 3)


def test_the_leaders_later_log_start_moves_no_local_log_start(broker) -> None:
    start_behind_tier(broker)
    broker.leader.give(
        {PARTITION: data(broker.source_bytes(3), high_watermark=5, log_start_offset=2)}
    )
    assert broker.offsets() == (2, 3, 5)


def test_the_lag_counts_from_the_new_log_end(broker) -> None:
    start_behind_tier(broker)
    assert broker.state().lag == 2


def test_producers_of_the_skipped_records_are_known() -> None:
    broker = TieredFollower()
    broker.append(b"a", b"b", producer_id=7)
    broker.copy()
    broker.append(b"c", producer_id=7)
    start_behind_tier(broker, offset=2)
    entry = broker.log.producer_state.entries[7]
    assert (entry.last_sequence, entry.last_offset) == (1, 1)
    broker.leader.give({PARTITION: data(broker.source_bytes(2), high_watermark=3)})
    assert broker.log.producer_state.entries[7].last_sequence == 2


def test_epochs_of_the_skipped_records_are_known() -> None:
    broker = TieredFollower()
    broker.append(b"a")
    broker.append(b"b", b"c", epoch=2)
    broker.copy()
    broker.append(b"d", epoch=2)
    answer_moved(broker, end=4)
    broker.leader.give_offset(PARTITION, 3, epoch=2)
    broker.leader.give_epoch_end(PARTITION, 0, 1)
    broker.run_for(SOON_MS)
    assert broker.log.leader_epochs.entries == [(0, 0), (2, 1)]
    assert broker.asked()[PARTITION].last_fetched_epoch == 2


def test_a_replica_with_older_records_drops_them(broker) -> None:
    broker.log.appender.append_as_follower(records(b"a"))
    broker.lead(3)
    broker.lead(2)
    assert broker.asked()[PARTITION].fetch_offset == 1
    start_behind_tier(broker)
    assert broker.offsets() == (0, 3, 3)
    assert [segment.base_offset for segment in broker.log.segments] == [3]


def test_a_segment_that_reaches_into_the_local_log_is_skipped_whole(broker) -> None:
    """The leader has deleted records within the segment, and so its local log starts there."""
    start_behind_tier(broker, offset=2)
    assert broker.offsets() == (0, 3, 3)


def test_other_partitions_are_fetched_while_the_state_is_loaded() -> None:
    broker = TieredFollower(partitions=2)
    broker.append(b"a")
    broker.copy()
    first, second = broker.key(0), broker.key(1)
    broker.leader.give(
        {
            first: data(error_code=MOVED, log_start_offset=0, high_watermark=1),
            second: data(records(b"x"), high_watermark=1),
        }
    )
    broker.leader.give_offset(first, 1, epoch=0)
    assert broker.state(first).phase is FetchPhase.BUILDING
    assert isinstance(broker.leader.waiting, FetchRequest)
    broker.leader.give({second: data(records(b"y", offset=1), high_watermark=2)})
    assert broker.node.values(second) == [b"x", b"y"]
    # The partition is fetched again without a wait for the rest of the pending fetch.
    broker.run_for(SOON_MS)
    assert broker.asked()[first].fetch_offset == 1


def test_after_the_build_the_broker_can_lead(broker) -> None:
    start_behind_tier(broker)
    broker.leader.give({PARTITION: data(broker.source_bytes(3), high_watermark=5)})
    broker.lead(1)
    produced = broker.node.produce(b"f", acks=1)
    assert [(each.error, each.base_offset) for each in produced] == [(ErrorCode.NONE, 5)]
    assert broker.log.leader_epochs.entries == [(0, 0), (1, 5)]
    assert broker.offsets() == (0, 3, 6)


# The epoch of the last skipped record.


@pytest.mark.parametrize(
    ("end_of_earlier", "wanted"),
    [
        # The leader has no record of epochs 2 and 3: the local log starts with an epoch.
        ((1, 3), 1),
        # The epoch of the local start begins before it.
        ((1, 2), 4),
        # The leader does not know an earlier epoch.
        ((-1, -1), 4),
    ],
)
def test_the_epoch_of_the_last_skipped_record_comes_from_the_leader(
    end_of_earlier: tuple[int, int], wanted: int
) -> None:
    broker = TieredFollower()
    broker.append(b"a", b"b", epoch=1)
    broker.append(b"c", epoch=wanted)
    broker.copy()
    answer_moved(broker, end=3)
    broker.leader.give_offset(PARTITION, 3, epoch=4)
    request = broker.leader.waiting
    assert isinstance(request, OffsetForLeaderEpochRequest)
    assert request.topics[0].partitions[0].leader_epoch == 3
    broker.leader.give_epoch_end(PARTITION, *end_of_earlier)
    broker.run_for(SOON_MS)
    assert broker.offsets() == (0, 3, 3)


# Problems. After each, the next fetch shows whether the records are still in the tier.


def test_nothing_is_asked_until_the_metadata_of_the_segments_is_read(broker) -> None:
    broker.metadata.unread.add(WHERE)
    answer_moved(broker)
    assert broker.is_delayed()
    assert not broker.asked()
    broker.metadata.finish_reading(WHERE)
    assert next_fetch(broker).fetch_offset == 0
    start_behind_tier(broker)
    assert broker.offsets() == (0, 3, 3)


def test_a_segment_that_is_not_known_yet_is_awaited() -> None:
    broker = TieredFollower()
    broker.append(b"a")
    start_behind_tier(broker, offset=1)
    assert broker.offsets() == (0, 0, 0)
    broker.copy()
    start_behind_tier(broker, offset=1)
    assert broker.offsets() == (0, 1, 1)


def test_a_store_without_answers_is_read_again(broker, caplog) -> None:
    broker.store.faults.unavailable = 1.0
    for _ in range(3):
        start_behind_tier(broker)
        assert broker.is_delayed()
        broker.run_for(BACKOFF_MS)
    assert broker.offsets() == (0, 0, 0)
    # The problem persists, and is an error once.
    errors = [each for each in caplog.records if each.levelname == "ERROR"]
    assert len(errors) == 1, errors
    assert "does not answer" in errors[0].getMessage()
    broker.store.faults.unavailable = 0.0
    start_behind_tier(broker)
    assert broker.offsets() == (0, 3, 3)
    counts = broker.metrics.topics[TOPIC]
    assert (counts.build_aux_requests, counts.build_aux_errors) == (4, 3)


def test_damaged_indexes_leave_the_log_as_it_is(broker, caplog) -> None:
    broker.log.appender.append_as_follower(records(b"a"))
    broker.lead(3)
    broker.lead(2)
    (segment,) = broker.metadata.logs[WHERE].segments()
    broker.store.flip_bit(segment, INDEXES_SUFFIX)
    start_behind_tier(broker)
    assert broker.offsets() == (0, 0, 1)
    assert broker.is_delayed()
    assert "cannot start behind the remote tier" in caplog.text


def test_a_store_that_never_answers_is_given_up(broker) -> None:
    broker.node.host.worker_pools.delay_max_ms = 1e9
    start_behind_tier(broker)
    assert broker.state().phase is FetchPhase.BUILDING
    broker.run_for(TIMEOUT_MS)
    assert broker.state().phase is FetchPhase.FETCHING
    broker.run_for(BACKOFF_MS)
    assert broker.asked()[PARTITION].fetch_offset == 0


def test_a_topic_without_a_tier_here_is_tried_again(caplog) -> None:
    """The leader knows the config of the topic, and this broker does not know it yet."""
    broker = TieredFollower(log_settings={"is_remote": False})
    answer_moved(broker)
    assert broker.is_delayed()
    assert "the topic has no remote tier here" in caplog.text


def test_a_broker_without_a_tier_delays_the_partition(caplog) -> None:
    broker = FollowingBroker()
    answer_moved(broker)
    assert broker.is_delayed()
    assert "OFFSET_MOVED_TO_TIERED_STORAGE" in caplog.text


@pytest.mark.parametrize(
    "error", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_LEADER_EPOCH]
)
@pytest.mark.parametrize("step", ["offset", "epoch"])
def test_errors_of_the_leader_delay_the_partition(broker, step: str, error: ErrorCode) -> None:
    answer_moved(broker)
    if step == "offset":
        broker.leader.give_offset(PARTITION, -1, error=error)
    else:
        broker.leader.give_offset(PARTITION, 3, epoch=1)
        broker.leader.give_epoch_end(PARTITION, -1, -1, error=error)
    assert broker.is_delayed()
    assert next_fetch(broker).fetch_offset == 0


def test_a_fenced_epoch_fails_the_partition(broker) -> None:
    answer_moved(broker)
    broker.leader.give_offset(PARTITION, -1, error=ErrorCode.FENCED_LEADER_EPOCH)
    assert broker.fetchers.failed == [PARTITION]


@pytest.mark.parametrize("offset_and_epoch", [(-1, 0), (3, -1), (-7, -7)])
def test_impossible_offsets_delay_the_partition(broker, offset_and_epoch: tuple[int, int]) -> None:
    offset, epoch = offset_and_epoch
    answer_moved(broker)
    broker.leader.give_offset(PARTITION, offset, epoch=epoch)
    assert broker.is_delayed()
    assert broker.offsets() == (0, 0, 0)


@pytest.mark.parametrize("step", ["offset", "epoch"])
def test_a_lost_connection_delays_the_partition(broker, step: str) -> None:
    answer_moved(broker)
    if step == "epoch":
        broker.leader.give_offset(PARTITION, 3, epoch=1)
    broker.leader.fail()
    assert broker.is_delayed()
    assert broker.state().phase is FetchPhase.FETCHING


def test_a_leader_that_repeats_the_error_is_asked_after_the_backoff(broker) -> None:
    start_behind_tier(broker)
    answer_moved(broker)
    # Its local log has the next record, by its own response.
    broker.leader.give_offset(PARTITION, 3, epoch=0)
    assert broker.is_delayed()
    assert broker.offsets() == (0, 3, 3)


def test_a_failing_disk_delays_the_partition(broker) -> None:
    answer_moved(broker)
    broker.leader.give_offset(PARTITION, 3, epoch=0)
    directory = broker.log.directory
    broker.node.host.disk.faults.append(DiskFault(directory, ("write",)))
    broker.run_for(SOON_MS)
    # The directory is offline, and so is the partition.
    assert broker.state() is None
    assert broker.node.failures


def test_a_state_that_comes_after_a_leader_change_is_dropped(broker) -> None:
    answer_moved(broker)
    broker.leader.give_offset(PARTITION, 3, epoch=0)
    broker.cluster.controller.change(PARTITION, leader=3, isr=[3, 1])
    broker.run_for(5)
    broker.run_for(SOON_MS)
    assert broker.offsets() == (0, 0, 0)
    assert broker.asked()[PARTITION].fetch_offset == 0


def test_a_state_that_comes_after_the_election_of_this_broker_is_dropped(broker) -> None:
    answer_moved(broker)
    broker.leader.give_offset(PARTITION, 3, epoch=0)
    broker.lead(1)
    broker.run_for(SOON_MS)
    assert broker.offsets() == (0, 0, 0)


def test_a_state_that_comes_after_the_deletion_of_the_topic_is_dropped(broker) -> None:
    answer_moved(broker)
    broker.leader.give_offset(PARTITION, 3, epoch=0)
    broker.cluster.controller.write(RemoveTopicRecord(topic_id=WHERE.topic_id))
    broker.run_for(SOON_MS)
    assert PARTITION not in broker.node.logs.logs


def test_a_log_without_tiered_records_starts_at_the_leaders_log_start(broker) -> None:
    """DeleteRecords came between the two responses."""
    answer_moved(broker, start=4)
    broker.leader.give_offset(PARTITION, 4, epoch=0)
    assert broker.offsets() == (4, 4, 4)
    assert broker.asked()[PARTITION].fetch_offset == 4


# A crash after the log was started behind the tier.


@pytest.mark.parametrize("after_ms", [0.0, 0.05, 1.0, 2_000.0])
@pytest.mark.parametrize("end", ["kill", "lose_power"])
def test_a_log_start_is_never_above_the_leaders_after_a_crash(
    broker, end: str, after_ms: float
) -> None:
    """A leader with a higher log start would delete records from the tier."""
    start_behind_tier(broker)
    broker.run_for(after_ms)
    getattr(broker.node, end)()
    broker.node.start()
    broker.run_for(SOON_MS)
    assert broker.log.log_start_offset == 0
    if broker.asked()[PARTITION].fetch_offset == 0:
        # The log was emptied, and its new start was not on disk.
        start_behind_tier(broker)
    assert broker.offsets() == (0, 3, 3)
    assert broker.log.leader_epochs.entries == [(0, 0)]
    broker.leader.give({PARTITION: data(broker.source_bytes(3), high_watermark=5)})
    assert broker.offsets() == (0, 3, 5)


# KIP-1023: a new replica skips all records of the tier.


@pytest.fixture
def skipping(broker) -> TieredFollower:
    """Return a broker that skips all records of the tier. The leader still has some of them."""
    broker.copy()
    broker.append(b"f")
    broker.starts_at_last_tiered = True
    return broker


def test_a_new_replica_fetches_only_what_is_not_in_the_tier(skipping) -> None:
    answer_moved(skipping, end=6)
    assert asked_timestamp(skipping) == (EARLIEST_PENDING_UPLOAD, 11)
    skipping.leader.give_offset(PARTITION, 5, epoch=0)
    skipping.run_for(SOON_MS)
    assert skipping.offsets() == (0, 5, 5)
    skipping.leader.give({PARTITION: data(skipping.source_bytes(5), high_watermark=6)})
    assert skipping.offsets() == (0, 5, 6)


def test_a_leader_that_does_not_know_its_tier_yet_is_asked_again(skipping) -> None:
    answer_moved(skipping)
    skipping.leader.give_offset(PARTITION, -1)
    assert skipping.is_delayed()
    assert next_fetch(skipping).fetch_offset == 0
    answer_moved(skipping)
    assert asked_timestamp(skipping)[0] == EARLIEST_PENDING_UPLOAD


def test_a_leader_whose_records_are_all_in_the_tier_is_asked_for_its_local_log(skipping) -> None:
    """Kafka's leaders have no offset that is not in the tier then, perhaps for long."""
    for _ in range(USUAL_ERRORS_MAX):
        answer_moved(skipping)
        assert asked_timestamp(skipping)[0] == EARLIEST_PENDING_UPLOAD
        skipping.leader.give_offset(PARTITION, -1)
        skipping.run_for(BACKOFF_MS)
        next_fetch(skipping)
    start_behind_tier(skipping)
    assert skipping.offsets() == (0, 3, 3)


def test_a_replica_with_records_continues_at_the_leaders_local_log(skipping) -> None:
    skipping.log.appender.append_as_follower(records(b"a"))
    skipping.lead(3)
    skipping.lead(2)
    answer_moved(skipping)
    assert asked_timestamp(skipping) == (EARLIEST_LOCAL, 8)


def test_leaders_of_an_older_level_are_asked_for_the_start_of_their_local_log(skipping) -> None:
    skipping.cluster.controller.write(FeatureLevelRecord(name=METADATA_VERSION, feature_level=28))
    skipping.run_for(5)
    answer_moved(skipping)
    assert asked_timestamp(skipping) == (EARLIEST_LOCAL, 8)


def answer_out_of_range(broker: TieredFollower, start: int, end: int) -> None:
    broker.leader.give({PARTITION: data(error_code=OUT_OF_RANGE)})
    broker.leader.give_offset(PARTITION, end, epoch=0)
    broker.leader.give_offset(PARTITION, start, epoch=0)


def test_a_new_replica_out_of_range_skips_the_tier_too(skipping) -> None:
    answer_out_of_range(skipping, start=1, end=6)
    assert asked_timestamp(skipping) == (EARLIEST_PENDING_UPLOAD, 11)
    skipping.leader.give_offset(PARTITION, 5, epoch=0)
    skipping.run_for(SOON_MS)
    assert skipping.offsets() == (1, 5, 5)


def test_a_new_replica_out_of_range_without_remote_segments_copies_all(skipping) -> None:
    answer_out_of_range(skipping, start=1, end=6)
    skipping.leader.give_offset(PARTITION, 1, epoch=0)
    assert skipping.offsets() == (1, 1, 1)
    assert skipping.asked()[PARTITION].fetch_offset == 1


def test_a_new_replica_out_of_range_copies_from_the_log_start_by_default(broker) -> None:
    """The next fetch shows whether the records there are in the tier."""
    answer_out_of_range(broker, start=1, end=6)
    assert broker.offsets() == (1, 1, 1)
    assert broker.asked()[PARTITION].fetch_offset == 1
