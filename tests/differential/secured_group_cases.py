"""Requests of members of groups for several topics, of which the client may use some."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from barnabas.protocol.api_table import ApiKey
from differential.coordinator_topics import await_topic
from differential.matrix.objects import id_of, resolved
from differential.scene import batch
from differential.secured import PREFIX
from differential.secured_cases import CASES, Names, Values, case
from differential.share_fetches import LOADING_MS_MAX, initialize

if TYPE_CHECKING:
    from differential.secured import SecuredScene


_FETCH_LIMITS = {
    "max_wait_ms": 0,
    "min_bytes": 0,
    "max_bytes": 1 << 20,
    "max_records": 10,
    "batch_size": 10,
    "forgotten_topics_data": [],
}
# The first fetch of a share partition waits until its state is loaded.
_WAITING = {"max_wait_ms": LOADING_MS_MAX, "min_bytes": 1}
_ACCEPTED = {"first_offset": 0, "last_offset": 0, "acknowledge_types": [1]}


def _joining(group: str, topics: list[str], **more: Any) -> Values:
    return {
        "group_id": group,
        "member_id": "a-member",
        "member_epoch": 0,
        "rebalance_timeout_ms": 10_000,
        "subscribed_topic_names": topics,
        "topic_partitions": [],
        **more,
    }


def _joining_known(scene: SecuredScene, group: str, topics: list[str], known: str) -> Values:
    """Return a first heartbeat, after the group's coordinator has a topic."""
    await_topic(scene, group, known)
    return _joining(group, topics)


def _group(scene: SecuredScene) -> str:
    return f"{PREFIX}{scene.name('group')}"


@case(ApiKey.CONSUMER_GROUP_HEARTBEAT)
def consumer_group_heartbeat(scene: SecuredScene, names: Names) -> Values:
    return _joining_known(scene, _group(scene), names.each(), names.may)


@case(ApiKey.CONSUMER_GROUP_HEARTBEAT)
def consumer_group_heartbeat_for_own_topics(scene: SecuredScene, names: Names) -> Values:
    return _joining_known(scene, _group(scene), [names.may, names.may_absent], names.may)


@case(ApiKey.CONSUMER_GROUP_HEARTBEAT)
def consumer_group_heartbeat_of_a_hidden_group(scene: SecuredScene, names: Names) -> Values:
    return _joining_known(scene, scene.name("group"), [names.may], names.may)


def _describing(scene: SecuredScene, group: str, topics: list[str]) -> Values:
    joining = _joining_known(scene, group, topics, topics[0])
    scene.do(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, joining)
    return {"group_ids": [group], "include_authorized_operations": True}


@case(ApiKey.CONSUMER_GROUP_DESCRIBE)
def consumer_group_describe(scene: SecuredScene, names: Names) -> Values:
    return _describing(scene, _group(scene), [names.may])


@case(ApiKey.CONSUMER_GROUP_DESCRIBE)
def consumer_group_describe_with_hidden_topics(scene: SecuredScene, names: Names) -> Values:
    # Only one topic: brokers list several topics in the order of their random ids.
    return _describing(scene, _group(scene), [names.hidden])


@case(ApiKey.CONSUMER_GROUP_DESCRIBE)
def consumer_group_describe_of_a_hidden_group(scene: SecuredScene, names: Names) -> Values:
    return _describing(scene, scene.name("group"), [names.may])


@case(ApiKey.ADD_OFFSETS_TO_TXN)
def add_offsets_to_txn(scene: SecuredScene, names: Names) -> Values:
    name = f"{PREFIX}{scene.name('id')}"
    group = scene.name("group")
    return {
        "transactional_id": name,
        "producer_id": 5,
        "producer_epoch": 0,
        "group_id": group,
    }


@case(ApiKey.ADD_OFFSETS_TO_TXN)
def add_offsets_of_an_own_group_to_txn(scene: SecuredScene, names: Names) -> Values:
    return {**add_offsets_to_txn(scene, names), "group_id": _group(scene)}


def _share_request(scene: SecuredScene, names: Names) -> Values:
    group = _group(scene)
    for topic in (names.may, names.hidden):
        initialize(scene, group, topic, 0)
    newer = {"is_renew_ack": False} if scene.version > 1 else {}
    return {"group_id": group, "member_id": "another member", **newer}


@case(ApiKey.SHARE_FETCH)
def share_fetch_of_a_hidden_topic(scene: SecuredScene, names: Names) -> Values:
    where = {"partition_index": 0, "acknowledgement_batches": []}
    newer = {"share_acquire_mode": 0} if scene.version > 1 else {}
    requested = _share_request(scene, names)
    scene.produce(names.hidden, batch(b"value"))
    return {
        **requested,
        "share_session_epoch": 0,
        "topics": [{"topic_id": id_of(names.hidden), "partitions": [where]}],
        **_FETCH_LIMITS,
        **newer,
        **_WAITING,
    }


