"""Every API of the protocol: number, versions, listeners.

Table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class ApiKey(IntEnum):
    """The number by which a request names its API."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92
    STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE = 93
    UNREGISTER_CONTROLLER = 94


class ApiRow(NamedTuple):
    """What is fixed about an API."""

    name: str
    module: str
    first_version: int
    last_version: int
    # First version with tagged fields; None if there is none.
    flexible_from: int | None
    # Kinds of listener that serve it in Kafka 4.4; empty for what 4.0 dropped.
    listeners: tuple[str, ...]
    # Whether Kafka does not advertise the last version by default.
    last_is_unstable: bool


API_ROWS: dict[int, ApiRow] = {
    0: ApiRow("Produce", "produce", 0, 13, 9, ("broker",), False),
    1: ApiRow("Fetch", "fetch", 0, 18, 12, ("broker", "controller"), False),
    2: ApiRow("ListOffsets", "list_offsets", 0, 11, 6, ("broker",), False),
    3: ApiRow("Metadata", "metadata", 0, 13, 9, ("broker",), False),
    4: ApiRow("LeaderAndIsr", "leader_and_isr", 0, 7, 4, (), False),
    5: ApiRow("StopReplica", "stop_replica", 0, 4, 2, (), False),
    6: ApiRow("UpdateMetadata", "update_metadata", 0, 8, 6, (), False),
    7: ApiRow("ControlledShutdown", "controlled_shutdown", 0, 3, 3, (), False),
    8: ApiRow("OffsetCommit", "offset_commit", 0, 10, 8, ("broker",), False),
    9: ApiRow("OffsetFetch", "offset_fetch", 0, 10, 6, ("broker",), False),
    10: ApiRow("FindCoordinator", "find_coordinator", 0, 6, 3, ("broker",), False),
    11: ApiRow("JoinGroup", "join_group", 0, 9, 6, ("broker",), False),
    12: ApiRow("Heartbeat", "heartbeat", 0, 4, 4, ("broker",), False),
    13: ApiRow("LeaveGroup", "leave_group", 0, 5, 4, ("broker",), False),
    14: ApiRow("SyncGroup", "sync_group", 0, 5, 4, ("broker",), False),
    15: ApiRow("DescribeGroups", "describe_groups", 0, 6, 5, ("broker",), False),
    16: ApiRow("ListGroups", "list_groups", 0, 5, 3, ("broker",), False),
    17: ApiRow("SaslHandshake", "sasl_handshake", 0, 1, None, ("broker", "controller"), False),
    18: ApiRow("ApiVersions", "api_versions", 0, 5, 3, ("broker", "controller"), False),
    19: ApiRow("CreateTopics", "create_topics", 0, 7, 5, ("broker", "controller"), False),
    20: ApiRow("DeleteTopics", "delete_topics", 0, 6, 4, ("broker", "controller"), False),
    21: ApiRow("DeleteRecords", "delete_records", 0, 2, 2, ("broker",), False),
    22: ApiRow("InitProducerId", "init_producer_id", 0, 6, 2, ("broker",), True),
    23: ApiRow("OffsetForLeaderEpoch", "offset_for_leader_epoch", 0, 4, 4, ("broker",), False),
    24: ApiRow("AddPartitionsToTxn", "add_partitions_to_txn", 0, 5, 3, ("broker",), False),
    25: ApiRow("AddOffsetsToTxn", "add_offsets_to_txn", 0, 4, 3, ("broker",), False),
    26: ApiRow("EndTxn", "end_txn", 0, 5, 3, ("broker",), False),
    27: ApiRow("WriteTxnMarkers", "write_txn_markers", 0, 2, 1, ("broker",), False),
    28: ApiRow("TxnOffsetCommit", "txn_offset_commit", 0, 6, 3, ("broker",), False),
    29: ApiRow("DescribeAcls", "describe_acls", 0, 3, 2, ("broker", "controller"), False),
    30: ApiRow("CreateAcls", "create_acls", 0, 3, 2, ("broker", "controller"), False),
    31: ApiRow("DeleteAcls", "delete_acls", 0, 3, 2, ("broker", "controller"), False),
    32: ApiRow("DescribeConfigs", "describe_configs", 0, 4, 4, ("broker", "controller"), False),
    33: ApiRow("AlterConfigs", "alter_configs", 0, 2, 2, ("broker", "controller"), False),
    34: ApiRow("AlterReplicaLogDirs", "alter_replica_log_dirs", 0, 2, 2, ("broker",), False),
    35: ApiRow("DescribeLogDirs", "describe_log_dirs", 0, 5, 2, ("broker",), False),
    36: ApiRow("SaslAuthenticate", "sasl_authenticate", 0, 2, 2, ("broker", "controller"), False),
    37: ApiRow("CreatePartitions", "create_partitions", 0, 3, 2, ("broker", "controller"), False),
    38: ApiRow(
        "CreateDelegationToken", "create_delegation_token", 0, 3, 2, ("broker", "controller"), False
    ),
    39: ApiRow(
        "RenewDelegationToken", "renew_delegation_token", 0, 2, 2, ("broker", "controller"), False
    ),
    40: ApiRow(
        "ExpireDelegationToken", "expire_delegation_token", 0, 2, 2, ("broker", "controller"), False
    ),
    41: ApiRow(
        "DescribeDelegationToken",
        "describe_delegation_token",
        0,
        3,
        2,
        ("broker", "controller"),
        False,
    ),
    42: ApiRow("DeleteGroups", "delete_groups", 0, 3, 2, ("broker",), False),
    43: ApiRow("ElectLeaders", "elect_leaders", 0, 2, 2, ("broker", "controller"), False),
    44: ApiRow(
        "IncrementalAlterConfigs",
        "incremental_alter_configs",
        0,
        1,
        1,
        ("broker", "controller"),
        False,
    ),
    45: ApiRow(
        "AlterPartitionReassignments",
        "alter_partition_reassignments",
        0,
        1,
        0,
        ("broker", "controller"),
        False,
    ),
    46: ApiRow(
        "ListPartitionReassignments",
        "list_partition_reassignments",
        0,
        0,
        0,
        ("broker", "controller"),
        False,
    ),
    47: ApiRow("OffsetDelete", "offset_delete", 0, 0, None, ("broker",), False),
    48: ApiRow("DescribeClientQuotas", "describe_client_quotas", 0, 1, 1, ("broker",), False),
    49: ApiRow(
        "AlterClientQuotas", "alter_client_quotas", 0, 1, 1, ("broker", "controller"), False
    ),
    50: ApiRow(
        "DescribeUserScramCredentials",
        "describe_user_scram_credentials",
        0,
        0,
        0,
        ("broker", "controller"),
        False,
    ),
    51: ApiRow(
        "AlterUserScramCredentials",
        "alter_user_scram_credentials",
        0,
        0,
        0,
        ("broker", "controller"),
        False,
    ),
    52: ApiRow("Vote", "vote", 0, 2, 0, ("controller",), False),
    53: ApiRow("BeginQuorumEpoch", "begin_quorum_epoch", 0, 1, 1, ("controller",), False),
    54: ApiRow("EndQuorumEpoch", "end_quorum_epoch", 0, 1, 1, ("controller",), False),
    55: ApiRow("DescribeQuorum", "describe_quorum", 0, 2, 0, ("broker", "controller"), False),
    56: ApiRow("AlterPartition", "alter_partition", 0, 3, 0, ("controller",), False),
    57: ApiRow("UpdateFeatures", "update_features", 0, 2, 0, ("broker", "controller"), False),
    58: ApiRow("Envelope", "envelope", 0, 0, 0, ("controller",), False),
    59: ApiRow("FetchSnapshot", "fetch_snapshot", 0, 1, 0, ("controller",), False),
    60: ApiRow("DescribeCluster", "describe_cluster", 0, 2, 0, ("broker", "controller"), False),
    61: ApiRow("DescribeProducers", "describe_producers", 0, 0, 0, ("broker",), False),
    62: ApiRow("BrokerRegistration", "broker_registration", 0, 4, 0, ("controller",), False),
    63: ApiRow("BrokerHeartbeat", "broker_heartbeat", 0, 2, 0, ("controller",), False),
    64: ApiRow("UnregisterBroker", "unregister_broker", 0, 0, 0, ("broker", "controller"), False),
    65: ApiRow("DescribeTransactions", "describe_transactions", 0, 0, 0, ("broker",), False),
    66: ApiRow("ListTransactions", "list_transactions", 0, 2, 0, ("broker",), False),
    67: ApiRow("AllocateProducerIds", "allocate_producer_ids", 0, 0, 0, ("controller",), False),
    68: ApiRow("ConsumerGroupHeartbeat", "consumer_group_heartbeat", 0, 1, 0, ("broker",), False),
    69: ApiRow("ConsumerGroupDescribe", "consumer_group_describe", 0, 1, 0, ("broker",), False),
    70: ApiRow(
        "ControllerRegistration", "controller_registration", 0, 0, 0, ("controller",), False
    ),
    71: ApiRow(
        "GetTelemetrySubscriptions", "get_telemetry_subscriptions", 0, 0, 0, ("broker",), False
    ),
    72: ApiRow("PushTelemetry", "push_telemetry", 0, 0, 0, ("broker",), False),
    73: ApiRow("AssignReplicasToDirs", "assign_replicas_to_dirs", 0, 0, 0, ("controller",), False),
    74: ApiRow("ListConfigResources", "list_config_resources", 0, 1, 0, ("broker",), False),
    75: ApiRow("DescribeTopicPartitions", "describe_topic_partitions", 0, 0, 0, ("broker",), False),
    76: ApiRow("ShareGroupHeartbeat", "share_group_heartbeat", 1, 1, 0, ("broker",), False),
    77: ApiRow("ShareGroupDescribe", "share_group_describe", 1, 1, 0, ("broker",), False),
    78: ApiRow("ShareFetch", "share_fetch", 1, 2, 0, ("broker",), False),
    79: ApiRow("ShareAcknowledge", "share_acknowledge", 1, 2, 0, ("broker",), False),
    80: ApiRow("AddRaftVoter", "add_raft_voter", 0, 1, 0, ("controller", "broker"), False),
    81: ApiRow("RemoveRaftVoter", "remove_raft_voter", 0, 0, 0, ("controller", "broker"), False),
    82: ApiRow("UpdateRaftVoter", "update_raft_voter", 0, 0, 0, ("controller",), False),
    83: ApiRow(
        "InitializeShareGroupState", "initialize_share_group_state", 0, 0, 0, ("broker",), False
    ),
    84: ApiRow("ReadShareGroupState", "read_share_group_state", 0, 0, 0, ("broker",), False),
    85: ApiRow("WriteShareGroupState", "write_share_group_state", 0, 1, 0, ("broker",), False),
    86: ApiRow("DeleteShareGroupState", "delete_share_group_state", 0, 0, 0, ("broker",), False),
    87: ApiRow(
        "ReadShareGroupStateSummary", "read_share_group_state_summary", 0, 1, 0, ("broker",), False
    ),
    88: ApiRow("StreamsGroupHeartbeat", "streams_group_heartbeat", 0, 1, 0, ("broker",), False),
    89: ApiRow("StreamsGroupDescribe", "streams_group_describe", 0, 1, 0, ("broker",), False),
    90: ApiRow(
        "DescribeShareGroupOffsets", "describe_share_group_offsets", 0, 1, 0, ("broker",), False
    ),
    91: ApiRow("AlterShareGroupOffsets", "alter_share_group_offsets", 0, 0, 0, ("broker",), False),
    92: ApiRow(
        "DeleteShareGroupOffsets", "delete_share_group_offsets", 0, 0, 0, ("broker",), False
    ),
    93: ApiRow(
        "StreamsGroupTopologyDescriptionUpdate",
        "streams_group_topology_description_update",
        0,
        0,
        0,
        ("broker",),
        False,
    ),
    94: ApiRow(
        "UnregisterController", "unregister_controller", 0, 0, 0, ("broker", "controller"), False
    ),
}
