"""Objects of the matrix's requests: set up once on both brokers, or anew for each request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.protocol.api_table import ApiKey
from differential.scene import batch

if TYPE_CHECKING:
    from collections.abc import Callable

    from differential.scene import Scene
    from differential.side import Side

# The longest that brokers allow: no member of the matrix goes by itself.
SESSION_MS = 1_800_000
# No transaction of the matrix ends by its timeout.
TRANSACTION_MS = 900_000
MEMBER, PRODUCER = "standing member", "standing producer"


def topic(scene: Scene) -> str:
    """A topic of two partitions with records of a producer, the same for all requests."""
    made: str = _once(scene, "topic", lambda: _filled_topic(scene))
    return made


def topic_of_transactions(scene: Scene) -> str:
    """A topic that transactions end in: their markers have a broker's own times."""
    made: str = _once(scene, "topic of transactions", lambda: _filled_topic(scene))
    return made


def own_topic(scene: Scene) -> str:
    """A topic that only this scene's requests change."""
    if "own" not in scene.kept:
        scene.kept["own"] = scene.topic()
    return scene.kept["own"]


def new_topic(scene: Scene) -> str:
    """A topic that may not be served yet."""
    name = scene.name()
    one = {"name": name, "num_partitions": 1, "replication_factor": 1}
    made = scene.do(ApiKey.CREATE_TOPICS, 7, {"topics": [one], "timeout_ms": 10_000})
    scene.remember(f"id of {name}", *(answer.topics[0].topic_id for answer in made))
    return name


def group(scene: Scene) -> str:
    """A stable group of one member, static for versions that know such, with an offset."""
    name = topic(scene)
    made: str = _once(scene, "group", lambda: new_group(scene, name))
    return made


def consumer_group(scene: Scene) -> str:
    """A consumer group (KIP-848) with one member."""

    def make() -> str:
        name = scene.name("group")
        joining = {
            "group_id": name,
            "member_id": "a-member",
            "member_epoch": 0,
            "instance_id": "an-instance",
            "rebalance_timeout_ms": 10_000,
            "subscribed_topic_names": [topic(scene)],
            "topic_partitions": [],
        }
        answers = scene.do(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, joining)
        assert all(answer.error_code == 0 for answer in answers), answers
        return name

    made: str = _once(scene, "consumer group", make)
    return made


def producer(scene: Scene) -> str:
    """The name of a producer id that both gave."""
    _once(scene, "producer", lambda: scene.producer(PRODUCER))
    return PRODUCER


def new_group(scene: Scene, committed: str, member: str = MEMBER, instance: str = "") -> str:
    """A group of one member, with an offset of that topic committed."""
    name = scene.name("group")
    joining: dict[str, Any] = {
        "group_id": name,
        "member_id": "",
        "group_instance_id": instance or None,
        "session_timeout_ms": SESSION_MS,
        "rebalance_timeout_ms": 10_000,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"no topics"}],
    }
    answers = scene.do(ApiKey.JOIN_GROUP, 9, joining)
    if answers[0].error_code:
        scene.remember(member, *(answer.member_id for answer in answers))
        again = {**joining, "member_id": of(member)}
        answers = scene.do(ApiKey.JOIN_GROUP, 9, lambda side: resolved(again, side))
    assert all(answer.error_code == 0 for answer in answers), answers
    scene.remember(member, *(answer.member_id for answer in answers))
    sender = {"group_id": name, "member_id": of(member), "group_instance_id": instance or None}
    assignments = [{"member_id": of(member), "assignment": b"some"}]
    sync = {**sender, "generation_id": 1, "assignments": assignments}
    scene.do(ApiKey.SYNC_GROUP, 4, lambda side: resolved(sync, side))
    partitions = [{"partition_index": 0, "committed_offset": 7, "committed_metadata": "note"}]
    topics = [{"name": committed, "partitions": partitions}]
    commit = {**sender, "generation_id_or_member_epoch": 1, "topics": topics}
    answers = scene.do(ApiKey.OFFSET_COMMIT, 8, lambda side: resolved(commit, side))
    assert all(a.topics[0].partitions[0].error_code == 0 for a in answers), answers
    return name


