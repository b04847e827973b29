"""Kafka's metric names as in its JMX beans: group, type and name, joined by colons.

The bean `kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec` has the name
"kafka.server:BrokerTopicMetrics:MessagesInPerSec" here. The other keys of the bean (`topic`,
`partition`, `request`, `delayedOperation`...) are the tags.
"""

from __future__ import annotations

from typing import Final

MESSAGES_IN: Final = "kafka.server:BrokerTopicMetrics:MessagesInPerSec"
BYTES_IN: Final = "kafka.server:BrokerTopicMetrics:BytesInPerSec"
BYTES_OUT: Final = "kafka.server:BrokerTopicMetrics:BytesOutPerSec"
BYTES_REJECTED: Final = "kafka.server:BrokerTopicMetrics:BytesRejectedPerSec"
REPLICATION_BYTES_IN: Final = "kafka.server:BrokerTopicMetrics:ReplicationBytesInPerSec"
REPLICATION_BYTES_OUT: Final = "kafka.server:BrokerTopicMetrics:ReplicationBytesOutPerSec"
TOTAL_PRODUCE_REQUESTS: Final = "kafka.server:BrokerTopicMetrics:TotalProduceRequestsPerSec"
TOTAL_FETCH_REQUESTS: Final = "kafka.server:BrokerTopicMetrics:TotalFetchRequestsPerSec"
FAILED_PRODUCE_REQUESTS: Final = "kafka.server:BrokerTopicMetrics:FailedProduceRequestsPerSec"
FAILED_FETCH_REQUESTS: Final = "kafka.server:BrokerTopicMetrics:FailedFetchRequestsPerSec"
PRODUCE_CONVERSIONS: Final = "kafka.server:BrokerTopicMetrics:ProduceMessageConversionsPerSec"
FETCH_CONVERSIONS: Final = "kafka.server:BrokerTopicMetrics:FetchMessageConversionsPerSec"

