"""Valid requests of each API, from which the inputs are made. Some APIs have several.

A request that changes an object has its own object, so that the next request finds the same state.
Values are as in `request`. A function among the values returns an id that a side assigned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.protocol.api_table import ApiKey
from differential.matrix import objects
from differential.matrix.objects import MEMBER, SESSION_MS, id_of, value_of
from differential.matrix.share_fetch_requests import SHARE_FETCHES
from differential.matrix.share_group_requests import SHARE_GROUPS
from differential.matrix.share_requests import SHARE_STATE
from differential.matrix.streams_group_requests import STREAMS_GROUPS
from differential.matrix.token_requests import TOKENS
from differential.scene import batch

if TYPE_CHECKING:
    from collections.abc import Callable

    from differential.scene import Scene

    Make = Callable[[Scene], dict[str, Any]]

VALID: dict[ApiKey, dict[str, Make]] = {
    **TOKENS,
    **SHARE_GROUPS,
    **SHARE_STATE,
    **SHARE_FETCHES,
    **STREAMS_GROUPS,
}

TOPIC, BROKER = 2, 4
# A topic's new retention. It keeps the records of the cases, whose timestamps are years ago.
RETENTION_MS = "12345678901234"


def valid(api: ApiKey) -> Callable[[Make], Make]:
    """Register a function that makes a valid request of an API."""

    def register(make: Make) -> Make:
        VALID.setdefault(api, {})[make.__name__.strip("_").replace("_", " ")] = make
        return make

    return register


@valid(ApiKey.PRODUCE)
def produce(scene: Scene) -> dict[str, Any]:
    name = objects.own_topic(scene)
    data = [{"index": 0, "records": batch(b"a", b"b")}]
    topics = [{"name": name, "topic_id": id_of(name), "partition_data": data}]
    return {"transactional_id": None, "acks": -1, "timeout_ms": 5000, "topic_data": topics}


@valid(ApiKey.FETCH)
def fetch(scene: Scene) -> dict[str, Any]:
    name = objects.topic(scene)
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
    topics = [{"name": objects.topic(scene), "partitions": [partition]}]
    return {"replica_id": -1, "isolation_level": 0, "topics": topics, "timeout_ms": 5000}


@valid(ApiKey.METADATA)
def metadata(scene: Scene) -> dict[str, Any]:
    topics = [{"name": objects.topic(scene)}]
    return {"topics": topics, "allow_auto_topic_creation": False}


@valid(ApiKey.METADATA)
def metadata_by_id(scene: Scene) -> dict[str, Any]:
    name = objects.topic(scene)
    by_id = {"name": None if scene.version >= 10 else name, "topic_id": id_of(name)}
    return {"topics": [by_id], "allow_auto_topic_creation": False}


def _commit(scene: Scene, group: str) -> dict[str, Any]:
    name = objects.topic(scene)
    partition = {"partition_index": 0, "committed_offset": 7, "committed_metadata": "note"}
    partition["committed_leader_epoch"] = 0
    topics = [{"name": name, "topic_id": id_of(name), "partitions": [partition]}]
    return {"group_id": group, "topics": topics}


@valid(ApiKey.OFFSET_COMMIT)
def commit_without_members(scene: Scene) -> dict[str, Any]:
    return _commit(scene, scene.name("group"))


@valid(ApiKey.OFFSET_COMMIT)
def commit_of_a_member(scene: Scene) -> dict[str, Any]:
    member = {"member_id": value_of(MEMBER), "generation_id_or_member_epoch": 1}
    return {**_commit(scene, objects.group(scene)), **member}


@valid(ApiKey.OFFSET_FETCH)
def offset_fetch(scene: Scene) -> dict[str, Any]:
    group, name = objects.group(scene), objects.topic(scene)
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
    return {"group_id": objects.group(scene), "member_id": value_of(MEMBER), "generation_id": 1}


@valid(ApiKey.HEARTBEAT)
def heartbeat(scene: Scene) -> dict[str, Any]:
    return _member(scene)


@valid(ApiKey.SYNC_GROUP)
def sync_group(scene: Scene) -> dict[str, Any]:
    words = {"protocol_type": "consumer", "protocol_name": "range"}
    assignments = [{"member_id": value_of(MEMBER), "assignment": b"some"}]
    return {**_member(scene), **words, "assignments": assignments}


@valid(ApiKey.LEAVE_GROUP)
def leave_group(scene: Scene) -> dict[str, Any]:
    group = objects.new_group(scene, objects.topic(scene), "leaver", "an-instance")
    sender = {
        "member_id": value_of("leaver"),
        "group_instance_id": "an-instance",
        "reason": "a test",
    }
    return {"group_id": group, "member_id": value_of("leaver"), "members": [sender]}


@valid(ApiKey.DESCRIBE_GROUPS)
def describe_groups(scene: Scene) -> dict[str, Any]:
    return {"groups": [objects.group(scene)], "include_authorized_operations": False}


@valid(ApiKey.LIST_GROUPS)
def list_groups(scene: Scene) -> dict[str, Any]:
    objects.group(scene)
    return {"states_filter": ["Stable"], "types_filter": ["classic"]}


@valid(ApiKey.CONSUMER_GROUP_HEARTBEAT)
def consumer_group_heartbeat(scene: Scene) -> dict[str, Any]:
    return {
        "group_id": scene.name("group"),
        "member_id": "a-member",
        "member_epoch": 0,
        "instance_id": "an-instance",
        "rack_id": "a-rack",
        "rebalance_timeout_ms": 10_000,
        "subscribed_topic_names": [objects.topic(scene)],
        "subscribed_topic_regex": None,
        "server_assignor": "uniform",
        "topic_partitions": [],
    }


@valid(ApiKey.CONSUMER_GROUP_DESCRIBE)
def consumer_group_describe(scene: Scene) -> dict[str, Any]:
    group = objects.consumer_group(scene)
    return {"group_ids": [group], "include_authorized_operations": False}


@valid(ApiKey.DELETE_GROUPS)
def delete_groups(scene: Scene) -> dict[str, Any]:
    return {"groups_names": [objects.empty_group(scene, objects.topic(scene))]}


@valid(ApiKey.OFFSET_DELETE)
def offset_delete(scene: Scene) -> dict[str, Any]:
    name = objects.topic(scene)
    topics = [{"name": name, "partitions": [{"partition_index": 0}]}]
    return {"group_id": objects.empty_group(scene, name), "topics": topics}


@valid(ApiKey.API_VERSIONS)
def api_versions(scene: Scene) -> dict[str, Any]:
    return {"client_software_name": "a", "client_software_version": "1"}


def _new_topic(scene: Scene, **more: Any) -> dict[str, Any]:
    configs = [{"name": "retention.ms", "value": RETENTION_MS}]
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
    name = objects.new_topic(scene)
    topics = [{"name": name, "topic_id": bytes(16)}]
    return {"topics": topics, "topic_names": [name], "timeout_ms": 10_000}


@valid(ApiKey.DELETE_TOPICS)
def delete_topics_by_id(scene: Scene) -> dict[str, Any]:
    name = objects.new_topic(scene)
    topics = [{"name": None, "topic_id": id_of(name)}]
    return {"topics": topics, "topic_names": [name], "timeout_ms": 10_000}


@valid(ApiKey.DELETE_RECORDS)
def delete_records(scene: Scene) -> dict[str, Any]:
    name = objects.own_topic(scene)
    topics = [{"name": name, "partitions": [{"partition_index": 0, "offset": 0}]}]
    return {"topics": topics, "timeout_ms": 5000}


@valid(ApiKey.INIT_PRODUCER_ID)
def init_producer_id(scene: Scene) -> dict[str, Any]:
    return {"transactional_id": None, "transaction_timeout_ms": 60_000}


@valid(ApiKey.INIT_PRODUCER_ID)
def init_transactional_producer_id(scene: Scene) -> dict[str, Any]:
    return {"transactional_id": scene.name("id"), "transaction_timeout_ms": 60_000}


@valid(ApiKey.FIND_COORDINATOR)
def find_transaction_coordinator(scene: Scene) -> dict[str, Any]:
    return {"key": "an-id", "key_type": 1, "coordinator_keys": ["an-id"]}


def _producer_of(transactional_id: str) -> dict[str, Any]:
    return {
        "transactional_id": transactional_id,
        "producer_id": value_of(objects.producer_of(transactional_id)),
        "producer_epoch": 0,
    }


@valid(ApiKey.ADD_PARTITIONS_TO_TXN)
def add_partitions_to_txn(scene: Scene) -> dict[str, Any]:
    topics = [{"name": objects.topic_of_transactions(scene), "partitions": [0, 1]}]
    producer = _producer_of(objects.own_transaction(scene))
    old = {f"v3_and_below_{name}": value for name, value in producer.items()}
    return {
        "transactions": [{**producer, "verify_only": False, "topics": topics}],
        **old,
        "v3_and_below_topics": topics,
    }


@valid(ApiKey.ADD_PARTITIONS_TO_TXN)
def verify_partitions_of_txn(scene: Scene) -> dict[str, Any]:
    made = add_partitions_to_txn(scene)
    made["transactions"][0]["verify_only"] = True
    return made


@valid(ApiKey.ADD_OFFSETS_TO_TXN)
def add_offsets_to_txn(scene: Scene) -> dict[str, Any]:
    return {**_producer_of(objects.own_transaction(scene)), "group_id": scene.name("group")}


@valid(ApiKey.END_TXN)
def commit_txn(scene: Scene) -> dict[str, Any]:
    return {**_producer_of(objects.new_transaction(scene)), "committed": True}


@valid(ApiKey.END_TXN)
def abort_txn(scene: Scene) -> dict[str, Any]:
    return {**_producer_of(objects.new_transaction(scene)), "committed": False}


@valid(ApiKey.TXN_OFFSET_COMMIT)
def txn_offset_commit(scene: Scene) -> dict[str, Any]:
    name = objects.topic(scene)
    partition = {"partition_index": 0, "committed_offset": 7, "committed_metadata": "note"}
    partition["committed_leader_epoch"] = 0
    return {
        **_producer_of(objects.own_transaction(scene)),
        "group_id": objects.group_of_own_transaction(scene),
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "topics": [{"name": name, "topic_id": id_of(name), "partitions": [partition]}],
    }


@valid(ApiKey.WRITE_TXN_MARKERS)
def write_txn_markers(scene: Scene) -> dict[str, Any]:
    # Each request has a separate producer, so that no earlier marker makes a marker too old.
    number = int(scene.name("marker").rpartition("-")[2])
    marker = {
        "producer_id": 900_000_002 + number,
        "producer_epoch": 3,
        "transaction_result": True,
        "topics": [{"name": objects.own_topic(scene), "partition_indexes": [0]}],
        "coordinator_epoch": 5,
        "transaction_version": 0,
    }
    return {"markers": [marker]}


@valid(ApiKey.DESCRIBE_TRANSACTIONS)
def describe_transactions(scene: Scene) -> dict[str, Any]:
    return {"transactional_ids": [objects.own_transaction(scene)]}


@valid(ApiKey.LIST_TRANSACTIONS)
def list_transactions(scene: Scene) -> dict[str, Any]:
    transactional_id = objects.own_transaction(scene)
    return {
        "state_filters": ["Ongoing"],
        "producer_id_filters": [value_of(objects.producer_of(transactional_id))],
        "duration_filter": -1,
        "transactional_id_pattern": f"{transactional_id}.*",
    }


@valid(ApiKey.OFFSET_FOR_LEADER_EPOCH)
def offset_for_leader_epoch(scene: Scene) -> dict[str, Any]:
    partition = {"partition": 0, "current_leader_epoch": 0, "leader_epoch": 0}
    topics = [{"topic": objects.topic(scene), "partitions": [partition]}]
    return {"replica_id": -1, "topics": topics}


@valid(ApiKey.DESCRIBE_CONFIGS)
def describe_a_topics_configs(scene: Scene) -> dict[str, Any]:
    return _described(TOPIC, objects.topic(scene), "retention.ms")


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
    name = objects.own_topic(scene)
    return {**_altered(TOPIC, name, "retention.ms", RETENTION_MS), "validate_only": False}


@valid(ApiKey.ALTER_CONFIGS)
def alter_a_brokers_configs(scene: Scene) -> dict[str, Any]:
    return {**_altered(BROKER, "1", "message.max.bytes", "1048588"), "validate_only": True}


@valid(ApiKey.INCREMENTAL_ALTER_CONFIGS)
def change_a_topics_configs(scene: Scene) -> dict[str, Any]:
    name = objects.own_topic(scene)
    return {**_incremental(TOPIC, name, "retention.ms", RETENTION_MS), "validate_only": False}


@valid(ApiKey.INCREMENTAL_ALTER_CONFIGS)
def change_a_brokers_configs(scene: Scene) -> dict[str, Any]:
    return {**_incremental(BROKER, "1", "message.max.bytes", "1048588"), "validate_only": True}


@valid(ApiKey.CREATE_PARTITIONS)
def create_partitions(scene: Scene) -> dict[str, Any]:
    topic = {"name": objects.topic(scene), "count": 3, "assignments": None}
    return {"topics": [topic], "timeout_ms": 10_000, "validate_only": True}


@valid(ApiKey.CREATE_PARTITIONS)
def create_partitions_as_assigned(scene: Scene) -> dict[str, Any]:
    assigned = [{"broker_ids": [1]}]
    topic = {"name": objects.topic(scene), "count": 3, "assignments": assigned}
    return {"topics": [topic], "timeout_ms": 10_000, "validate_only": True}


@valid(ApiKey.DESCRIBE_CLIENT_QUOTAS)
def describe_client_quotas(scene: Scene) -> dict[str, Any]:
    component = {"entity_type": "client-id", "match_type": 0, "match": "no-such-client"}
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
    topics = [{"name": objects.topic(scene), "partitions": [0]}]
    return {"dirs": [{"path": "/no/such/directory", "topics": topics}]}


@valid(ApiKey.DESCRIBE_LOG_DIRS)
def describe_log_dirs(scene: Scene) -> dict[str, Any]:
    return {"topics": [{"topic": objects.topic(scene), "partitions": [0, 1]}]}


@valid(ApiKey.DESCRIBE_PRODUCERS)
def describe_producers(scene: Scene) -> dict[str, Any]:
    return {"topics": [{"name": objects.topic(scene), "partition_indexes": [0]}]}


@valid(ApiKey.ELECT_LEADERS)
def elect_leaders(scene: Scene) -> dict[str, Any]:
    partitions = [{"topic": objects.topic(scene), "partitions": [0]}]
    return {"election_type": 0, "topic_partitions": partitions, "timeout_ms": 5000}


@valid(ApiKey.ALTER_PARTITION_REASSIGNMENTS)
def alter_partition_reassignments(scene: Scene) -> dict[str, Any]:
    partitions = [{"partition_index": 0, "replicas": [1]}]
    topics = [{"name": objects.topic(scene), "partitions": partitions}]
    return {"timeout_ms": 5000, "allow_replication_factor_change": True, "topics": topics}


@valid(ApiKey.LIST_PARTITION_REASSIGNMENTS)
def list_partition_reassignments(scene: Scene) -> dict[str, Any]:
    topics = [{"name": objects.topic(scene), "partition_indexes": [0]}]
    return {"timeout_ms": 5000, "topics": topics}


@valid(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS)
def describe_user_scram_credentials(scene: Scene) -> dict[str, Any]:
    return {"users": [{"name": "no-such-user"}]}


@valid(ApiKey.DESCRIBE_ACLS)
def describe_acls(scene: Scene) -> dict[str, Any]:
    return _acl_filter("differential-none")


@valid(ApiKey.CREATE_ACLS)
def create_acls(scene: Scene) -> dict[str, Any]:
    entry = {
        "resource_type": TOPIC,
        "resource_name": scene.name(),
        "resource_pattern_type": 3,
        "principal": "User:mary",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    return {"creations": [entry]}


@valid(ApiKey.DELETE_ACLS)
def delete_acls(scene: Scene) -> dict[str, Any]:
    return {"filters": [_acl_filter(scene.name())]}


def _acl_filter(name: str) -> dict[str, Any]:
    return {
        "resource_type_filter": TOPIC,
        "resource_name_filter": name,
        "pattern_type_filter": 3,
        "principal_filter": "User:mary",
        "host_filter": "*",
        "operation": 3,
        "permission_type": 3,
    }


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
    return {"topics": [{"name": objects.topic(scene)}], "response_partition_limit": 2000}


@valid(ApiKey.DESCRIBE_TOPIC_PARTITIONS)
def describe_topic_partitions_from_a_cursor(scene: Scene) -> dict[str, Any]:
    cursor = {"topic_name": objects.topic(scene), "partition_index": 1}
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


@valid(ApiKey.SASL_HANDSHAKE)
def sasl_handshake(_scene: Scene) -> dict[str, Any]:
    return {"mechanism": "PLAIN"}


@valid(ApiKey.SASL_AUTHENTICATE)
def sasl_authenticate(_scene: Scene) -> dict[str, Any]:
    return {"auth_bytes": b"\0alice\0secret"}


@valid(ApiKey.ALTER_USER_SCRAM_CREDENTIALS)
def alter_user_scram_credentials(scene: Scene) -> dict[str, Any]:
    secret = {"salt": b"salt", "salted_password": bytes(32)}
    user = {"name": scene.name("user"), "mechanism": 1, "iterations": 4096, **secret}
    return {"deletions": [{"name": scene.name("user"), "mechanism": 2}], "upsertions": [user]}
