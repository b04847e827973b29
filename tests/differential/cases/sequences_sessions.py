"""Fetch sessions from their first epoch to their last: the partitions that each response has.

Each case goes by topic ids (the newest version) and by names (the last one that has them).
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
    """One session of a case, and the epoch that its next request has."""

    def __init__(self, scene: Scene, name: str = "session") -> None:
        self.scene = scene
        self.name = name
        self.epoch = 0

    def fetch(self, *partitions: dict[str, Any], **more: Any) -> tuple[Any, Any]:
        """Go on with the session; the first time, open it."""
        answers = self.scene.compare(self.values(*partitions, **more))
        if self.epoch == 0:
            self.scene.remember(self.name, *(answer.session_id for answer in answers))
        self.epoch += 1
        return answers

    def values(
        self, *partitions: dict[str, Any], epoch: int | None = None, **more: Any
    ) -> Callable[[Side], Values]:
        """A request with some epoch, its own next one if none is given."""
        asked = [(each.pop("topic"), each) for each in ({**each} for each in partitions)]
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
                    for name, each in asked
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
    """A partition of a fetch."""
    wanted = {"topic": topic, "partition": index, "fetch_offset": offset}
    return {**wanted, "partition_max_bytes": 1 << 20, **more}


@case(FETCH, BY_NAME_AND_ID)
def news_of_some_partitions(scene: Scene) -> None:
    """Only new facts are sent: records, a high watermark that moved, a log start that moved."""
    topic, session = scene.topic(3), Session(scene)
    session.fetch(*(part(topic, index) for index in range(3)))
    session.fetch()
    scene.produce(topic, batch(b"a"), 1)
    session.fetch()
    # Not asked for beyond: they come again until the offset is moved.
    session.fetch()
    session.fetch(part(topic, 1, 1))
    session.fetch()
    scene.produce(topic, batch(b"b"), 2)
    scene.produce(topic, batch(b"c"), 0)
    session.fetch(part(topic, 2, 1))
    cut = [{"partition_index": 1, "offset": 1}]
    asked = {"topics": [{"name": topic, "partitions": cut}], "timeout_ms": 5000}
    scene.compare(asked, ApiKey.DELETE_RECORDS, 2)
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
    # Forgotten and asked for in one request; asked for twice.
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
def a_session_forgets_all_that_it_is_asked_for(scene: Scene) -> None:
    topic = scene.topic(2)
    scene.produce(topic, batch(b"a"))
    for asked in ((), (part(topic),), (part(topic, 1), part(topic), part("absent"))):
        session = Session(scene)
        session.fetch(part(topic))
        session.fetch(*asked, forgotten=[(topic, [0, 1]), ("absent", [0])])
        session.fetch()


@case(FETCH, BY_NAME_AND_ID)
def a_session_s_partitions_take_turns(scene: Scene) -> None:
    """With a limit that one partition fills, those that were answered go to the end."""
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
    # Errors are told each time.
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
    """A wrong one is refused, and the session goes on with the right one."""
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
def a_session_begins_anew(scene: Scene) -> None:
    """A full fetch with its id ends it; one with another's id ends that."""
    topic, first = scene.topic(), Session(scene, "first")
    scene.produce(topic, batch(b"a"))
    first.fetch(part(topic))
    first.fetch(part(topic, 0, 1))
    answers = scene.do(FETCH, scene.version, first.values(part(topic), epoch=0))
    scene.remember("second", *(answer.session_id for answer in answers))
    scene.compare(first.values(epoch=2))
    second = Session(scene, "second")
    second.epoch = 1
    second.fetch()
    second.fetch(part(topic, 0, 1))
    # Refused before: its partitions are read all the same, without a session.
    scene.compare(second.values(part("absent"), epoch=0))


@case(FETCH, BY_NAME_AND_ID)
def sessions_do_not_know_each_other(scene: Scene) -> None:
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
    """Delete a topic on both, and wait until it is gone."""
    named = {"topics": [{"name": topic}], "topic_names": [topic], "timeout_ms": 5000}
    scene.compare(named, ApiKey.DELETE_TOPICS, 5)
    scene.settle()