def _acquired(scene: SecuredScene, names: Names) -> tuple[Values, int]:
    """Return the fields of a member with acquired records of both topics, and its next epoch."""
    requested = _share_request(scene, names)
    newer = {"share_acquire_mode": 0} if scene.version > 1 else {}
    for epoch, topic in enumerate((names.may, names.hidden)):
        scene.produce(topic, batch(b"value"))
        where = {"partition_index": 0, "acknowledgement_batches": []}
        values = {
            **requested,
            **_FETCH_LIMITS,
            **newer,
            "share_session_epoch": epoch,
            **_WAITING,
            "topics": [{"topic_id": id_of(topic), "partitions": [where]}],
        }
        responses = scene.do(ApiKey.SHARE_FETCH, scene.version, partial(resolved, values))
        assert all(_acquired_topics(each) == 1 for each in responses), responses
    return requested, 2


def _acquired_topics(response: Any) -> int:
    """Return the number of topics in a ShareFetch response that have acquired records."""
    partitions = [each for topic in response.responses for each in topic.partitions]
    return sum(bool(each.acquired_records) for each in partitions)


def _acknowledging(names: Names, *batches_of_hidden: dict[str, Any]) -> list[Values]:
    batches = {names.hidden: [*batches_of_hidden], names.may: [_ACCEPTED]}
    return [
        {
            "topic_id": id_of(topic),
            "partitions": [{"partition_index": 0, "acknowledgement_batches": batches[topic]}],
        }
        for topic in (names.hidden, names.may)
    ]


@case(ApiKey.SHARE_ACKNOWLEDGE)
def share_acknowledge_of_some(scene: SecuredScene, names: Names) -> Values:
    requested, epoch = _acquired(scene, names)
    topics = _acknowledging(names, _ACCEPTED)
    return {**requested, "share_session_epoch": epoch, "topics": topics}


@case(ApiKey.SHARE_ACKNOWLEDGE)
def share_acknowledge_without_batches_of_the_hidden_topic(
    scene: SecuredScene, names: Names
) -> Values:
    requested, epoch = _acquired(scene, names)
    return {**requested, "share_session_epoch": epoch, "topics": _acknowledging(names)}


@case(ApiKey.SHARE_ACKNOWLEDGE)
def share_acknowledge_with_batches_of_the_hidden_topic_only(
    scene: SecuredScene, names: Names
) -> Values:
    requested, epoch = _acquired(scene, names)
    topics = _acknowledging(names, _ACCEPTED)
    topics[-1]["partitions"][0]["acknowledgement_batches"] = []
    return {**requested, "share_session_epoch": epoch, "topics": topics}


@case(ApiKey.SHARE_FETCH)
def share_fetch_that_acknowledges_some(scene: SecuredScene, names: Names) -> Values:
    requested, epoch = _acquired(scene, names)
    newer = {"share_acquire_mode": 0} if scene.version > 1 else {}
    topics = _acknowledging(names, _ACCEPTED)
    return {**requested, **_FETCH_LIMITS, **newer, "share_session_epoch": epoch, "topics": topics}


# All cases, including those of `secured_cases`.
ALL_CASES = CASES


def _streams_joining(group: str, *topics: str) -> Values:
    subtopology = {"subtopology_id": "0", "source_topics": [*topics]}
    return {
        "group_id": group,
        "member_id": "m",
        "member_epoch": 0,
        "rebalance_timeout_ms": 10_000,
        "topology": {"epoch": 0, "subtopologies": [subtopology]},
        "active_tasks": [],
        "standby_tasks": [],
        "warmup_tasks": [],
        "process_id": "process",
        "client_tags": [],
    }


@case(ApiKey.STREAMS_GROUP_HEARTBEAT)
def streams_group_heartbeat(scene: SecuredScene, names: Names) -> Values:
    return _streams_joining(_group(scene), *names.each())


@case(ApiKey.STREAMS_GROUP_HEARTBEAT)
def streams_group_heartbeat_for_a_missing_internal_topic(
    scene: SecuredScene, names: Names
) -> Values:
    group = _group(scene)
    await_topic(scene, group, names.may)
    made = _streams_joining(group, names.may)
    changelog = {"name": names.hidden_absent, "partitions": 0, "replication_factor": 1}
    made["topology"]["subtopologies"][0]["state_changelog_topics"] = [changelog]
    return made


@case(ApiKey.STREAMS_GROUP_DESCRIBE)
def streams_group_describe(scene: SecuredScene, names: Names) -> Values:
    # Only one group: Kafka lists several groups in the order of a hash table.
    group = scene.name("group")
    await_topic(scene, group, names.may)
    scene.do(ApiKey.STREAMS_GROUP_HEARTBEAT, 0, _streams_joining(group, names.may))
    return {"group_ids": [group], "include_authorized_operations": True}


@case(ApiKey.STREAMS_GROUP_DESCRIBE)
def streams_group_describe_with_a_hidden_topic(scene: SecuredScene, names: Names) -> Values:
    group = _group(scene)
    # The coordinator gets topics in the order of their creation.
    await_topic(scene, group, names.hidden)
    scene.do(ApiKey.STREAMS_GROUP_HEARTBEAT, 0, _streams_joining(group, names.may, names.hidden))
    return {"group_ids": [group], "include_authorized_operations": True}
