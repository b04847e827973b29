"""The tests of each API apart from the comparison, for docs/compatibility.md."""

from __future__ import annotations

from barnabas.protocol.api_table import ApiKey

_GROUPS = "`test_groups_protocol.py`, `test_groups.py`, `tests/unit/coordinator`"
_SHARE_GROUPS = (
    "`tests/differential/test_share_group_records.py`, `test_java_tools_share_groups.py`, "
    "`tests/unit/coordinator/group/share`"
)
_CONSUMER_GROUPS = (
    "`test_consumer_protocol.py`, `tests/differential/test_consumer_group_records.py`, "
    "`tests/unit/coordinator/group/consumer`"
)
_STREAMS_GROUPS = (
    "`tests/jvm/test_streams_protocol.py`, `tests/differential/test_streams_group_records.py`, "
    "`test_java_tools_streams_groups.py`"
)
_SHARE_PARTITIONS = (
    "`tests/differential/test_share_partitions.py`, `tests/unit/server/share`, "
    "`tests/property/test_share_records.py`"
)
_OFFSETS = (
    "`test_old_protocol.py` (0-1), `test_produce_consume.py`, `test_process.py` (after kill -9)"
)
_ADMIN = "`test_admin_requests.py`, `tests/unit/controller`"
_TOPICS = "`test_old_protocol.py` (0-1), `test_admin.py`, `tests/unit/controller`"
_CONFIGS = "`test_configs.py`"
_VOTERS = "`tests/simulation/test_dynamic_quorum.py`, `tests/jvm/test_joint_quorum.py`"
_DIRECTORIES = "`test_log_dirs.py`, `tests/unit/server/startup/test_log_directories.py`"
_QUOTAS = "`test_quotas.py`, `tests/unit/controller/test_client_quotas.py`"
_TOKENS = "`test_delegation_tokens.py`, `tests/unit/controller/test_tokens.py`"
_SHARE_STATE = (
    "`tests/differential/test_share_state_records.py`, "
    "`tests/jvm/test_share_state_directories.py`, `tests/unit/coordinator/share`"
)
_TRANSACTIONS = "`test_client_transactions.py`, `test_librdkafka.py`, `test_java.py`"

