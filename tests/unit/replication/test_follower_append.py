"""A follower appends and syncs the records that its leader sends."""

from __future__ import annotations

import pytest

from barnabas.protocol.errors import ErrorCode
from unit.replication.following_broker import FollowingBroker, broker, data, give_one, records
from unit.replication.replicated_cluster import PARTITION

__all__ = ["broker"]

# Appending as follower.


def test_a_response_for_another_offset_than_the_log_end_fails_the_partition(broker) -> None:
    broker.log.appender.append_as_follower(records(b"mine"))
    give_one(broker)
    assert broker.node.values() == [b"mine"]
    assert broker.fetchers.failed == [PARTITION]


@pytest.mark.parametrize("end", [0, 1, 3])
def test_a_response_without_records_for_another_offset_fails_the_partition(broker, end) -> None:
    give_one(broker)
    broker.leader.give({PARTITION: data(records(b"b", offset=1), high_watermark=2)})
    assert broker.state().fetch_offset == 2
    broker.log.truncate_to(min(end, 2))
    if end > 2:
        broker.log.appender.append_as_follower(records(b"mine", offset=2))
    broker.leader.give({PARTITION: data(high_watermark=2)})
    assert broker.fetchers.failed == [PARTITION]


def test_an_oversized_batch_is_appended_with_a_warning(caplog) -> None:
    """The warning appears when the first record exceeds replica.fetch.max.bytes."""
    broker = FollowingBroker(replica_fetch_max_bytes=100)
    broker.leader.give({PARTITION: data(records(b"x" * 500), high_watermark=1)})
    assert "Batch is larger than replica.fetch.max.bytes" in caplog.text
    assert broker.log.log_end_offset == 1


def test_the_high_watermark_and_log_start_follow_the_leaders(broker) -> None:
    """High watermark = min(leader's, log end offset); the log start only increases."""
    content = records(b"a", b"b", b"c")
    broker.leader.give({PARTITION: data(content, high_watermark=9, log_start_offset=2)})
    log = broker.log
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (2, 3, 3)
    broker.leader.give({PARTITION: data(high_watermark=3, log_start_offset=1)})
    assert log.log_start_offset == 2


def test_an_append_updates_the_next_offset_and_the_lag(broker) -> None:
    """Next = last + 1, unchanged without bytes; lag = max(0, leader's high watermark - next)."""
    broker.leader.give({PARTITION: data(records(b"a", b"b"), high_watermark=5)})
    assert (broker.state().fetch_offset, broker.state().lag) == (2, 3)
    assert broker.fetchers.max_lag == 3
    broker.leader.give({PARTITION: data(high_watermark=1)})
    assert (broker.state().fetch_offset, broker.state().lag) == (2, 0)


def test_an_incomplete_batch_is_left_for_the_next_fetch(broker) -> None:
    """The byte limits of a fetch truncate the last batch."""
    content = records(b"a") + records(b"b", offset=1)[:-3]
    broker.leader.give({PARTITION: data(content, high_watermark=2)})
    assert broker.node.values() == [b"a"]
    assert broker.asked()[PARTITION].fetch_offset == 1


def test_records_of_a_later_epoch_are_not_appended(broker) -> None:
    """The leader may have lost its leadership and truncated its log before it sent them."""
    content = records(b"a") + records(b"b", offset=1, epoch=3)
    broker.leader.give({PARTITION: data(content, high_watermark=1)})
    assert broker.node.values() == [b"a"]


def test_the_leaders_log_may_begin_within_a_batch(broker) -> None:
    """The first records of the batch were deleted; the leader sends the whole batch."""
    broker.leader.give({PARTITION: data(error_code=ErrorCode.OFFSET_OUT_OF_RANGE)}, session_id=0)
    broker.leader.give_offset(PARTITION, 7)
    broker.leader.give_offset(PARTITION, 5)
    content = records(b"3", b"4", b"5", b"6", offset=3)
    broker.leader.give({PARTITION: data(content, high_watermark=7, log_start_offset=5)}, 0)
    log = broker.log
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (5, 7, 7)
    assert broker.node.values() == [b"5", b"6"]


def test_bytes_in_of_a_reassignment_are_counted_separately(broker) -> None:
    """Reassignment bytes are counted while this replica is being added."""
    give_one(broker)
    size = len(records(b"a"))
    metrics = broker.node.manager.metrics
    assert (metrics.replication_bytes_in, metrics.reassignment_bytes_in) == (size, 0)
    broker.cluster.controller.change(adding_replicas=[1])
    broker.run_for(5)
    broker.leader.give({PARTITION: data(records(b"b", offset=1))})
    assert (metrics.replication_bytes_in, metrics.reassignment_bytes_in) == (2 * size, size)


def test_with_flush_messages_a_fetch_has_the_synced_offset() -> None:
    """Records that the leader counts as replicated survive a power loss of this broker."""
    broker = FollowingBroker(log_settings={"flush_messages": 1})
    give_one(broker)
    assert broker.leader.waiting is None
    assert broker.cluster.until(lambda: broker.leader.waiting is not None)
    assert broker.log.recovery_point == 1
    assert broker.asked()[PARTITION].fetch_offset == 1
