"""Fetch: records, limits, sessions, epochs and refusals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.protocol.api_table import ApiKey
from differential.case import case
from differential.scene import Scene, batch
from differential.side import Side

if TYPE_CHECKING:
    from collections.abc import Callable

    from differential.request import Values

FETCH = ApiKey.FETCH
SESSIONS = range(7, 19)


def fetching(topic: str, offset: int = 0, **more: Any) -> Callable[[Side], Values]:
    """Return a Fetch of one partition; `more` are fields of the partition or of the request."""
    inside = ("partition", "partition_max_bytes", "current_leader_epoch", "last_fetched_epoch")
    inside += ("log_start_offset", "high_watermark")
    partition = {"fetch_offset": offset, "partition_max_bytes": 1 << 20}
    partition |= {key: more.pop(key) for key in inside if key in more}

    def values(side: Side) -> Values:
        named = {"topic": topic, "topic_id": side.topic_id(topic), "partitions": [partition]}
        return {"max_wait_ms": 0, "min_bytes": 0, "topics": [named], **more}

    return values


@case(FETCH)
def records_from_each_offset(scene: Scene) -> None:
    topic = scene.topic()
    scene.compare(fetching(topic))
    scene.produce(topic, batch(b"a", b"b", b"c"))
    scene.produce(topic, batch(b"d"))
    for offset in range(5):
        scene.compare(fetching(topic, offset))


@case(FETCH)
def offsets_out_of_range(scene: Scene) -> None:
    topic = scene.topic()
    scene.produce(topic, batch(b"a"))
    for offset in (2, 99, -1, -2, 1 << 62):
        scene.compare(fetching(topic, offset))


@case(FETCH)
def offsets_below_the_log_s_start(scene: Scene) -> None:
    topic = scene.topic()
    for _ in range(3):
        scene.produce(topic, batch(b"a"))
    cut = [{"partition_index": 0, "offset": 2}]
    requested = {"topics": [{"name": topic, "partitions": cut}], "timeout_ms": 5000}
    scene.compare(requested, ApiKey.DELETE_RECORDS, 2)
    for offset in range(4):
        scene.compare(fetching(topic, offset))
        scene.compare(fetching(topic, offset, last_fetched_epoch=0))


@case(FETCH)
def limits_of_bytes(scene: Scene) -> None:
    topic = scene.topic()
    for _ in range(3):
        scene.produce(topic, batch(b"a" * 100))
    for limit in (0, 1, 100, 170, 200, 330, 1 << 20, -1):
        scene.compare(fetching(topic, partition_max_bytes=limit))
    for limit in (0, 1, 200, 1 << 20, -1):
        scene.compare(fetching(topic, max_bytes=limit))


@case(FETCH)
def two_partitions_share_a_limit(scene: Scene) -> None:
    topic = scene.topic(2)
    scene.produce(topic, batch(b"a" * 100), 0)
    scene.produce(topic, batch(b"b" * 100), 1)

    def values(side: Side) -> Values:
        partitions = [
            {"partition": index, "fetch_offset": 0, "partition_max_bytes": 1000} for index in (1, 0)
        ]
        named = {"topic": topic, "topic_id": side.topic_id(topic), "partitions": partitions}
        return {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 200, "topics": [named]}

    scene.compare(values)


@case(FETCH)
def waiting(scene: Scene) -> None:
    topic = scene.topic()
    scene.compare(fetching(topic, max_wait_ms=30, min_bytes=1))
    scene.produce(topic, batch(b"a"))
    scene.compare(fetching(topic, max_wait_ms=30, min_bytes=1 << 20))
    scene.compare(fetching(topic, max_wait_ms=-5, min_bytes=1 << 20))
    scene.compare(fetching(topic, max_wait_ms=0, min_bytes=-1))


@case(FETCH)
def waiting_ends_when_records_come(scene: Scene) -> None:
    topic = scene.topic()
    scene.send(fetching(topic, max_wait_ms=8000, min_bytes=1), on="waiting")
    scene.produce(topic, batch(b"a"))
    scene.compare_response(on="waiting")


@case(FETCH)
def unknown_topics_and_partitions(scene: Scene) -> None:
    topic = scene.topic()
    for partition in (1, -1, 0x7FFFFFFF):
        scene.compare(fetching(topic, partition=partition))
    partitions = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 100}]
    for name, identity in (("absent", b"\x07" * 16), ("", bytes(16)), ("a/b", b"\x07" * 16)):
        named = {"topic": name, "topic_id": identity, "partitions": partitions}
        scene.compare({"max_wait_ms": 0, "min_bytes": 0, "topics": [named]})


@case(FETCH)
def an_error_does_not_wait(scene: Scene) -> None:
    topic = scene.topic()
    scene.compare(fetching(topic, partition=3, max_wait_ms=8000, min_bytes=1))


@case(FETCH)
def epochs(scene: Scene) -> None:
    topic = scene.topic()
    scene.produce(topic, batch(b"a"))
    for epoch in (0, 1, 99, -2):
        scene.compare(fetching(topic, current_leader_epoch=epoch))


@case(FETCH)
def last_fetched_epochs(scene: Scene) -> None:
    topic = scene.topic()
    scene.produce(topic, batch(b"a"))
    for epoch, offset in ((0, 0), (0, 1), (0, 5), (1, 0), (1, 1), (99, 1)):
        scene.compare(fetching(topic, offset, last_fetched_epoch=epoch, current_leader_epoch=0))


@case(FETCH)
def read_committed(scene: Scene) -> None:
    topic = scene.topic()
    scene.produce(topic, batch(b"a"))
    scene.compare(fetching(topic, isolation_level=1))
    scene.compare(fetching(topic, isolation_level=7))


@case(FETCH)
def no_topics(scene: Scene) -> None:
    scene.compare({"max_wait_ms": 0, "min_bytes": 0, "topics": []})


@case(FETCH)
def no_topics_with_a_wait(scene: Scene) -> None:
    scene.compare({"max_wait_ms": 3000, "min_bytes": 1, "topics": []})


@case(FETCH)
def the_same_partition_twice(scene: Scene) -> None:
    topic = scene.topic()
    scene.produce(topic, batch(b"a"))
    scene.produce(topic, batch(b"b"))

    def values(side: Side) -> Values:
        partitions = [
            {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1000}
            for offset in (1, 0)
        ]
        named = {"topic": topic, "topic_id": side.topic_id(topic), "partitions": partitions}
        return {"max_wait_ms": 0, "min_bytes": 0, "topics": [named]}

    scene.compare(values)


@case(FETCH)
def a_follower_without_a_replica(scene: Scene) -> None:
    topic = scene.topic()
    for replica in (5, -2, -3):
        state = {"replica_id": replica, "replica_epoch": 3}
        scene.compare(fetching(topic, replica_id=replica, replica_state=state))
        scene.compare(
            fetching(topic, replica_id=replica, replica_state=state, current_leader_epoch=0)
        )


@case(FETCH)
def a_wrong_cluster_id(scene: Scene) -> None:
    topic = scene.topic()
    scene.compare(fetching(topic, cluster_id="another-cluster"))


@case(FETCH)
def compressed_records_are_returned_unchanged(scene: Scene) -> None:
    topic = scene.topic()
    for code in range(5):
        scene.produce(topic, batch(b"a" * 300, compression=code))
    scene.compare(fetching(topic))


def open_session(scene: Scene, build: Callable[[Side], Values]) -> None:
    """Open a session by a full fetch, and name its id "session"."""
    responses = scene.compare(lambda side: {**build(side), "session_epoch": 0})
    scene.remember("session", *(response.session_id for response in responses))


def continuing(epoch: int, build: Callable[[Side], Values]) -> Callable[[Side], Values]:
    return lambda side: {
        **build(side),
        "session_id": side.number("session"),
        "session_epoch": epoch,
    }


def without_partitions(**more: Any) -> Callable[[Side], Values]:
    """Return a Fetch that names no partitions."""
    return lambda _: {"max_wait_ms": 0, "min_bytes": 0, "topics": [], **more}


@case(FETCH, SESSIONS)
def a_session_from_full_to_incremental(scene: Scene) -> None:
    topic = scene.topic(2)
    scene.produce(topic, batch(b"a"))
    open_session(scene, fetching(topic))
    scene.compare(continuing(1, fetching(topic, 1)))
    scene.compare(continuing(2, without_partitions()))
    scene.produce(topic, batch(b"b"))
    scene.compare(continuing(3, without_partitions()))
    scene.compare(continuing(4, fetching(topic, partition=1)))
    scene.compare(continuing(5, fetching(topic, partition=5)))
    scene.compare(continuing(6, without_partitions()))


@case(FETCH, SESSIONS)
def a_session_with_forgotten_partitions(scene: Scene) -> None:
    topic = scene.topic(2)
    scene.produce(topic, batch(b"a"))
    open_session(scene, fetching(topic))

    def forget(side: Side) -> Values:
        gone = {"topic": topic, "topic_id": side.topic_id(topic), "partitions": [0, 1]}
        return {**without_partitions()(side), "forgotten_topics_data": [gone]}

    scene.compare(continuing(1, forget))
    scene.compare(continuing(2, without_partitions()))


@case(FETCH, SESSIONS)
def sessions_with_wrong_epochs_and_ids(scene: Scene) -> None:
    topic = scene.topic()
    open_session(scene, fetching(topic))
    for epoch in (5, 2, -7):
        scene.compare(continuing(epoch, without_partitions()))
    scene.compare(without_partitions(session_id=4711, session_epoch=1))
    scene.compare(without_partitions(session_id=4711, session_epoch=0))
    scene.compare(without_partitions(session_id=0, session_epoch=1))
    scene.compare(without_partitions(session_id=0, session_epoch=-1))


@case(FETCH, SESSIONS)
def a_session_is_closed(scene: Scene) -> None:
    topic = scene.topic()
    open_session(scene, fetching(topic))
    scene.compare(continuing(-1, fetching(topic)))
    scene.compare(continuing(1, without_partitions()))


@case(FETCH, SESSIONS)
def a_session_is_replaced(scene: Scene) -> None:
    topic = scene.topic()
    open_session(scene, fetching(topic))
    responses = scene.do(FETCH, scene.version, continuing(0, fetching(topic)))
    scene.remember("next session", *(response.session_id for response in responses))
    scene.compare(continuing(1, without_partitions()))


@case(FETCH, SESSIONS)
def a_session_with_an_unknown_topic(scene: Scene) -> None:
    partitions = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 100}]
    named = {"topic": "absent", "topic_id": b"\x07" * 16, "partitions": partitions}
    open_session(scene, lambda _: {"max_wait_ms": 0, "min_bytes": 0, "topics": [named]})
    scene.compare(continuing(1, without_partitions()))
    scene.compare(continuing(2, without_partitions()))


@case(FETCH, SESSIONS)
def an_empty_session(scene: Scene) -> None:
    scene.compare(without_partitions(session_epoch=0))
