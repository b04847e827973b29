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


def of(topic: str, offset: int = 0, **more: Any) -> Callable[[Side], Values]:
    """A fetch of one partition; `more` are fields of the partition or of the request."""
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
    scene.compare(of(topic))
    scene.produce(topic, batch(b"a", b"b", b"c"))
    scene.produce(topic, batch(b"d"))
    for offset in range(5):
        scene.compare(of(topic, offset))


@case(FETCH)
def offsets_out_of_range(scene: Scene) -> None:
    topic = scene.topic()
    scene.produce(topic, batch(b"a"))
    for offset in (2, 99, -1, -2, 1 << 62):
        scene.compare(of(topic, offset))


@case(FETCH)
def offsets_below_the_log_s_start(scene: Scene) -> None:
    topic = scene.topic()
    for _ in range(3):
        scene.produce(topic, batch(b"a"))
    cut = [{"partition_index": 0, "offset": 2}]
    asked = {"topics": [{"name": topic, "partitions": cut}], "timeout_ms": 5000}
    scene.compare(asked, ApiKey.DELETE_RECORDS, 2)
    for offset in range(4):
        scene.compare(of(topic, offset))
        scene.compare(of(topic, offset, last_fetched_epoch=0))


@case(FETCH)
def limits_of_bytes(scene: Scene) -> None:
    topic = scene.topic()
    for _ in range(3):
        scene.produce(topic, batch(b"a" * 100))
    for limit in (0, 1, 100, 170, 200, 330, 1 << 20, -1):
        scene.compare(of(topic, partition_max_bytes=limit))
    for limit in (0, 1, 200, 1 << 20, -1):
        scene.compare(of(topic, max_bytes=limit))


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
    scene.compare(of(topic, max_wait_ms=30, min_bytes=1))
    scene.produce(topic, batch(b"a"))
    scene.compare(of(topic, max_wait_ms=30, min_bytes=1 << 20))
    scene.compare(of(topic, max_wait_ms=-5, min_bytes=1 << 20))
    scene.compare(of(topic, max_wait_ms=0, min_bytes=-1))


@case(FETCH)
def waiting_ends_when_records_come(scene: Scene) -> None:
    topic = scene.topic()
    scene.send(of(topic, max_wait_ms=8000, min_bytes=1), on="waiting")
    scene.produce(topic, batch(b"a"))
    scene.answer(on="waiting")


@case(FETCH)
def unknown_topics_and_partitions(scene: Scene) -> None:
    topic = scene.topic()
    for partition in (1, -1, 0x7FFFFFFF):
        scene.compare(of(topic, partition=partition))
    partitions = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 100}]
    for name, identity in (("absent", b"\x07" * 16), ("", bytes(16)), ("a/b", b"\x07" * 16)):
        named = {"topic": name, "topic_id": identity, "partitions": partitions}
        scene.compare({"max_wait_ms": 0, "min_bytes": 0, "topics": [named]})


@case(FETCH)
def an_error_does_not_wait(scene: Scene) -> None:
    topic = scene.topic()
    scene.compare(of(topic, partition=3, max_wait_ms=8000, min_bytes=1))


@case(FETCH)
def epochs(scene: Scene) -> None:
    topic = scene.topic()
    scene.produce(topic, batch(b"a"))
    for epoch in (0, 1, 99, -2):
        scene.compare(of(topic, current_leader_epoch=epoch))


@case(FETCH)
def last_fetched_epochs(scene: Scene) -> None:
    topic = scene.topic()
    scene.produce(topic, batch(b"a"))
    for epoch, offset in ((0, 0), (0, 1), (0, 5), (1, 0), (1, 1), (99, 1)):
        scene.compare(of(topic, offset, last_fetched_epoch=epoch, current_leader_epoch=0))


@case(FETCH)
def read_committed(scene: Scene) -> None:
    topic = scene.topic()
    scene.produce(topic, batch(b"a"))
    scene.compare(of(topic, isolation_level=1))
    scene.compare(of(topic, isolation_level=7))


@case(FETCH)
def nothing_at_all(scene: Scene) -> None:
    scene.compare({"max_wait_ms": 0, "min_bytes": 0, "topics": []})