ISR_SHRINKS: Final = "kafka.server:ReplicaManager:IsrShrinksPerSec"
ISR_EXPANDS: Final = "kafka.server:ReplicaManager:IsrExpandsPerSec"
FAILED_ISR_UPDATES: Final = "kafka.server:ReplicaManager:FailedIsrUpdatesPerSec"
LEADER_COUNT: Final = "kafka.server:ReplicaManager:LeaderCount"
PARTITION_COUNT: Final = "kafka.server:ReplicaManager:PartitionCount"
OFFLINE_REPLICA_COUNT: Final = "kafka.server:ReplicaManager:OfflineReplicaCount"
UNDER_REPLICATED_PARTITIONS: Final = "kafka.server:ReplicaManager:UnderReplicatedPartitions"
UNDER_MIN_ISR_PARTITION_COUNT: Final = "kafka.server:ReplicaManager:UnderMinIsrPartitionCount"
AT_MIN_ISR_PARTITION_COUNT: Final = "kafka.server:ReplicaManager:AtMinIsrPartitionCount"
REASSIGNMENT_BYTES_IN: Final = "kafka.server:BrokerTopicMetrics:ReassignmentBytesInPerSec"
REASSIGNMENT_BYTES_OUT: Final = "kafka.server:BrokerTopicMetrics:ReassignmentBytesOutPerSec"
REASSIGNING_PARTITIONS: Final = "kafka.server:ReplicaManager:ReassigningPartitions"
LEADER_REPLICATION_RATE: Final = "kafka.server:LeaderReplication:byte-rate"
FOLLOWER_REPLICATION_RATE: Final = "kafka.server:FollowerReplication:byte-rate"
MOVES_RATE: Final = "kafka.server:AlterLogDirsReplication:byte-rate"
MIN_FETCH_RATE: Final = "kafka.server:ReplicaFetcherManager:MinFetchRate"
FAILED_PARTITIONS: Final = "kafka.server:ReplicaFetcherManager:FailedPartitionsCount"
DEAD_FETCHERS: Final = "kafka.server:ReplicaFetcherManager:DeadThreadCount"
FETCHER_REQUESTS: Final = "kafka.server:FetcherStats:RequestsPerSec"
FETCHER_BYTES: Final = "kafka.server:FetcherStats:BytesPerSec"
MAX_LAG: Final = "kafka.server:ReplicaFetcherManager:MaxLag"
CONSUMER_LAG: Final = "kafka.server:FetcherLagMetrics:ConsumerLag"
PURGATORY_SIZE: Final = "kafka.server:DelayedOperationPurgatory:PurgatorySize"
DELAYED_OPERATIONS: Final = "kafka.server:DelayedOperationPurgatory:NumDelayedOperations"
DELAYED_PRODUCE_EXPIRES: Final = "kafka.server:DelayedProducerRequestMetrics:ExpiresPerSec"
DELAYED_FETCH_EXPIRES: Final = "kafka.server:DelayedFetchMetrics:ExpiresPerSec"
FETCH_SESSION_PARTITIONS: Final = (
    "kafka.server:FetchSessionCache:NumIncrementalFetchPartitionsCached"
)
FETCH_SESSIONS: Final = "kafka.server:FetchSessionCache:NumIncrementalFetchSessions"
SHARE_FETCH_REQUESTS: Final = "kafka.server:BrokerTopicMetrics:TotalShareFetchRequestsPerSec"
FAILED_SHARE_FETCH_REQUESTS: Final = (
    "kafka.server:BrokerTopicMetrics:FailedShareFetchRequestsPerSec"
)
SHARE_ACKNOWLEDGE_REQUESTS: Final = (
    "kafka.server:BrokerTopicMetrics:TotalShareAcknowledgementRequestsPerSec"
)
FAILED_SHARE_ACKNOWLEDGE_REQUESTS: Final = (
    "kafka.server:BrokerTopicMetrics:FailedShareAcknowledgementRequestsPerSec"
)
RECORD_ACKNOWLEDGEMENTS: Final = "kafka.server:ShareGroupMetrics:RecordAcknowledgementsPerSec"
DEAD_LETTER_RECORDS: Final = "kafka.server:ShareGroupMetrics:DeadLetterQueueRecordCount"
DEAD_LETTER_PRODUCES: Final = (
    "kafka.server:ShareGroupMetrics:DeadLetterQueueTotalProduceRequestsPerSec"
)
FAILED_DEAD_LETTER_PRODUCES: Final = (
    "kafka.server:ShareGroupMetrics:DeadLetterQueueFailedProduceRequestsPerSec"
)
SHARE_LOCK_TIMEOUTS: Final = "kafka.server:SharePartitionMetrics:AcquisitionLockTimeoutPerSec"
SHARE_IN_FLIGHT_MESSAGES: Final = "kafka.server:SharePartitionMetrics:InFlightMessageCount"
SHARE_IN_FLIGHT_BATCHES: Final = "kafka.server:SharePartitionMetrics:InFlightBatchCount"
SHARE_BATCH_MESSAGES: Final = "kafka.server:SharePartitionMetrics:InFlightBatchMessageCount"
SHARE_FETCH_LOCK_TIME: Final = "kafka.server:SharePartitionMetrics:FetchLockTimeMs"
SHARE_FETCH_LOCK_RATIO: Final = "kafka.server:SharePartitionMetrics:FetchLockRatio"
SHARE_ACQUIRE_TIME: Final = "kafka.server:ShareGroupMetrics:TopicPartitionsAcquireTimeMs"
SHARE_FETCH_RATIO: Final = "kafka.server:ShareGroupMetrics:RequestTopicPartitionsFetchRatio"
SHARE_PARTITION_LOAD_TIME: Final = "kafka.server:ShareGroupMetrics:PartitionLoadTimeMs"
SHARE_SESSIONS: Final = "kafka.server:ShareSessionCache:ShareSessionsCount"
SHARE_SESSION_PARTITIONS: Final = "kafka.server:ShareSessionCache:SharePartitionsCount"
SHARE_SESSION_EVICTIONS: Final = "kafka.server:ShareSessionCache:ShareSessionEvictionsPerSec"
DELAYED_SHARE_FETCH_EXPIRES: Final = "kafka.server:DelayedShareFetchMetrics:ExpiresPerSec"
SHARE_ACKNOWLEDGEMENTS: Final = "barnabas_share_acknowledgements"
SHARE_LEADERS: Final = "barnabas_share_partitions"
SHARE_RECORDS_IN_FLIGHT: Final = "barnabas_share_records_in_flight"
LINK_STATE: Final = "barnabas_link_state"
LINK_MIRRORS: Final = "barnabas_link_mirrors"
LINK_BYTES: Final = "barnabas_link_bytes"
LINK_RECORDS: Final = "barnabas_link_records"
LINK_PARTITIONS: Final = "barnabas_link_partitions"
LINK_FAILING: Final = "barnabas_link_failing_partitions"
LINK_LAG: Final = "barnabas_link_lag_records"
LINK_LAG_SECONDS: Final = "barnabas_link_lag_seconds"
MIRROR_LAG: Final = "barnabas_mirror_lag_records"
MIRROR_LAG_SECONDS: Final = "barnabas_mirror_lag_seconds"
BROKER_STATE: Final = "kafka.server:KafkaServer:BrokerState"
METADATA_LAST_APPLIED_OFFSET: Final = (
    "kafka.server:broker-metadata-metrics:last-applied-record-offset"
)
METADATA_APPLY_ERRORS: Final = "kafka.server:broker-metadata-metrics:metadata-apply-error-count"