def empty_group(scene: Scene, committed: str) -> str:
    """A group of no members, with an offset of that topic committed."""
    name = scene.name("group")
    partitions = [{"partition_index": 0, "committed_offset": 7, "committed_metadata": None}]
    topics = [{"name": committed, "partitions": partitions}]
    answers = scene.do(ApiKey.OFFSET_COMMIT, 8, {"group_id": name, "topics": topics})
    assert all(a.topics[0].partitions[0].error_code == 0 for a in answers), answers
    return name


def producer_of(transactional_id: str) -> str:
    """Name of the producer id of a transactional id."""
    return f"producer of {transactional_id}"


def new_transaction(scene: Scene, group: str | None = None) -> str:
    """A transactional id with an open transaction of epoch 0: two partitions, and a group."""
    name = scene.name("id")
    started = {"transactional_id": name, "transaction_timeout_ms": TRANSACTION_MS}
    answers = scene.do(ApiKey.INIT_PRODUCER_ID, 4, started)
    assert all(answer.error_code == 0 for answer in answers), answers
    scene.remember(producer_of(name), *(answer.producer_id for answer in answers))
    topics = [{"name": topic_of_transactions(scene), "partitions": [0, 1]}]
    producer = {"producer_id": of(producer_of(name)), "producer_epoch": 0}
    added = {f"v3_and_below_{key}": value for key, value in producer.items()}
    added |= {"v3_and_below_transactional_id": name, "v3_and_below_topics": topics}
    scene.do(ApiKey.ADD_PARTITIONS_TO_TXN, 3, lambda side: resolved(added, side))
    if group is not None:
        offsets = {**producer, "transactional_id": name, "group_id": group}
        answers = scene.do(ApiKey.ADD_OFFSETS_TO_TXN, 3, lambda side: resolved(offsets, side))
        assert all(answer.error_code == 0 for answer in answers), answers
    return name


def own_transaction(scene: Scene) -> str:
    """An open transaction that only this scene's requests change."""
    if "transaction" not in scene.kept:
        group = scene.name("group")
        scene.kept["transaction"] = new_transaction(scene, group)
        scene.kept["group of the transaction"] = group
    return scene.kept["transaction"]


def group_of_own_transaction(scene: Scene) -> str:
    """A group whose offsets belong to the open transaction of this scene."""
    own_transaction(scene)
    return scene.kept["group of the transaction"]


def of(name: str) -> Callable[[Side], Any]:
    """The value that a side assigned to that name."""
    return lambda side: side[name]


def id_of(topic_name: str) -> Callable[[Side], bytes]:
    """The id that a side gave to a topic."""
    return lambda side: side.topic_id(topic_name)


def resolved(value: Any, side: Side) -> Any:
    """Values with each side's own put where a function stands."""
    if callable(value):
        return value(side)
    if isinstance(value, dict):
        return {key: resolved(each, side) for key, each in value.items()}
    if isinstance(value, list):
        return [resolved(each, side) for each in value]
    return value


def _filled_topic(scene: Scene) -> str:
    name = scene.topic(2)
    scene.produce(name, batch(b"a", b"b", b"c"))
    scene.produce(name, batch(b"d"))
    scene.produce(name, batch(b"e"), 1)
    return name


def _once(scene: Scene, what: str, make: Callable[[], Any]) -> Any:
    """Set up by the first scene that asks; the others learn what the sides drew for it."""
    standing = scene.pair.standing
    if what not in standing:
        before = [side.drawn() for side in scene.pair.sides()]
        made = make()
        drawn = [
            {name: value for name, value in side.drawn().items() if name not in known}
            for side, known in zip(scene.pair.sides(), before, strict=True)
        ]
        standing[what] = made, drawn
    # All of it, as answers may name what this scene did not ask for.
    for _, drawn in standing.values():
        for side, values in zip(scene.pair.sides(), drawn, strict=True):
            for name, value in values.items():
                side.remember(name, value)
    return standing[what][0]
