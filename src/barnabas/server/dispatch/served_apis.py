"""The APIs of a node: one row each, with all that differs between them.

A row has the versions, the handler, the right that a request needs, the responses to a request
without the right or above a size, and whether the mutation quota limits the API. An API that only
the active controller serves is a `_forwarded` row here, and a row of `controller/apis.py` with the
function that turns its request into records.

A version is listed only if all of its behavior is implemented. The module of a handler is imported,
and its messages are compiled, at the first request for the API.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas.protocol.api_table import ApiKey
from barnabas.protocol.resources import AclOperation


class Right(NamedTuple):
    """The right that a request needs: an operation on the cluster, a check, or another place.

    The checks are in Kafka's order, so that a client learns no more than from Kafka: a refused name
    gets the same error whether it exists or not.
    """

    # Description for readers of the table.
    text: str
    # Operation on the cluster that the whole request needs.
    operation: AclOperation | None = None
    # Module in `security/authorizer/checks` with a check, which is imported at the first request.
    module: str = ""
    # The check in `module`. Empty: the name of the API, for example `check_join_group`.
    function: str = ""
    # Function of `security/authorizer/checks/refusals` that makes the response to a request without
    # `operation`. Empty: the row of `controller/apis.py`, or else a top-level error.
    refusal: str = ""


class ServedApi(NamedTuple):
    """An API of one kind of listener."""

    # Both inclusive.
    first_version: int
    last_version: int
    # Module in `handlers`.
    module: str
    # Right that is checked before the handler. `_BY_CONTROLLER`: the controller checks it.
    right: Right
    # Right that the active controller checks; None for APIs that it does not serve.
    controller_right: Right | None = None
    # First version whose clients know THROTTLING_QUOTA_EXCEEDED (KIP-599). Requests of older
    # versions are served, and their clients are throttled afterwards. None: the partition mutation
    # quota does not limit the API.
    strict_since: int | None = None
    # Function of `module` that creates the handler. Empty: the name of the API, for example
    # `join_group`, or the class of the API, for example `ProduceHandler`.
    function: str = ""
    # Function of `module` that makes the response to a request that is too large. Empty: the size
    # is not limited.
    size_refusal: str = ""

    @property
    def is_forwarded(self) -> bool:
        """Whether brokers forward requests for the API to the active controller."""
        return self.controller_right is not None


def _on_cluster(operation: AclOperation, refusal: str = "") -> Right:
    """Return the right of an API that needs one operation on the cluster."""
    return Right(f"{operation.name} on the cluster", operation, refusal=refusal)


def _by(module: str, text: str, function: str = "") -> Right:
    """Return the right of an API with a check function."""
    return Right(text, module=module, function=function)


def _in_handler(text: str) -> Right:
    """Return the right of an API whose handler checks the rights itself."""
    return Right(text)


_NONE = Right("none")
_BY_CONTROLLER = Right("The controller checks the right.")
_ALTER, _ALTER_CONFIGS = AclOperation.ALTER, AclOperation.ALTER_CONFIGS
_DESCRIBE, _DESCRIBE_CONFIGS = AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS
_NODES_ONLY = _on_cluster(AclOperation.CLUSTER_ACTION)
_BROKERS_ONLY = "CLUSTER_ACTION on the cluster"
_READ_GROUP = "READ on the group"
_READ_GROUP_AND_TOPIC = "READ on the group; READ on the topic"
_DESCRIBE_TOPIC = "DESCRIBE on the topic"
_READ_GROUP_AND_NAMED = "READ on the group; DESCRIBE on the topics that it names"
_DESCRIBE_GROUP_AND_ASSIGNED = "DESCRIBE on the group; DESCRIBE on each assigned topic"
_CREATE_TOKENS = "none for an own token; CREATE_TOKENS on the user for another owner"
_DESCRIBE_TOKENS = (
    "none for own tokens; DESCRIBE on the token or DESCRIBE_TOKENS on the user for others"
)
_ALTER_RESOURCE = (
    "ALTER_CONFIGS on the topic or group; on the cluster for brokers and client metrics"
)
_DESCRIBE_RESOURCE = (
    "DESCRIBE_CONFIGS on the topic or group; on the cluster for brokers and client metrics"
)


def _forwarded(
    first_version: int,
    last_version: int,
    controller_right: Right,
    *,
    module: str = "",
    right: Right = _BY_CONTROLLER,
    strict_since: int | None = None,
) -> ServedApi:
    """Return the row of an API that the active controller serves for the brokers.

    Args:
        first_version: first version that is served.
        last_version: last version that is served.
        controller_right: right that the controller checks.
        module: has a handler that does part of the work on the broker, and forwards the rest.
        right: right for that part.
        strict_since: see `ServedApi`.
    """
    function = "" if module else "forwarded"
    return ServedApi(
        first_version,
        last_version,
        module or "forwarded",
        right,
        controller_right=controller_right,
        strict_since=strict_since,
        function=function,
    )


SERVED_APIS: dict[int, ServedApi] = {
    ApiKey.PRODUCE: ServedApi(
        0, 13, "records.produce", _in_handler("WRITE on the topic; WRITE on the transactional id")
    ),
    ApiKey.FETCH: ServedApi(
        0,
        18,
        "records.fetch",
        _in_handler("READ on the topic; CLUSTER_ACTION on the cluster for followers"),
    ),
    ApiKey.LIST_OFFSETS: ServedApi(0, 11, "records.offsets", _by("records", _DESCRIBE_TOPIC)),
    ApiKey.METADATA: ServedApi(
        0,
        13,
        "metadata",
        _by("topics", "DESCRIBE on the topic; CREATE on the topic or the cluster if it is created"),
    ),
    ApiKey.OFFSET_COMMIT: ServedApi(0, 10, "groups.offsets", _by("offsets", _READ_GROUP_AND_TOPIC)),
    ApiKey.OFFSET_FETCH: ServedApi(
        0, 10, "groups.offsets", _by("offsets", "DESCRIBE on the group; DESCRIBE on the topic")
    ),
    ApiKey.FIND_COORDINATOR: ServedApi(
        0,
        6,
        "groups.find_coordinator",
        _by("groups", "DESCRIBE on the group or the transactional id"),
    ),
    ApiKey.JOIN_GROUP: ServedApi(
        0, 9, "groups.members", _by("groups", _READ_GROUP), size_refusal="refuse_large_join"
    ),
    ApiKey.HEARTBEAT: ServedApi(0, 4, "groups.members", _by("groups", _READ_GROUP)),
    ApiKey.LEAVE_GROUP: ServedApi(0, 5, "groups.members", _by("groups", _READ_GROUP)),
    ApiKey.SYNC_GROUP: ServedApi(
        0, 5, "groups.members", _by("groups", _READ_GROUP), size_refusal="refuse_large_sync"
    ),
    ApiKey.DESCRIBE_GROUPS: ServedApi(
        0, 6, "groups.describe_groups", _by("groups", "DESCRIBE on the group")
    ),
    ApiKey.LIST_GROUPS: ServedApi(
        0, 5, "groups.members", _by("groups", "DESCRIBE on the cluster or on each listed group")
    ),
    ApiKey.SASL_HANDSHAKE: ServedApi(0, 1, "api_versions", _NONE),
    ApiKey.API_VERSIONS: ServedApi(0, 5, "api_versions", _NONE),
    ApiKey.CREATE_TOPICS: _forwarded(
        0,
        7,
        _by(
            "topics",
            "CREATE on the cluster or the topic; DESCRIBE_CONFIGS on the topic to see its"
            " configuration",
        ),
        strict_since=6,
    ),
    ApiKey.DELETE_TOPICS: _forwarded(
        0,
        6,
        _by("topics", "DELETE on the topic, or on the cluster"),
        module="forwarded",
        strict_since=5,
    ),
    ApiKey.DELETE_RECORDS: ServedApi(
        0, 2, "records.offsets", _by("records", "DELETE on the topic")
    ),
    ApiKey.INIT_PRODUCER_ID: ServedApi(
        0,
        5,
        "transactions.producers",
        _by(
            "records",
            "WRITE on the transactional id (with two-phase commit also TWO_PHASE_COMMIT);"
            " without an id, IDEMPOTENT_WRITE on the cluster or WRITE on any topic",
        ),
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: ServedApi(
        0,
        5,
        "transactions.producers",
        _by(
            "records",
            "WRITE on the transactional id; WRITE on the topic; CLUSTER_ACTION on the"
            " cluster for brokers",
        ),
    ),
    ApiKey.ADD_OFFSETS_TO_TXN: ServedApi(
        0,
        4,
        "transactions.producers",
        _by("records", "WRITE on the transactional id; READ on the group"),
    ),
    ApiKey.END_TXN: ServedApi(
        0, 5, "transactions.producers", _by("records", "WRITE on the transactional id")
    ),
    ApiKey.WRITE_TXN_MARKERS: ServedApi(
        1,
        2,
        "transactions.write_txn_markers",
        _by("records", "ALTER or CLUSTER_ACTION on the cluster"),
    ),
    ApiKey.TXN_OFFSET_COMMIT: ServedApi(
        0,
        6,
        "transactions.txn_offset_commit",
        _by("offsets", "WRITE on the transactional id; READ on the group; READ on the topic"),
    ),
    ApiKey.DESCRIBE_TRANSACTIONS: ServedApi(
        0,
        0,
        "transactions.describe_transactions",
        _by("records", "DESCRIBE on the transactional id; DESCRIBE on each listed topic"),
    ),
    ApiKey.LIST_TRANSACTIONS: ServedApi(
        0, 2, "transactions.describe_transactions", _by("records", "DESCRIBE on each listed id")
    ),
    ApiKey.DESCRIBE_ACLS: ServedApi(0, 3, "admin.acls", _on_cluster(_DESCRIBE)),
    ApiKey.CREATE_ACLS: _forwarded(0, 3, _on_cluster(_ALTER), module="admin.acls"),
    ApiKey.DELETE_ACLS: _forwarded(0, 3, _on_cluster(_ALTER), module="admin.acls"),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: ServedApi(
        0, 4, "records.offsets", _by("records", "DESCRIBE on the topic; or CLUSTER_ACTION")
    ),
    ApiKey.DESCRIBE_CONFIGS: ServedApi(
        0, 4, "admin.describe_configs", _by("configs", _DESCRIBE_RESOURCE)
    ),
    ApiKey.ALTER_CONFIGS: _forwarded(
        0,
        2,
        _by("configs", _ALTER_RESOURCE),
        right=_by("configs", _ALTER_RESOURCE, "check_own_alter_configs"),
        module="admin.alter_configs",
    ),
    ApiKey.SASL_AUTHENTICATE: ServedApi(0, 2, "api_versions", _NONE),
    ApiKey.CREATE_PARTITIONS: _forwarded(0, 3, _by("topics", "ALTER on the topic"), strict_since=3),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _forwarded(
        0,
        1,
        _by("configs", _ALTER_RESOURCE),
        right=_by("configs", _ALTER_RESOURCE, "check_own_incremental_alter_configs"),
        module="admin.alter_configs",
    ),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: ServedApi(
        0, 1, "admin.client_quotas", _on_cluster(_DESCRIBE_CONFIGS, "describe_client_quotas")
    ),
    ApiKey.ALTER_CLIENT_QUOTAS: _forwarded(0, 1, _on_cluster(_ALTER_CONFIGS)),
    ApiKey.DESCRIBE_QUORUM: _forwarded(0, 2, _on_cluster(_DESCRIBE)),
    ApiKey.CREATE_DELEGATION_TOKEN: _forwarded(
        0, 3, _in_handler(_CREATE_TOKENS), module="admin.credentials"
    ),
    ApiKey.RENEW_DELEGATION_TOKEN: _forwarded(0, 2, _NONE, module="admin.credentials"),
    ApiKey.EXPIRE_DELEGATION_TOKEN: _forwarded(0, 2, _NONE, module="admin.credentials"),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: ServedApi(
        0, 3, "admin.credentials", _in_handler(_DESCRIBE_TOKENS)
    ),
    ApiKey.DELETE_GROUPS: ServedApi(0, 3, "groups.members", _by("groups", "DELETE on the group")),
    ApiKey.OFFSET_DELETE: ServedApi(
        0, 0, "groups.offsets", _by("offsets", "DELETE on the group; READ on the topic")
    ),
    ApiKey.DESCRIBE_CLUSTER: ServedApi(
        0, 2, "describe_cluster", _in_handler("none; DESCRIBE on the cluster to list operations")
    ),
    ApiKey.ALTER_REPLICA_LOG_DIRS: ServedApi(
        0, 2, "admin.log_dirs", _on_cluster(_ALTER, "alter_replica_log_dirs")
    ),
    ApiKey.DESCRIBE_LOG_DIRS: ServedApi(0, 5, "admin.log_dirs", _on_cluster(_DESCRIBE)),
    ApiKey.DESCRIBE_PRODUCERS: ServedApi(
        0, 0, "transactions.describe_transactions", _by("records", "READ on the topic")
    ),
    ApiKey.ELECT_LEADERS: _forwarded(0, 2, _on_cluster(_ALTER), module="forwarded"),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _forwarded(0, 1, _on_cluster(_ALTER)),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _forwarded(0, 0, _on_cluster(_DESCRIBE)),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: ServedApi(
        0, 0, "admin.credentials", _on_cluster(_DESCRIBE, "describe_user_scram_credentials")
    ),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _forwarded(0, 0, _on_cluster(_ALTER)),
    ApiKey.UPDATE_FEATURES: _forwarded(0, 2, _on_cluster(_ALTER)),
    ApiKey.UNREGISTER_BROKER: _forwarded(0, 0, _on_cluster(_ALTER)),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: ServedApi(
        0,
        1,
        "groups.members",
        _by("groups", _READ_GROUP_AND_NAMED),
        size_refusal="refuse_large_consumer_heartbeat",
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: ServedApi(
        0, 1, "groups.describe_groups", _by("groups", _DESCRIBE_GROUP_AND_ASSIGNED)
    ),
    ApiKey.LIST_CONFIG_RESOURCES: ServedApi(
        0, 1, "admin.describe_configs", _on_cluster(_DESCRIBE_CONFIGS)
    ),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: ServedApi(0, 0, "metadata", _in_handler(_DESCRIBE_TOPIC)),
    ApiKey.ADD_RAFT_VOTER: _forwarded(0, 1, _on_cluster(_ALTER)),
    ApiKey.REMOVE_RAFT_VOTER: _forwarded(0, 0, _on_cluster(_ALTER)),
    ApiKey.SHARE_GROUP_HEARTBEAT: ServedApi(
        1,
        1,
        "groups.members",
        _by("groups", _READ_GROUP_AND_NAMED),
        size_refusal="refuse_large_share_heartbeat",
    ),
    ApiKey.SHARE_GROUP_DESCRIBE: ServedApi(
        1, 1, "groups.describe_groups", _by("groups", _DESCRIBE_GROUP_AND_ASSIGNED)
    ),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: ServedApi(
        0, 1, "groups.offsets", _by("share_groups", "DESCRIBE on the group; DESCRIBE on the topic")
    ),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: ServedApi(
        0, 0, "groups.offsets", _by("share_groups", _READ_GROUP_AND_TOPIC)
    ),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: ServedApi(
        0, 0, "groups.offsets", _by("share_groups", "DELETE on the group; READ on the topic")
    ),
    ApiKey.SHARE_FETCH: ServedApi(1, 2, "records.share_fetch", _in_handler(_READ_GROUP_AND_TOPIC)),
    ApiKey.SHARE_ACKNOWLEDGE: ServedApi(
        1, 2, "records.share_acknowledge", _in_handler(_READ_GROUP_AND_TOPIC)
    ),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: ServedApi(
        0, 0, "records.share_state", _by("share_groups", _BROKERS_ONLY)
    ),
    ApiKey.READ_SHARE_GROUP_STATE: ServedApi(
        0, 0, "records.share_state", _by("share_groups", _BROKERS_ONLY)
    ),
    ApiKey.WRITE_SHARE_GROUP_STATE: ServedApi(
        0, 1, "records.share_state", _by("share_groups", _BROKERS_ONLY)
    ),
    ApiKey.DELETE_SHARE_GROUP_STATE: ServedApi(
        0, 0, "records.share_state", _by("share_groups", _BROKERS_ONLY)
    ),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: ServedApi(
        0, 1, "records.share_state", _by("share_groups", _BROKERS_ONLY)
    ),
    ApiKey.STREAMS_GROUP_HEARTBEAT: ServedApi(
        0,
        1,
        "groups.members",
        _by(
            "groups",
            "READ on the group; DESCRIBE on the topics of the topology; CREATE on the"
            " cluster or on missing internal topics",
        ),
        size_refusal="refuse_large_streams_heartbeat",
    ),
    ApiKey.STREAMS_GROUP_DESCRIBE: ServedApi(
        0,
        1,
        "groups.describe_groups",
        _by("groups", "DESCRIBE on the group; DESCRIBE on each topic of the topology"),
    ),
    ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE: ServedApi(
        0, 0, "groups.members", _by("groups", _READ_GROUP)
    ),
    ApiKey.UNREGISTER_CONTROLLER: _forwarded(0, 0, _on_cluster(_ALTER)),
}

# Served only if a receiver of pushed metrics is configured, as in Kafka (KIP-714).
TELEMETRY_APIS: dict[int, ServedApi] = {
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: ServedApi(0, 0, "telemetry", _NONE),
    ApiKey.PUSH_TELEMETRY: ServedApi(0, 0, "telemetry", _NONE),
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


# Other APIs of controllers with the same row as on brokers.
_SAME_AS_BROKERS = (
    ApiKey.SASL_HANDSHAKE,
    ApiKey.API_VERSIONS,
    ApiKey.SASL_AUTHENTICATE,
    ApiKey.DESCRIBE_ACLS,
    ApiKey.DESCRIBE_CONFIGS,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
)

_NODES, _QUORUM, _CONTROLLER = "controller_nodes", "quorum_request", "controller_request"

# APIs of a controller's listeners. Forwarded requests go to the controller of this process.
CONTROLLER_APIS: dict[int, ServedApi] = {
    **{
        key: api._replace(right=_BY_CONTROLLER)
        for key, api in SERVED_APIS.items()
        if api.is_forwarded
    },
    **{key: SERVED_APIS[key] for key in _SAME_AS_BROKERS},
    ApiKey.INCREMENTAL_ALTER_CONFIGS: SERVED_APIS[ApiKey.INCREMENTAL_ALTER_CONFIGS]._replace(
        right=_by("configs", "CLUSTER_ACTION on the cluster for loggers", "check_loggers")
    ),
    ApiKey.FETCH: ServedApi(4, 18, _NODES, _NODES_ONLY, function=_QUORUM),
    ApiKey.VOTE: ServedApi(0, 2, _NODES, _NODES_ONLY, function=_QUORUM),
    ApiKey.BEGIN_QUORUM_EPOCH: ServedApi(0, 1, _NODES, _NODES_ONLY, function=_QUORUM),
    ApiKey.END_QUORUM_EPOCH: ServedApi(0, 1, _NODES, _NODES_ONLY, function=_QUORUM),
    ApiKey.ALTER_PARTITION: ServedApi(
        2, 3, _NODES, _BY_CONTROLLER, _NODES_ONLY, function=_CONTROLLER
    ),
    ApiKey.ENVELOPE: ServedApi(0, 0, _NODES, _NODES_ONLY),
    ApiKey.FETCH_SNAPSHOT: ServedApi(0, 1, _NODES, _NODES_ONLY, function=_QUORUM),
    ApiKey.DESCRIBE_CLUSTER: ServedApi(
        0,
        2,
        "describe_cluster",
        _on_cluster(_ALTER, "describe_cluster"),
        function="describe_controllers",
    ),
    # The handler records the connection of a broker before it calls the controller.
    ApiKey.BROKER_REGISTRATION: ServedApi(0, 4, _NODES, _NODES_ONLY, _NODES_ONLY),
    ApiKey.BROKER_HEARTBEAT: ServedApi(0, 2, _NODES, _NODES_ONLY, _NODES_ONLY),
    ApiKey.ALLOCATE_PRODUCER_IDS: ServedApi(
        0, 0, _NODES, _BY_CONTROLLER, _NODES_ONLY, function=_CONTROLLER
    ),
    ApiKey.CONTROLLER_REGISTRATION: ServedApi(
        0, 0, _NODES, _BY_CONTROLLER, _NODES_ONLY, function=_CONTROLLER
    ),
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: ServedApi(
        0, 0, _NODES, _BY_CONTROLLER, _NODES_ONLY, function=_CONTROLLER
    ),
    ApiKey.ADD_RAFT_VOTER: ServedApi(
        0, 1, _NODES, _on_cluster(_ALTER), _on_cluster(_ALTER), function=_QUORUM
    ),
    ApiKey.REMOVE_RAFT_VOTER: ServedApi(
        0, 0, _NODES, _on_cluster(_ALTER), _on_cluster(_ALTER), function=_QUORUM
    ),
    ApiKey.UPDATE_RAFT_VOTER: ServedApi(0, 0, _NODES, _NODES_ONLY, function=_QUORUM),
}
CONTROLLER_APIS = dict(sorted(CONTROLLER_APIS.items()))


def controller_rights() -> dict[int, Right]:
    """Return the rights that the active controller checks, by API key."""
    return {
        key: api.controller_right
        for key, api in {**SERVED_APIS, **CONTROLLER_APIS}.items()
        if api.controller_right is not None
    }
