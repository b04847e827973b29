"""The version of a follower's Fetch requests."""

from __future__ import annotations

from barnabas.protocol.fetch_session_handler import NO_TOPIC_ID
from barnabas.replication.config import FetcherSettings, ReplicationConfig
from barnabas.replication.fetcher.leader_endpoint import (
    FollowerSession,
    LeaderEndpoint,
    RequestedPartition,
)
from barnabas.storage.topic_partition import TopicPartition
from unit.replication.following_broker import ScriptedChannel


def test_a_topic_without_an_id_is_fetched_with_the_last_version_by_names() -> None:
    partition = TopicPartition("t", 0)
    request = FollowerSession().build({partition: RequestedPartition(NO_TOPIC_ID, 0, 0, 0, -1)})
    channel = ScriptedChannel(2, "follower")
    settings = FetcherSettings(1, lambda: 1, lambda: 18, ReplicationConfig())
    LeaderEndpoint(2, channel, settings).fetch(request, 500, lambda *_: None)
    assert channel.version == 12
