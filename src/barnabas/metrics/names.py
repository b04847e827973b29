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

ISR_SHRINKS: Final = "kafka.server:ReplicaManager:IsrShrinksPerSec"
ISR_EXPANDS: Final = "kafka.server:ReplicaManager:IsrExpandsPerSec"
FAILED_ISR_UPDATES: Final = "kafka.server:ReplicaManager:FailedIsrUpdatesPerSec"
LEADER_COUNT: Final = "kafka.server:ReplicaManager:LeaderCount"
PARTITION_COUNT: Final = "kafka.server:ReplicaManager:PartitionCount"
OFFLINE_REPLICA_COUNT: Final = "kafka.server:ReplicaManager:OfflineReplicaCount"
UNDER_REPLICATED_PARTITIONS: Final = "kafka.server:ReplicaManager:UnderReplicatedPartitions"
UNDER_MIN_ISR_PARTITION_COUNT: Final = "kafka.server:ReplicaManager:UnderMinIsrPartitionCount"
AT_MIN_ISR_PARTITION_COUNT: Final = "kafka.server:ReplicaManager:AtMinIsrPartitionCount"
MAX_LAG: Final = "kafka.server:ReplicaFetcherManager:MaxLag"
CONSUMER_LAG: Final = "kafka.server:FetcherLagMetrics:ConsumerLag"
PURGATORY_SIZE: Final = "kafka.server:DelayedOperationPurgatory:PurgatorySize"
DELAYED_OPERATIONS: Final = "kafka.server:DelayedOperationPurgatory:NumDelayedOperations"
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
PARTITION_LAST_STABLE_OFFSET_LAG: Final = "kafka.cluster:Partition:LastStableOffsetLag"

LOG_SIZE: Final = "kafka.log:Log:Size"
LOG_START_OFFSET: Final = "kafka.log:Log:LogStartOffset"
LOG_END_OFFSET: Final = "kafka.log:Log:LogEndOffset"
LOG_SEGMENTS: Final = "kafka.log:Log:NumLogSegments"
LOG_FLUSH_TIME: Final = "kafka.log:LogFlushStats:LogFlushRateAndTimeMs"
OFFLINE_LOG_DIRECTORIES: Final = "kafka.log:LogManager:OfflineLogDirectoryCount"

REQUESTS: Final = "kafka.network:RequestMetrics:RequestsPerSec"
REQUEST_ERRORS: Final = "kafka.network:RequestMetrics:ErrorsPerSec"
REQUEST_BYTES: Final = "kafka.network:RequestMetrics:RequestBytes"
REQUEST_TOTAL_TIME: Final = "kafka.network:RequestMetrics:TotalTimeMs"
REQUEST_LOCAL_TIME: Final = "kafka.network:RequestMetrics:LocalTimeMs"
REQUEST_REMOTE_TIME: Final = "kafka.network:RequestMetrics:RemoteTimeMs"
CONNECTION_COUNT: Final = "kafka.server:socket-server-metrics:connection-count"

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
