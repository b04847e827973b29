"""A follower survives any values in the answers of a leader with a remote tier.

Such a leader can make its followers drop their logs, as any leader can. It cannot end a fetcher,
hold up other partitions, or make a log begin at an offset that it has not named.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.log_offsets import ListOffsetsRequest, OffsetForLeaderEpochRequest
from barnabas.replication.fetcher.fetch_states import FetchPhase
from unit.replication.following_broker import data, records
from unit.replication.tiered_leader import TieredFollower

if TYPE_CHECKING:
    from barnabas.storage.topic_partition import TopicPartition

MOVED = int(ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE)
LOWEST, HIGHEST = -(1 << 63), (1 << 63) - 1
LOWEST_EPOCH, HIGHEST_EPOCH = -(1 << 31), (1 << 31) - 1
# The segment in the tier has the offsets 0 to 2.
SEGMENT_END = 3
SOON_MS, BACKOFF_MS = 200.0, 1_000.0
OFFSETS = (LOWEST, -2, -1, 0, 1, SEGMENT_END, 4, HIGHEST)
EPOCHS = (LOWEST_EPOCH, -1, 0, 1, HIGHEST_EPOCH)


@pytest.fixture
def broker() -> TieredFollower:
    """Return a new replica of two partitions, of which the first one is in the tier."""
    broker = TieredFollower(partitions=2)
    broker.append(b"a", b"b", b"c")
    broker.copy()
    return broker


def answer_moved(broker: TieredFollower, log_start: int, high_watermark: int) -> None:
    """Answer the pending fetch of both partitions."""
    moved = data(error_code=MOVED, log_start_offset=log_start, high_watermark=high_watermark)
    broker.leader.give({broker.key(0): moved, broker.key(1): data(high_watermark=0)})


def check_other_partition(broker: TieredFollower, other: TopicPartition) -> None:
    """Check that the fetcher goes on with the other partition."""
    broker.run_for(SOON_MS)
    assert broker.fetchers.failed == []
    # The response to a full request has all of its partitions.
    parts = {key: data(high_watermark=0, log_start_offset=-1) for key in broker.asked()}
    broker.leader.give({**parts, other: data(records(b"x"), high_watermark=1)})
    assert broker.node.values(other) == [b"x"]


@pytest.mark.parametrize("log_start", [LOWEST, -1, 0, 2, HIGHEST])
@pytest.mark.parametrize(("offset", "epoch"), list(product(OFFSETS, EPOCHS)))
def test_any_offset_and_epoch_leave_a_log_that_the_leader_has_named(
    broker: TieredFollower, log_start: int, offset: int, epoch: int
) -> None:
    first, other = broker.key(0), broker.key(1)
    answer_moved(broker, log_start, HIGHEST)
    assert isinstance(broker.leader.waiting, ListOffsetsRequest)
    broker.leader.give_offset(first, offset, epoch=epoch)
    if isinstance(broker.leader.waiting, OffsetForLeaderEpochRequest):
        broker.leader.give_epoch_end(first, epoch, offset)
    check_other_partition(broker, other)
    broker.run_for(BACKOFF_MS)
    start, local, end = broker.offsets(first)
    assert 0 <= start <= local <= end
    assert end in {0, SEGMENT_END, offset}, (start, local, end)
    assert broker.state(first).phase in {FetchPhase.FETCHING, FetchPhase.BUILDING}


@pytest.mark.parametrize(("epoch", "end_offset"), list(product(EPOCHS, OFFSETS)))
def test_any_end_of_an_epoch_leaves_a_log_that_the_leader_has_named(
    broker: TieredFollower, epoch: int, end_offset: int
) -> None:
    first, other = broker.key(0), broker.key(1)
    answer_moved(broker, 0, LOWEST)
    broker.leader.give_offset(first, SEGMENT_END, epoch=2)
    assert isinstance(broker.leader.waiting, OffsetForLeaderEpochRequest)
    broker.leader.give_epoch_end(first, epoch, end_offset)
    check_other_partition(broker, other)
    assert broker.offsets(first) in {(0, 0, 0), (0, SEGMENT_END, SEGMENT_END)}