def create_again(scene: Scene, topic: str) -> None:
    """A topic of that name, which is another one."""
    new = {"name": topic, "num_partitions": 1, "replication_factor": 1}
    made = scene.do(ApiKey.CREATE_TOPICS, 7, {"topics": [new], "timeout_ms": 10_000})
    scene.remember("id of the new one", *(answer.topics[0].topic_id for answer in made))
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
def a_topic_is_made_again_within_a_session(scene: Scene) -> None:
    topic, session = scene.topic(), Session(scene)
    scene.produce(topic, batch(b"a"))
    session.fetch(part(topic))
    delete(scene, topic)
    create_again(scene, topic)
    session.fetch()
    scene.produce(topic, batch(b"new"))
    session.fetch()
    scene.remember(f"id of {topic}", *(side["id of the new one"] for side in scene.pair.sides()))
    session.fetch(part(topic))
    session.fetch()


@case(FETCH, BY_NAME_AND_ID)
def a_topic_comes_to_be_within_a_session(scene: Scene) -> None:
    topic, session = scene.name(), Session(scene)
    session.fetch(part(topic))
    create_again(scene, topic)
    scene.produce(topic, batch(b"a"))
    session.fetch()
    scene.remember(f"id of {topic}", *(side["id of the new one"] for side in scene.pair.sides()))
    session.fetch(part(topic))
    session.fetch()


@case(FETCH, (18,))
def ids_and_names_do_not_mix(scene: Scene) -> None:
    """A session that was opened by one is not gone on with by the other."""
    topic = scene.topic()
    scene.produce(topic, batch(b"a"))
    for opening, going_on in ((12, 13), (13, 12), (18, 7)):
        session = Session(scene)
        answers = scene.compare(session.values(part(topic)), FETCH, opening)
        scene.remember("session", *(answer.session_id for answer in answers))
        session.epoch = 1
        scene.compare(session.values(part(topic, 0, 1)), FETCH, going_on)
        scene.compare(session.values(), FETCH, going_on)
        scene.compare(session.values(), FETCH, opening)
        scene.compare(session.values(epoch=2), FETCH, opening)


@case(FETCH, BY_NAME_AND_ID)
def a_session_waits_for_news(scene: Scene) -> None:
    topic, session = scene.topic(2), Session(scene)
    session.fetch(part(topic), part(topic, 1))
    session.fetch(max_wait_ms=20, min_bytes=1)
    scene.send(session.values(max_wait_ms=8000, min_bytes=1), on="waiting")
    scene.produce(topic, batch(b"a"), 1)
    scene.answer(on="waiting")
    session.epoch += 1
    # Records that the session has not passed are there at once; with an error nothing waits.
    session.fetch(max_wait_ms=8000, min_bytes=1)
    session.fetch(part(topic, 1, 1), max_wait_ms=20, min_bytes=1)
    session.fetch(part(topic, 1, 9), max_wait_ms=8000, min_bytes=1)
    session.fetch(max_wait_ms=8000, min_bytes=1)


@case(FETCH, BY_NAME_AND_ID)
def a_wait_ends_when_there_is_enough(scene: Scene) -> None:
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
        asked = [part(topic, index, end) for index, end in enumerate(ends)]
        scene.send(session.values(*asked, max_wait_ms=8000, min_bytes=enough), on="waiting")
        for index in range(2 if enough > len(records) else 1):
            scene.produce(topic, records, index)
        answers = scene.answer(on="waiting")
        scene.remember(session.name, *(answer.session_id for answer in answers))


@case(FETCH, (18,))
def sessions_when_there_is_no_room(scene: Scene) -> None:
    """Young sessions are not evicted: the last client gets its records without a session."""
    topic = scene.topic()
    scene.produce(topic, batch(b"a"))
    opened: list[tuple[Any, Any]] = []
    for _ in range(SLOTS):
        answers = scene.do(FETCH, 18, Session(scene).values(part(topic)))
        opened.append(answers)
    for _ in range(8):
        scene.compare(Session(scene).values(part(topic)))
    first = next(each for each in opened if all(answer.session_id for answer in each))
    scene.remember("first", *(answer.session_id for answer in first))
    session = Session(scene, "first")
    session.epoch = 1
    session.fetch()
    for number, answers in enumerate(opened):
        if all(answer.session_id for answer in answers):
            scene.remember(f"session-{number}", *(answer.session_id for answer in answers))
            ending = Session(scene, f"session-{number}")
            ending.epoch = 1
            scene.do(FETCH, 18, ending.values(epoch=FINAL))
