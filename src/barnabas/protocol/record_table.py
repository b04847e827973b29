"""Which class codes which record type, for each kind of log.

Table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

# Kind of log -> record type -> (module in `records`, names of its classes: key, value).
RECORD_ROWS: dict[str, dict[int, tuple[str, tuple[str, ...]]]] = {
    "metadata": {
        0: ("register_broker_record", ("RegisterBrokerRecord",)),
        1: ("unregister_broker_record", ("UnregisterBrokerRecord",)),
        2: ("topic_record", ("TopicRecord",)),
        3: ("partition_record", ("PartitionRecord",)),
        4: ("config_record", ("ConfigRecord",)),
        5: ("partition_change_record", ("PartitionChangeRecord",)),
        7: ("fence_broker_record", ("FenceBrokerRecord",)),
        8: ("unfence_broker_record", ("UnfenceBrokerRecord",)),
        9: ("remove_topic_record", ("RemoveTopicRecord",)),
        10: ("delegation_token_record", ("DelegationTokenRecord",)),
        11: ("user_scram_credential_record", ("UserScramCredentialRecord",)),
        12: ("feature_level_record", ("FeatureLevelRecord",)),
        14: ("client_quota_record", ("ClientQuotaRecord",)),
        15: ("producer_ids_record", ("ProducerIdsRecord",)),
        17: ("broker_registration_change_record", ("BrokerRegistrationChangeRecord",)),
        18: ("access_control_entry_record", ("AccessControlEntryRecord",)),
        19: ("remove_access_control_entry_record", ("RemoveAccessControlEntryRecord",)),
        20: ("no_op_record", ("NoOpRecord",)),
        21: ("zk_migration_state_record", ("ZkMigrationStateRecord",)),
        22: ("remove_user_scram_credential_record", ("RemoveUserScramCredentialRecord",)),
        23: ("begin_transaction_record", ("BeginTransactionRecord",)),
        24: ("end_transaction_record", ("EndTransactionRecord",)),
        25: ("abort_transaction_record", ("AbortTransactionRecord",)),
        26: ("remove_delegation_token_record", ("RemoveDelegationTokenRecord",)),
        27: ("register_controller_record", ("RegisterControllerRecord",)),
        28: ("clear_elr_record", ("ClearElrRecord",)),
        29: ("unregister_controller_record", ("UnregisterControllerRecord",)),
    },
    "group-coordinator": {
        0: ("legacy_offset_commit", ("LegacyOffsetCommitKey", "LegacyOffsetCommitValue")),
        1: ("offset_commit", ("OffsetCommitKey", "OffsetCommitValue")),
        2: ("group_metadata", ("GroupMetadataKey", "GroupMetadataValue")),
        3: ("consumer_group_metadata", ("ConsumerGroupMetadataKey", "ConsumerGroupMetadataValue")),
        4: (
            "consumer_group_partition_metadata",
            ("ConsumerGroupPartitionMetadataKey", "ConsumerGroupPartitionMetadataValue"),
        ),
        5: (
            "consumer_group_member_metadata",
            ("ConsumerGroupMemberMetadataKey", "ConsumerGroupMemberMetadataValue"),
        ),
        6: (
            "consumer_group_target_assignment_metadata",
            (
                "ConsumerGroupTargetAssignmentMetadataKey",
                "ConsumerGroupTargetAssignmentMetadataValue",
            ),
        ),
        7: (
            "consumer_group_target_assignment_member",
            ("ConsumerGroupTargetAssignmentMemberKey", "ConsumerGroupTargetAssignmentMemberValue"),
        ),
        8: (
            "consumer_group_current_member_assignment",
            (
                "ConsumerGroupCurrentMemberAssignmentKey",
                "ConsumerGroupCurrentMemberAssignmentValue",
            ),
        ),
        10: (
            "share_group_member_metadata",
            ("ShareGroupMemberMetadataKey", "ShareGroupMemberMetadataValue"),
        ),
        11: ("share_group_metadata", ("ShareGroupMetadataKey", "ShareGroupMetadataValue")),
        12: (
            "share_group_target_assignment_metadata",
            ("ShareGroupTargetAssignmentMetadataKey", "ShareGroupTargetAssignmentMetadataValue"),
        ),
        13: (
            "share_group_target_assignment_member",
            ("ShareGroupTargetAssignmentMemberKey", "ShareGroupTargetAssignmentMemberValue"),
        ),
        14: (
            "share_group_current_member_assignment",
            ("ShareGroupCurrentMemberAssignmentKey", "ShareGroupCurrentMemberAssignmentValue"),
        ),
        15: (
            "share_group_state_partition_metadata",
            ("ShareGroupStatePartitionMetadataKey", "ShareGroupStatePartitionMetadataValue"),
        ),
        16: (
            "consumer_group_regular_expression",
            ("ConsumerGroupRegularExpressionKey", "ConsumerGroupRegularExpressionValue"),
        ),
        17: ("streams_group_metadata", ("StreamsGroupMetadataKey", "StreamsGroupMetadataValue")),
        19: (
            "streams_group_member_metadata",
            ("StreamsGroupMemberMetadataKey", "StreamsGroupMemberMetadataValue"),
        ),
        20: (
            "streams_group_target_assignment_metadata",
            (
                "StreamsGroupTargetAssignmentMetadataKey",
                "StreamsGroupTargetAssignmentMetadataValue",
            ),
        ),
        21: (
            "streams_group_target_assignment_member",
            ("StreamsGroupTargetAssignmentMemberKey", "StreamsGroupTargetAssignmentMemberValue"),
        ),
        22: (
            "streams_group_current_member_assignment",
            ("StreamsGroupCurrentMemberAssignmentKey", "StreamsGroupCurrentMemberAssignmentValue"),
        ),
        23: ("streams_group_topology", ("StreamsGroupTopologyKey", "StreamsGroupTopologyValue")),
    },
    "transaction-coordinator": {
        0: ("transaction_log", ("TransactionLogKey", "TransactionLogValue")),
    },
    "share-coordinator": {
        0: ("share_snapshot", ("ShareSnapshotKey", "ShareSnapshotValue")),
        1: ("share_update", ("ShareUpdateKey", "ShareUpdateValue")),
    },
    "storage": {
        0: ("remote_log_segment_metadata_record", ("RemoteLogSegmentMetadataRecord",)),
        1: ("remote_log_segment_metadata_update_record", ("RemoteLogSegmentMetadataUpdateRecord",)),
        2: ("remote_partition_delete_metadata_record", ("RemotePartitionDeleteMetadataRecord",)),
        3: (
            "remote_log_segment_metadata_snapshot_record",
            ("RemoteLogSegmentMetadataSnapshotRecord",),
        ),
    },
}
