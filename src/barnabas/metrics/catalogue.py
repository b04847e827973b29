"""Every metric that a broker exposes: its kind, its tags and its meaning.

tools/metrics_page.py generates `docs/metrics.md` from this table.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas.metrics import names
from barnabas.metrics.family import MetricKind

C, G, S = MetricKind.COUNTER, MetricKind.GAUGE, MetricKind.SUMMARY


class MetricRow(NamedTuple):
    """The properties of a metric that are known in advance."""

    kind: MetricKind
    # Names of its tags. A sample without these tags is the total.
    tags: tuple[str, ...]
    text: str


_TOPIC = ("topic",)
_PARTITION = ("topic", "partition")
_FETCHERS = ("clientId",)
_FETCHER = ("clientId", "brokerHost", "brokerPort")
_REQUEST = ("request",)
_LISTENER = ("listener", "networkProcessor")
_CLIENT = ("user", "client-id")

CATALOGUE: dict[str, MetricRow] = {
    names.MESSAGES_IN: MetricRow(C, _TOPIC, "Records appended; without a topic: of all."),
    names.BYTES_IN: MetricRow(C, _TOPIC, "Bytes of records appended."),
    names.BYTES_OUT: MetricRow(C, _TOPIC, "Bytes of records answered to consumers."),
    names.BYTES_REJECTED: MetricRow(C, _TOPIC, "Bytes of records refused as too large."),
    names.REPLICATION_BYTES_OUT: MetricRow(C, (), "Bytes of records answered to followers."),
    names.REPLICATION_BYTES_IN: MetricRow(C, (), "Bytes of records that leaders sent."),
    names.REASSIGNMENT_BYTES_OUT: MetricRow(C, (), "What of it went to replicas being added."),
    names.REASSIGNMENT_BYTES_IN: MetricRow(C, (), "What of it came to replicas being added."),
    names.REASSIGNING_PARTITIONS: MetricRow(G, (), "Partitions led whose replicas change."),
    names.LEADER_REPLICATION_RATE: MetricRow(
        G, (), "Bytes per second of throttled partitions, to followers."
    ),
    names.FOLLOWER_REPLICATION_RATE: MetricRow(
        G, (), "Bytes per second of throttled partitions, from leaders."
    ),
    names.MOVES_RATE: MetricRow(
        G, (), "Bytes per second copied between this broker's data directories."
    ),
    names.MAX_LAG: MetricRow(G, _FETCHERS, "Lag of the partition that is furthest behind."),
    names.MIN_FETCH_RATE: MetricRow(
        G, _FETCHERS, "Requests per second of the fetcher that asks least."
    ),
    names.FAILED_PARTITIONS: MetricRow(
        G, _FETCHERS, "Partitions that are followed no more until their leadership changes."
    ),
    names.DEAD_FETCHERS: MetricRow(G, _FETCHERS, "Fetchers that an unexpected error has ended."),
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
        "Appends refused or failed, but for what Kafka expects (moved, damaged, too large, disk).",
    ),
    names.FAILED_FETCH_REQUESTS: MetricRow(
        C, _TOPIC, "Reads that failed unexpectedly, as Kafka counts."
    ),
    names.PRODUCE_CONVERSIONS: MetricRow(C, _TOPIC, "Records converted for old producers."),
    names.FETCH_CONVERSIONS: MetricRow(C, _TOPIC, "Records converted for old consumers."),
    names.ISR_SHRINKS: MetricRow(C, (), "In-sync replicas that fell behind."),
    names.ISR_EXPANDS: MetricRow(C, (), "Replicas that caught up."),
    names.FAILED_ISR_UPDATES: MetricRow(C, (), "Changes of an ISR that the controller refused."),
    names.LEADER_COUNT: MetricRow(G, (), "Partitions led."),
    names.PARTITION_COUNT: MetricRow(G, (), "Partitions with a replica here that is online."),
    names.OFFLINE_REPLICA_COUNT: MetricRow(G, (), "Replicas on a failed disk."),
    names.UNDER_REPLICATED_PARTITIONS: MetricRow(
        G, (), "Partitions led that have a replica out of sync."
    ),
    names.UNDER_MIN_ISR_PARTITION_COUNT: MetricRow(
        G, (), "Partitions led with fewer in sync than acks=all needs."
    ),
    names.AT_MIN_ISR_PARTITION_COUNT: MetricRow(
        G, (), "Partitions led with as many in sync as acks=all needs."
    ),
    names.PURGATORY_SIZE: MetricRow(
        G, ("delayedOperation",), "Requests that wait, counted per partition they wait for."
    ),
    names.DELAYED_OPERATIONS: MetricRow(G, ("delayedOperation",), "Requests that wait."),
    names.DELAYED_PRODUCE_EXPIRES: MetricRow(
        C, (), "Partitions that were not acknowledged in time."
    ),
    names.DELAYED_FETCH_EXPIRES: MetricRow(
        C, ("fetcherType",), "Fetches that were answered because their time was over."
    ),
    names.FETCH_SESSIONS: MetricRow(G, (), "Fetch sessions."),
    names.FETCH_SESSION_PARTITIONS: MetricRow(G, (), "Partitions of all fetch sessions."),
    names.GROUP_OFFSETS: MetricRow(G, (), "Committed offsets."),
    names.GROUPS: MetricRow(G, (), "Groups."),
    names.GROUPS_PREPARING_REBALANCE: MetricRow(G, (), "Groups whose members join again."),
    names.GROUPS_COMPLETING_REBALANCE: MetricRow(G, (), "Groups that wait for their leader."),
    names.GROUPS_STABLE: MetricRow(G, (), "Groups whose members have their assignments."),
    names.GROUPS_EMPTY: MetricRow(G, (), "Groups without members."),
    names.GROUP_REBALANCES: MetricRow(C, (), "Rebalances that were completed."),
    names.OFFSET_COMMITS: MetricRow(C, (), "Offsets committed."),
    names.OFFSET_DELETIONS: MetricRow(C, (), "Offsets deleted, or gone with group or topic."),
    names.OFFSET_EXPIRATIONS: MetricRow(C, (), "Offsets that expired."),
    names.COORDINATOR_RECORDS_SKIPPED: MetricRow(
        C, (), "Damaged records of __consumer_offsets that loading has skipped."
    ),
    names.GROUP_CURRENT_OFFSET: MetricRow(
        G, ("consumergroup", *_PARTITION), "Committed offset; on the group's coordinator only."
    ),
    names.GROUP_STATE_PARTITIONS: MetricRow(
        G, ("state",), "Partitions of __consumer_offsets that are led here."
    ),
    names.BROKER_STATE: MetricRow(G, (), "1 starting, 3 running, 6 stopping: Kafka's numbers."),
    names.METADATA_LAST_APPLIED_OFFSET: MetricRow(
        G, (), "Offset of the last metadata record taken in."
    ),
    names.METADATA_APPLY_ERRORS: MetricRow(
        C, (), "Failures to do what the metadata says, logged with their traceback."
    ),
    names.PARTITION_UNDER_REPLICATED: MetricRow(G, _PARTITION, "1 if a replica is out of sync."),
    names.PARTITION_UNDER_MIN_ISR: MetricRow(
        G, _PARTITION, "1 if fewer are in sync than acks=all needs."
    ),
    names.PARTITION_AT_MIN_ISR: MetricRow(
        G, _PARTITION, "1 if as many are in sync as acks=all needs."
    ),
    names.PARTITION_IN_SYNC_REPLICAS: MetricRow(G, _PARTITION, "Replicas in sync."),
    names.PARTITION_REPLICAS: MetricRow(G, _PARTITION, "Replicas assigned."),
    names.PARTITION_LAST_STABLE_OFFSET_LAG: MetricRow(
        G, _PARTITION, "Records between the last stable offset and the high watermark."
    ),
    names.LOG_SIZE: MetricRow(G, _PARTITION, "Bytes of a log."),
    names.LOG_START_OFFSET: MetricRow(G, _PARTITION, "First offset of a log."),
    names.LOG_END_OFFSET: MetricRow(G, _PARTITION, "End of a log, exclusive."),
    names.LOG_SEGMENTS: MetricRow(G, _PARTITION, "Segments of a log."),
    names.CLEANER_RECOPY_PERCENT: MetricRow(G, (), "What the last compaction kept of a log."),
    names.CLEANER_TIME_MAX: MetricRow(G, (), "How long the last compaction took."),
    names.CLEANER_BUFFER_UTILIZATION: MetricRow(G, (), "How full its memory for keys was."),
    names.CLEANER_COMPACTION_DELAY: MetricRow(
        G, (), "How much longer than max.compaction.lag.ms records wait."
    ),
    names.CLEANER_DIRTY_PERCENT: MetricRow(G, (), "The uncompacted part of the dirtiest log."),
    names.CLEANER_IDLE_TIME: MetricRow(G, (), "How long ago the cleaner looked for work."),
    names.UNCLEANABLE_PARTITIONS: MetricRow(
        G, ("logDirectory",), "Logs whose compaction failed; they stay as they are."
    ),
    names.UNCLEANABLE_BYTES: MetricRow(G, ("logDirectory",), "What was never compacted of those."),
    names.LOG_FLUSH_TIME: MetricRow(S, (), "Time that syncs of logs took off the loop, ms."),
    names.LOG_DIRECTORY_OFFLINE: MetricRow(G, ("logDirectory",), "1 if a directory has failed."),
    names.LOG_DIRECTORY_BYTES: MetricRow(
        G, ("logDirectory",), "Size of the file system of a data directory."
    ),
    names.LOG_DIRECTORY_USABLE_BYTES: MetricRow(
        G, ("logDirectory",), "Free bytes of the file system of a data directory."
    ),
    names.OFFLINE_LOG_DIRECTORIES: MetricRow(G, (), "Data directories that have failed."),
    names.STORAGE_DAMAGE: MetricRow(
        C, ("kind",), "Damaged places found in files since the start; the log names each."
    ),
    names.CLOCK_HELD_BACK: MetricRow(
        G, (), "How far the wall clock is ahead of the time by which records expire, s."
    ),
    names.DESCRIPTOR_SHORTAGES: MetricRow(
        C, (), "Operations on files that found no free file descriptor."
    ),
    names.REQUESTS: MetricRow(C, ("request", "version"), "Requests."),
    names.REQUEST_ERRORS: MetricRow(C, ("request", "error"), "Error codes of answers, NONE too."),
    names.REQUEST_BYTES: MetricRow(S, _REQUEST, "Bytes of requests."),
    names.RESPONSE_BYTES: MetricRow(S, _REQUEST, "Bytes of answers."),
    names.REQUEST_TOTAL_TIME: MetricRow(S, _REQUEST, "From arrival to answer, ms."),
    names.REQUEST_LOCAL_TIME: MetricRow(S, _REQUEST, "Spent in the handler, ms."),
    names.REQUEST_REMOTE_TIME: MetricRow(S, _REQUEST, "Waited for others or for data, ms."),
    names.REQUEST_THROTTLE_TIME: MetricRow(S, _REQUEST, "For how long clients had to wait, ms."),
    names.REQUEST_QUEUE_TIME: MetricRow(
        S, _REQUEST, "For how long requests waited for their turn once received, ms."
    ),
    names.RESPONSE_QUEUE_TIME: MetricRow(
        S, _REQUEST, "For how long earlier requests of the connection held answers back, ms."
    ),
    names.RESPONSE_SEND_TIME: MetricRow(
        S, _REQUEST, "From the first write of a response until the kernel has taken all of it, ms."
    ),
    names.CONNECTION_COUNT: MetricRow(G, _LISTENER, "Open connections."),
    names.CONNECTIONS_CREATED: MetricRow(C, _LISTENER, "Connections let in."),
    names.CONNECTIONS_CLOSED: MetricRow(C, _LISTENER, "Connections that have ended."),
    names.CONNECTIONS_EXPIRED: MetricRow(C, _LISTENER, "Connections closed for being idle."),
    names.INCOMING_BYTES: MetricRow(C, _LISTENER, "Bytes received."),
    names.OUTGOING_BYTES: MetricRow(C, _LISTENER, "Bytes sent."),
    names.CONNECTIONS: MetricRow(
        G,
        ("clientSoftwareName", "clientSoftwareVersion", *_LISTENER),
        "Open connections by their clients' software.",
    ),
    names.CONNECTIONS_WAITING: MetricRow(G, ("listener",), "Connections that wait at a limit."),
    names.PRODUCE_QUOTA_RATE: MetricRow(G, _CLIENT, "Bytes per second, of those with a quota."),
    names.FETCH_QUOTA_RATE: MetricRow(G, _CLIENT, "Bytes per second, of those with a quota."),
    names.REQUEST_QUOTA_RATE: MetricRow(G, _CLIENT, "Percent of time, of those with a quota."),
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
        C, (), "Leaders that were out of sync and may have lacked records."
    ),
    names.ELECTIONS_FROM_ELIGIBLE: MetricRow(
        C, (), "Leaders that were out of sync and known to have everything (KIP-966)."
    ),
    names.RAFT_HIGH_WATERMARK: MetricRow(G, (), "High watermark of the metadata log."),
    names.QUORUM_SILENT_VOTERS: MetricRow(
        G, (), "Voters that do not answer while the metadata quorum is lost; 0 while it is not."
    ),
    names.RAFT_LOG_END_OFFSET: MetricRow(G, (), "End of the metadata log."),
    names.RAFT_EPOCH: MetricRow(G, (), "Epoch of the metadata quorum."),
    names.RAFT_LEADER: MetricRow(
        G, (), "Leader of the metadata quorum; -1 if unknown, or if the quorum is lost."
    ),
    names.RAFT_VOTE: MetricRow(G, (), "Whom this node voted for in the epoch; -1: nobody."),
    names.RAFT_VOTE_DIRECTORY: MetricRow(
        G, ("directory",), "1, with the log directory of whom this node voted for."
    ),
    names.RAFT_STATE: MetricRow(G, ("state",), "1, with the role of this node in the quorum."),
    names.RAFT_LOG_END_EPOCH: MetricRow(G, (), "Epoch of the last record of the metadata log."),
    names.RAFT_VOTERS: MetricRow(G, (), "Voters of the metadata quorum."),
    names.RAFT_OBSERVERS: MetricRow(G, (), "Observers that the leader knows; on the leader only."),
    names.RAFT_UNKNOWN_VOTERS: MetricRow(G, (), "Voters whose addresses are not known."),
    names.RAFT_VOTER_CHANGE: MetricRow(
        G, (), "Whether a change of the voters is under way; on the leader only."
    ),
    names.RAFT_APPEND_RATE: MetricRow(G, (), "Metadata records per second, as leader."),
    names.RAFT_FETCH_RATE: MetricRow(G, (), "Metadata records per second, fetched."),
    names.RAFT_COMMIT_LATENCY_AVG: MetricRow(G, (), "Time to commit, ms per record; of a minute."),
    names.RAFT_COMMIT_LATENCY_MAX: MetricRow(G, (), "The longest of it."),
    names.RAFT_ELECTION_LATENCY_AVG: MetricRow(G, (), "Time to find a leader, ms; of a minute."),
    names.RAFT_ELECTION_LATENCY_MAX: MetricRow(G, (), "The longest of it."),
    names.RAFT_POLL_IDLE_RATIO: MetricRow(
        G, (), "Share of the time since the last look without work for the quorum."
    ),
    names.RAFT_CONNECTIONS: MetricRow(G, (), "Connections to other voters."),
    names.RAFT_CONNECTIONS_CREATED: MetricRow(C, (), "Connections made to other voters."),
    names.RAFT_REQUESTS: MetricRow(C, (), "Requests to other voters."),
    names.RAFT_RESPONSES: MetricRow(C, (), "Answers of other voters."),
    names.GC_PAUSE: MetricRow(S, (), "Pauses for the collection of reference cycles, s."),
    names.LOOP_LAG: MetricRow(S, (), "How late the event loop calls a timer, s."),
    names.LOOP_LONGEST_TURN: MetricRow(
        G, ("clock",), "The longest turn of the event loop, s: by the `wall` clock, or `cpu` time."
    ),
    names.LOOP_LONG_TURNS: MetricRow(
        C, ("clock",), "Turns of the event loop over 100 ms: by the `wall` clock, or `cpu` time."
    ),
    names.BUILD_INFO: MetricRow(G, ("version",), "1, with the version of the software."),
}
