"""One valid request of each API, or a few where it has several ways: what inputs are made from.

A request that changes something is about what was made for it alone, so that the next finds the
same. Values are as in `request`; a function in them takes what a side drew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.protocol.api_table import ApiKey
from differential.matrix import standing
from differential.matrix.standing import MEMBER, SESSION_MS, id_of, of
from differential.scene import batch

if TYPE_CHECKING:
    from collections.abc import Callable

    from differential.scene import Scene

    Make = Callable[[Scene], dict[str, Any]]

VALID: dict[ApiKey, dict[str, Make]] = {}

# What is left out of the matrix, and why.
_NEVER = "Kafka never answers it"
_TRANSACTIONS = "begins what has to do with transactions, which Barnabas does not have yet"
_DROPS = "Kafka's controller fails over it and resigns"
_ALL = "a case of its own compares all keys"
_OPERATION = "resources[0].configs[0].config_operation = "
NOT_SENT = {
    **{
        (ApiKey.INCREMENTAL_ALTER_CONFIGS, f"{_OPERATION}{wrong}"): _DROPS
        for wrong in (-128, -1, 4, 127)
    },
    (ApiKey.PRODUCE, "topic_data[0].partition_data[0].records = null"): _NEVER,
    (ApiKey.JOIN_GROUP, "protocols twice"): _NEVER,
    (ApiKey.ALTER_CONFIGS, "resources twice"): _NEVER,
    (ApiKey.DESCRIBE_CLIENT_QUOTAS, "components[0].entity_type = 10000 letters"): _NEVER,
    (ApiKey.FIND_COORDINATOR, "key_type = 1"): _TRANSACTIONS,
    (ApiKey.DESCRIBE_CONFIGS, "broker: resources[0].configuration_keys = null"): _ALL,
    (ApiKey.DESCRIBE_CONFIGS, "broker: resources[0].configuration_keys = []"): _ALL,
    (ApiKey.ADD_RAFT_VOTER, "listeners[0].name = ''"): "Kafka ends: the process is gone",
    (ApiKey.INIT_PRODUCER_ID, "transactional_id = 'no-such-word'"): _TRANSACTIONS,
    (ApiKey.INIT_PRODUCER_ID, "transactional_id = 'a b/\u00e4\\n'"): _TRANSACTIONS,
    (ApiKey.INIT_PRODUCER_ID, "transactional_id = 10000 letters"): _TRANSACTIONS,
}

# What is left out where several inputs are sent together, and why.
NOT_TOGETHER = {
    (ApiKey.OFFSET_COMMIT, "group_id = ''"): "refused, it leaves a group that others would find",
    (ApiKey.ALTER_CLIENT_QUOTAS, "entries[0].entity[0].entity_name = null"): "set for all clients"
    " a quota would slow down whatever comes after it",
}

TOPIC, BROKER = 2, 4


def is_sent(api: ApiKey, make: Make, label: str) -> bool:
    """Whether an input is sent; a label may name the valid request that it is made of."""
    way = "broker" if "brokers" in make.__name__ else "topic"
    return (api, label) not in NOT_SENT and (api, f"{way}: {label}") not in NOT_SENT


def valid(api: ApiKey) -> Callable[[Make], Make]:
    """Register a function as a way to ask an API."""

    def register(make: Make) -> Make:
        VALID.setdefault(api, {})[make.__name__.strip("_").replace("_", " ")] = make
        return make

    return register


@valid(ApiKey.PRODUCE)
def produce(scene: Scene) -> dict[str, Any]:
    name = standing.own_topic(scene)
    data = [{"index": 0, "records": batch(b"a", b"b")}]
    topics = [{"name": name, "topic_id": id_of(name), "partition_data": data}]
    return {"transactional_id": None, "acks": -1, "timeout_ms": 5000, "topic_data": topics}


@valid(ApiKey.FETCH)
def fetch(scene: Scene) -> dict[str, Any]:
    name = standing.topic(scene)
    partition = {
        "partition": 0,
        "current_leader_epoch": 0,
        "fetch_offset": 0,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": 1 << 20,
    }
    return {
        "replica_id": -1,
        "max_wait_ms": 0,
        "min_bytes": 0,
        "max_bytes": 1 << 20,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": name, "topic_id": id_of(name), "partitions": [partition]}],
        "forgotten_topics_data": [{"topic": name, "topic_id": id_of(name), "partitions": [1]}],
        "replica_state": {},
    }


@valid(ApiKey.LIST_OFFSETS)
def list_offsets(scene: Scene) -> dict[str, Any]:
    partition = {"partition_index": 0, "current_leader_epoch": 0, "timestamp": -1}
    topics = [{"name": standing.topic(scene), "partitions": [partition]}]
    return {"replica_id": -1, "isolation_level": 0, "topics": topics, "timeout_ms": 5000}


@valid(ApiKey.METADATA)
def metadata(scene: Scene) -> dict[str, Any]:
    topics = [{"name": standing.topic(scene)}]
    return {"topics": topics, "allow_auto_topic_creation": False}


@valid(ApiKey.METADATA)
def metadata_by_id(scene: Scene) -> dict[str, Any]:
    name = standing.topic(scene)
    by_id = {"name": None if scene.version >= 10 else name, "topic_id": id_of(name)}
    return {"topics": [by_id], "allow_auto_topic_creation": False}


def _commit(scene: Scene, group: str) -> dict[str, Any]:
    name = standing.topic(scene)
    partition = {
        "partition_index": 0,
        "committed_offset": 7,
        "committed_leader_epoch": 0,
        "committed_metadata": "note",
    }
    topics = [{"name": name, "topic_id": id_of(name), "partitions": [partition]}]
    return {"group_id": group, "topics": topics}


@valid(ApiKey.OFFSET_COMMIT)
def commit_without_members(scene: Scene) -> dict[str, Any]:
    return _commit(scene, scene.name("group"))


@valid(ApiKey.OFFSET_COMMIT)
def commit_of_a_member(scene: Scene) -> dict[str, Any]:
    member = {"member_id": of(MEMBER), "generation_id_or_member_epoch": 1}
    return {**_commit(scene, standing.group(scene)), **member}


@valid(ApiKey.OFFSET_FETCH)
def offset_fetch(scene: Scene) -> dict[str, Any]:
    group, name = standing.group(scene), standing.topic(scene)
    topics = [{"name": name, "partition_indexes": [0, 1]}]
    with_ids = [{"name": name, "topic_id": id_of(name), "partition_indexes": [0, 1]}]
    one = {"group_id": group, "member_id": None, "member_epoch": -1, "topics": with_ids}
    return {"group_id": group, "topics": topics, "groups": [one], "require_stable": False}


@valid(ApiKey.FIND_COORDINATOR)
def find_coordinator(scene: Scene) -> dict[str, Any]:
    return {"key": "a-group", "key_type": 0, "coordinator_keys": ["a-group"]}


@valid(ApiKey.JOIN_GROUP)
def join_group(scene: Scene) -> dict[str, Any]:
    return {
        "group_id": scene.name("group"),
        "session_timeout_ms": SESSION_MS,
        "rebalance_timeout_ms": 10_000,
        "member_id": "",
        "group_instance_id": "an-instance",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"no topics"}],
        "reason": "a test",
    }


def _member(scene: Scene) -> dict[str, Any]:
    return {"group_id": standing.group(scene), "member_id": of(MEMBER), "generation_id": 1}


@valid(ApiKey.HEARTBEAT)
def heartbeat(scene: Scene) -> dict[str, Any]:
    return _member(scene)


@valid(ApiKey.SYNC_GROUP)
def sync_group(scene: Scene) -> dict[str, Any]:
    words = {"protocol_type": "consumer", "protocol_name": "range"}
    assignments = [{"member_id": of(MEMBER), "assignment": b"some"}]
    return {**_member(scene), **words, "assignments": assignments}


@valid(ApiKey.LEAVE_GROUP)
def leave_group(scene: Scene) -> dict[str, Any]:
    group = standing.new_group(scene, standing.topic(scene), "leaver", "an-instance")
    who = {"member_id": of("leaver"), "group_instance_id": "an-instance", "reason": "a test"}
    return {"group_id": group, "member_id": of("leaver"), "members": [who]}


@valid(ApiKey.DESCRIBE_GROUPS)
def describe_groups(scene: Scene) -> dict[str, Any]:
    return {"groups": [standing.group(scene)], "include_authorized_operations": False}


@valid(ApiKey.LIST_GROUPS)
def list_groups(scene: Scene) -> dict[str, Any]:
    standing.group(scene)
    return {"states_filter": ["Stable"], "types_filter": ["classic"]}


@valid(ApiKey.DELETE_GROUPS)
def delete_groups(scene: Scene) -> dict[str, Any]:
    return {"groups_names": [standing.empty_group(scene, standing.topic(scene))]}


@valid(ApiKey.OFFSET_DELETE)
def offset_delete(scene: Scene) -> dict[str, Any]:
    name = standing.topic(scene)
    topics = [{"name": name, "partitions": [{"partition_index": 0}]}]
    return {"group_id": standing.empty_group(scene, name), "topics": topics}


@valid(ApiKey.API_VERSIONS)
def api_versions(scene: Scene) -> dict[str, Any]:
    return {"client_software_name": "a", "client_software_version": "1"}


def _new_topic(scene: Scene, **more: Any) -> dict[str, Any]:
    configs = [{"name": "retention.ms", "value": "12345"}]
    return {"name": scene.name(), "configs": configs, "assignments": [], **more}


@valid(ApiKey.CREATE_TOPICS)
def create_topics(scene: Scene) -> dict[str, Any]:
    topics = [_new_topic(scene, num_partitions=1, replication_factor=1)]
    return {"topics": topics, "timeout_ms": 10_000, "validate_only": True}


@valid(ApiKey.CREATE_TOPICS)
def create_topics_as_assigned(scene: Scene) -> dict[str, Any]:
    given = [{"partition_index": 0, "broker_ids": [1]}]
    topics = [_new_topic(scene, num_partitions=-1, replication_factor=-1, assignments=given)]
    return {"topics": topics, "timeout_ms": 10_000, "validate_only": True}


@valid(ApiKey.DELETE_TOPICS)
def delete_topics(scene: Scene) -> dict[str, Any]:
    name = standing.new_topic(scene)
    topics = [{"name": name, "topic_id": bytes(16)}]
    return {"topics": topics, "topic_names": [name], "timeout_ms": 10_000}


@valid(ApiKey.DELETE_TOPICS)
def delete_topics_by_id(scene: Scene) -> dict[str, Any]:
    name = standing.new_topic(scene)
    topics = [{"name": None, "topic_id": id_of(name)}]
    return {"topics": topics, "topic_names": [name], "timeout_ms": 10_000}


@valid(ApiKey.DELETE_RECORDS)
def delete_records(scene: Scene) -> dict[str, Any]:
    name = standing.own_topic(scene)
    topics = [{"name": name, "partitions": [{"partition_index": 0, "offset": 0}]}]
    return {"topics": topics, "timeout_ms": 5000}


@valid(ApiKey.INIT_PRODUCER_ID)
def init_producer_id(scene: Scene) -> dict[str, Any]:
    return {"transactional_id": None, "transaction_timeout_ms": 60_000}


@valid(ApiKey.OFFSET_FOR_LEADER_EPOCH)
def offset_for_leader_epoch(scene: Scene) -> dict[str, Any]:
    partition = {"partition": 0, "current_leader_epoch": 0, "leader_epoch": 0}
    topics = [{"topic": standing.topic(scene), "partitions": [partition]}]
    return {"replica_id": -1, "topics": topics}


@valid(ApiKey.DESCRIBE_CONFIGS)
def describe_a_topics_configs(scene: Scene) -> dict[str, Any]:
    return _described(TOPIC, standing.topic(scene), "retention.ms")


@valid(ApiKey.DESCRIBE_CONFIGS)
def describe_a_brokers_configs(scene: Scene) -> dict[str, Any]:
    return _described(BROKER, "1", "num.partitions")


def _described(kind: int, name: str, key: str) -> dict[str, Any]:
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": [key]}
    return {"resources": [resource], "include_synonyms": True}


def _altered(kind: int, name: str, key: str, value: str) -> dict[str, Any]:
    configs = [{"name": key, "value": value}]
    return {"resources": [{"resource_type": kind, "resource_name": name, "configs": configs}]}


def _incremental(kind: int, name: str, key: str, value: str) -> dict[str, Any]:
    made = _altered(kind, name, key, value)
    made["resources"][0]["configs"][0]["config_operation"] = 0
    return made


@valid(ApiKey.ALTER_CONFIGS)
def alter_a_topics_configs(scene: Scene) -> dict[str, Any]:
    name = standing.own_topic(scene)
    return {**_altered(TOPIC, name, "retention.ms", "12345"), "validate_only": False}


@valid(ApiKey.ALTER_CONFIGS)
def alter_a_brokers_configs(scene: Scene) -> dict[str, Any]:
    return {**_altered(BROKER, "1", "message.max.bytes", "1048588"), "validate_only": True}


@valid(ApiKey.INCREMENTAL_ALTER_CONFIGS)
def change_a_topics_configs(scene: Scene) -> dict[str, Any]:
    name = standing.own_topic(scene)
    return {**_incremental(TOPIC, name, "retention.ms", "12345"), "validate_only": False}


@valid(ApiKey.INCREMENTAL_ALTER_CONFIGS)
def change_a_brokers_configs(scene: Scene) -> dict[str, Any]:
    return {**_incremental(BROKER, "1", "message.max.bytes", "1048588"), "validate_only": True}


@valid(ApiKey.CREATE_PARTITIONS)
def create_partitions(scene: Scene) -> dict[str, Any]:
    topic = {"name": standing.topic(scene), "count": 3, "assignments": None}
    return {"topics": [topic], "timeout_ms": 10_000, "validate_only": True}


@valid(ApiKey.CREATE_PARTITIONS)
def create_partitions_as_assigned(scene: Scene) -> dict[str, Any]:
    assigned = [{"broker_ids": [1]}]
    topic = {"name": standing.topic(scene), "count": 3, "assignments": assigned}
    return {"topics": [topic], "timeout_ms": 10_000, "validate_only": True}


@valid(ApiKey.DESCRIBE_CLIENT_QUOTAS)
def describe_client_quotas(scene: Scene) -> dict[str, Any]:
    component = {"entity_type": "client-id", "match_type": 0, "match": "nobody-at-all"}
    return {"components": [component], "strict": False}


@valid(ApiKey.ALTER_CLIENT_QUOTAS)
def alter_client_quotas(scene: Scene) -> dict[str, Any]:
    entity = [{"entity_type": "client-id", "entity_name": scene.name("client")}]
    ops = [{"key": "producer_byte_rate", "value": 1e9, "remove": False}]
    return {"entries": [{"entity": entity, "ops": ops}], "validate_only": True}


@valid(ApiKey.DESCRIBE_QUORUM)
def describe_quorum(scene: Scene) -> dict[str, Any]:
    partitions = [{"partition_index": 0}]
    return {"topics": [{"topic_name": "__cluster_metadata", "partitions": partitions}]}


@valid(ApiKey.DESCRIBE_CLUSTER)
def describe_cluster(scene: Scene) -> dict[str, Any]:
    return {"include_cluster_authorized_operations": False, "endpoint_type": 1}


@valid(ApiKey.ALTER_REPLICA_LOG_DIRS)
def alter_replica_log_dirs(scene: Scene) -> dict[str, Any]:
    topics = [{"name": standing.topic(scene), "partitions": [0]}]
    return {"dirs": [{"path": "/no/such/directory", "topics": topics}]}


@valid(ApiKey.DESCRIBE_LOG_DIRS)
def describe_log_dirs(scene: Scene) -> dict[str, Any]:
    return {"topics": [{"topic": standing.topic(scene), "partitions": [0, 1]}]}


@valid(ApiKey.DESCRIBE_PRODUCERS)
def describe_producers(scene: Scene) -> dict[str, Any]:
    return {"topics": [{"name": standing.topic(scene), "partition_indexes": [0]}]}


@valid(ApiKey.ELECT_LEADERS)
def elect_leaders(scene: Scene) -> dict[str, Any]:
    partitions = [{"topic": standing.topic(scene), "partitions": [0]}]
    return {"election_type": 0, "topic_partitions": partitions, "timeout_ms": 5000}


@valid(ApiKey.ALTER_PARTITION_REASSIGNMENTS)
def alter_partition_reassignments(scene: Scene) -> dict[str, Any]:
    partitions = [{"partition_index": 0, "replicas": [1]}]
    topics = [{"name": standing.topic(scene), "partitions": partitions}]
    return {"timeout_ms": 5000, "allow_replication_factor_change": True, "topics": topics}


@valid(ApiKey.LIST_PARTITION_REASSIGNMENTS)
def list_partition_reassignments(scene: Scene) -> dict[str, Any]:
    topics = [{"name": standing.topic(scene), "partition_indexes": [0]}]
    return {"timeout_ms": 5000, "topics": topics}


@valid(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS)
def describe_user_scram_credentials(scene: Scene) -> dict[str, Any]:
    return {"users": [{"name": "nobody"}]}


@valid(ApiKey.UPDATE_FEATURES)
def update_features(scene: Scene) -> dict[str, Any]:
    update = {"feature": "no.such.feature", "max_version_level": 1, "upgrade_type": 1}
    return {"timeout_ms": 5000, "feature_updates": [update], "validate_only": True}


@valid(ApiKey.UNREGISTER_BROKER)
def unregister_broker(scene: Scene) -> dict[str, Any]:
    return {"broker_id": 99}


@valid(ApiKey.UNREGISTER_CONTROLLER)
def unregister_controller(scene: Scene) -> dict[str, Any]:
    return {"controller_id": 99}


@valid(ApiKey.LIST_CONFIG_RESOURCES)
def list_config_resources(scene: Scene) -> dict[str, Any]:
    return {"resource_types": [BROKER]}


@valid(ApiKey.DESCRIBE_TOPIC_PARTITIONS)
def describe_topic_partitions(scene: Scene) -> dict[str, Any]:
    return {"topics": [{"name": standing.topic(scene)}], "response_partition_limit": 2000}


@valid(ApiKey.DESCRIBE_TOPIC_PARTITIONS)
def describe_topic_partitions_from_a_cursor(scene: Scene) -> dict[str, Any]:
    cursor = {"topic_name": standing.topic(scene), "partition_index": 1}
    return {**describe_topic_partitions(scene), "cursor": cursor}


@valid(ApiKey.ADD_RAFT_VOTER)
def add_raft_voter(scene: Scene) -> dict[str, Any]:
    listener = {"name": "CONTROLLER", "host": "127.0.0.1", "port": 9}
    return {
        "cluster_id": None,
        "timeout_ms": 1000,
        "voter_id": 99,
        "voter_directory_id": b"\1" * 16,
        "listeners": [listener],
    }


@valid(ApiKey.REMOVE_RAFT_VOTER)
def remove_raft_voter(scene: Scene) -> dict[str, Any]:
    return {"cluster_id": None, "voter_id": 99, "voter_directory_id": b"\1" * 16}
