"""A follower's fetch at the log end has a short way, with the results of the usual way."""

from __future__ import annotations

from itertools import product

import pytest

from barnabas.replication.partition.fetch_params import FetchParams, FetchPartitionData
from barnabas.replication.partition.partition import Partition
from barnabas.storage.results import FetchIsolation
from unit.replication.replica_set import LEADER, ReplicaSet

FOLLOWER, OTHER = 2, 4
LEADER_EPOCH = 1
LIMIT = 1 << 20


@pytest.fixture
def pair() -> ReplicaSet:
    """Broker 1 leads with two records of its leader epoch; broker 2 has them."""
    replicas = ReplicaSet((LEADER, FOLLOWER))
    replicas.change(leader=LEADER)
    replicas.produce(b"first")
    replicas.produce(b"second")
    replicas.follow(FOLLOWER, 2)
    assert replicas.log.high_watermark == 2
    return replicas


def fetch_of(replica_id: int) -> FetchParams:
    return FetchParams(
        version=17,
        replica_id=replica_id,
        replica_epoch=100 + replica_id,
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=LIMIT,
        isolation=FetchIsolation.LOG_END,
    )


def test_both_ways_have_the_same_results(pair: ReplicaSet, monkeypatch: pytest.MonkeyPatch) -> None:
    short = 0
    epochs = (-1, LEADER_EPOCH - 1, LEADER_EPOCH, LEADER_EPOCH + 1)
    for replica_id, offset, current_epoch, last_epoch in product(
        (FOLLOWER, OTHER), range(4), epochs, epochs
    ):
        data = FetchPartitionData(offset, LIMIT, 0, current_epoch, last_epoch)
        params = fetch_of(replica_id)
        short += pair.partition.has_nothing_for(replica_id, data)
        result = pair.partition.read(params, data, LIMIT, True)
        with monkeypatch.context() as usual:
            usual.setattr(Partition, "has_nothing_for", lambda *_: False)
            expected = pair.partition.read(params, data, LIMIT, True)
        assert str(result) == str(expected)
    assert short == 1


def test_a_broker_that_does_not_lead_has_no_short_way(pair: ReplicaSet) -> None:
    data = FetchPartitionData(2, LIMIT, 0, LEADER_EPOCH, LEADER_EPOCH)
    assert pair.partition.has_nothing_for(FOLLOWER, data)
    pair.change(leader=FOLLOWER)
    later = FetchPartitionData(2, LIMIT, 0, LEADER_EPOCH + 1, LEADER_EPOCH)
    assert not pair.partition.has_nothing_for(FOLLOWER, data)
    assert not pair.partition.has_nothing_for(FOLLOWER, later)