PARTITION_UNDER_REPLICATED: Final = "kafka.cluster:Partition:UnderReplicated"
PARTITION_UNDER_MIN_ISR: Final = "kafka.cluster:Partition:UnderMinIsr"
PARTITION_AT_MIN_ISR: Final = "kafka.cluster:Partition:AtMinIsr"
PARTITION_IN_SYNC_REPLICAS: Final = "kafka.cluster:Partition:InSyncReplicasCount"
PARTITION_REPLICAS: Final = "kafka.cluster:Partition:ReplicasCount"
GROUP_OFFSETS: Final = "kafka.coordinator.group:GroupMetadataManager:NumOffsets"
GROUPS: Final = "kafka.coordinator.group:GroupMetadataManager:NumGroups"
GROUPS_PREPARING_REBALANCE: Final = (
    "kafka.coordinator.group:GroupMetadataManager:NumGroupsPreparingRebalance"
)
GROUPS_COMPLETING_REBALANCE: Final = (
    "kafka.coordinator.group:GroupMetadataManager:NumGroupsCompletingRebalance"
)
GROUPS_STABLE: Final = "kafka.coordinator.group:GroupMetadataManager:NumGroupsStable"
GROUPS_EMPTY: Final = "kafka.coordinator.group:GroupMetadataManager:NumGroupsEmpty"
GROUP_REBALANCES: Final = "kafka.server:group-coordinator-metrics:group-completed-rebalance-count"
CONSUMER_GROUPS: Final = "kafka.server:group-coordinator-metrics:consumer-group-count"
CONSUMER_GROUP_REBALANCES: Final = (
    "kafka.server:group-coordinator-metrics:consumer-group-rebalance-count"
)
SHARE_GROUPS: Final = "kafka.server:group-coordinator-metrics:share-group-count"
SHARE_GROUP_REBALANCES: Final = "kafka.server:group-coordinator-metrics:share-group-rebalance-count"
STREAMS_GROUPS: Final = "kafka.server:group-coordinator-metrics:streams-group-count"
STREAMS_GROUP_REBALANCES: Final = (
    "kafka.server:group-coordinator-metrics:streams-group-rebalance-count"
)
OFFSET_COMMITS: Final = "kafka.server:group-coordinator-metrics:offset-commit-count"
OFFSET_DELETIONS: Final = "kafka.server:group-coordinator-metrics:offset-deletion-count"
OFFSET_EXPIRATIONS: Final = "kafka.server:group-coordinator-metrics:offset-expiration-count"
COORDINATOR_RECORDS_SKIPPED: Final = "barnabas_coordinator_records_skipped-total"
COORDINATOR_TIMERS_FAILED: Final = "barnabas_coordinator_timers_failed-total"
GROUP_LOAD_TIME_AVG: Final = "kafka.server:group-coordinator-metrics:partition-load-time-avg"
GROUP_LOAD_TIME_MAX: Final = "kafka.server:group-coordinator-metrics:partition-load-time-max"
TRANSACTION_LOAD_TIME_AVG: Final = (
    "kafka.server:transaction-coordinator-metrics:partition-load-time-avg"
)
TRANSACTION_LOAD_TIME_MAX: Final = (
    "kafka.server:transaction-coordinator-metrics:partition-load-time-max"
)
SHARE_LOAD_TIME_AVG: Final = "kafka.server:share-coordinator-metrics:partition-load-time-avg"
SHARE_LOAD_TIME_MAX: Final = "kafka.server:share-coordinator-metrics:partition-load-time-max"
SHARE_PRUNED_OFFSET: Final = "kafka.server:share-coordinator-metrics:last-pruned-offset"
SHARE_STATE_PARTITIONS: Final = "kafka.server:share-coordinator-metrics:num-partitions"
SHARE_WRITES: Final = "kafka.server:share-coordinator-metrics:write-total"
SHARE_WRITE_RATE: Final = "kafka.server:share-coordinator-metrics:write-rate"
SHARE_WRITE_TIME_AVG: Final = "kafka.server:share-coordinator-metrics:write-latency-avg"
SHARE_WRITE_TIME_MAX: Final = "kafka.server:share-coordinator-metrics:write-latency-max"
SHARE_PARTITIONS: Final = "barnabas_share_coordinator_share_partitions"
TRANSACTIONS: Final = "barnabas_transaction_coordinator_transactions"
MARKERS_WITHOUT_LEADER: Final = (
    "kafka.coordinator.transaction:TransactionMarkerChannelManager:UnknownDestinationQueueSize"
)
MARKER_LOG_APPEND_RETRIES: Final = (
    "kafka.coordinator.transaction:TransactionMarkerChannelManager:LogAppendRetryQueueSize"
)
MARKER_CONNECTIONS: Final = "kafka.server:txn-marker-channel-metrics:connection-count"
MARKER_CONNECTIONS_CREATED: Final = (
    "kafka.server:txn-marker-channel-metrics:connection-creation-total"
)
MARKER_REQUESTS: Final = "kafka.server:txn-marker-channel-metrics:request-total"
MARKER_RESPONSES: Final = "kafka.server:txn-marker-channel-metrics:response-total"
VERIFICATION_TIME: Final = "kafka.server:AddPartitionsToTxnManager:VerificationTimeMs"
VERIFICATION_FAILURES: Final = "kafka.server:AddPartitionsToTxnManager:VerificationFailureRate"
PRODUCER_IDS: Final = "kafka.server:ReplicaManager:ProducerIdCount"
LATE_TRANSACTIONS: Final = "kafka.server:ReplicaManager:PartitionsWithLateTransactionsCount"
GROUP_STATE_PARTITIONS: Final = "kafka.server:group-coordinator-metrics:num-partitions"

