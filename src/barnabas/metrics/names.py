"""Kafka's metric names, as its JMX beans spell them: group, type and name joined by a colon.

`kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec` is "kafka.server:BrokerTopicMetrics:
MessagesInPerSec" here; the tags (`topic`, `partition`, `request`, `delayedOperation`...) are the
bean's further keys.
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
BROKER_STATE: Final = "kafka.server:KafkaServer:BrokerState"
METADATA_LAST_APPLIED_OFFSET: Final = (
    "kafka.server:broker-metadata-metrics:last-applied-record-offset"
)

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
OFFSET_COMMITS: Final = "kafka.server:group-coordinator-metrics:offset-commit-count"
OFFSET_DELETIONS: Final = "kafka.server:group-coordinator-metrics:offset-deletion-count"
OFFSET_EXPIRATIONS: Final = "kafka.server:group-coordinator-metrics:offset-expiration-count"
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

REQUESTS: Final = "kafka.network:RequestMetrics:RequestsPerSec"
REQUEST_ERRORS: Final = "kafka.network:RequestMetrics:ErrorsPerSec"
REQUEST_BYTES: Final = "kafka.network:RequestMetrics:RequestBytes"
REQUEST_TOTAL_TIME: Final = "kafka.network:RequestMetrics:TotalTimeMs"
REQUEST_LOCAL_TIME: Final = "kafka.network:RequestMetrics:LocalTimeMs"
REQUEST_REMOTE_TIME: Final = "kafka.network:RequestMetrics:RemoteTimeMs"
REQUEST_THROTTLE_TIME: Final = "kafka.network:RequestMetrics:ThrottleTimeMs"
RESPONSE_QUEUE_TIME: Final = "kafka.network:RequestMetrics:ResponseQueueTimeMs"
RESPONSE_BYTES: Final = "kafka.network:RequestMetrics:ResponseBytes"
CONNECTION_COUNT: Final = "kafka.server:socket-server-metrics:connection-count"
CONNECTIONS_CREATED: Final = "kafka.server:socket-server-metrics:connection-creation-total"
CONNECTIONS_CLOSED: Final = "kafka.server:socket-server-metrics:connection-close-total"
CONNECTIONS_EXPIRED: Final = "kafka.server:socket-server-metrics:expired-connections-killed-count"
INCOMING_BYTES: Final = "kafka.server:socket-server-metrics:incoming-byte-total"
OUTGOING_BYTES: Final = "kafka.server:socket-server-metrics:outgoing-byte-total"
CONNECTIONS: Final = "kafka.server:socket-server-metrics:connections"
CONNECTIONS_WAITING: Final = "barnabas_connections_waiting"
PRODUCE_QUOTA_RATE: Final = "kafka.server:Produce:byte-rate"
FETCH_QUOTA_RATE: Final = "kafka.server:Fetch:byte-rate"
REQUEST_QUOTA_RATE: Final = "kafka.server:Request:request-time"

RAFT_HIGH_WATERMARK: Final = "kafka.server:raft-metrics:high-watermark"
RAFT_LOG_END_OFFSET: Final = "kafka.server:raft-metrics:log-end-offset"
RAFT_EPOCH: Final = "kafka.server:raft-metrics:current-epoch"
RAFT_LEADER: Final = "kafka.server:raft-metrics:current-leader"

# What a JVM's metrics say of Kafka, a Python process says of itself.
GC_PAUSE: Final = "python_gc_pause_seconds"
LOOP_LAG: Final = "barnabas_loop_lag_seconds"
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
