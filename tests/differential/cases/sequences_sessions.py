"""Fetch sessions from their first epoch to their last: the partitions in each response.

Each case runs with topic ids (in the newest versions) and with names (in older versions).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.protocol.api_table import ApiKey
from differential.case import case
from differential.scene import Scene, batch

if TYPE_CHECKING:
    from collections.abc import Callable

    from differential.request import Values
    from differential.side import Side

FETCH = ApiKey.FETCH
BY_NAME_AND_ID = (7, 12, 13, 18)
FINAL = -1
EPOCH_MAX = 0x7FFFFFFF
# max.incremental.fetch.session.cache.slots.
SLOTS = 1000


class Session:
    """One session of a case, with the epoch of its next request."""

    def __init__(self, scene: Scene, name: str = "session") -> None:
        self.scene = scene
        self.name = name
        self.epoch = 0

    def fetch(self, *partitions: dict[str, Any], **more: Any) -> tuple[Any, Any]:
        """Send the next request of the session; the first request opens it."""
        responses = self.scene.compare(self.values(*partitions, **more))
        if self.epoch == 0:
            self.scene.remember(self.name, *(response.session_id for response in responses))
        self.epoch += 1
        return responses

    def values(
        self, *partitions: dict[str, Any], epoch: int | None = None, **more: Any
    ) -> Callable[[Side], Values]:
        """Return a request with an epoch, by default the next epoch of the session."""
        requested = [(each.pop("topic"), each) for each in ({**each} for each in partitions)]
        forgotten = more.pop("forgotten", ())
        chosen = self.epoch if epoch is None else epoch

        def values(side: Side) -> Values:
            return {
                "max_wait_ms": 0,
                "min_bytes": 0,
                "session_id": side.number(self.name) if self.epoch else 0,
                "session_epoch": chosen,
                "topics": [
                    {"topic": name, "topic_id": topic_id(side, name), "partitions": [each]}
                    for name, each in requested
                ],
                "forgotten_topics_data": [
                    {"topic": name, "topic_id": topic_id(side, name), "partitions": indexes}
                    for name, indexes in forgotten
                ],
                **more,
            }

        return values


def topic_id(side: Side, topic: str) -> bytes:
    try:
        return side.topic_id(topic)
    except KeyError:
        return b"\x07" * 16


def part(topic: str, index: int = 0, offset: int = 0, **more: int) -> dict[str, Any]:
    """Return a partition of a Fetch."""
    fields = {"topic": topic, "partition": index, "fetch_offset": offset}
    return {**fields, "partition_max_bytes": 1 << 20, **more}


@case(FETCH, BY_NAME_AND_ID)
def only_changed_partitions_are_sent(scene: Scene) -> None:
    """A response contains partitions with records, a new high watermark or a new log start."""
    topic, session = scene.topic(3), Session(scene)
    session.fetch(*(part(topic, index) for index in range(3)))
    session.fetch()
    scene.produce(topic, batch(b"a"), 1)
    session.fetch()
    # The fetch offset is unchanged, so that the same records are returned again.
    session.fetch()
    session.fetch(part(topic, 1, 1))
    session.fetch()
    scene.produce(topic, batch(b"b"), 2)
    scene.produce(topic, batch(b"c"), 0)
    session.fetch(part(topic, 2, 1))
    cut = [{"partition_index": 1, "offset": 1}]
    requested = {"topics": [{"name": topic, "partitions": cut}], "timeout_ms": 5000}
    scene.compare(requested, ApiKey.DELETE_RECORDS, 2)
    session.fetch()
    session.fetch()


@case(FETCH, BY_NAME_AND_ID)
def partitions_added_changed_and_forgotten(scene: Scene) -> None:
    topic, other, session = scene.topic(2), scene.topic(2), Session(scene)
    for name in (topic, other):
        for index in range(2):
            scene.produce(name, batch(b"a" * 9, b"b"), index)
    session.fetch(part(topic, 0))
    session.fetch(part(other, 1), part(topic, 1))
    session.fetch(part(other, 1, 1))
    session.fetch(forgotten=[(topic, [0])])
    session.fetch(forgotten=[(topic, [0, 1, 7]), ("absent", [0])])
    # Partitions that are forgotten and requested in one request, and requested twice.
    session.fetch(part(other, 0), part(topic, 1))
    session.fetch(part(other, 1, 0), part(topic, 0), forgotten=[(other, [1])])
    session.fetch()
    session.fetch(part(topic, 0, 2), part(topic, 0, 1))
    session.fetch(part(other, 0, partition_max_bytes=1))
    session.fetch(part(topic, 1), forgotten=[(other, [0, 1])])
    session.fetch(forgotten=[(topic, [0, 1])])
    session.fetch()
    session.fetch(part(other, 0))


@case(FETCH, BY_NAME_AND_ID)
def a_session_forgets_the_requested_partitions(scene: Scene) -> None:
    topic = scene.topic(2)
    scene.produce(topic, batch(b"a"))
    for requested in ((), (part(topic),), (part(topic, 1), part(topic), part("absent"))):
        session = Session(scene)
        session.fetch(part(topic))
        session.fetch(*requested, forgotten=[(topic, [0, 1]), ("absent", [0])])
        session.fetch()


@case(FETCH, BY_NAME_AND_ID)
def a_session_s_partitions_take_turns(scene: Scene) -> None:
    """If one partition fills the limit, partitions with data move to the end."""
    topic, session = scene.topic(4), Session(scene)
    for index in range(4):
        scene.produce(topic, batch(b"a" * 200), index)
    session.fetch(*(part(topic, index) for index in (2, 0, 3, 1)), max_bytes=300)
    for _ in range(5):
        session.fetch(max_bytes=300)
    session.fetch(part(topic, 3, 1), max_bytes=300)
    session.fetch(max_bytes=600)
    session.fetch(part(topic, 0, 1), part(topic, 3), max_bytes=600)
    session.fetch(max_bytes=1)


@case(FETCH, BY_NAME_AND_ID)
def errors_within_a_session(scene: Scene) -> None:
    topic, session = scene.topic(), Session(scene)
    scene.produce(topic, batch(b"a"))
    session.fetch(part(topic, 0, 9), part(topic, 5), part("absent"))
    # Errors are returned each time.
    session.fetch()
    session.fetch(part(topic, 0, 0))
    session.fetch(part(topic, 0, 1, current_leader_epoch=7))
    session.fetch()
    session.fetch(part(topic, 0, 1, current_leader_epoch=0))
    session.fetch(forgotten=[(topic, [5]), ("absent", [0])])
    session.fetch()
    session.fetch(part(topic, 0, -5))
    session.fetch(part(topic, 0, 1))


@case(FETCH, BY_NAME_AND_ID)
def epochs_of_a_session(scene: Scene) -> None:
    """A wrong epoch is refused, and the session continues with the right epoch."""
    topic, session = scene.topic(), Session(scene)
    scene.produce(topic, batch(b"a"))
    session.fetch(part(topic))
    for epoch in (2, 5, EPOCH_MAX, -2, -EPOCH_MAX):
        scene.compare(session.values(epoch=epoch))
    session.fetch()
    scene.compare(session.values(epoch=1))
    # Changes of a refused request are not applied to the session.
    scene.compare(session.values(part(topic, 0, 1), epoch=9))
    session.fetch()


@case(FETCH, BY_NAME_AND_ID)
def a_session_ends(scene: Scene) -> None:
    topic = scene.topic()
    scene.produce(topic, batch(b"a"))
    for closing in ((), (part(topic),)):
        session = Session(scene)
        session.fetch(part(topic))
        scene.compare(session.values(*closing, epoch=FINAL))
        scene.compare(session.values(epoch=1))
        scene.compare(session.values(epoch=FINAL))
        scene.compare(session.values(part(topic), epoch=FINAL))


@case(FETCH, BY_NAME_AND_ID)
def a_session_is_replaced_by_a_full_fetch(scene: Scene) -> None:
    """A full fetch with the id of a session ends that session."""
    topic, first = scene.topic(), Session(scene, "first")
    scene.produce(topic, batch(b"a"))
    first.fetch(part(topic))
    first.fetch(part(topic, 0, 1))
    responses = scene.do(FETCH, scene.version, first.values(part(topic), epoch=0))
    scene.remember("second", *(response.session_id for response in responses))
    scene.compare(first.values(epoch=2))
    second = Session(scene, "second")
    second.epoch = 1
    second.fetch()
    second.fetch(part(topic, 0, 1))
    # A full fetch whose session is refused still reads its partitions.
    scene.compare(second.values(part("absent"), epoch=0))


@case(FETCH, BY_NAME_AND_ID)
def sessions_are_independent(scene: Scene) -> None:
    topic = scene.topic(2)
    first, second = Session(scene, "first"), Session(scene, "second")
    scene.produce(topic, batch(b"a"))
    first.fetch(part(topic))
    second.fetch(part(topic), part(topic, 1))
    first.fetch(part(topic, 0, 1))
    second.fetch()
    scene.produce(topic, batch(b"b"), 1)
    first.fetch()
    second.fetch(part(topic, 0, 1))
    scene.compare(first.values(epoch=FINAL))
    second.fetch()


def delete(scene: Scene, topic: str) -> None:
    """Delete a topic on both brokers, and wait until it is gone."""
    named = {"topics": [{"name": topic}], "topic_names": [topic], "timeout_ms": 5000}
    scene.compare(named, ApiKey.DELETE_TOPICS, 5)
    scene.settle()


def recreate(scene: Scene, topic: str) -> None:
    """Create a new topic with the name of a deleted topic."""
    new = {"name": topic, "num_partitions": 1, "replication_factor": 1}
    made = scene.do(ApiKey.CREATE_TOPICS, 7, {"topics": [new], "timeout_ms": 10_000})
    scene.remember("id of the new topic", *(response.topics[0].topic_id for response in made))
    scene.await_leaders(topic, 1)


@case(FETCH, BY_NAME_AND_ID)
def a_topic_is_deleted_within_a_session(scene: Scene) -> None:
    topic, other, session = scene.topic(), scene.topic(), Session(scene)
    scene.produce(topic, batch(b"a"))
    session.fetch(part(topic), part(other))
    delete(scene, topic)
    session.fetch()
    session.fetch()
    scene.produce(other, batch(b"b"))
    session.fetch()
    session.fetch(forgotten=[(topic, [0])])
    session.fetch()


@case(FETCH, BY_NAME_AND_ID)
def a_topic_is_recreated_within_a_session(scene: Scene) -> None:
    topic, session = scene.topic(), Session(scene)
    scene.produce(topic, batch(b"a"))
    session.fetch(part(topic))
    delete(scene, topic)
    recreate(scene, topic)
    session.fetch()
    scene.produce(topic, batch(b"new"))
    session.fetch()
    scene.remember(f"id of {topic}", *(side["id of the new topic"] for side in scene.pair.sides()))
    session.fetch(part(topic))
    session.fetch()


@case(FETCH, BY_NAME_AND_ID)
def a_topic_is_created_within_a_session(scene: Scene) -> None:
    topic, session = scene.name(), Session(scene)
    session.fetch(part(topic))
    recreate(scene, topic)
    scene.produce(topic, batch(b"a"))
    session.fetch()
    scene.remember(f"id of {topic}", *(side["id of the new topic"] for side in scene.pair.sides()))
    session.fetch(part(topic))
    session.fetch()


@case(FETCH, (18,))
def ids_and_names_do_not_mix(scene: Scene) -> None:
    """A session with topic names does not accept requests with ids, and vice versa."""
    topic = scene.topic()
    scene.produce(topic, batch(b"a"))
    for opening, continuing in ((12, 13), (13, 12), (18, 7)):
        session = Session(scene)
        responses = scene.compare(session.values(part(topic)), FETCH, opening)
        scene.remember("session", *(response.session_id for response in responses))
        session.epoch = 1
        scene.compare(session.values(part(topic, 0, 1)), FETCH, continuing)
        scene.compare(session.values(), FETCH, continuing)
        scene.compare(session.values(), FETCH, opening)
        scene.compare(session.values(epoch=2), FETCH, opening)


@case(FETCH, BY_NAME_AND_ID)
def a_session_waits_for_records(scene: Scene) -> None:
    topic, session = scene.topic(2), Session(scene)
    session.fetch(part(topic), part(topic, 1))
    session.fetch(max_wait_ms=20, min_bytes=1)
    scene.send(session.values(max_wait_ms=8000, min_bytes=1), on="waiting")
    scene.produce(topic, batch(b"a"), 1)
    scene.compare_response(on="waiting")
    session.epoch += 1
    # Unread records and errors are returned at once.
    session.fetch(max_wait_ms=8000, min_bytes=1)
    session.fetch(part(topic, 1, 1), max_wait_ms=20, min_bytes=1)
    session.fetch(part(topic, 1, 9), max_wait_ms=8000, min_bytes=1)
    session.fetch(max_wait_ms=8000, min_bytes=1)


@case(FETCH, BY_NAME_AND_ID)
def a_wait_ends_with_enough_bytes(scene: Scene) -> None:
    topic = scene.topic(2)
    records = batch(b"a" * 100)
    for enough in (1, len(records) + 1, 2 * len(records)):
        session = Session(scene, f"session-{enough}")
        ends = [
            scene.do(
                ApiKey.LIST_OFFSETS,
                5,
                {
                    "replica_id": -1,
                    "topics": [
                        {
                            "name": topic,
                            "partitions": [{"partition_index": index, "timestamp": -1}],
                        }
                    ],
                },
            )[0]
            .topics[0]
            .partitions[0]
            .offset
            for index in range(2)
        ]
        requested = [part(topic, index, end) for index, end in enumerate(ends)]
        scene.send(session.values(*requested, max_wait_ms=8000, min_bytes=enough), on="waiting")
        for index in range(2 if enough > len(records) else 1):
            scene.produce(topic, records, index)
        responses = scene.compare_response(on="waiting")
        scene.remember(session.name, *(response.session_id for response in responses))


@case(FETCH, (18,))
def sessions_beyond_the_cache_limit(scene: Scene) -> None:
    """New sessions are not evicted: later clients get their records without a session."""
    topic = scene.topic()
    scene.produce(topic, batch(b"a"))
    opened: list[tuple[Any, Any]] = []
    for _ in range(SLOTS):
        responses = scene.do(FETCH, 18, Session(scene).values(part(topic)))
        opened.append(responses)
    for _ in range(8):
        scene.compare(Session(scene).values(part(topic)))
    first = next(each for each in opened if all(response.session_id for response in each))
    scene.remember("first", *(response.session_id for response in first))
    session = Session(scene, "first")
    session.epoch = 1
    session.fetch()
    for number, responses in enumerate(opened):
        if all(response.session_id for response in responses):
            scene.remember(f"session-{number}", *(response.session_id for response in responses))
            ending = Session(scene, f"session-{number}")
            ending.epoch = 1
            scene.do(FETCH, 18, ending.values(epoch=FINAL))
