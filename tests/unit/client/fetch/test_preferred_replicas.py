"""Fetching from the preferred replica (KIP-392) until it fails or the preference expires."""

from __future__ import annotations

from dataclasses import replace

import pytest

from barnabas.client.connections.metadata_cache import NodeInfo
from barnabas.client.fetch.fetcher import Fetcher, ReaderOptions
from barnabas.client.fetch.record_set import RecordSet
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from unit.client.fetch.started_fetcher import VERSION, answer, batch, started
from unit.client.scripted_cluster import TOPIC_ID, ScriptedCluster

LEADER = 1
FOLLOWER = 2
MAX_AGE_MS = 50_000


def at_the_follower() -> tuple[ScriptedCluster, Fetcher]:
    """A fetcher that the leader has sent to a follower, whose fetch is the oldest call."""
    cluster = ScriptedCluster(metadata_max_age_ms=MAX_AGE_MS, client_rack="near")
    cluster.metadata.nodes[FOLLOWER] = NodeInfo(FOLLOWER, "h", 2)
    fetcher = started(cluster, options=ReaderOptions("near", True))
    request, reply = cluster.take(VERSION)
    assert request.rack_id == "near"
    partition = PartitionData(
        partition_index=0,
        error_code=0,
        high_watermark=100,
        preferred_read_replica=FOLLOWER,
        records=b"",
    )
    topic = FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[partition])
    reply(FetchResponse(session_id=7, responses=[topic]))
    assert cluster.called == [LEADER, FOLLOWER]
    return cluster, fetcher


def test_the_follower_is_fetched_from_while_it_responds() -> None:
    cluster, fetcher = at_the_follower()
    cluster.take(VERSION)[1](answer(batch(0, 5), session_id=8))
    assert cluster.called == [LEADER, FOLLOWER, FOLLOWER]
    item = fetcher.take()
    assert isinstance(item, RecordSet)
    assert item.end_offset == 5


def test_the_leader_replaces_a_follower_that_does_not_respond() -> None:
    cluster, _fetcher = at_the_follower()
    cluster.disconnect()
    assert cluster.called == [LEADER, FOLLOWER, LEADER]
    cluster.time.advance(60_000)
    assert cluster.called == [LEADER, FOLLOWER, LEADER]


def test_a_preferred_replica_expires_with_the_age_of_metadata() -> None:
    cluster, _fetcher = at_the_follower()
    cluster.time.advance(MAX_AGE_MS - 1)
    cluster.take(VERSION)[1](answer(session_id=8))
    assert cluster.called[-1] == FOLLOWER
    cluster.time.advance(1)
    cluster.take(VERSION)[1](answer(session_id=8))
    assert cluster.called[-1] == LEADER


def test_the_leader_replaces_a_stalled_follower_when_its_preference_expires() -> None:
    cluster, fetcher = at_the_follower()
    cluster.time.advance(MAX_AGE_MS)
    # As after an answer of metadata: the fetch at the follower is still under way.
    fetcher.send_fetches()
    assert cluster.called == [LEADER, FOLLOWER, LEADER]


@pytest.mark.parametrize("code", [ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.UNKNOWN_SERVER_ERROR])
def test_after_an_error_of_the_follower_the_leader_is_fetched_from(code: ErrorCode) -> None:
    cluster, fetcher = at_the_follower()
    cluster.take(VERSION)[1](answer(code=code, session_id=8))
    cluster.time.advance(1_000)
    assert cluster.called == [LEADER, FOLLOWER, LEADER]
    assert not fetcher.buffer
    assert not cluster.updates_requested


def test_a_replica_that_is_no_longer_a_follower_requests_a_metadata_update() -> None:
    cluster, _fetcher = at_the_follower()
    cluster.take(VERSION)[1](answer(code=ErrorCode.NOT_LEADER_OR_FOLLOWER, session_id=8))
    cluster.time.advance(1_000)
    assert cluster.called == [LEADER, FOLLOWER, LEADER]
    assert cluster.updates_requested == 1


@pytest.mark.parametrize("is_gone", [True, False])
def test_the_leader_replaces_a_follower_that_is_offline_in_metadata(is_gone: bool) -> None:
    cluster, _fetcher = at_the_follower()
    if is_gone:
        del cluster.metadata.nodes[FOLLOWER]
    else:
        partitions = cluster.metadata.topics["t"].partitions
        partitions[0] = replace(partitions[0], offline_replicas=(FOLLOWER,))
    cluster.take(VERSION)[1](answer(session_id=8))
    assert cluster.called == [LEADER, FOLLOWER, LEADER]
    assert cluster.updates_requested == 1


def test_a_new_leader_selects_the_preferred_replica() -> None:
    cluster, _fetcher = at_the_follower()
    partitions = cluster.metadata.topics["t"].partitions
    partitions[0] = replace(partitions[0], leader_epoch=5)
    cluster.take(VERSION)[1](answer(session_id=8))
    assert cluster.called == [LEADER, FOLLOWER, LEADER]