PARTITION_LAST_STABLE_OFFSET_LAG: Final = "kafka.cluster:Partition:LastStableOffsetLag"

LOG_SIZE: Final = "kafka.log:Log:Size"
LOG_START_OFFSET: Final = "kafka.log:Log:LogStartOffset"
LOG_END_OFFSET: Final = "kafka.log:Log:LogEndOffset"
LOG_SEGMENTS: Final = "kafka.log:Log:NumLogSegments"
LOG_FLUSH_TIME: Final = "kafka.log:LogFlushStats:LogFlushRateAndTimeMs"
CLEANER_RECOPY_PERCENT: Final = "kafka.log:LogCleaner:cleaner-recopy-percent"
CLEANER_TIME_MAX: Final = "kafka.log:LogCleaner:max-clean-time-secs"
CLEANER_BUFFER_UTILIZATION: Final = "kafka.log:LogCleaner:max-buffer-utilization-percent"
CLEANER_COMPACTION_DELAY: Final = "kafka.log:LogCleaner:max-compaction-delay-secs"
CLEANER_DIRTY_PERCENT: Final = "kafka.log:LogCleanerManager:max-dirty-percent"
CLEANER_IDLE_TIME: Final = "kafka.log:LogCleanerManager:time-since-last-run-ms"
UNCLEANABLE_PARTITIONS: Final = "kafka.log:LogCleanerManager:uncleanable-partitions-count"
UNCLEANABLE_BYTES: Final = "kafka.log:LogCleanerManager:uncleanable-bytes"
LOG_DIRECTORY_OFFLINE: Final = "kafka.log:LogManager:LogDirectoryOffline"
OFFLINE_LOG_DIRECTORIES: Final = "kafka.log:LogManager:OfflineLogDirectoryCount"
STORAGE_DAMAGE: Final = "barnabas_storage_damage-total"
CLOCK_HELD_BACK: Final = "barnabas_wall_clock_held_back_seconds"
DESCRIPTOR_SHORTAGES: Final = "barnabas-descriptor-shortages-total"

