"""Every metric of brokers, nodes and streaming queries: its kind, its tags and its meaning.

tools/metrics_page.py generates `docs/metrics.md` from these tables. The process that starts the
queries of Spark exposes their metrics, not a broker. Their names are those of Prometheus.
"""

from __future__ import annotations

from typing import Final

from barnabas.metrics import names
from barnabas.metrics.metric_row import MetricRow
from barnabas.metrics.registry import MetricKind
from barnabas.metrics.remote_catalogue import REMOTE_CATALOGUE

C, G, S = MetricKind.COUNTER, MetricKind.GAUGE, MetricKind.SUMMARY
H = MetricKind.HISTOGRAM


_TOPIC = ("topic",)
_LINK = ("link",)
_PARTITION = ("topic", "partition")
_GROUP = ("group",)
_FETCHERS = ("clientId",)
_FETCHER = ("clientId", "brokerHost", "brokerPort")
_REQUEST = ("request",)
_LISTENER = ("listener", "networkProcessor")
_CLIENT = ("user", "client-id")
_TALKER = ("principal", "client-id")

CATALOGUE: dict[str, MetricRow] = {
    names.MESSAGES_IN: MetricRow(C, _TOPIC, "Records appended. Without the tag: of all topics."),
    names.BYTES_IN: MetricRow(C, _TOPIC, "Bytes of records appended."),
    names.BYTES_OUT: MetricRow(C, _TOPIC, "Bytes of records sent to consumers."),
    names.BYTES_REJECTED: MetricRow(C, _TOPIC, "Bytes of records rejected as too large."),
    names.REPLICATION_BYTES_OUT: MetricRow(C, (), "Bytes of records sent to followers."),
    names.REPLICATION_BYTES_IN: MetricRow(C, (), "Bytes of records received from leaders."),
    names.REASSIGNMENT_BYTES_OUT: MetricRow(
        C, (), "Bytes of records sent to replicas that a reassignment adds."
    ),
    names.REASSIGNMENT_BYTES_IN: MetricRow(
        C, (), "Bytes of records received for replicas that a reassignment adds."
    ),
    names.REASSIGNING_PARTITIONS: MetricRow(
        G, (), "Led partitions with a reassignment in progress."
    ),
    names.LEADER_REPLICATION_RATE: MetricRow(
        G, (), "Throttled bytes per second sent to followers."
    ),
    names.FOLLOWER_REPLICATION_RATE: MetricRow(
        G, (), "Throttled bytes per second received from leaders."
    ),
    names.MOVES_RATE: MetricRow(
        G, (), "Bytes per second copied between this broker's data directories."
    ),
    names.MAX_LAG: MetricRow(G, _FETCHERS, "Largest lag of a followed partition, in records."),
    names.MIN_FETCH_RATE: MetricRow(G, _FETCHERS, "Requests per second of the slowest fetcher."),
    names.FAILED_PARTITIONS: MetricRow(
        G, _FETCHERS, "Partitions whose replication failed. It resumes when the leadership changes."
    ),
    names.DEAD_FETCHERS: MetricRow(G, _FETCHERS, "Fetchers that an unexpected error has stopped."),
    names.FETCHER_REQUESTS: MetricRow(C, _FETCHER, "Requests of a fetcher."),
    names.FETCHER_BYTES: MetricRow(C, _FETCHER, "Bytes that a fetcher appended."),
    names.CONSUMER_LAG: MetricRow(
        G, ("clientId", *_PARTITION), "Records between a follower and its leader's high watermark."
    ),
    names.TOTAL_PRODUCE_REQUESTS: MetricRow(C, _TOPIC, "Partitions of produce requests."),
    names.TOTAL_FETCH_REQUESTS: MetricRow(C, _TOPIC, "Partitions of fetch requests."),
    names.FAILED_PRODUCE_REQUESTS: MetricRow(
        C,
        _TOPIC,
        "Failed appends, except for errors that Kafka expects (moved, damaged, too large, disk).",
    ),
    names.FAILED_FETCH_REQUESTS: MetricRow(
        C, _TOPIC, "Reads that failed with an unexpected error."
    ),
    names.PRODUCE_CONVERSIONS: MetricRow(C, _TOPIC, "Records converted for old producers."),
    names.FETCH_CONVERSIONS: MetricRow(C, _TOPIC, "Records converted for old consumers."),
    names.ISR_SHRINKS: MetricRow(C, (), "Replicas removed from an ISR."),
    names.ISR_EXPANDS: MetricRow(C, (), "Replicas added to an ISR."),
    names.FAILED_ISR_UPDATES: MetricRow(C, (), "Changes of an ISR that the controller rejected."),
    names.LEADER_COUNT: MetricRow(G, (), "Led partitions."),
    names.PARTITION_COUNT: MetricRow(G, (), "Partitions with an online replica on this broker."),
    names.OFFLINE_REPLICA_COUNT: MetricRow(G, (), "Replicas on a failed disk."),
    names.UNDER_REPLICATED_PARTITIONS: MetricRow(
        G, (), "Led partitions with a replica that is not in sync."
    ),
    names.UNDER_MIN_ISR_PARTITION_COUNT: MetricRow(
        G, (), "Led partitions with fewer in-sync replicas than acks=all needs."
    ),
    names.AT_MIN_ISR_PARTITION_COUNT: MetricRow(
        G, (), "Led partitions with exactly as many in-sync replicas as acks=all needs."
    ),
    names.PURGATORY_SIZE: MetricRow(
        G, ("delayedOperation",), "Delayed requests, once for each partition that they wait for."
    ),
    names.DELAYED_OPERATIONS: MetricRow(G, ("delayedOperation",), "Delayed requests."),
    names.DELAYED_PRODUCE_EXPIRES: MetricRow(
        C, (), "Produced partitions that timed out before their acknowledgement."
    ),
    names.DELAYED_FETCH_EXPIRES: MetricRow(
        C, ("fetcherType",), "Fetches that timed out before they had enough bytes."
    ),
    names.FETCH_SESSIONS: MetricRow(G, (), "Fetch sessions."),
    names.FETCH_SESSION_PARTITIONS: MetricRow(G, (), "Partitions of all fetch sessions."),
    names.SHARE_FETCH_REQUESTS: MetricRow(C, _TOPIC, "ShareFetch requests with a topic."),
    names.FAILED_SHARE_FETCH_REQUESTS: MetricRow(
        C, _TOPIC, "ShareFetch requests with an error for a partition of the topic."
    ),
    names.SHARE_ACKNOWLEDGE_REQUESTS: MetricRow(
        C, _TOPIC, "Requests that acknowledge records of a topic."
    ),
    names.FAILED_SHARE_ACKNOWLEDGE_REQUESTS: MetricRow(
        C, _TOPIC, "Requests whose acknowledgements of a partition of the topic are refused."
    ),
    names.RECORD_ACKNOWLEDGEMENTS: MetricRow(
        C, ("ackType",), "Acknowledged records, by type: Accept, Release, Reject or Renew."
    ),
    names.DEAD_LETTER_RECORDS: MetricRow(
        C, _GROUP, "Records that were written to the dead-letter topic of a share group."
    ),
    names.DEAD_LETTER_PRODUCES: MetricRow(
        C, _GROUP, "Attempts to write ranges of records to the dead-letter topic of a share group."
    ),
    names.FAILED_DEAD_LETTER_PRODUCES: MetricRow(
        C, _GROUP, "Writes to the dead-letter topic of a share group that were given up."
    ),
    names.SHARE_LOCK_TIMEOUTS: MetricRow(
        C, (*_GROUP, *_PARTITION), "Records whose acquisition lock timed out, by share partition."
    ),
    names.SHARE_IN_FLIGHT_MESSAGES: MetricRow(
        G, (*_GROUP, *_PARTITION), "Records in flight of a share partition."
    ),
    names.SHARE_IN_FLIGHT_BATCHES: MetricRow(
        G, (*_GROUP, *_PARTITION), "Batches in flight of a share partition."
    ),
    names.SHARE_BATCH_MESSAGES: MetricRow(
        S, (*_GROUP, *_PARTITION), "Records of a batch that is acquired for the first time."
    ),
    names.SHARE_FETCH_LOCK_TIME: MetricRow(
        S,
        (*_GROUP, *_PARTITION),
        "Time in which a fetch reads a share partition and acquires records, ms.",
    ),
    names.SHARE_FETCH_LOCK_RATIO: MetricRow(
        S, (*_GROUP, *_PARTITION), "The same as a percentage of the time since the previous read."
    ),
    names.SHARE_ACQUIRE_TIME: MetricRow(
        S, _GROUP, "Time from a fetch, or its previous read, until it reads share partitions, ms."
    ),
    names.SHARE_FETCH_RATIO: MetricRow(
        S, _GROUP, "Percentage of the requested partitions that a fetch has read in the end."
    ),
    names.SHARE_PARTITION_LOAD_TIME: MetricRow(
        S, (), "Time until the state of a share partition is loaded, ms."
    ),
    names.SHARE_SESSIONS: MetricRow(G, (), "Share sessions."),
    names.SHARE_SESSION_PARTITIONS: MetricRow(G, (), "Partitions of all share sessions."),
    names.SHARE_SESSION_EVICTIONS: MetricRow(
        C, (), "Share sessions that ended because their connection closed."
    ),
    names.DELAYED_SHARE_FETCH_EXPIRES: MetricRow(
        C, (), "Share fetches that timed out before they had enough bytes."
    ),
    names.SHARE_ACKNOWLEDGEMENTS: MetricRow(
        C, ("result",), "Acknowledgements of a share partition, by result: written or refused."
    ),
    names.SHARE_LEADERS: MetricRow(
        G, (), "Share partitions in memory: partitions that this broker leads, by share group."
    ),
    names.SHARE_RECORDS_IN_FLIGHT: MetricRow(
        G, (), "Records in flight of all share partitions in memory."
    ),
    names.LINK_STATE: MetricRow(
        G, ("link", "state"), "1 for the state of a link: active, paused, reversed or invalid."
    ),
    names.LINK_MIRRORS: MetricRow(
        G, ("link", "state"), "Topics of a link in each state, of the whole cluster."
    ),
    names.LINK_BYTES: MetricRow(C, _LINK, "Bytes of records that a link has appended."),
    names.LINK_RECORDS: MetricRow(C, _LINK, "Records that a link has appended."),
    names.LINK_PARTITIONS: MetricRow(G, _LINK, "Partitions that this broker mirrors."),
    names.LINK_FAILING: MetricRow(
        G,
        _LINK,
        "Partitions that are not fetched: the source has no leader that is known, or its last "
        "response was an error.",
    ),
    names.LINK_LAG: MetricRow(
        G, _LINK, "Records of the source cluster that the mirrors do not have yet."
    ),
    names.LINK_LAG_SECONDS: MetricRow(
        G, _LINK, "Largest time since a mirror had all records of its source, in seconds."
    ),
    names.MIRROR_LAG: MetricRow(
        G,
        ("topic", "partition"),
        "Records of the source cluster that a mirror does not have yet; of the 1,000 mirrors with "
        "the largest lags.",
    ),
    names.MIRROR_LAG_SECONDS: MetricRow(
        G, ("topic", "partition"), "Seconds since one of these mirrors had all records."
    ),
    names.GROUP_OFFSETS: MetricRow(G, (), "Committed offsets."),
    names.GROUPS: MetricRow(G, (), "Groups."),
    names.GROUPS_PREPARING_REBALANCE: MetricRow(G, (), "Groups whose members rejoin."),
    names.GROUPS_COMPLETING_REBALANCE: MetricRow(
        G, (), "Groups that wait for their leader's assignment."
    ),
    names.GROUPS_STABLE: MetricRow(G, (), "Groups whose members have their assignments."),
    names.GROUPS_EMPTY: MetricRow(G, (), "Groups without members."),
    names.GROUP_REBALANCES: MetricRow(C, (), "Rebalances that were completed."),
    names.CONSUMER_GROUPS: MetricRow(G, ("state",), "Consumer groups (KIP-848) in each state."),
    names.CONSUMER_GROUP_REBALANCES: MetricRow(
        C, (), "Increases of the epochs of consumer groups (KIP-848)."
    ),
    names.SHARE_GROUPS: MetricRow(G, ("state",), "Share groups (KIP-932) in each state."),
    names.SHARE_GROUP_REBALANCES: MetricRow(
        C, (), "Increases of the epochs of share groups (KIP-932) by heartbeats."
    ),
    names.STREAMS_GROUPS: MetricRow(G, ("state",), "Streams groups (KIP-1071) in each state."),
    names.STREAMS_GROUP_REBALANCES: MetricRow(
        C, (), "Increases of the epochs of streams groups (KIP-1071) by heartbeats."
    ),
    names.OFFSET_COMMITS: MetricRow(C, (), "Offsets committed."),
    names.OFFSET_DELETIONS: MetricRow(
        C, (), "Offsets deleted by request, or with their group or topic."
    ),
    names.OFFSET_EXPIRATIONS: MetricRow(C, (), "Offsets that expired."),
    names.COORDINATOR_RECORDS_SKIPPED: MetricRow(
        C, (), "Damaged records of __consumer_offsets that loading has skipped."
    ),
    names.COORDINATOR_TIMERS_FAILED: MetricRow(
        C,
        ("topic",),
        "Timers of coordinators that failed and run again, by the topic of their state.",
    ),
    names.GROUP_CURRENT_OFFSET: MetricRow(
        G, ("consumergroup", *_PARTITION), "Committed offset. Only on the group's coordinator."
    ),
    names.GROUP_LOAD_TIME_AVG: MetricRow(
        G, (), "Average time to load a partition of __consumer_offsets, ms. NaN without any."
    ),
    names.GROUP_LOAD_TIME_MAX: MetricRow(
        G, (), "Longest time to load a partition of __consumer_offsets, ms, of the last minute."
    ),
    names.TRANSACTION_LOAD_TIME_AVG: MetricRow(
        G, (), "Average time to load a partition of __transaction_state, ms. NaN without any."
    ),
    names.TRANSACTION_LOAD_TIME_MAX: MetricRow(
        G, (), "Longest time to load a partition of __transaction_state, ms, of the last minute."
    ),
    names.TRANSACTIONS: MetricRow(
        G, ("state",), "Transactional ids that this broker coordinates, by state."
    ),
    names.MARKERS_WITHOUT_LEADER: MetricRow(
        G, (), "Transaction markers that wait because their partition has no known leader."
    ),
    names.MARKER_LOG_APPEND_RETRIES: MetricRow(
        G, (), "Ended transactions whose last record could not be written yet."
    ),
    names.MARKER_CONNECTIONS: MetricRow(
        G, (), "Connections to other brokers that send transaction markers."
    ),
    names.MARKER_CONNECTIONS_CREATED: MetricRow(
        C, (), "Connections opened to other brokers to send transaction markers."
    ),
    names.MARKER_REQUESTS: MetricRow(C, (), "Requests with transaction markers to other brokers."),
    names.MARKER_RESPONSES: MetricRow(C, (), "Responses of other brokers to transaction markers."),
    names.VERIFICATION_TIME: MetricRow(
        S,
        (),
        "Duration of verifications by coordinators before the first batch of a transaction, ms.",
    ),
    names.VERIFICATION_FAILURES: MetricRow(
        C, (), "Partitions for which the coordinator refused the first batch of a transaction."
    ),
    names.PRODUCER_IDS: MetricRow(G, (), "Producer ids with state in this broker's replicas."),
    names.LATE_TRANSACTIONS: MetricRow(
        G,
        (),
        "Led partitions whose oldest transaction had no write for 5 minutes more than "
        "transaction.max.timeout.ms: it probably hangs.",
    ),
    names.GROUP_STATE_PARTITIONS: MetricRow(
        G, ("state",), "Partitions of __consumer_offsets that this broker leads."
    ),
    names.SHARE_STATE_PARTITIONS: MetricRow(
        G, ("state",), "Partitions of __share_group_state that this broker leads."
    ),
    names.SHARE_LOAD_TIME_AVG: MetricRow(
        G, (), "Average time to load a partition of __share_group_state, ms. NaN without any."
    ),
    names.SHARE_LOAD_TIME_MAX: MetricRow(
        G, (), "Longest time to load a partition of __share_group_state, ms, of the last minute."
    ),
    names.SHARE_PRUNED_OFFSET: MetricRow(
        G, _PARTITION, "Offset below which redundant records of __share_group_state were deleted."
    ),
    names.SHARE_WRITES: MetricRow(C, (), "Writes of the state of a share partition."),
    names.SHARE_WRITE_RATE: MetricRow(
        G, (), "Writes of the state of a share partition per second, of the last minute."
    ),
    names.SHARE_WRITE_TIME_AVG: MetricRow(
        G, (), "Average time of a WriteShareGroupState until its commit, ms. NaN without any."
    ),
    names.SHARE_WRITE_TIME_MAX: MetricRow(
        G, (), "Longest time of a WriteShareGroupState until its commit, ms, of the last minute."
    ),
    names.SHARE_PARTITIONS: MetricRow(G, (), "Share partitions that this broker coordinates."),
    names.BROKER_STATE: MetricRow(G, (), "State of the broker: 1 starting, 3 running, 6 stopping."),
    names.METADATA_LAST_APPLIED_OFFSET: MetricRow(
        G, (), "Offset of the last metadata record that was applied."
    ),
    names.METADATA_APPLY_ERRORS: MetricRow(
        C, (), "Errors while metadata was applied. The log has their tracebacks."
    ),
    names.PARTITION_UNDER_REPLICATED: MetricRow(G, _PARTITION, "1 if a replica is not in sync."),
    names.PARTITION_UNDER_MIN_ISR: MetricRow(
        G, _PARTITION, "1 if fewer replicas are in sync than acks=all needs."
    ),
    names.PARTITION_AT_MIN_ISR: MetricRow(
        G, _PARTITION, "1 if exactly as many replicas are in sync as acks=all needs."
    ),
    names.PARTITION_IN_SYNC_REPLICAS: MetricRow(G, _PARTITION, "In-sync replicas."),
    names.PARTITION_REPLICAS: MetricRow(G, _PARTITION, "Assigned replicas."),
    names.PARTITION_LAST_STABLE_OFFSET_LAG: MetricRow(
        G, _PARTITION, "Records between the last stable offset and the high watermark."
    ),
    names.LOG_SIZE: MetricRow(G, _PARTITION, "Bytes of a log."),
    names.LOG_START_OFFSET: MetricRow(G, _PARTITION, "First offset of a log."),
    names.LOG_END_OFFSET: MetricRow(G, _PARTITION, "End offset of a log (exclusive)."),
    names.LOG_SEGMENTS: MetricRow(G, _PARTITION, "Segments of a log."),
    names.CLEANER_RECOPY_PERCENT: MetricRow(
        G, (), "Percentage of a log that the last compaction kept."
    ),
    names.CLEANER_TIME_MAX: MetricRow(G, (), "Duration of the last compaction, s."),
    names.CLEANER_BUFFER_UTILIZATION: MetricRow(
        G, (), "Percentage of the key buffer that the last compaction used."
    ),
    names.CLEANER_COMPACTION_DELAY: MetricRow(
        G, (), "Time by which records exceed max.compaction.lag.ms, s."
    ),
    names.CLEANER_DIRTY_PERCENT: MetricRow(G, (), "Largest uncompacted percentage of a log."),
    names.CLEANER_IDLE_TIME: MetricRow(G, (), "Time since the cleaner last searched for work, ms."),
    names.UNCLEANABLE_PARTITIONS: MetricRow(
        G, ("logDirectory",), "Logs whose compaction failed. They are not compacted again."
    ),
    names.UNCLEANABLE_BYTES: MetricRow(
        G, ("logDirectory",), "Uncompacted bytes of logs whose compaction failed."
    ),
    names.LOG_FLUSH_TIME: MetricRow(S, (), "Duration of log syncs, ms."),
    names.LOG_DIRECTORY_OFFLINE: MetricRow(G, ("logDirectory",), "1 if a directory has failed."),
    names.LOG_DIRECTORY_BYTES: MetricRow(
        G, ("logDirectory",), "Size of the file system of a data directory."
    ),
    names.LOG_DIRECTORY_USABLE_BYTES: MetricRow(
        G, ("logDirectory",), "Free bytes of the file system of a data directory."
    ),
    names.OFFLINE_LOG_DIRECTORIES: MetricRow(G, (), "Data directories that have failed."),
    names.STORAGE_DAMAGE: MetricRow(
        C, ("kind",), "Damaged places found in files since the start. The log names each."
    ),
    names.CLOCK_HELD_BACK: MetricRow(
        G, (), "Time by which the wall clock is ahead of the clock that expires records, s."
    ),
    names.DESCRIPTOR_SHORTAGES: MetricRow(
        C, (), "File operations that failed because no file descriptor was free."
    ),
    **REMOTE_CATALOGUE,
    names.REQUESTS: MetricRow(C, ("request", "version"), "Requests."),
    names.REQUEST_ERRORS: MetricRow(
        C, ("request", "error"), "Error codes of responses, including NONE."
    ),
    names.REQUEST_BYTES: MetricRow(S, _REQUEST, "Bytes of requests."),
    names.RESPONSE_BYTES: MetricRow(S, _REQUEST, "Bytes of responses."),
    names.REQUEST_TOTAL_TIME: MetricRow(
        S, _REQUEST, "Time from the arrival of a request to its response, ms."
    ),
    names.REQUEST_SECONDS: MetricRow(
        H, (*_REQUEST, "le"), "Time from the arrival of a request to its response, s."
    ),
    names.REQUEST_LOCAL_TIME: MetricRow(S, _REQUEST, "Time in the handler, ms."),
    names.REQUEST_REMOTE_TIME: MetricRow(
        S, _REQUEST, "Time of waiting for other brokers or for data, ms."
    ),
    names.REQUEST_THROTTLE_TIME: MetricRow(S, _REQUEST, "Throttle time of clients, ms."),
    names.REQUEST_QUEUE_TIME: MetricRow(
        S, _REQUEST, "Time between the arrival of a request and its handling, ms."
    ),
    names.RESPONSE_QUEUE_TIME: MetricRow(
        S, _REQUEST, "Time that responses waited for earlier requests of their connection, ms."
    ),
    names.RESPONSE_SEND_TIME: MetricRow(
        S,
        _REQUEST,
        "Time from the first write of a response until the kernel has accepted all of it, ms.",
    ),
    names.CONNECTION_COUNT: MetricRow(G, _LISTENER, "Open connections."),
    names.CONNECTIONS_CREATED: MetricRow(C, _LISTENER, "Accepted connections."),
    names.CONNECTIONS_CLOSED: MetricRow(C, _LISTENER, "Closed connections."),
    names.CONNECTIONS_EXPIRED: MetricRow(
        C, _LISTENER, "Connections closed because they were idle."
    ),
    names.INCOMING_BYTES: MetricRow(C, _LISTENER, "Bytes received."),
    names.OUTGOING_BYTES: MetricRow(C, _LISTENER, "Bytes sent."),
    names.CONNECTIONS: MetricRow(
        G,
        ("clientSoftwareName", "clientSoftwareVersion", *_LISTENER),
        "Open connections by client software.",
    ),
    names.CONNECTIONS_WAITING: MetricRow(
        G, ("listener",), "Connections that wait because of a connection limit."
    ),
    names.PRINCIPAL_CONNECTIONS: MetricRow(
        G,
        ("principal", "listener"),
        "Open connections by principal. Those of principals beyond 1000 count as (other).",
    ),
    names.CERTIFICATE_EXPIRY: MetricRow(
        G, ("listener",), "End of the certificate of a listener with TLS, Unix time."
    ),
    names.CLIENT_REQUESTS: MetricRow(
        C, _TALKER, "Requests of the clients that sent the most. At most 500 clients are shown."
    ),
    names.CLIENT_BYTES_IN: MetricRow(C, _TALKER, "Bytes received from the same clients."),
    names.CLIENT_BYTES_OUT: MetricRow(C, _TALKER, "Bytes sent to the same clients."),
    names.PRODUCE_QUOTA_RATE: MetricRow(
        G, _CLIENT, "Produced bytes per second of clients with a quota."
    ),
    names.FETCH_QUOTA_RATE: MetricRow(
        G, _CLIENT, "Fetched bytes per second of clients with a quota."
    ),
    names.REQUEST_QUOTA_RATE: MetricRow(
        G, _CLIENT, "Percentage of time used by clients with a quota."
    ),
    names.MUTATION_QUOTA_RATE: MetricRow(
        G, _CLIENT, "Partitions created and deleted per second by clients with a quota."
    ),
    names.MUTATION_QUOTA_TOKENS: MetricRow(
        G,
        _CLIENT,
        "Partitions that clients with a quota may create or delete now; may be negative.",
    ),
    names.PRODUCE_QUOTA_THROTTLE: MetricRow(
        G, _CLIENT, "Average throttle time of the produce quota, in the last minute, ms."
    ),
    names.FETCH_QUOTA_THROTTLE: MetricRow(
        G, _CLIENT, "Average throttle time of the fetch quota, in the last minute, ms."
    ),
    names.REQUEST_QUOTA_THROTTLE: MetricRow(
        G, _CLIENT, "Average throttle time of the request quota, in the last minute, ms."
    ),
    names.MUTATION_QUOTA_THROTTLE: MetricRow(
        G, _CLIENT, "Average throttle time of the mutation quota, in the last minute, ms."
    ),
    names.EXEMPT_REQUEST_TIME: MetricRow(
        G, (), "Percentage of time for requests of brokers, while there are client quotas."
    ),
    names.ACTIVE_CONTROLLER_COUNT: MetricRow(G, (), "1 if this node is the active controller."),
    names.ACTIVE_BROKER_COUNT: MetricRow(G, (), "Brokers that are not fenced."),
    names.FENCED_BROKER_COUNT: MetricRow(G, (), "Brokers that are fenced."),
    names.GLOBAL_TOPIC_COUNT: MetricRow(G, (), "Topics of the cluster."),
    names.GLOBAL_PARTITION_COUNT: MetricRow(G, (), "Partitions of the cluster."),
    names.OFFLINE_PARTITIONS_COUNT: MetricRow(G, (), "Partitions without a leader."),
    names.PREFERRED_REPLICA_IMBALANCE: MetricRow(
        G, (), "Partitions whose leader is not the first replica."
    ),
    names.UNCLEAN_LEADER_ELECTIONS: MetricRow(
        C, (), "Elections of leaders that were not in sync and may lack records."
    ),
    names.ELECTIONS_FROM_ELIGIBLE: MetricRow(
        C, (), "Elections of leaders that were not in sync but have all records (KIP-966)."
    ),
    names.RAFT_HIGH_WATERMARK: MetricRow(G, (), "High watermark of the metadata log."),
    names.QUORUM_SILENT_VOTERS: MetricRow(
        G, (), "Voters that do not respond while the metadata quorum is lost, else 0."
    ),
    names.RAFT_LOG_END_OFFSET: MetricRow(G, (), "End offset of the metadata log."),
    names.RAFT_EPOCH: MetricRow(G, (), "Epoch of the metadata quorum."),
    names.RAFT_LEADER: MetricRow(
        G, (), "Leader of the metadata quorum; -1 if it is unknown or the quorum is lost."
    ),
    names.RAFT_VOTE: MetricRow(
        G, (), "Voter for which this node voted in the epoch; -1 without a vote."
    ),
    names.RAFT_VOTE_DIRECTORY: MetricRow(
        G, ("directory",), "1, with the log directory of the voter for which this node voted."
    ),
    names.RAFT_STATE: MetricRow(G, ("state",), "1, with the role of this node in the quorum."),
    names.RAFT_LOG_END_EPOCH: MetricRow(G, (), "Epoch of the last record of the metadata log."),
    names.RAFT_VOTERS: MetricRow(G, (), "Voters of the metadata quorum."),
    names.RAFT_OBSERVERS: MetricRow(G, (), "Observers that the leader knows. Only on the leader."),
    names.RAFT_UNKNOWN_VOTERS: MetricRow(G, (), "Voters with an unknown address."),
    names.RAFT_VOTER_CHANGE: MetricRow(
        G, (), "1 while the set of voters changes. Only on the leader."
    ),
    names.RAFT_APPEND_RATE: MetricRow(G, (), "Metadata records appended per second, as leader."),
    names.RAFT_FETCH_RATE: MetricRow(G, (), "Metadata records fetched per second."),
    names.RAFT_COMMIT_LATENCY_AVG: MetricRow(
        G, (), "Average time to commit a record, in the last minute, ms."
    ),
    names.RAFT_COMMIT_LATENCY_MAX: MetricRow(
        G, (), "Longest time to commit a record, in the last minute, ms."
    ),
    names.RAFT_ELECTION_LATENCY_AVG: MetricRow(
        G, (), "Average time to find a leader, in the last minute, ms."
    ),
    names.RAFT_ELECTION_LATENCY_MAX: MetricRow(
        G, (), "Longest time to find a leader, in the last minute, ms."
    ),
    names.RAFT_POLL_IDLE_RATIO: MetricRow(
        G, (), "Share of time without work for the quorum, since the last scrape."
    ),
    names.RAFT_CONNECTIONS: MetricRow(G, (), "Connections to other voters."),
    names.RAFT_CONNECTIONS_CREATED: MetricRow(C, (), "Connections opened to other voters."),
    names.RAFT_REQUESTS: MetricRow(C, (), "Requests to other voters."),
    names.RAFT_RESPONSES: MetricRow(C, (), "Responses of other voters."),
    names.GC_PAUSE: MetricRow(S, (), "Pauses for the collection of reference cycles, s."),
    names.LOOP_LAG: MetricRow(S, (), "Delay of timers on the event loop, s."),
    names.LOOP_LONGEST_TURN: MetricRow(
        G, ("clock",), "Longest turn of the event loop, s, by `wall` clock or `cpu` time."
    ),
    names.LOOP_LONG_TURNS: MetricRow(
        C, ("clock",), "Turns of the event loop over 100 ms, by `wall` clock or `cpu` time."
    ),
    names.BUILD_INFO: MetricRow(G, ("version",), "1, with the version of the software."),
}


