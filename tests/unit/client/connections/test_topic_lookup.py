"""Retries and limits of the lookup of topics that the metadata does not contain."""

from __future__ import annotations

from typing import Any

from barnabas.client.connections.lookups import Sought, TopicLookup
from barnabas.client.errors import ClientError, UnknownTopicError
from unit.client.scripted_cluster import TOPIC_ID, ScriptedCluster


def look_up(cluster: ScriptedCluster, **sought: Any) -> list[tuple[Any, ClientError | None]]:
    """The result of a lookup of topic "t", which the metadata does not contain."""
    ended: list[tuple[Any, ClientError | None]] = []
    cluster.metadata.topics = {}
    lookup: Any = TopicLookup
    lookup(cluster, ["t"], 60_000, lambda *outcome: ended.append(outcome), Sought(**sought)).start()
    return ended


def test_a_topic_that_no_broker_knows_fails_soon() -> None:
    cluster = ScriptedCluster()
    ended = look_up(cluster)
    for _ in range(5):
        cluster.time.advance(2_000)
    ((found, error),) = ended
    assert found is None
    assert isinstance(error, UnknownTopicError)


def test_an_unknown_topic_that_cannot_be_new_fails_at_once() -> None:
    cluster = ScriptedCluster()
    ((found, error),) = look_up(cluster, may_be_new=False)
    assert found is None
    assert isinstance(error, UnknownTopicError)
    assert cluster.refreshes == 1


def test_a_new_topic_is_awaited_at_a_slow_broker() -> None:
    cluster = ScriptedCluster()
    ended = look_up(cluster, created_ids={"t": TOPIC_ID})
    for _ in range(20):
        cluster.time.advance(2_000)
    assert not ended
    cluster.set_partitions(1)
    cluster.time.advance(2_000)
    ((found, error),) = ended
    assert error is None
    assert list(found) == ["t"]


def test_a_deleted_topic_of_the_same_name_is_not_the_created_one() -> None:
    cluster = ScriptedCluster()
    ended = look_up(cluster, created_ids={"t": b"n" * 16})
    cluster.set_partitions(1)
    cluster.time.advance(2_000)
    assert not ended
    cluster.set_partitions(1, topic_id=b"n" * 16)
    cluster.time.advance(2_000)
    ((found, error),) = ended
    assert error is None
    assert found["t"].topic_id == b"n" * 16


def test_an_old_broker_does_not_return_the_id_of_a_created_topic() -> None:
    cluster = ScriptedCluster()
    ended = look_up(cluster, created_ids={"t": bytes(16)})
    cluster.set_partitions(1)
    cluster.time.advance(2_000)
    ((_, error),) = ended
    assert error is None
