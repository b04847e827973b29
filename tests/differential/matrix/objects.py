"""Objects in the requests of the matrix: created once on both brokers, or for each request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.protocol.api_table import ApiKey
from differential.scene import batch

if TYPE_CHECKING:
    from collections.abc import Callable

    from differential.scene import Scene
    from differential.side import Side

# The longest session that brokers allow, so that no member of the matrix expires.
SESSION_MS = 1_800_000
# No transaction of the matrix ends by its timeout.
TRANSACTION_MS = 900_000
MEMBER, PRODUCER = "shared member", "shared producer"


def topic(scene: Scene) -> str:
    """Return a topic of two partitions with records, which all requests share."""
    made: str = _once(scene, "topic", lambda: _filled_topic(scene))
    return made


def topic_of_transactions(scene: Scene) -> str:
    """Return a topic for transactions, whose markers have times that each broker assigns."""
    made: str = _once(scene, "topic of transactions", lambda: _filled_topic(scene))
    return made


def own_topic(scene: Scene) -> str:
    """Return a topic that only this scene's requests change."""
    if "own" not in scene.own_objects:
        scene.own_objects["own"] = scene.topic()
    return scene.own_objects["own"]


def new_topic(scene: Scene) -> str:
    """Create a topic without waiting until it has leaders."""
    name = scene.name()
    one = {"name": name, "num_partitions": 1, "replication_factor": 1}
    made = scene.do(ApiKey.CREATE_TOPICS, 7, {"topics": [one], "timeout_ms": 10_000})
    scene.remember(f"id of {name}", *(response.topics[0].topic_id for response in made))
    return name


def group(scene: Scene) -> str:
    """Return a stable group with one dynamic member and a committed offset."""
    name = topic(scene)
    made: str = _once(scene, "group", lambda: new_group(scene, name))
    return made


def consumer_group(scene: Scene) -> str:
    """Return a consumer group (KIP-848) with one member."""

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
        responses = scene.do(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, joining)
        assert all(response.error_code == 0 for response in responses), responses
        return name

    made: str = _once(scene, "consumer group", make)
    return made


def producer(scene: Scene) -> str:
    """Return the name of a producer id that both brokers assigned."""
    _once(scene, "producer", lambda: scene.producer(PRODUCER))
    return PRODUCER


def new_group(scene: Scene, committed: str, member: str = MEMBER, instance: str = "") -> str:
    """Create a group of one member, with a committed offset of a topic."""
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
    responses = scene.do(ApiKey.JOIN_GROUP, 9, joining)
    if responses[0].error_code:
        scene.remember(member, *(response.member_id for response in responses))
        again = {**joining, "member_id": value_of(member)}
        responses = scene.do(ApiKey.JOIN_GROUP, 9, lambda side: resolved(again, side))
    assert all(response.error_code == 0 for response in responses), responses
    scene.remember(member, *(response.member_id for response in responses))
    sender = {
        "group_id": name,
        "member_id": value_of(member),
        "group_instance_id": instance or None,
    }
    assignments = [{"member_id": value_of(member), "assignment": b"some"}]
    sync = {**sender, "generation_id": 1, "assignments": assignments}
    scene.do(ApiKey.SYNC_GROUP, 4, lambda side: resolved(sync, side))
    partitions = [{"partition_index": 0, "committed_offset": 7, "committed_metadata": "note"}]
    topics = [{"name": committed, "partitions": partitions}]
    commit = {**sender, "generation_id_or_member_epoch": 1, "topics": topics}
    responses = scene.do(ApiKey.OFFSET_COMMIT, 8, lambda side: resolved(commit, side))
    assert all(a.topics[0].partitions[0].error_code == 0 for a in responses), responses
    return name


def empty_group(scene: Scene, committed: str) -> str:
    """Create a group without members, with a committed offset of a topic."""
    name = scene.name("group")
    partitions = [{"partition_index": 0, "committed_offset": 7, "committed_metadata": None}]
    topics = [{"name": committed, "partitions": partitions}]
    responses = scene.do(ApiKey.OFFSET_COMMIT, 8, {"group_id": name, "topics": topics})
    assert all(a.topics[0].partitions[0].error_code == 0 for a in responses), responses
    return name


def producer_of(transactional_id: str) -> str:
    """Return the name of the producer id of a transactional id."""
    return f"producer of {transactional_id}"


def new_transaction(scene: Scene, group: str | None = None) -> str:
    """Create a transactional id with an open transaction of epoch 0: two partitions and a group."""
    name = scene.name("id")
    started = {"transactional_id": name, "transaction_timeout_ms": TRANSACTION_MS}
    responses = scene.do(ApiKey.INIT_PRODUCER_ID, 4, started)
    assert all(response.error_code == 0 for response in responses), responses
    scene.remember(producer_of(name), *(response.producer_id for response in responses))
    topics = [{"name": topic_of_transactions(scene), "partitions": [0, 1]}]
    producer = {"producer_id": value_of(producer_of(name)), "producer_epoch": 0}
    added = {f"v3_and_below_{key}": value for key, value in producer.items()}
    added |= {"v3_and_below_transactional_id": name, "v3_and_below_topics": topics}
    scene.do(ApiKey.ADD_PARTITIONS_TO_TXN, 3, lambda side: resolved(added, side))
    if group is not None:
        offsets = {**producer, "transactional_id": name, "group_id": group}
        responses = scene.do(ApiKey.ADD_OFFSETS_TO_TXN, 3, lambda side: resolved(offsets, side))
        assert all(response.error_code == 0 for response in responses), responses
    return name


def own_transaction(scene: Scene) -> str:
    """Return an open transaction that only this scene's requests change."""
    if "transaction" not in scene.own_objects:
        group = scene.name("group")
        scene.own_objects["transaction"] = new_transaction(scene, group)
        scene.own_objects["group of the transaction"] = group
    return scene.own_objects["transaction"]


def group_of_own_transaction(scene: Scene) -> str:
    """Return a group whose offsets belong to the open transaction of this scene."""
    own_transaction(scene)
    return scene.own_objects["group of the transaction"]


def value_of(name: str) -> Callable[[Side], Any]:
    """Return a function that looks up the value of a name on a side."""
    return lambda side: side[name]


def id_of(topic_name: str) -> Callable[[Side], bytes]:
    """Return a function that looks up the id of a topic on a side."""
    return lambda side: side.topic_id(topic_name)


def resolved(value: Any, side: Side) -> Any:
    """Return values with each function replaced by its result for a side."""
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
    """Return an object that the first scene creates, and restore the names of its ids."""
    objects = scene.pair.shared_objects
    if what not in objects:
        before = [side.named_values() for side in scene.pair.sides()]
        made = make()
        assigned = [
            {name: value for name, value in side.named_values().items() if name not in known}
            for side, known in zip(scene.pair.sides(), before, strict=True)
        ]
        objects[what] = made, assigned
    # Restore the names of all shared objects: responses may name objects that this scene does not
    # use.
    for _, assigned in objects.values():
        for side, values in zip(scene.pair.sides(), assigned, strict=True):
            for name, value in values.items():
                side.remember(name, value)
    return objects[what][0]
