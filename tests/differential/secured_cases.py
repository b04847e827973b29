"""Requests for several resources, of which the client may use some.

The comparison shows the responses for the hidden resources. The client may use topics, groups and
transactional ids whose names begin with `may-`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.protocol.api_table import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.metadata import DescribeTopicPartitionsResponse
from barnabas.protocol.messages.share_acknowledge import ShareAcknowledgeResponse
from barnabas.protocol.messages.share_consumers import ShareFetchResponse
from barnabas.protocol.messages.share_groups import DeleteShareGroupOffsetsResponse
from barnabas.protocol.schema import ZERO_UUID
from differential.coordinator_topics import await_topic
from differential.matrix.objects import id_of, resolved, value_of
from differential.request import request
from differential.scene import batch
from differential.secured import PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.protocol.schema import Message
    from differential.secured import SecuredScene
    from differential.side import Side

    Make = Callable[["SecuredScene", "Names"], dict[str, Any]]

Values = dict[str, Any]


class Names(NamedTuple):
    """Two existing topics and two absent topics. The client may use one of each."""

    may: str
    hidden: str
    may_absent: str
    hidden_absent: str

    def each(self) -> list[str]:
        """Return all names in the order of most requests."""
        return [self.hidden_absent, self.hidden, self.may, self.may_absent]


CASES: list[tuple[ApiKey, str, Make]] = []


def case(api: ApiKey) -> Callable[[Make], Make]:
    """Register a function that makes a request."""

    def register(make: Make) -> Make:
        CASES.append((api, make.__name__.strip("_").replace("_", " "), make))
        return make

    return register


def names_of(scene: SecuredScene) -> Names:
    """Create the topics of a scene."""
    base = scene.name()
    names = Names(f"{PREFIX}{base}", f"not-{base}", f"{PREFIX}none-{base}", f"not-none-{base}")
    new = [
        {"name": name, "num_partitions": 2, "replication_factor": 1}
        for name in (names.may, names.hidden)
    ]
    made = scene.do(ApiKey.CREATE_TOPICS, 7, {"topics": new, "timeout_ms": 10_000})
    for name in (names.may, names.hidden):
        ids = [
            next(each.topic_id for each in response.topics if each.name == name)
            for response in made
        ]
        scene.remember(f"id of {name}", *ids)
        scene.await_leaders(name, 2)
    return names


def play(scene: SecuredScene, make: Make) -> None:
    """Compare the responses to a request."""
    names = names_of(scene)
    values = make(scene, names)
    ids = {side.topic_id(each): each for side in scene.pair.sides() for each in names[:2]}

    def build(side: Side) -> Message:
        return request(scene.api, scene.version, resolved(values, side))

    scene.before_comparing = partial(_sort, ids)
    scene.compare(build)


def _sort(names: dict[bytes, str], response: Any) -> None:
    """Sort topics that Kafka lists in the order of a hash table."""
    if isinstance(response, ShareAcknowledgeResponse | ShareFetchResponse):
        response.responses.sort(key=lambda each: names.get(each.topic_id, ""))
    if isinstance(response, DeleteShareGroupOffsetsResponse):
        response.responses.sort(key=lambda each: each.topic_name)
    if isinstance(response, DescribeTopicPartitionsResponse):
        response.topics.sort(
            key=lambda each: (each.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED, each.name)
        )


def _ids(names: Names) -> dict[str, Any]:
    """Return the ids of the topics; absent topics have an id that was never assigned."""
    return {
        names.may: id_of(names.may),
        names.hidden: id_of(names.hidden),
        names.may_absent: bytes(15) + b"\x07",
        names.hidden_absent: bytes(15) + b"\x08",
    }


def _topics(names: Names, key: str, **rest: Any) -> list[Values]:
    ids = _ids(names)
    return [{key: name, "topic_id": ids[name], **rest} for name in names.each()]


@case(ApiKey.PRODUCE)
def produce(scene: SecuredScene, names: Names) -> Values:
    partitions = [{"index": index, "records": batch(b"a")} for index in (0, 5)]
    topics = _topics(names, "name", partition_data=partitions)
    return {"transactional_id": None, "acks": -1, "timeout_ms": 5000, "topic_data": topics}


@case(ApiKey.FETCH)
def fetch(scene: SecuredScene, names: Names) -> Values:
    partitions = [
        {
            "partition": index,
            "current_leader_epoch": -1,
            "fetch_offset": 0,
            "last_fetched_epoch": -1,
            "log_start_offset": -1,
            "partition_max_bytes": 1000,
        }
        for index in (0, 5)
    ]
    return {
        "replica_id": -1,
        "max_wait_ms": 0,
        "min_bytes": 0,
        "max_bytes": 1000,
        "session_id": 0,
        "session_epoch": 0,
        "topics": _topics(names, "topic", partitions=partitions),
        "forgotten_topics_data": [],
        "replica_state": {},
    }


@case(ApiKey.FETCH)
def fetch_as_a_follower(scene: SecuredScene, names: Names) -> Values:
    return {**fetch(scene, names), "replica_id": 1, "replica_state": {"replica_id": 1}}


@case(ApiKey.LIST_OFFSETS)
def list_offsets(scene: SecuredScene, names: Names) -> Values:
    partitions = [{"partition_index": index, "timestamp": -1} for index in (0, 5)]
    topics = [{"name": name, "partitions": partitions} for name in names.each()]
    return {"replica_id": -1, "topics": topics}


@case(ApiKey.METADATA)
def metadata(scene: SecuredScene, names: Names) -> Values:
    return {
        "topics": [{"name": name} for name in names.each()],
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": True,
        "include_cluster_authorized_operations": True,
    }


@case(ApiKey.METADATA)
def metadata_with_creation(scene: SecuredScene, names: Names) -> Values:
    return {"topics": [{"name": names.hidden_absent}], "allow_auto_topic_creation": True}


@case(ApiKey.METADATA)
def metadata_of_a_hidden_topic(scene: SecuredScene, names: Names) -> Values:
    return {"topics": [{"name": names.hidden}], "allow_auto_topic_creation": False}


@case(ApiKey.METADATA)
def metadata_by_id(scene: SecuredScene, names: Names) -> Values:
    if scene.version < 12:
        return metadata(scene, names)
    topics = [{"name": None, "topic_id": each} for each in _ids(names).values()]
    return {
        "topics": topics,
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": True,
    }


@case(ApiKey.DESCRIBE_TOPIC_PARTITIONS)
def describe_topic_partitions(scene: SecuredScene, names: Names) -> Values:
    return {"topics": [{"name": name} for name in names.each()]}


@case(ApiKey.DESCRIBE_TOPIC_PARTITIONS)
def describe_topic_partitions_from_a_hidden_topic(scene: SecuredScene, names: Names) -> Values:
    cursor = {"topic_name": names.hidden, "partition_index": 1}
    return {**describe_topic_partitions(scene, names), "cursor": cursor}


def _offsets(names: Names) -> list[Values]:
    partitions = [
        {"partition_index": index, "committed_offset": 5, "committed_metadata": "m"}
        for index in (0, 5)
    ]
    return _topics(names, "name", partitions=partitions)


@case(ApiKey.OFFSET_COMMIT)
def offset_commit(scene: SecuredScene, names: Names) -> Values:
    return {"group_id": f"{PREFIX}{scene.name('group')}", "topics": _offsets(names)}


@case(ApiKey.OFFSET_COMMIT)
def offset_commit_of_hidden_topics(scene: SecuredScene, names: Names) -> Values:
    commit = offset_commit(scene, names)
    hidden = [each for each in commit["topics"] if not each["name"].startswith(PREFIX)]
    return {**commit, "generation_id_or_member_epoch": 7, "member_id": "none", "topics": hidden}


@case(ApiKey.OFFSET_COMMIT)
def offset_commit_of_an_unknown_member(scene: SecuredScene, names: Names) -> Values:
    commit = offset_commit(scene, names)
    return {**commit, "generation_id_or_member_epoch": 7, "member_id": "none"}


@case(ApiKey.TXN_OFFSET_COMMIT)
def txn_offset_commit(scene: SecuredScene, names: Names) -> Values:
    return {
        "transactional_id": f"{PREFIX}{scene.name('id')}",
        "group_id": f"{PREFIX}{scene.name('group')}",
        "producer_id": 5,
        "producer_epoch": 0,
        "topics": _offsets(names),
    }


@case(ApiKey.OFFSET_DELETE)
def offset_delete(scene: SecuredScene, names: Names) -> Values:
    group = f"{PREFIX}{scene.name('group')}"
    partitions = [{"partition_index": 0, "committed_offset": 5, "committed_metadata": "m"}]
    commit = {"group_id": group, "topics": [{"name": names.may, "partitions": partitions}]}
    scene.do(ApiKey.OFFSET_COMMIT, 8, commit)
    requested = [{"partition_index": 0}, {"partition_index": 5}]
    topics = [{"name": name, "partitions": requested} for name in names.each()]
    return {"group_id": group, "topics": topics}


@case(ApiKey.SHARE_GROUP_HEARTBEAT)
def share_group_heartbeat(scene: SecuredScene, names: Names) -> Values:
    return {
        "group_id": f"{PREFIX}{scene.name('group')}",
        "member_id": "m",
        "member_epoch": 0,
        "subscribed_topic_names": names.each(),
    }


@case(ApiKey.SHARE_GROUP_DESCRIBE)
def share_group_describe(scene: SecuredScene, names: Names) -> Values:
    # Only one group: Kafka lists several groups in the order of a hash table.
    hidden = scene.name("group")
    await_topic(scene, hidden, names.may)
    joining = {"member_id": "m", "member_epoch": 0, "subscribed_topic_names": [names.may]}
    scene.do(ApiKey.SHARE_GROUP_HEARTBEAT, 1, {"group_id": hidden, **joining})
    return {"group_ids": [hidden], "include_authorized_operations": True}


@case(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS)
def describe_share_group_offsets(scene: SecuredScene, names: Names) -> Values:
    # Each group once: Kafka sends no response to a request that repeats one.
    may = [f"{PREFIX}{scene.name(f'group-{number}')}" for number in range(3)]
    hidden = [scene.name(f"group-{number}") for number in range(2)]
    # One existing topic per group: Kafka lists several topics in the order of a hash table.
    first, second = (
        [{"topic_name": name, "partitions": [0, 5]} for name in some]
        for some in (
            (names.hidden_absent, names.may, names.may_absent),
            (names.hidden, names.hidden_absent),
        )
    )
    groups = [
        {"group_id": hidden[0], "topics": first},
        {"group_id": may[0], "topics": second},
        {"group_id": may[1], "topics": first},
        {"group_id": may[2], "topics": None},
        {"group_id": hidden[1], "topics": None},
    ]
    return {"groups": groups}


@case(ApiKey.ALTER_SHARE_GROUP_OFFSETS)
def alter_share_group_offsets(scene: SecuredScene, names: Names) -> Values:
    partitions = [{"partition_index": 0, "start_offset": 0}]
    topics = [{"topic_name": name, "partitions": partitions} for name in names.each()]
    group = f"{PREFIX}{scene.name('group')}"
    await_topic(scene, group, names.hidden)
    return {"group_id": group, "topics": topics}


@case(ApiKey.DELETE_SHARE_GROUP_OFFSETS)
def delete_share_group_offsets(scene: SecuredScene, names: Names) -> Values:
    altered = alter_share_group_offsets(scene, names)
    scene.do(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, altered)
    return {
        "group_id": altered["group_id"],
        "topics": [{"topic_name": name} for name in names.each()],
    }


@case(ApiKey.OFFSET_FETCH)
def offset_fetch(scene: SecuredScene, names: Names) -> Values:
    may, hidden = f"{PREFIX}{scene.name('group')}", scene.name("group")
    partitions = [{"partition_index": 0, "committed_offset": 5, "committed_metadata": "m"}]
    commits = [{"name": name, "partitions": partitions} for name in (names.hidden, names.may)]
    for group in (may, hidden):
        scene.do(ApiKey.OFFSET_COMMIT, 8, {"group_id": group, "topics": commits})
    with_ids = _topics(names, "name", partition_indexes=[0, 5])
    groups = [
        {"group_id": hidden, "topics": with_ids},
        {"group_id": may, "topics": with_ids},
        {"group_id": may, "topics": None},
        {"group_id": hidden, "topics": None},
    ]
    topics = [{"name": name, "partition_indexes": [0, 5]} for name in names.each()]
    return {"group_id": may, "topics": topics, "groups": groups}


@case(ApiKey.OFFSET_FETCH)
def offset_fetch_of_all_topics(scene: SecuredScene, names: Names) -> Values:
    fetch = offset_fetch(scene, names)
    return {**fetch, "topics": fetch["topics"] if scene.version < 2 else None}


@case(ApiKey.FIND_COORDINATOR)
def find_coordinator(scene: SecuredScene, names: Names) -> Values:
    keys = ["hidden", f"{PREFIX}a", "hidden", f"{PREFIX}b", "other"]
    return {"key": "hidden", "key_type": 0, "coordinator_keys": keys}


@case(ApiKey.FIND_COORDINATOR)
def find_transaction_coordinator(scene: SecuredScene, names: Names) -> Values:
    kind = 1 if scene.version > 0 else 0
    return {**find_coordinator(scene, names), "key_type": kind}


@case(ApiKey.FIND_COORDINATOR)
def find_share_coordinator(scene: SecuredScene, names: Names) -> Values:
    keys = [f"{PREFIX}a:AAECAwQFBgcICQoLDA0ODw:0", "a"]
    return {"key_type": 2, "key": keys[0], "coordinator_keys": keys}


def _share_state(**values: Any) -> Values:
    """Return the fields of a request for share state, with a repeated topic."""
    partitions = [{"partition": each, **values} for each in (0, 7, 0)]
    # An unknown topic, because Kafka's share coordinators get the topics of the scene later.
    topic = {"topic_id": b"\x07" * 16, "partitions": partitions}
    return {"group_id": f"{PREFIX}a", "topics": [topic, topic]}


@case(ApiKey.INITIALIZE_SHARE_GROUP_STATE)
def initialize_share_group_state(scene: SecuredScene, names: Names) -> Values:
    return _share_state(state_epoch=0, start_offset=0)


@case(ApiKey.READ_SHARE_GROUP_STATE)
def read_share_group_state(scene: SecuredScene, names: Names) -> Values:
    return _share_state(leader_epoch=0)


@case(ApiKey.WRITE_SHARE_GROUP_STATE)
def write_share_group_state(scene: SecuredScene, names: Names) -> Values:
    return _share_state(state_epoch=0, leader_epoch=0, start_offset=0, state_batches=[])


@case(ApiKey.DELETE_SHARE_GROUP_STATE)
def delete_share_group_state(scene: SecuredScene, names: Names) -> Values:
    return _share_state()


@case(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY)
def read_share_group_state_summary(scene: SecuredScene, names: Names) -> Values:
    return _share_state(leader_epoch=0)


@case(ApiKey.DESCRIBE_GROUPS)
def describe_groups(scene: SecuredScene, names: Names) -> Values:
    groups = ["hidden", f"{PREFIX}a", "hidden", f"{PREFIX}b"]
    return {"groups": groups, "include_authorized_operations": True}


@case(ApiKey.DELETE_GROUPS)
def delete_groups(scene: SecuredScene, names: Names) -> Values:
    return {"groups_names": ["hidden", f"{PREFIX}a", "hidden", f"{PREFIX}b", f"{PREFIX}a"]}


@case(ApiKey.DELETE_RECORDS)
def delete_records(scene: SecuredScene, names: Names) -> Values:
    partitions = [{"partition_index": index, "offset": 0} for index in (0, 5)]
    topics = [{"name": name, "partitions": partitions} for name in names.each()]
    return {"timeout_ms": 5000, "topics": topics}


@case(ApiKey.OFFSET_FOR_LEADER_EPOCH)
def offset_for_leader_epoch(scene: SecuredScene, names: Names) -> Values:
    partitions = [
        {"partition": index, "current_leader_epoch": -1, "leader_epoch": 0} for index in (0, 5)
    ]
    topics = [{"topic": name, "partitions": partitions} for name in names.each()]
    return {"replica_id": -1, "topics": topics}


@case(ApiKey.DESCRIBE_PRODUCERS)
def describe_producers(scene: SecuredScene, names: Names) -> Values:
    requested = [*names.each(), names.hidden, "not legal!"]
    return {"topics": [{"name": name, "partition_indexes": [0, 5]} for name in requested]}


@case(ApiKey.ADD_PARTITIONS_TO_TXN)
def add_partitions_to_txn(scene: SecuredScene, names: Names) -> Values:
    name = f"{PREFIX}{scene.name('id')}"
    topics = [{"name": each, "partitions": [0, 5]} for each in names.each()]
    one = {"transactional_id": name, "producer_id": 5, "producer_epoch": 0, "topics": topics}
    old = {f"v3_and_below_{key}": value for key, value in one.items()}
    return {"transactions": [one], **old}


@case(ApiKey.ADD_PARTITIONS_TO_TXN)
def add_internal_partitions_to_txn(scene: SecuredScene, names: Names) -> Values:
    made = add_partitions_to_txn(scene, names)
    topics = [{"name": "__consumer_offsets", "partitions": [0]}]
    return {**made, "v3_and_below_topics": topics}


@case(ApiKey.DESCRIBE_TRANSACTIONS)
def describe_transactions(scene: SecuredScene, names: Names) -> Values:
    may, hidden = f"{PREFIX}{scene.name('id')}", scene.name("id")
    for name in (may, hidden):
        started = {"transactional_id": name, "transaction_timeout_ms": 60_000}
        made = scene.do(ApiKey.INIT_PRODUCER_ID, 4, started)
        scene.remember(f"producer of {name}", *(each.producer_id for each in made))
        topics = [{"name": each, "partitions": [0]} for each in (names.may, names.hidden)]

        producer = {"producer_id": value_of(f"producer of {name}"), "producer_epoch": 0}
        values = {"transactional_id": name, "topics": topics, **producer}
        added = {f"v3_and_below_{key}": value for key, value in values.items()}
        scene.do(ApiKey.ADD_PARTITIONS_TO_TXN, 3, partial(resolved, added))
    return {"transactional_ids": [hidden, may, "absent", f"{PREFIX}absent", hidden]}


@case(ApiKey.DESCRIBE_CONFIGS)
def describe_configs(scene: SecuredScene, names: Names) -> Values:
    keys = ["retention.ms", "num.partitions"]
    resources = [
        *({"resource_type": 2, "resource_name": name} for name in names.each()),
        {"resource_type": 4, "resource_name": "1"},
        {"resource_type": 8, "resource_name": "1"},
        {"resource_type": 16, "resource_name": "subscription"},
        {"resource_type": 32, "resource_name": "hidden"},
        {"resource_type": 2, "resource_name": names.hidden},
    ]
    return {"resources": [{**each, "configuration_keys": keys} for each in resources]}


def _altered(names: Names, **config: Any) -> list[Values]:
    resources = [
        *((2, name) for name in names.each()),
        (4, "1"),
        (4, "99"),
        (16, "subscription"),
        (32, "hidden"),
        (32, f"{PREFIX}group"),
    ]
    keys = {4: "message.max.bytes", 16: "interval.ms", 32: "consumer.session.timeout.ms"}
    return [
        {
            "resource_type": kind,
            "resource_name": name,
            "configs": [{"name": keys.get(kind, "retention.ms"), "value": "100000", **config}],
        }
        for kind, name in resources
    ]


@case(ApiKey.INCREMENTAL_ALTER_CONFIGS)
def incremental_alter_configs(scene: SecuredScene, names: Names) -> Values:
    return {"resources": _altered(names, config_operation=0), "validate_only": True}


@case(ApiKey.INCREMENTAL_ALTER_CONFIGS)
def change_loggers(scene: SecuredScene, names: Names) -> Values:
    level = {"name": "root", "value": "INFO", "config_operation": 0}
    logger = {"resource_type": 8, "resource_name": "1", "configs": [level]}
    return {"resources": [logger], "validate_only": True}


@case(ApiKey.ALTER_CONFIGS)
def alter_configs(scene: SecuredScene, names: Names) -> Values:
    return {"resources": _altered(names), "validate_only": True}


@case(ApiKey.CREATE_TOPICS)
def create_topics(scene: SecuredScene, names: Names) -> Values:
    one = {"num_partitions": 1, "replication_factor": 1}
    requested = [*names.each(), "__cluster_metadata", "twice", "twice", "not legal!", f"{PREFIX}!"]
    topics = [{"name": name, **one} for name in requested]
    return {"topics": topics, "timeout_ms": 5000, "validate_only": scene.version > 0}


@case(ApiKey.DELETE_TOPICS)
def delete_topics(scene: SecuredScene, names: Names) -> Values:
    requested = [*names.each(), "twice", "twice", "not legal!"]
    topics = [{"name": name, "topic_id": ZERO_UUID} for name in requested]
    return {"topic_names": requested, "topics": topics, "timeout_ms": 5000}


@case(ApiKey.DELETE_TOPICS)
def delete_topics_by_id(scene: SecuredScene, names: Names) -> Values:
    by_id = [{"name": None, "topic_id": each} for each in _ids(names).values()]
    both = {"name": names.hidden_absent, "topic_id": bytes(15) + b"\x09"}
    neither = {"name": None, "topic_id": ZERO_UUID}
    return {"topic_names": [], "topics": [*by_id, both, neither], "timeout_ms": 5000}


@case(ApiKey.CREATE_PARTITIONS)
def create_partitions(scene: SecuredScene, names: Names) -> Values:
    requested = [*names.each(), "twice", "twice"]
    topics = [{"name": name, "count": 3, "assignments": None} for name in requested]
    return {"topics": topics, "timeout_ms": 5000, "validate_only": True}


@case(ApiKey.INIT_PRODUCER_ID)
def init_producer_id(scene: SecuredScene, names: Names) -> Values:
    return {"transactional_id": None, "transaction_timeout_ms": 60_000}


@case(ApiKey.INIT_PRODUCER_ID)
def init_producer_id_with_two_phases(scene: SecuredScene, names: Names) -> Values:
    name = f"{PREFIX}{scene.name('id')}"
    return {
        "transactional_id": name,
        "transaction_timeout_ms": 60_000,
        **({"enable_2pc": True} if scene.version >= 6 else {}),
    }


@case(ApiKey.WRITE_TXN_MARKERS)
def write_txn_markers(scene: SecuredScene, names: Names) -> Values:
    topics = [{"name": name, "partition_indexes": [0, 5]} for name in names.each()]
    marker = {
        "producer_id": 5,
        "producer_epoch": 0,
        "transaction_result": True,
        "coordinator_epoch": 0,
        "topics": topics,
    }
    return {"markers": [marker, {**marker, "producer_id": 6}]}
