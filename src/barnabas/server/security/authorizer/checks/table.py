"""Table of the rights that each API of brokers and controllers needs.

The checks are in Kafka's order, so that a client learns no more than from Kafka: a refused name
gets the same error whether it exists or not.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

import msgspec

from barnabas.protocol.api_table import ApiKey
from barnabas.protocol.resources import AclOperation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.server.security.authorizer.checks.check import Check


class Row(msgspec.Struct, frozen=True):
    """Check of one API: an operation on the cluster, a function, or a check in its handler."""

    # Description of the rights, for documents.
    rights: str
    # Operation on the cluster that the whole request needs.
    operation: AclOperation | None = None
    # MODULE.FUNCTION of a check in this package, which is imported at the first request.
    function: str = ""

    def load(self) -> Check:
        """Return the check function."""
        module, _, name = self.function.partition(".")
        found: Check = getattr(importlib.import_module(f"{__package__}.{module}"), name)
        return found


def _cluster(operation: AclOperation) -> Row:
    """Return the row of an API that needs one operation on the cluster."""
    return Row(f"{operation.name} on the cluster", operation)


def _by(function: str, rights: str) -> Row:
    """Return the row of an API with a check function."""
    return Row(rights, function=function)


def _in_handler(rights: str) -> Row:
    """Return the row of an API whose handler checks the rights itself."""
    return Row(rights)


_NONE = Row("none")
_ALTER, _ALTER_CONFIGS = AclOperation.ALTER, AclOperation.ALTER_CONFIGS
_DESCRIBE, _DESCRIBE_CONFIGS = AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS
_CLUSTER_ACTION = AclOperation.CLUSTER_ACTION
_READ_GROUP = "READ on the group"
_CREATE_TOKENS = "none for an own token; CREATE_TOKENS on the user for another owner"
_DESCRIBE_TOKENS = (
    "none for own tokens; DESCRIBE on the token or DESCRIBE_TOKENS on the user for others"
)
_BROKERS_ONLY = "CLUSTER_ACTION on the cluster"
_ALTER_RESOURCE = (
    "ALTER_CONFIGS on the topic or group; on the cluster for brokers and client metrics"
)

# Requests on a broker's listeners. APIs of `CONTROLLER_CHECKS` are checked by the controller.
BROKER_CHECKS: Mapping[int, Row] = {
    ApiKey.PRODUCE: _in_handler("WRITE on the topic; WRITE on the transactional id"),
    ApiKey.FETCH: _in_handler("READ on the topic; CLUSTER_ACTION on the cluster for followers"),
    ApiKey.LIST_OFFSETS: _by("records.check_list_offsets", "DESCRIBE on the topic"),
    ApiKey.METADATA: _by(
        "metadata.check_metadata",
        "DESCRIBE on the topic; CREATE on the topic or the cluster if it is created",
    ),
    ApiKey.OFFSET_COMMIT: _by("offsets.check_offset_commit", f"{_READ_GROUP}; READ on the topic"),
    ApiKey.OFFSET_FETCH: _by(
        "offset_fetch.check_offset_fetch", "DESCRIBE on the group; DESCRIBE on the topic"
    ),
    ApiKey.FIND_COORDINATOR: _by(
        "groups.check_find_coordinator", "DESCRIBE on the group or the transactional id"
    ),
    ApiKey.JOIN_GROUP: _by("groups.check_join_group", _READ_GROUP),
    ApiKey.HEARTBEAT: _by("groups.check_heartbeat", _READ_GROUP),
    ApiKey.LEAVE_GROUP: _by("groups.check_leave_group", _READ_GROUP),
    ApiKey.SYNC_GROUP: _by("groups.check_sync_group", _READ_GROUP),
    ApiKey.DESCRIBE_GROUPS: _by("groups.check_describe_groups", "DESCRIBE on the group"),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _by(
        "groups.check_consumer_group_heartbeat",
        f"{_READ_GROUP}; DESCRIBE on the topics that it names",
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: _by(
        "groups.check_consumer_group_describe",
        "DESCRIBE on the group; DESCRIBE on each assigned topic",
    ),
    ApiKey.LIST_GROUPS: _by(
        "groups.check_list_groups", "DESCRIBE on the cluster; or DESCRIBE on each listed group"
    ),
    ApiKey.SASL_HANDSHAKE: _NONE,
    ApiKey.API_VERSIONS: _NONE,
    ApiKey.SASL_AUTHENTICATE: _NONE,
    ApiKey.DELETE_RECORDS: _by("records.check_delete_records", "DELETE on the topic"),
    ApiKey.INIT_PRODUCER_ID: _by(
        "records.check_init_producer_id",
        "WRITE on the transactional id (with two-phase commit also TWO_PHASE_COMMIT); without an"
        " id, IDEMPOTENT_WRITE on the cluster or WRITE on any topic",
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: _by(
        "transactions.check_add_partitions_to_txn",
        "WRITE on the transactional id; WRITE on the topic; CLUSTER_ACTION on the cluster for"
        " brokers",
    ),
    ApiKey.ADD_OFFSETS_TO_TXN: _by(
        "transactions.check_add_offsets_to_txn", f"WRITE on the transactional id; {_READ_GROUP}"
    ),
    ApiKey.END_TXN: _by("transactions.check_end_txn", "WRITE on the transactional id"),
    ApiKey.WRITE_TXN_MARKERS: _by(
        "transactions.check_write_txn_markers", "ALTER or CLUSTER_ACTION on the cluster"
    ),
    ApiKey.TXN_OFFSET_COMMIT: _by(
        "offsets.check_txn_offset_commit",
        f"WRITE on the transactional id; {_READ_GROUP}; READ on the topic",
    ),
    ApiKey.SHARE_GROUP_HEARTBEAT: _by(
        "share_groups.check_share_group_heartbeat",
        f"{_READ_GROUP}; DESCRIBE on the topics that it names",
    ),
    ApiKey.SHARE_GROUP_DESCRIBE: _by(
        "share_groups.check_share_group_describe",
        "DESCRIBE on the group; DESCRIBE on each assigned topic",
    ),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: _by(
        "share_groups.check_describe_share_group_offsets",
        "DESCRIBE on the group; DESCRIBE on the topic",
    ),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: _by(
        "share_groups.check_alter_share_group_offsets", f"{_READ_GROUP}; READ on the topic"
    ),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: _by(
        "share_groups.check_delete_share_group_offsets",
        "DELETE on the group; READ on the topic",
    ),
    ApiKey.STREAMS_GROUP_HEARTBEAT: _by(
        "streams_groups.check_streams_group_heartbeat",
        f"{_READ_GROUP}; DESCRIBE on the topics of the topology; CREATE on the cluster or on"
        " missing internal topics",
    ),
    ApiKey.STREAMS_GROUP_DESCRIBE: _by(
        "streams_groups.check_streams_group_describe",
        "DESCRIBE on the group; DESCRIBE on each topic of the topology",
    ),
    ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE: _by(
        "streams_groups.check_topology_description_update", _READ_GROUP
    ),
    ApiKey.SHARE_FETCH: _in_handler(f"{_READ_GROUP}; READ on the topic"),
    ApiKey.SHARE_ACKNOWLEDGE: _in_handler(f"{_READ_GROUP}; READ on the topic"),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: _by("share_state.check_initialize", _BROKERS_ONLY),
    ApiKey.READ_SHARE_GROUP_STATE: _by("share_state.check_read", _BROKERS_ONLY),
    ApiKey.WRITE_SHARE_GROUP_STATE: _by("share_state.check_write", _BROKERS_ONLY),
    ApiKey.DELETE_SHARE_GROUP_STATE: _by("share_state.check_delete", _BROKERS_ONLY),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: _by("share_state.check_read_summary", _BROKERS_ONLY),
    ApiKey.DESCRIBE_ACLS: _cluster(_DESCRIBE),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _by(
        "records.check_offset_for_leader_epoch",
        "DESCRIBE on the topic; or CLUSTER_ACTION on the cluster",
    ),
    ApiKey.DESCRIBE_CONFIGS: _by(
        "configs.check_describe_configs",
        "DESCRIBE_CONFIGS on the topic or group; on the cluster for brokers and client metrics",
    ),
    ApiKey.ALTER_CONFIGS: _by("configs.check_own_alter_configs", _ALTER_RESOURCE),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _by(
        "configs.check_own_incremental_alter_configs", _ALTER_RESOURCE
    ),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _cluster(_DESCRIBE_CONFIGS),
    ApiKey.DELETE_GROUPS: _by("groups.check_delete_groups", "DELETE on the group"),
    ApiKey.OFFSET_DELETE: _by(
        "offsets.check_offset_delete", "DELETE on the group; READ on the topic"
    ),
    ApiKey.DESCRIBE_CLUSTER: _in_handler("none; DESCRIBE on the cluster to list operations"),
    ApiKey.ALTER_REPLICA_LOG_DIRS: _cluster(_ALTER),
    ApiKey.DESCRIBE_LOG_DIRS: _cluster(_DESCRIBE),
    ApiKey.DESCRIBE_PRODUCERS: _by("records.check_describe_producers", "READ on the topic"),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _cluster(_DESCRIBE),
    ApiKey.DESCRIBE_TRANSACTIONS: _by(
        "transactions.check_describe_transactions",
        "DESCRIBE on the transactional id; DESCRIBE on each listed topic",
    ),
    ApiKey.LIST_TRANSACTIONS: _by(
        "transactions.check_list_transactions", "DESCRIBE on each listed transactional id"
    ),
    ApiKey.LIST_CONFIG_RESOURCES: _cluster(_DESCRIBE_CONFIGS),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: _in_handler("DESCRIBE on the topic"),
    ApiKey.CREATE_DELEGATION_TOKEN: _in_handler(_CREATE_TOKENS),
    ApiKey.RENEW_DELEGATION_TOKEN: _NONE,
    ApiKey.EXPIRE_DELEGATION_TOKEN: _NONE,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: _in_handler(_DESCRIBE_TOKENS),
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: _NONE,
    ApiKey.PUSH_TELEMETRY: _NONE,
}

# Requests to the active controller, from clients of its listeners and from clients of brokers.
CONTROLLER_CHECKS: Mapping[int, Row] = {
    ApiKey.CREATE_TOPICS: _by(
        "topics.check_create_topics",
        "CREATE on the cluster or the topic; DESCRIBE_CONFIGS on the topic to see its"
        " configuration",
    ),
    ApiKey.DELETE_TOPICS: _by(
        "topics.check_delete_topics", "DELETE on the topic, or on the cluster"
    ),
    ApiKey.CREATE_ACLS: _cluster(_ALTER),
    ApiKey.DELETE_ACLS: _cluster(_ALTER),
    ApiKey.ALTER_CONFIGS: _by("configs.check_alter_configs", _ALTER_RESOURCE),
    ApiKey.CREATE_PARTITIONS: _by("topics.check_create_partitions", "ALTER on the topic"),
    ApiKey.ELECT_LEADERS: _cluster(_ALTER),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _by(
        "configs.check_incremental_alter_configs", _ALTER_RESOURCE
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _cluster(_ALTER),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _cluster(_DESCRIBE),
    ApiKey.ALTER_CLIENT_QUOTAS: _cluster(_ALTER_CONFIGS),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _cluster(_ALTER),
    ApiKey.CREATE_DELEGATION_TOKEN: _in_handler(_CREATE_TOKENS),
    ApiKey.RENEW_DELEGATION_TOKEN: _NONE,
    ApiKey.EXPIRE_DELEGATION_TOKEN: _NONE,
    ApiKey.DESCRIBE_QUORUM: _cluster(_DESCRIBE),
    ApiKey.ALTER_PARTITION: _cluster(_CLUSTER_ACTION),
    ApiKey.UPDATE_FEATURES: _cluster(_ALTER),
    ApiKey.BROKER_REGISTRATION: _cluster(_CLUSTER_ACTION),
    ApiKey.BROKER_HEARTBEAT: _cluster(_CLUSTER_ACTION),
    ApiKey.UNREGISTER_BROKER: _cluster(_ALTER),
    ApiKey.ALLOCATE_PRODUCER_IDS: _cluster(_CLUSTER_ACTION),
    ApiKey.CONTROLLER_REGISTRATION: _cluster(_CLUSTER_ACTION),
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: _cluster(_CLUSTER_ACTION),
    ApiKey.UNREGISTER_CONTROLLER: _cluster(_ALTER),
    ApiKey.ADD_RAFT_VOTER: _cluster(_ALTER),
    ApiKey.REMOVE_RAFT_VOTER: _cluster(_ALTER),
}

# Requests on a controller's listeners that the controller of the process does not serve.
CONTROLLER_LISTENER_CHECKS: Mapping[int, Row] = {
    ApiKey.FETCH: _cluster(_CLUSTER_ACTION),
    ApiKey.SASL_HANDSHAKE: _NONE,
    ApiKey.API_VERSIONS: _NONE,
    ApiKey.SASL_AUTHENTICATE: _NONE,
    ApiKey.DESCRIBE_ACLS: _cluster(_DESCRIBE),
    ApiKey.DESCRIBE_CONFIGS: BROKER_CHECKS[ApiKey.DESCRIBE_CONFIGS],
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _by(
        "configs.check_loggers", "CLUSTER_ACTION on the cluster for loggers"
    ),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _cluster(_DESCRIBE),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: _in_handler(_DESCRIBE_TOKENS),
    ApiKey.VOTE: _cluster(_CLUSTER_ACTION),
    ApiKey.BEGIN_QUORUM_EPOCH: _cluster(_CLUSTER_ACTION),
    ApiKey.END_QUORUM_EPOCH: _cluster(_CLUSTER_ACTION),
    ApiKey.ENVELOPE: _cluster(_CLUSTER_ACTION),
    ApiKey.FETCH_SNAPSHOT: _cluster(_CLUSTER_ACTION),
    ApiKey.DESCRIBE_CLUSTER: _cluster(_ALTER),
    # The handler records the connection of a broker before it calls the controller.
    ApiKey.BROKER_REGISTRATION: _cluster(_CLUSTER_ACTION),
    ApiKey.BROKER_HEARTBEAT: _cluster(_CLUSTER_ACTION),
    ApiKey.ADD_RAFT_VOTER: _cluster(_ALTER),
    ApiKey.REMOVE_RAFT_VOTER: _cluster(_ALTER),
    ApiKey.UPDATE_RAFT_VOTER: _cluster(_CLUSTER_ACTION),
}


def check_modules() -> list[str]:
    """Return the names of the modules with check functions, in this package."""
    tables = (BROKER_CHECKS, CONTROLLER_CHECKS, CONTROLLER_LISTENER_CHECKS)
    functions = [row.function for rows in tables for row in rows.values() if row.function]
    return sorted({function.partition(".")[0] for function in functions})