REMOTE_COPY_BYTES: Final = "kafka.server:BrokerTopicMetrics:RemoteCopyBytesPerSec"
REMOTE_COPY_REQUESTS: Final = "kafka.server:BrokerTopicMetrics:RemoteCopyRequestsPerSec"
REMOTE_COPY_ERRORS: Final = "kafka.server:BrokerTopicMetrics:RemoteCopyErrorsPerSec"
REMOTE_FETCH_BYTES: Final = "kafka.server:BrokerTopicMetrics:RemoteFetchBytesPerSec"
REMOTE_FETCH_REQUESTS: Final = "kafka.server:BrokerTopicMetrics:RemoteFetchRequestsPerSec"
REMOTE_FETCH_ERRORS: Final = "kafka.server:BrokerTopicMetrics:RemoteFetchErrorsPerSec"
REMOTE_DELETE_REQUESTS: Final = "kafka.server:BrokerTopicMetrics:RemoteDeleteRequestsPerSec"
REMOTE_DELETE_ERRORS: Final = "kafka.server:BrokerTopicMetrics:RemoteDeleteErrorsPerSec"
BUILD_REMOTE_STATE_REQUESTS: Final = (
    "kafka.server:BrokerTopicMetrics:BuildRemoteLogAuxStateRequestsPerSec"
)
BUILD_REMOTE_STATE_ERRORS: Final = (
    "kafka.server:BrokerTopicMetrics:BuildRemoteLogAuxStateErrorsPerSec"
)
REMOTE_COPY_LAG_BYTES: Final = "kafka.server:BrokerTopicMetrics:RemoteCopyLagBytes"
REMOTE_COPY_LAG_SEGMENTS: Final = "kafka.server:BrokerTopicMetrics:RemoteCopyLagSegments"
REMOTE_DELETE_LAG_BYTES: Final = "kafka.server:BrokerTopicMetrics:RemoteDeleteLagBytes"
REMOTE_DELETE_LAG_SEGMENTS: Final = "kafka.server:BrokerTopicMetrics:RemoteDeleteLagSegments"
REMOTE_LOG_METADATA_COUNT: Final = "kafka.server:BrokerTopicMetrics:RemoteLogMetadataCount"
REMOTE_LOG_SIZE_BYTES: Final = "kafka.server:BrokerTopicMetrics:RemoteLogSizeBytes"
REMOTE_LOG_SIZE_TIME: Final = "kafka.server:BrokerTopicMetrics:RemoteLogSizeComputationTime"
REMOTE_RETENTION_PERCENT: Final = "kafka.log.remote:RemoteLogManager:RetentionSizeInPercent"
REMOTE_LOCAL_RETENTION_PERCENT: Final = (
    "kafka.log.remote:RemoteLogManager:LocalRetentionSizeInPercent"
)
REMOTE_TASKS_IDLE: Final = "kafka.log.remote:RemoteLogManager:RemoteLogManagerTasksAvgIdlePercent"
REMOTE_READER_TIME: Final = "kafka.log.remote:RemoteLogManager:RemoteLogReaderFetchRateAndTimeMs"
REMOTE_READER_IDLE: Final = "kafka.log.remote:RemoteStorageThreadPool:RemoteLogReaderAvgIdlePercent"
REMOTE_READER_QUEUE: Final = "kafka.log.remote:RemoteStorageThreadPool:RemoteLogReaderTaskQueueSize"
REMOTE_COPY_RATE: Final = "kafka.server:RLMCopy:byte-rate"
REMOTE_FETCH_RATE: Final = "kafka.server:RLMFetch:byte-rate"
REMOTE_COPY_THROTTLE_AVG: Final = "kafka.server:RemoteLogManager:remote-copy-throttle-time-avg"
REMOTE_COPY_THROTTLE_MAX: Final = "kafka.server:RemoteLogManager:remote-copy-throttle-time-max"
REMOTE_FETCH_THROTTLE_AVG: Final = "kafka.server:RemoteLogManager:remote-fetch-throttle-time-avg"
REMOTE_FETCH_THROTTLE_MAX: Final = "kafka.server:RemoteLogManager:remote-fetch-throttle-time-max"
DELAYED_REMOTE_FETCH_EXPIRES: Final = "kafka.server:DelayedRemoteFetchMetrics:ExpiresPerSec"
DELAYED_REMOTE_LIST_OFFSETS_EXPIRES: Final = (
    "kafka.server:DelayedRemoteListOffsetsMetrics:ExpiresPerSec"
)
REMOTE_STORE_FAILURES: Final = "barnabas_remote_store_failures-total"
REMOTE_COPIES_RUNNING: Final = "barnabas_remote_copies_running"
REMOTE_COPIES_WAITING: Final = "barnabas_remote_copies_waiting"
REMOTE_COPIES_PAUSED: Final = "barnabas_remote_copies_paused"
REMOTE_WAITING_SECONDS: Final = "barnabas_remote_segment_waiting_seconds"
REMOTE_WAITING_OFFSET: Final = "barnabas_remote_segment_waiting_offset"
REMOTE_UNREADABLE_FIRST: Final = "barnabas_remote_unreadable_first_offset"
REMOTE_UNREADABLE_LAST: Final = "barnabas_remote_unreadable_last_offset"
REMOTE_LOADS_WAITING: Final = "barnabas_remote_loads_waiting"
REMOTE_CACHE_BYTES: Final = "barnabas_remote_read_cache_bytes"
REMOTE_CACHE_LIMIT: Final = "barnabas_remote_read_cache_limit_bytes"
REMOTE_METADATA_PROBLEM: Final = "barnabas_remote_metadata_problem"
REMOTE_METADATA_UNREADY: Final = "barnabas_remote_metadata_unready_partitions"
REMOTE_METADATA_SKIPPED: Final = "barnabas_remote_metadata_skipped-total"
REMOTE_METADATA_DROPPED: Final = "barnabas_remote_metadata_dropped-total"

