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


def _of_share_offsets(last_version: int, function: str) -> ServedApi:
    """Return the row of an API about the offsets of share groups."""
    return ServedApi(0, last_version, "groups.share_group_offsets", function)


def _of_share_state(last_version: int, function: str) -> ServedApi:
    """Return the row of an API that the share coordinator serves."""
    return ServedApi(0, last_version, "share_state.state_requests", function)


def _of_tokens(last_version: int, function: str) -> ServedApi:
    """Return the row of an API that changes delegation tokens."""
    return ServedApi(0, last_version, "tokens.token_changes", function, is_forwarded=True)


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
    ApiKey.SASL_HANDSHAKE: ServedApi(0, 1, "cluster.late_sasl", "handshake"),
    ApiKey.API_VERSIONS: ServedApi(0, 5, "cluster.api_versions"),
    ApiKey.CREATE_TOPICS: _forwarded(0, 7),
    ApiKey.DELETE_TOPICS: _forwarded(0, 6, "topics.delete_topics"),
    ApiKey.DELETE_RECORDS: ServedApi(0, 2, "records.delete_records"),
    ApiKey.INIT_PRODUCER_ID: ServedApi(0, 5, "records.init_producer_id"),
    ApiKey.ADD_PARTITIONS_TO_TXN: ServedApi(0, 5, "transactions.add_partitions_to_txn"),
    ApiKey.ADD_OFFSETS_TO_TXN: ServedApi(0, 4, "transactions.add_offsets_to_txn"),
    ApiKey.END_TXN: ServedApi(0, 5, "transactions.end_txn"),
    ApiKey.WRITE_TXN_MARKERS: ServedApi(1, 2, "transactions.write_txn_markers"),
    ApiKey.TXN_OFFSET_COMMIT: ServedApi(0, 6, "transactions.txn_offset_commit"),
    ApiKey.DESCRIBE_TRANSACTIONS: ServedApi(0, 0, "transactions.describe_transactions"),
    ApiKey.LIST_TRANSACTIONS: ServedApi(0, 2, "transactions.list_transactions"),
    ApiKey.DESCRIBE_ACLS: ServedApi(0, 3, "acls.describe_acls"),
    ApiKey.CREATE_ACLS: ServedApi(0, 3, "acls.alter_acls", "create", is_forwarded=True),
    ApiKey.DELETE_ACLS: ServedApi(0, 3, "acls.alter_acls", "delete", is_forwarded=True),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: ServedApi(0, 4, "records.offset_for_leader_epoch"),
    ApiKey.DESCRIBE_CONFIGS: ServedApi(0, 4, "configs.describe_configs"),
    ApiKey.ALTER_CONFIGS: _forwarded(0, 2, "configs.alter_configs"),
    ApiKey.SASL_AUTHENTICATE: ServedApi(0, 2, "cluster.late_sasl", "authenticate"),
    ApiKey.CREATE_PARTITIONS: _forwarded(0, 3),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _forwarded(0, 1, "configs.incremental_alter_configs"),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: ServedApi(0, 1, "configs.describe_client_quotas"),
    ApiKey.ALTER_CLIENT_QUOTAS: _forwarded(0, 1),
    ApiKey.DESCRIBE_QUORUM: _forwarded(0, 2),
    ApiKey.CREATE_DELEGATION_TOKEN: _of_tokens(3, "create"),
    ApiKey.RENEW_DELEGATION_TOKEN: _of_tokens(2, "renew"),
    ApiKey.EXPIRE_DELEGATION_TOKEN: _of_tokens(2, "expire"),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: ServedApi(0, 3, "tokens.describe_delegation_token"),
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
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _forwarded(0, 0),
    ApiKey.UPDATE_FEATURES: _forwarded(0, 2),
    ApiKey.UNREGISTER_BROKER: _forwarded(0, 0),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: ServedApi(0, 1, "groups.consumer_group_heartbeat"),
    ApiKey.CONSUMER_GROUP_DESCRIBE: ServedApi(0, 1, "groups.consumer_group_describe"),
    ApiKey.LIST_CONFIG_RESOURCES: ServedApi(0, 1, "configs.list_config_resources"),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: ServedApi(0, 0, "topics.describe_topic_partitions"),
    ApiKey.ADD_RAFT_VOTER: _forwarded(0, 1),
    ApiKey.REMOVE_RAFT_VOTER: _forwarded(0, 0),
    ApiKey.SHARE_GROUP_HEARTBEAT: ServedApi(1, 1, "groups.share_group_heartbeat"),
    ApiKey.SHARE_GROUP_DESCRIBE: ServedApi(1, 1, "groups.share_group_describe"),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: _of_share_offsets(1, "describe_share_group_offsets"),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: _of_share_offsets(0, "alter_share_group_offsets"),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: _of_share_offsets(0, "delete_share_group_offsets"),
    ApiKey.SHARE_FETCH: ServedApi(1, 2, "share.share_fetch"),
    ApiKey.SHARE_ACKNOWLEDGE: ServedApi(1, 2, "share.share_acknowledge"),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: _of_share_state(0, "initialize"),
    ApiKey.READ_SHARE_GROUP_STATE: _of_share_state(0, "read"),
    ApiKey.WRITE_SHARE_GROUP_STATE: _of_share_state(1, "write"),
    ApiKey.DELETE_SHARE_GROUP_STATE: _of_share_state(0, "delete"),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: _of_share_state(1, "read_summary"),
    ApiKey.STREAMS_GROUP_HEARTBEAT: ServedApi(0, 1, "groups.streams_group_heartbeat"),
    ApiKey.STREAMS_GROUP_DESCRIBE: ServedApi(0, 1, "groups.streams_group_describe"),
    ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE: ServedApi(
        0, 0, "groups.streams_group_topology_description_update"
    ),
    ApiKey.UNREGISTER_CONTROLLER: _forwarded(0, 0),
}

# Served only if a receiver of pushed metrics is configured, as in Kafka (KIP-714).
TELEMETRY_APIS: dict[int, ServedApi] = {
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: ServedApi(0, 0, "cluster.get_telemetry_subscriptions"),
    ApiKey.PUSH_TELEMETRY: ServedApi(0, 0, "cluster.push_telemetry"),
}

# Served with unstable.api.versions.enable=true: rows whose last version Kafka may still change.
UNSTABLE_APIS: dict[int, ServedApi] = {
    ApiKey.INIT_PRODUCER_ID: SERVED_APIS[ApiKey.INIT_PRODUCER_ID]._replace(last_version=6),
}


def served_apis(*, has_telemetry: bool, has_unstable: bool = False) -> dict[int, ServedApi]:
    """Return the APIs that a broker serves, by API key."""
    added = {
        **(TELEMETRY_APIS if has_telemetry else {}),
        **(UNSTABLE_APIS if has_unstable else {}),
    }
    return dict(sorted({**SERVED_APIS, **added}.items())) if added else SERVED_APIS