SHOWN_BY: dict[ApiKey, str] = {
    ApiKey.PRODUCE: "`test_protocol.py`, `test_old_protocol.py` (0-2: magic 0, 1), `test_kcat.py`",
    ApiKey.FETCH: "`test_protocol.py`, `test_old_protocol.py` (0-3, zstd below 10)",
    ApiKey.LIST_OFFSETS: "`test_protocol.py`, `test_old_protocol.py` (0)",
    ApiKey.METADATA: "`test_protocol.py`, `test_admin.py`",
    ApiKey.OFFSET_COMMIT: _OFFSETS,
    ApiKey.OFFSET_FETCH: _OFFSETS,
    ApiKey.FIND_COORDINATOR: "`test_client_blocking.py`, `test_client_transactions.py`",
    ApiKey.JOIN_GROUP: _GROUPS,
    ApiKey.HEARTBEAT: _GROUPS,
    ApiKey.LEAVE_GROUP: _GROUPS,
    ApiKey.SYNC_GROUP: _GROUPS,
    ApiKey.DESCRIBE_GROUPS: _GROUPS,
    ApiKey.LIST_GROUPS: _GROUPS,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _CONSUMER_GROUPS,
    ApiKey.CONSUMER_GROUP_DESCRIBE: _CONSUMER_GROUPS,
    ApiKey.SHARE_GROUP_HEARTBEAT: _SHARE_GROUPS,
    ApiKey.SHARE_GROUP_DESCRIBE: _SHARE_GROUPS,
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: _SHARE_GROUPS,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: _SHARE_GROUPS,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: _SHARE_GROUPS,
    ApiKey.STREAMS_GROUP_HEARTBEAT: _STREAMS_GROUPS,
    ApiKey.STREAMS_GROUP_DESCRIBE: _STREAMS_GROUPS,
    ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE: _STREAMS_GROUPS,
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: _SHARE_STATE,
    ApiKey.READ_SHARE_GROUP_STATE: _SHARE_STATE,
    ApiKey.WRITE_SHARE_GROUP_STATE: _SHARE_STATE,
    ApiKey.DELETE_SHARE_GROUP_STATE: _SHARE_STATE,
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: _SHARE_STATE,
    ApiKey.SHARE_FETCH: _SHARE_PARTITIONS,
    ApiKey.SHARE_ACKNOWLEDGE: _SHARE_PARTITIONS,
    ApiKey.API_VERSIONS: "`test_protocol.py` (and a version from the future)",
    ApiKey.CREATE_TOPICS: _TOPICS,
    ApiKey.DELETE_TOPICS: _TOPICS,
    ApiKey.DELETE_RECORDS: "`test_delete_records.py`",
    ApiKey.INIT_PRODUCER_ID: f"`test_protocol.py`, {_TRANSACTIONS}",
    ApiKey.ADD_PARTITIONS_TO_TXN: _TRANSACTIONS,
    ApiKey.ADD_OFFSETS_TO_TXN: _TRANSACTIONS,
    ApiKey.END_TXN: _TRANSACTIONS,
    ApiKey.WRITE_TXN_MARKERS: "`test_java_transactions.py`, `test_cli_transactions.py`",
    ApiKey.TXN_OFFSET_COMMIT: _TRANSACTIONS,
    ApiKey.DESCRIBE_TRANSACTIONS: "`test_cli_transactions.py`, `test_java_transactions.py`",
    ApiKey.LIST_TRANSACTIONS: "`test_cli_transactions.py`, `test_java_transactions.py`",
    ApiKey.OFFSET_FOR_LEADER_EPOCH: "`test_old_protocol.py` (0-1), `tests/unit/replication`",
    ApiKey.DESCRIBE_CONFIGS: "`test_old_protocol.py` (0), `test_configs.py`",
    ApiKey.ALTER_CONFIGS: _CONFIGS,
    ApiKey.CREATE_PARTITIONS: "`test_admin.py`, `tests/unit/controller`",
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _CONFIGS,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _QUOTAS,
    ApiKey.ALTER_CLIENT_QUOTAS: _QUOTAS,
    ApiKey.DESCRIBE_QUORUM: "`test_admin.py`, `tests/unit/server`",
    ApiKey.CREATE_DELEGATION_TOKEN: _TOKENS,
    ApiKey.RENEW_DELEGATION_TOKEN: _TOKENS,
    ApiKey.EXPIRE_DELEGATION_TOKEN: _TOKENS,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: _TOKENS,
    ApiKey.DELETE_GROUPS: _GROUPS,
    ApiKey.OFFSET_DELETE: _GROUPS,
    ApiKey.DESCRIBE_CLUSTER: "`test_admin.py`, `tests/unit/server`",
    ApiKey.ALTER_REPLICA_LOG_DIRS: _DIRECTORIES,
    ApiKey.DESCRIBE_LOG_DIRS: _DIRECTORIES,
    ApiKey.DESCRIBE_PRODUCERS: "`test_delete_records.py`",
    ApiKey.ELECT_LEADERS: _ADMIN,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _ADMIN,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _ADMIN,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: "`test_admin_requests.py`",
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: "`test_client_admin_scram.py`, `test_cli_users.py`",
    ApiKey.SASL_HANDSHAKE: "`test_sasl_frames.py`, `test_sasl_clients.py`",
    ApiKey.SASL_AUTHENTICATE: "`test_sasl_frames.py`, `test_sasl_clients.py`",
    ApiKey.DESCRIBE_ACLS: "`test_acls.py`",
    ApiKey.CREATE_ACLS: "`test_acls.py`",
    ApiKey.DELETE_ACLS: "`test_acls.py`",
    ApiKey.UPDATE_FEATURES: _ADMIN,
    ApiKey.UNREGISTER_BROKER: "`test_admin_requests.py`, `tests/unit/server`",
    ApiKey.LIST_CONFIG_RESOURCES: _CONFIGS,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: "`test_admin.py`, `tests/unit/server`",
    ApiKey.ADD_RAFT_VOTER: _VOTERS,
    ApiKey.REMOVE_RAFT_VOTER: _VOTERS,
    ApiKey.UNREGISTER_CONTROLLER: "`tests/unit/server/process/test_cluster.py`",
}