REQUESTS: Final = "kafka.network:RequestMetrics:RequestsPerSec"
REQUEST_ERRORS: Final = "kafka.network:RequestMetrics:ErrorsPerSec"
REQUEST_BYTES: Final = "kafka.network:RequestMetrics:RequestBytes"
REQUEST_TOTAL_TIME: Final = "kafka.network:RequestMetrics:TotalTimeMs"
# The same as a histogram, from which Prometheus computes percentiles of a period.
REQUEST_SECONDS: Final = "barnabas_request_seconds"
REQUEST_LOCAL_TIME: Final = "kafka.network:RequestMetrics:LocalTimeMs"
REQUEST_REMOTE_TIME: Final = "kafka.network:RequestMetrics:RemoteTimeMs"
REQUEST_THROTTLE_TIME: Final = "kafka.network:RequestMetrics:ThrottleTimeMs"
REQUEST_QUEUE_TIME: Final = "kafka.network:RequestMetrics:RequestQueueTimeMs"
RESPONSE_QUEUE_TIME: Final = "kafka.network:RequestMetrics:ResponseQueueTimeMs"
RESPONSE_SEND_TIME: Final = "kafka.network:RequestMetrics:ResponseSendTimeMs"
RESPONSE_BYTES: Final = "kafka.network:RequestMetrics:ResponseBytes"
CONNECTION_COUNT: Final = "kafka.server:socket-server-metrics:connection-count"
CONNECTIONS_CREATED: Final = "kafka.server:socket-server-metrics:connection-creation-total"
CONNECTIONS_CLOSED: Final = "kafka.server:socket-server-metrics:connection-close-total"
CONNECTIONS_EXPIRED: Final = "kafka.server:socket-server-metrics:expired-connections-killed-count"
INCOMING_BYTES: Final = "kafka.server:socket-server-metrics:incoming-byte-total"
OUTGOING_BYTES: Final = "kafka.server:socket-server-metrics:outgoing-byte-total"
CONNECTIONS: Final = "kafka.server:socket-server-metrics:connections"
CONNECTIONS_WAITING: Final = "barnabas_connections_waiting"
PRINCIPAL_CONNECTIONS: Final = "barnabas_principal_connections"
CERTIFICATE_EXPIRY: Final = "barnabas_certificate_expiry_timestamp_seconds"
CLIENT_REQUESTS: Final = "barnabas_client_requests"
CLIENT_BYTES_IN: Final = "barnabas_client_bytes_in"
CLIENT_BYTES_OUT: Final = "barnabas_client_bytes_out"
PRODUCE_QUOTA_RATE: Final = "kafka.server:Produce:byte-rate"
FETCH_QUOTA_RATE: Final = "kafka.server:Fetch:byte-rate"
REQUEST_QUOTA_RATE: Final = "kafka.server:Request:request-time"
MUTATION_QUOTA_RATE: Final = "kafka.server:ControllerMutation:mutation-rate"
MUTATION_QUOTA_TOKENS: Final = "kafka.server:ControllerMutation:tokens"
PRODUCE_QUOTA_THROTTLE: Final = "kafka.server:Produce:throttle-time"
FETCH_QUOTA_THROTTLE: Final = "kafka.server:Fetch:throttle-time"
REQUEST_QUOTA_THROTTLE: Final = "kafka.server:Request:throttle-time"
MUTATION_QUOTA_THROTTLE: Final = "kafka.server:ControllerMutation:throttle-time"
EXEMPT_REQUEST_TIME: Final = "kafka.server:Request:exempt-request-time"

