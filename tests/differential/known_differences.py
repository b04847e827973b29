"""Where Barnabas answers differently from Apache Kafka 4.4, and why.

Case -> path (with `*` for anything) -> reason. A difference that is not there any more fails its
case, so that this table stays true. docs/compatibility.md lists the same for users.
"""

from __future__ import annotations

_INTERNAL = "Kafka fails with an internal error on a value that no client sends; "
_IGNORED = _INTERNAL + "Barnabas takes it for the nearest sensible one"
_TOLD = _INTERNAL + "Barnabas says what is wrong"
_OPAQUE = "batches stay opaque bytes: no record is read, nothing decompressed, headers are believed"
_GONE = "of records that are left; Kafka names one below the log's start, which nobody can read"
_NO_VALUE = "a value that says nothing is refused: no ratio, no replica, a limit below none at all"
_PROCESSES = "what are threads there are processes and requests here, which need not grow by halves"
_SILENT = "Kafka never answers it; Barnabas does"
_OLD = "versions that Kafka 4.0 dropped are served for older clients"
_FEATURES = "features that are not implemented are not advertised"

# A member that asks twice has two connections: whoever waits on the first one is told.
_FIRST = (
    "a SyncGroup or JoinGroup whose member leaves, or asks again, is not left without an answer"
)

KNOWN_DIFFERENCES: dict[str, dict[str, str]] = {
    "alter_configs: a-resource-named-twice": {"*": _SILENT},
    "api_versions: client-ids": {
        "answer 7 outcome": "client ids that are not UTF-8 are refused; Kafka replaces the bytes"
    },
    "api_versions: software-names-that-are-none": {
        "answer 6 ApiVersions.api_keys[*].min_version": _OLD,
        "answer 6 ApiVersions.*features*": _FEATURES,
    },
    "create_topics: configs-that-are-wrong": {
        "answer 15 *": "message.downconversion.enable is there for older consumers",
    },
    "describe_configs: all-of-a-broker-s-configs-that-barnabas-has": {
        "answer 1 socket.*.buffer.bytes *": "-1 by default: the system sizes them as it goes"
    },
    "describe_quorum: the-metadata-quorum": {
        "answer 1 DescribeQuorum.nodes*": "a single node opens no listener for controllers"
    },
    "describe_topic_partitions: topics-by-name": {"answer 4 *": _TOLD},
    "fetch: limits-of-bytes": {"answer 8 *": _IGNORED, "answer 13 *": _IGNORED},
    "fetch: read-committed": {"answer 2 *": _IGNORED},
    "incremental_alter_configs: changes-that-are-refused": {
        "answer 7 *": _TOLD,
        "answer 8 *": _TOLD,
    },
    "incremental_alter_configs: each-key-of-a-broker": {
        "*'NaN'": _NO_VALUE,
        "*log.retention.*'-7'": _NO_VALUE,
        "*log.flush.interval.ms*'-7'": _NO_VALUE,
        "*log.cleaner.threads*": _PROCESSES,
        "*num.replica.fetchers*": _PROCESSES,
        "*log.cleanup.policy*'delete,delete'": "a topic's cleanup.policy may say it twice as well",
    },
    "incremental_alter_configs: wrong-values-of-each-key-of-a-topic": {
        "*'NaN'": _NO_VALUE,
        "*throttled.replicas*','": _NO_VALUE,
        "*retention.bytes*'-7'": _NO_VALUE,
    },
    "join_group: member-when-the-leader-joins-again": {"answer 9 *": _FIRST},
    "join_group: member-with-more-protocols-when-the-leader-joins-again": {"answer 9 *": _FIRST},
    "join_group: member-with-other-metadata-when-the-leader-joins-again": {"answer 9 *": _FIRST},
    "leave_group: of-all-when-a-follower-asks": {"answer 8 *": _FIRST},
    "leave_group: of-one-twice-when-a-follower-asks": {"answer 8 *": _FIRST},
    "leave_group: of-second-when-a-follower-asks": {"answer 8 *": _FIRST},
    "list_offsets: a-log-whose-records-are-deleted": {
        "answer 50 *": _GONE,
        "answer 72 *": _GONE,
    },
    "list_offsets: read-committed": {"answer 6 *": _IGNORED},
    "metadata: by-id": {"answer 5 *": _TOLD},
    "produce: a-transactional-batch-with-an-id-that-has-no-transaction": {
        "answer 1 *": "there are no transactions yet: refused, where Kafka says to try again"
    },
    "produce: compressed-bytes-that-are-not": {"*": _OPAQUE},
    "produce: headers-that-lie": {"answer 3 *": _TOLD},
    "produce: lengths-that-lie": {"answer 6 *": _TOLD},
    "produce: a-producer-whose-records-are-deleted": {
        f"answer {number} ListOffsets.*": _GONE for number in (11, 17, 31)
    },
    "produce: into-a-log-whose-records-are-deleted": {
        f"answer {number} ListOffsets.*": _GONE for number in (6, 12, 18, 24)
    },
    "produce: log-after-a-compression-that-is-none": {"answer * Produce.*": _TOLD},
    "produce: log-after-a-largest-time-too-large": {"*": _OPAQUE},
    "produce: log-after-a-largest-time-too-small": {"*": _OPAQUE},
    "produce: log-after-compressed-it-would-fit": {
        "answer * Fetch.*records": "what the broker compresses is as its compressor writes it"
    },
    "api_versions: matrix-of-api-versions": {
        "*ApiVersions.api_keys[*].min_version": _OLD,
        "*ApiVersions.*features*": _FEATURES,
    },
    "describe_quorum: matrix-of-describe-quorum": {
        "*DescribeQuorum.nodes*": "a single node opens no listener for controllers"
    },
    "describe_topic_partitions: matrix-of-describe-topic-partitions": {"* = '' -> *": _TOLD},
    "describe_topic_partitions: matrix-of-describe-topic-partitions-from-a-cursor": {
        "extreme: cursor.partition_index = 2147483647 *": "Kafka's next cursor overflows: below 0"
    },
    "fetch: matrix-of-fetch": {
        "*: isolation_level = *": _IGNORED,
        "*max_bytes = -*": _IGNORED,
        "extreme: session_id = *": _IGNORED,
    },
    "list_offsets: matrix-of-list-offsets": {"*: isolation_level = *": _IGNORED},
    "metadata: matrix-of-metadata": {"null allowed: topics[0].name = null *": _TOLD},
    "metadata: matrix-of-metadata-by-id": {"zero id: *": _TOLD},
    "produce: records-that-are-null": {"*": _SILENT},
    "sync_group: follower-that-assigns-when-a-follower-asks": {"answer 9 *": _FIRST},
    "sync_group: follower-when-a-follower-asks": {"answer 9 *": _FIRST},
}
