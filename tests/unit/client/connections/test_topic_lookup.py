"""Retries and limits of the lookup of topics that the metadata does not contain."""

from __future__ import annotations

from typing import Any

from barnabas.client.connections.topic_lookup import TopicLookup
from barnabas.client.errors import ClientError, UnknownTopicError
from unit.client.scripted_cluster import ScriptedCluster


def look_up(cluster: ScriptedCluster, **options: bool) -> list[tuple[Any, ClientError | None]]:
    """The result of a lookup of topic "t", which the metadata does not contain."""
    ended: list[tuple[Any, ClientError | None]] = []
    cluster.metadata.topics = {}
    lookup: Any = TopicLookup
    lookup(cluster, ["t"], 60_000, lambda *outcome: ended.append(outcome), **options).start()
    return ended


def test_a_topic_that_no_broker_knows_fails_soon() -> None:
    cluster = ScriptedCluster()
    ended = look_up(cluster)
    for _ in range(5):
        cluster.time.advance(2_000)
    ((found, error),) = ended
    assert found is None
    assert isinstance(error, UnknownTopicError)


def test_a_new_topic_is_awaited_at_a_slow_broker() -> None:
    cluster = ScriptedCluster()
    ended = look_up(cluster, wait_for_leaders=True)
    for _ in range(20):
        cluster.time.advance(2_000)
    assert not ended
    cluster.set_partitions(1)
    cluster.time.advance(2_000)
    ((found, error),) = ended
    assert error is None
    assert list(found) == ["t"]