# The name that kafka_exporter uses; consumer lag dashboards query it.
GROUP_CURRENT_OFFSET: Final = "kafka_consumergroup_current_offset"
LOG_DIRECTORY_BYTES: Final = "barnabas_log_directory_bytes"
LOG_DIRECTORY_USABLE_BYTES: Final = "barnabas_log_directory_usable_bytes"

RAFT_HIGH_WATERMARK: Final = "kafka.server:raft-metrics:high-watermark"
RAFT_LOG_END_OFFSET: Final = "kafka.server:raft-metrics:log-end-offset"
QUORUM_SILENT_VOTERS: Final = "barnabas_quorum_silent_voters"
RAFT_EPOCH: Final = "kafka.server:raft-metrics:current-epoch"
RAFT_LEADER: Final = "kafka.server:raft-metrics:current-leader"
RAFT_VOTE: Final = "kafka.server:raft-metrics:current-vote"
RAFT_VOTE_DIRECTORY: Final = "kafka.server:raft-metrics:current-vote-directory-id"
RAFT_STATE: Final = "kafka.server:raft-metrics:current-state"
RAFT_LOG_END_EPOCH: Final = "kafka.server:raft-metrics:log-end-epoch"
RAFT_VOTERS: Final = "kafka.server:raft-metrics:number-of-voters"
RAFT_OBSERVERS: Final = "kafka.server:raft-metrics:number-of-observers"
RAFT_UNKNOWN_VOTERS: Final = "kafka.server:raft-metrics:number-unknown-voter-connections"
RAFT_VOTER_CHANGE: Final = "kafka.server:raft-metrics:uncommitted-voter-change"
RAFT_APPEND_RATE: Final = "kafka.server:raft-metrics:append-records-rate"
RAFT_FETCH_RATE: Final = "kafka.server:raft-metrics:fetch-records-rate"
RAFT_COMMIT_LATENCY_AVG: Final = "kafka.server:raft-metrics:commit-latency-avg"
RAFT_COMMIT_LATENCY_MAX: Final = "kafka.server:raft-metrics:commit-latency-max"
RAFT_ELECTION_LATENCY_AVG: Final = "kafka.server:raft-metrics:election-latency-avg"
RAFT_ELECTION_LATENCY_MAX: Final = "kafka.server:raft-metrics:election-latency-max"
RAFT_POLL_IDLE_RATIO: Final = "kafka.server:raft-metrics:poll-idle-ratio-avg"
RAFT_CONNECTIONS: Final = "kafka.server:raft-channel-metrics:connection-count"
RAFT_CONNECTIONS_CREATED: Final = "kafka.server:raft-channel-metrics:connection-creation-total"
RAFT_REQUESTS: Final = "kafka.server:raft-channel-metrics:request-total"
RAFT_RESPONSES: Final = "kafka.server:raft-channel-metrics:response-total"

