"""The backoff of a partition that its new leader does not know yet."""

from __future__ import annotations

from barnabas.protocol.errors import ErrorCode
from unit.replication.following_broker import FollowingBroker, data
from unit.replication.replicated_cluster import PARTITION

BACKOFF_MS = 1_000


def test_a_leader_that_does_not_know_its_election_is_asked_again_soon() -> None:
    """Writes with acks=all wait for this fetch. The backoff doubles up to the configured one."""
    broker = FollowingBroker()
    waits = []
    for _ in range(10):
        broker.leader.give({PARTITION: data(error_code=ErrorCode.UNKNOWN_LEADER_EPOCH)}, 0)
        waits.append(0)
        while broker.leader.waiting is None:
            broker.run_for(10)
            waits[-1] += 10
    assert waits == sorted(waits)
    # The timer may be late by a tick.
    expected = [20, 40, 80, 160, 320, 640, *4 * [BACKOFF_MS]]
    assert all(0 <= waited - delay <= 20 for waited, delay in zip(waits, expected, strict=True))
    broker.leader.give({PARTITION: data()}, 0)
    broker.leader.give({PARTITION: data(error_code=ErrorCode.UNKNOWN_LEADER_EPOCH)}, 0)
    broker.run_for(40)
    assert list(broker.asked()) == [PARTITION]


def test_a_fetch_of_other_partitions_does_not_outlast_a_delay() -> None:
    broker = FollowingBroker(partitions=2)
    refused, other = broker.key(0), broker.key(1)
    broker.leader.give(
        {refused: data(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER), other: data()}, session_id=0
    )
    assert list(broker.asked()) == [other]
    assert broker.leader.waiting.max_wait_ms == 20
    broker.run_for(40)
    broker.leader.give({other: data()}, session_id=0)
    assert set(broker.asked()) == {refused, other}
    assert broker.leader.waiting.max_wait_ms == 500