RUNNING_QUERIES: Final = "barnabas_running_queries"
RUNNING: Final = "barnabas_query_running"
STARTS: Final = "barnabas_query_starts_total"
FAILURES: Final = "barnabas_query_failures_total"
ROWS_READ: Final = "barnabas_query_rows_read_total"
ROWS_WRITTEN: Final = "barnabas_query_rows_written_total"
ROWS_PER_SECOND: Final = "barnabas_query_rows_per_second"
BATCH_SECONDS: Final = "barnabas_query_batch_seconds"
LAST_BATCH_SECONDS: Final = "barnabas_query_last_batch_seconds"
PHASE_SECONDS: Final = "barnabas_query_phase_seconds_total"
LAST_TRIGGER: Final = "barnabas_query_last_trigger_timestamp_seconds"
LAG: Final = "barnabas_query_lag"
WATERMARK: Final = "barnabas_query_watermark_timestamp_seconds"
STATE_ROWS: Final = "barnabas_query_state_rows"
STATE_BYTES: Final = "barnabas_query_state_bytes"
LATE_ROWS: Final = "barnabas_query_late_rows_total"

_QUERY = ("query",)

QUERY_CATALOGUE: dict[str, MetricRow] = {
    RUNNING_QUERIES: MetricRow(G, (), "Queries that run."),
    RUNNING: MetricRow(G, _QUERY, "1 while the query runs, 0 after its end."),
    STARTS: MetricRow(C, _QUERY, "Starts of the query."),
    FAILURES: MetricRow(C, _QUERY, "Runs of the query that ended with an error."),
    ROWS_READ: MetricRow(C, _QUERY, "Rows that batches read from all sources."),
    ROWS_WRITTEN: MetricRow(
        C, _QUERY, "Rows that batches wrote. Missing if the sink of the query does not count them."
    ),
    ROWS_PER_SECOND: MetricRow(G, _QUERY, "Rows read per second of the last batch."),
    BATCH_SECONDS: MetricRow(H, (*_QUERY, "le"), "Duration of batches, s."),
    LAST_BATCH_SECONDS: MetricRow(G, _QUERY, "Duration of the last batch, s."),
    PHASE_SECONDS: MetricRow(
        C,
        (*_QUERY, "phase"),
        "Duration of the phases of batches, s, by Spark's name. `triggerExecution` is their sum.",
    ),
    LAST_TRIGGER: MetricRow(
        G, _QUERY, "Start of the last batch, or of the last trigger that found no data, Unix time."
    ),
    LAG: MetricRow(
        G,
        (*_QUERY, "topic", "partition"),
        "Records of a partition that the query had not read at the end of its last batch.",
    ),
    WATERMARK: MetricRow(G, _QUERY, "Watermark, Unix time. Missing without a watermark."),
    STATE_ROWS: MetricRow(G, _QUERY, "Rows of state. Missing without state."),
    STATE_BYTES: MetricRow(G, _QUERY, "Memory of the state, bytes. Missing without state."),
    LATE_ROWS: MetricRow(C, _QUERY, "Rows that the watermark dropped because they were late."),
}


PROCESS_UP: Final = "barnabas_node_process_up"
PROCESS_RESTARTS: Final = "barnabas_node_process_restarts_total"

_PROCESS = ("broker", "roles")

NODE_CATALOGUE: dict[str, MetricRow] = {
    PROCESS_UP: MetricRow(G, _PROCESS, "1 while the process of the node is ready, else 0."),
    PROCESS_RESTARTS: MetricRow(
        C, _PROCESS, "Restarts of the process, because it had ended by itself."
    ),
}
