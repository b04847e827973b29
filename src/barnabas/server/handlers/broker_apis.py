"""APIs that a broker's listeners serve, with exactly the advertised versions.

A version is listed only if all of its behavior is implemented. The module of a handler is imported,
and its messages are compiled, at the first request for the API. An API without code of its own here
is a `_forwarded` row, and a row of `controller/apis.py`.
"""

from __future__ import annotations

from barnabas.protocol.api_table import ApiKey
from barnabas.server.dispatch.served_api import ServedApi


def _forwarded(first_version: int, last_version: int, module: str = "forwarded") -> ServedApi:
    """Return the row of an API that the active controller serves for the brokers.

    Args:
        first_version: first version that is served.
        last_version: last version that is served.
        module: handler that does part of the work here and forwards the rest.
    """
    return ServedApi(first_version, last_version, module, is_forwarded=True)


def _of_groups(first_version: int, last_version: int, function: str) -> ServedApi:
    """Return the row of an API that the group coordinator serves."""
    return ServedApi(first_version, last_version, "groups.group_requests", function)


SERVED_APIS: dict[int, ServedApi] = {
    ApiKey.PRODUCE: ServedApi(0, 13, "records.produce"),
    ApiKey.FETCH: ServedApi(0, 18, "records.fetch"),
    ApiKey.LIST_OFFSETS: ServedApi(0, 11, "records.list_offsets"),
    ApiKey.METADATA: ServedApi(0, 13, "topics.metadata"),
    ApiKey.OFFSET_COMMIT: ServedApi(0, 10, "groups.offset_commit"),
    ApiKey.OFFSET_FETCH: ServedApi(0, 10, "groups.offset_fetch"),
    ApiKey.FIND_COORDINATOR: ServedApi(0, 6, "groups.find_coordinator"),
    ApiKey.JOIN_GROUP: _of_groups(0, 9, "join_group"),
    ApiKey.HEARTBEAT: _of_groups(0, 4, "heartbeat"),
    ApiKey.LEAVE_GROUP: ServedApi(0, 5, "groups.leave_group"),
    ApiKey.SYNC_GROUP: _of_groups(0, 5, "sync_group"),
    ApiKey.DESCRIBE_GROUPS: ServedApi(0, 6, "groups.describe_groups"),
    ApiKey.LIST_GROUPS: _of_groups(0, 5, "list_groups"),
    ApiKey.API_VERSIONS: ServedApi(0, 5, "cluster.api_versions"),
    ApiKey.CREATE_TOPICS: _forwarded(0, 7),
    ApiKey.DELETE_TOPICS: _forwarded(0, 6, "topics.delete_topics"),
    ApiKey.DELETE_RECORDS: ServedApi(0, 2, "records.delete_records"),
    ApiKey.INIT_PRODUCER_ID: ServedApi(0, 5, "records.init_producer_id"),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: ServedApi(0, 4, "records.offset_for_leader_epoch"),
    ApiKey.DESCRIBE_CONFIGS: ServedApi(0, 4, "configs.describe_configs"),
    ApiKey.ALTER_CONFIGS: _forwarded(0, 2, "configs.alter_configs"),
    ApiKey.CREATE_PARTITIONS: _forwarded(0, 3),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _forwarded(0, 1, "configs.incremental_alter_configs"),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: ServedApi(0, 1, "configs.describe_client_quotas"),
    ApiKey.ALTER_CLIENT_QUOTAS: _forwarded(0, 1),
    ApiKey.DESCRIBE_QUORUM: _forwarded(0, 2),
    ApiKey.DELETE_GROUPS: _of_groups(0, 3, "delete_groups"),
    ApiKey.OFFSET_DELETE: ServedApi(0, 0, "groups.offset_delete"),
    ApiKey.DESCRIBE_CLUSTER: ServedApi(0, 2, "cluster.describe_cluster"),
    ApiKey.ALTER_REPLICA_LOG_DIRS: ServedApi(0, 2, "log_dirs.alter_replica_log_dirs"),
    ApiKey.DESCRIBE_LOG_DIRS: ServedApi(0, 5, "log_dirs.describe_log_dirs"),
    ApiKey.DESCRIBE_PRODUCERS: ServedApi(0, 0, "records.describe_producers"),
    ApiKey.ELECT_LEADERS: _forwarded(0, 2, "topics.elect_leaders"),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _forwarded(0, 1),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _forwarded(0, 0),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: ServedApi(
        0, 0, "configs.describe_user_scram_credentials"
    ),
    ApiKey.UPDATE_FEATURES: _forwarded(0, 2),
    ApiKey.UNREGISTER_BROKER: _forwarded(0, 0),
    ApiKey.LIST_CONFIG_RESOURCES: ServedApi(0, 1, "configs.list_config_resources"),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: ServedApi(0, 0, "topics.describe_topic_partitions"),
    ApiKey.ADD_RAFT_VOTER: _forwarded(0, 1),
    ApiKey.REMOVE_RAFT_VOTER: _forwarded(0, 0),
    ApiKey.UNREGISTER_CONTROLLER: _forwarded(0, 0),
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
