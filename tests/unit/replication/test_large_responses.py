"""A fetch response with many small batches is appended over several turns of the loop."""

from __future__ import annotations

import itertools

import pytest

from barnabas.replication.fetcher.fetch_processing import STEP_BYTES, _end_of_step
from barnabas.waiting import steps
from unit.replication.following_broker import FollowingBroker, data, records
from unit.replication.many_partitions import COUNT, many
from unit.replication.replicated_cluster import PARTITION


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> FollowingBroker:
    # Time does not advance within a turn of the simulated world: each step ends a slice here.
    monkeypatch.setattr(steps, "SLICE_MS", -1.0)
    return FollowingBroker(partitions=2)


def give(broker: FollowingBroker) -> bytearray:
    """Respond for two partitions; return the receive buffer."""
    buffer = many()
    other = data(records(b"other"), high_watermark=1)
    first = data(memoryview(buffer), high_watermark=COUNT)  # type: ignore[arg-type]
    broker.leader.give({PARTITION: first, broker.key(1): other})
    return buffer


def test_the_event_loop_runs_other_work_between_steps(broker: FollowingBroker) -> None:
    buffer = give(broker)
    # The next turn receives into the same buffer.
    buffer[:] = bytes(len(buffer))
    assert 0 < broker.log.log_end_offset < COUNT
    assert broker.leader.waiting is None, "no fetch before all is appended"
    broker.run_for(1)
    between = broker.log.log_end_offset
    assert between < COUNT
    broker.run_for(50)
    assert broker.node.values() == [b"%d" % number for number in range(COUNT)]
    assert broker.log.high_watermark == COUNT
    assert broker.node.log(broker.key(1)).log_end_offset == 1
    assert broker.asked()[PARTITION].fetch_offset == COUNT
    assert broker.fetchers.failed == []


def test_small_responses_of_several_partitions_survive_the_next_receive(
    broker: FollowingBroker,
) -> None:
    first, second = (bytearray(records(value)) for value in (b"first", b"second"))
    broker.leader.give(
        {
            PARTITION: data(memoryview(first), high_watermark=1),  # type: ignore[arg-type]
            broker.key(1): data(memoryview(second), high_watermark=1),  # type: ignore[arg-type]
        }
    )
    # A slow machine ends the slice after the first partition.
    assert broker.node.log(broker.key(1)).log_end_offset == 0
    for buffer in (first, second):
        buffer[:] = bytes(len(buffer))
    broker.run_for(50)
    assert broker.log.log_end_offset == 1
    assert broker.node.log(broker.key(1)).log_end_offset == 1
    assert broker.fetchers.failed == []


def test_a_new_leader_epoch_between_steps_drops_the_remaining_batches(
    broker: FollowingBroker,
) -> None:
    give(broker)
    appended = broker.log.log_end_offset
    broker.lead(3)
    broker.run_for(50)
    assert broker.log.log_end_offset == appended
    # The other partition still follows the leader that answered.
    assert broker.node.log(broker.key(1)).log_end_offset == 1
    assert broker.fetchers.failed == []


def test_a_fetcher_closed_between_steps_appends_no_more_batches(
    broker: FollowingBroker,
) -> None:
    give(broker)
    appended = broker.log.log_end_offset
    for _, fetcher in list(broker.fetchers.fetchers()):
        fetcher.close()
    broker.run_for(50)
    assert broker.log.log_end_offset == appended


def test_steps_end_at_batch_boundaries() -> None:
    content = bytes(many())
    ends = [0]
    while ends[-1] < len(content):
        ends.append(_end_of_step(content, ends[-1]))
    assert len(ends) > 3
    size = len(records(b"0"))
    assert all(b - a <= STEP_BYTES + 2 * size for a, b in itertools.pairwise(ends))


@pytest.mark.parametrize("length", [-1, 0x7FFF_FFFF])
def test_a_wrong_length_puts_the_remaining_bytes_into_one_step(length: int) -> None:
    content = many()
    content[8:12] = length.to_bytes(4, "big", signed=True)
    assert _end_of_step(bytes(content), 0) == len(content)