@case(FETCH)
def nothing_at_all_with_a_wait(scene: Scene) -> None:
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
def a_follower_that_is_no_replica(scene: Scene) -> None:
    topic = scene.topic()
    for replica in (5, -2, -3):
        state = {"replica_id": replica, "replica_epoch": 3}
        scene.compare(of(topic, replica_id=replica, replica_state=state))
        scene.compare(of(topic, replica_id=replica, replica_state=state, current_leader_epoch=0))


@case(FETCH)
def a_wrong_cluster_id(scene: Scene) -> None:
    topic = scene.topic()
    scene.compare(of(topic, cluster_id="another-cluster"))


@case(FETCH)
def compressed_records_come_as_they_went(scene: Scene) -> None:
    topic = scene.topic()
    for code in range(5):
        scene.produce(topic, batch(b"a" * 300, compression=code))
    scene.compare(of(topic))


def opened(scene: Scene, build: Callable[[Side], Values]) -> None:
    """A session opened by a full fetch, known as "session"."""
    answers = scene.compare(lambda side: {**build(side), "session_epoch": 0})
    scene.remember("session", *(answer.session_id for answer in answers))


def going_on(epoch: int, build: Callable[[Side], Values]) -> Callable[[Side], Values]:
    return lambda side: {
        **build(side),
        "session_id": side.number("session"),
        "session_epoch": epoch,
    }


def only(**more: Any) -> Callable[[Side], Values]:
    """A fetch that names no partitions."""
    return lambda _: {"max_wait_ms": 0, "min_bytes": 0, "topics": [], **more}


@case(FETCH, SESSIONS)
def a_session_from_full_to_incremental(scene: Scene) -> None:
    topic = scene.topic(2)
    scene.produce(topic, batch(b"a"))
    opened(scene, of(topic))
    scene.compare(going_on(1, of(topic, 1)))
    scene.compare(going_on(2, only()))
    scene.produce(topic, batch(b"b"))
    scene.compare(going_on(3, only()))
    scene.compare(going_on(4, of(topic, partition=1)))
    scene.compare(going_on(5, of(topic, partition=5)))
    scene.compare(going_on(6, only()))


@case(FETCH, SESSIONS)
def a_session_with_forgotten_partitions(scene: Scene) -> None:
    topic = scene.topic(2)
    scene.produce(topic, batch(b"a"))
    opened(scene, of(topic))

    def forget(side: Side) -> Values:
        gone = {"topic": topic, "topic_id": side.topic_id(topic), "partitions": [0, 1]}
        return {**only()(side), "forgotten_topics_data": [gone]}

    scene.compare(going_on(1, forget))
    scene.compare(going_on(2, only()))


@case(FETCH, SESSIONS)
def sessions_with_wrong_epochs_and_ids(scene: Scene) -> None:
    topic = scene.topic()
    opened(scene, of(topic))
    for epoch in (5, 2, -7):
        scene.compare(going_on(epoch, only()))
    scene.compare(only(session_id=4711, session_epoch=1))
    scene.compare(only(session_id=4711, session_epoch=0))
    scene.compare(only(session_id=0, session_epoch=1))
    scene.compare(only(session_id=0, session_epoch=-1))


@case(FETCH, SESSIONS)
def a_session_is_closed(scene: Scene) -> None:
    topic = scene.topic()
    opened(scene, of(topic))
    scene.compare(going_on(-1, of(topic)))
    scene.compare(going_on(1, only()))


@case(FETCH, SESSIONS)
def a_session_is_replaced(scene: Scene) -> None:
    topic = scene.topic()
    opened(scene, of(topic))
    answers = scene.do(FETCH, scene.version, going_on(0, of(topic)))
    scene.remember("next session", *(answer.session_id for answer in answers))
    scene.compare(going_on(1, only()))


@case(FETCH, SESSIONS)
def a_session_over_a_topic_that_is_not_there(scene: Scene) -> None:
    partitions = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 100}]
    named = {"topic": "absent", "topic_id": b"\x07" * 16, "partitions": partitions}
    opened(scene, lambda _: {"max_wait_ms": 0, "min_bytes": 0, "topics": [named]})
    scene.compare(going_on(1, only()))
    scene.compare(going_on(2, only()))


@case(FETCH, SESSIONS)
def a_session_of_nothing(scene: Scene) -> None:
    scene.compare(only(session_epoch=0))