# Metrics of the Python process, in place of the JVM metrics of Kafka.
GC_PAUSE: Final = "python_gc_pause_seconds"
LOOP_LAG: Final = "barnabas_loop_lag_seconds"
LOOP_LONGEST_TURN: Final = "barnabas_loop_longest_turn_seconds"
LOOP_LONG_TURNS: Final = "barnabas_loop_long_turns-total"
BUILD_INFO: Final = "barnabas_build_info"

ACTIVE_CONTROLLER_COUNT: Final = "kafka.controller:KafkaController:ActiveControllerCount"
ACTIVE_BROKER_COUNT: Final = "kafka.controller:KafkaController:ActiveBrokerCount"
FENCED_BROKER_COUNT: Final = "kafka.controller:KafkaController:FencedBrokerCount"
GLOBAL_TOPIC_COUNT: Final = "kafka.controller:KafkaController:GlobalTopicCount"
GLOBAL_PARTITION_COUNT: Final = "kafka.controller:KafkaController:GlobalPartitionCount"
OFFLINE_PARTITIONS_COUNT: Final = "kafka.controller:KafkaController:OfflinePartitionsCount"
PREFERRED_REPLICA_IMBALANCE: Final = (
    "kafka.controller:KafkaController:PreferredReplicaImbalanceCount"
)
UNCLEAN_LEADER_ELECTIONS: Final = "kafka.controller:ControllerStats:UncleanLeaderElectionsPerSec"
ELECTIONS_FROM_ELIGIBLE: Final = (
    "kafka.controller:ControllerStats:ElectionFromEligibleLeaderReplicasPerSec"
)
