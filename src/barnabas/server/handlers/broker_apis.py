"""APIs that a broker's listeners serve, with exactly the advertised versions.

A version is listed only if all of its behavior is implemented. The module of a handler is imported,
and its messages are compiled, at the first request for the API.
"""

from __future__ import annotations

from barnabas.protocol.api_table import ApiKey
from barnabas.server.dispatch.served_api import ServedApi

SERVED_APIS: dict[int, ServedApi] = {
    ApiKey.PRODUCE: ServedApi(0, 13, "records.produce"),
    ApiKey.FETCH: ServedApi(0, 18, "records.fetch"),
    ApiKey.LIST_OFFSETS: ServedApi(0, 11, "records.list_offsets"),
    ApiKey.METADATA: ServedApi(0, 13, "topics.metadata"),
    ApiKey.OFFSET_COMMIT: ServedApi(0, 10, "groups.offset_commit"),
    ApiKey.OFFSET_FETCH: ServedApi(0, 10, "groups.offset_fetch"),
    ApiKey.FIND_COORDINATOR: ServedApi(0, 6, "groups.find_coordinator"),
    ApiKey.JOIN_GROUP: ServedApi(0, 9, "groups.join_group"),
    ApiKey.HEARTBEAT: ServedApi(0, 4, "groups.heartbeat"),
    ApiKey.LEAVE_GROUP: ServedApi(0, 5, "groups.leave_group"),
    ApiKey.SYNC_GROUP: ServedApi(0, 5, "groups.sync_group"),
    ApiKey.DESCRIBE_GROUPS: ServedApi(0, 6, "groups.describe_groups"),
    ApiKey.LIST_GROUPS: ServedApi(0, 5, "groups.list_groups"),
    ApiKey.API_VERSIONS: ServedApi(0, 5, "cluster.api_versions"),
    ApiKey.CREATE_TOPICS: ServedApi(0, 7, "topics.create_topics"),
    ApiKey.DELETE_TOPICS: ServedApi(0, 6, "topics.delete_topics"),
    ApiKey.DELETE_RECORDS: ServedApi(0, 2, "records.delete_records"),
    ApiKey.INIT_PRODUCER_ID: ServedApi(0, 5, "records.init_producer_id"),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: ServedApi(0, 4, "records.offset_for_leader_epoch"),
    ApiKey.DESCRIBE_CONFIGS: ServedApi(0, 4, "configs.describe_configs"),
    ApiKey.ALTER_CONFIGS: ServedApi(0, 2, "configs.alter_configs"),
    ApiKey.CREATE_PARTITIONS: ServedApi(0, 3, "topics.create_partitions"),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: ServedApi(0, 1, "configs.incremental_alter_configs"),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: ServedApi(0, 1, "configs.describe_client_quotas"),
    ApiKey.ALTER_CLIENT_QUOTAS: ServedApi(0, 1, "configs.alter_client_quotas"),
    ApiKey.DESCRIBE_QUORUM: ServedApi(0, 2, "cluster.describe_quorum"),
    ApiKey.DELETE_GROUPS: ServedApi(0, 3, "groups.delete_groups"),
    ApiKey.OFFSET_DELETE: ServedApi(0, 0, "groups.offset_delete"),
    ApiKey.DESCRIBE_CLUSTER: ServedApi(0, 2, "cluster.describe_cluster"),
    ApiKey.ALTER_REPLICA_LOG_DIRS: ServedApi(0, 2, "log_dirs.alter_replica_log_dirs"),
    ApiKey.DESCRIBE_LOG_DIRS: ServedApi(0, 5, "log_dirs.describe_log_dirs"),
    ApiKey.DESCRIBE_PRODUCERS: ServedApi(0, 0, "records.describe_producers"),
    ApiKey.ELECT_LEADERS: ServedApi(0, 2, "topics.elect_leaders"),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: ServedApi(0, 1, "topics.alter_partition_reassignments"),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: ServedApi(0, 0, "topics.list_partition_reassignments"),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: ServedApi(
        0, 0, "configs.describe_user_scram_credentials"
    ),
    ApiKey.UPDATE_FEATURES: ServedApi(0, 2, "cluster.update_features"),
    ApiKey.UNREGISTER_BROKER: ServedApi(0, 0, "cluster.unregister_broker"),
    ApiKey.LIST_CONFIG_RESOURCES: ServedApi(0, 1, "configs.list_config_resources"),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: ServedApi(0, 0, "topics.describe_topic_partitions"),
    ApiKey.ADD_RAFT_VOTER: ServedApi(0, 1, "cluster.quorum_admin"),
    ApiKey.REMOVE_RAFT_VOTER: ServedApi(0, 0, "cluster.quorum_admin"),
    ApiKey.UNREGISTER_CONTROLLER: ServedApi(0, 0, "cluster.unregister_controller"),
}

# Served only if a receiver of pushed metrics is configured, as in Kafka (KIP-714).
TELEMETRY_APIS: dict[int, ServedApi] = {
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: ServedApi(0, 0, "cluster.get_telemetry_subscriptions"),
    ApiKey.PUSH_TELEMETRY: ServedApi(0, 0, "cluster.push_telemetry"),
}


def served_apis(*, has_telemetry: bool) -> dict[int, ServedApi]:
    """Return the APIs that a broker serves, by API key."""
    if not has_telemetry:
        return SERVED_APIS
    return dict(sorted({**SERVED_APIS, **TELEMETRY_APIS}.items()))
