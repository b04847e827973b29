"""Where Barnabas answers differently from Apache Kafka 4.4, and why.

Case -> path (with `*` for anything) -> reason. A difference that is not there any more fails its
case, so that this table stays true. docs/compatibility.md lists the same for users.
"""

from __future__ import annotations

_TOLD = (
    "Kafka fails over it with an internal error; Barnabas refuses it too, and says what is wrong"
)
_MISSING = (
    "Kafka fails over the endpoint of a member while a topic is missing; Barnabas says what is"
    " missing"
)
_INTERNAL = "repeated internal topics and configs, and negative numbers of partitions, are refused"
_OPAQUE = "batches stay opaque bytes: no record is read, nothing decompressed, headers are believed"
_GONE = "of records that are left; Kafka names one below the log's start, which nobody can read"
_NOT_A_NUMBER = "NaN is refused: by the rules of floats it passes Kafka's check of the range"
_SHARD = "Kafka looks for the session in a shard that it does not have, and fails"
_LEFT = (
    "Kafka keeps an empty group whose only commit was refused, and lists it when something else is"
    " written; it is gone by its next look at expired offsets"
)
_SILENT = "Kafka never answers it; Barnabas does"
_OLD = "versions that Kafka 4.0 dropped are served for older clients"

# A member that asks twice has two connections: the request that waits on the first one gets a
# response.
_FIRST = (
    "a SyncGroup or JoinGroup whose member leaves, or asks again, is not left without an answer"
)

_POISONED = (
    "Kafka remembers the sequence of a batch that it refused for a wrong epoch, and then refuses"
    " the open transaction's next batches"
)

_SASL = "settings of SASL take effect at the next start, and are not changed before"
_TLS = "values without a meaning are refused, and an empty list of suites means all of them"

KNOWN_DIFFERENCES: dict[str, dict[str, str]] = {
    "alter_configs: a-resource-named-twice": {"*": _SILENT},
    "alter_user_scram_credentials: matrix-of-alter-user-scram-credentials": {
        "odd bytes: upsertions[0].salt* = b'' -> *": "nobody could log in with it: it is refused",
    },
    "api_versions: software-names-that-are-none": {
        "answer 6 ApiVersions.api_keys[*].min_version": _OLD,
    },
    "create_topics: configs-that-are-wrong": {
        "answer 15 *": "message.downconversion.enable is there for older consumers",
    },
    "describe_configs: all-of-a-broker-s-configs-that-barnabas-has": {
        "answer 1 socket.*.buffer.bytes *": "-1 by default: the system sizes them as it goes, where"
        " 100 KiB are the most that a connection carries in a round trip",
        "answer 1 queued.max.request.bytes *": "256 MiB by default: unfinished requests are bounded"
        " from the start, where Kafka has no limit",
        "answer 1 sasl.* read_only*": _SASL,
    },
    "describe_quorum: the-metadata-quorum": {
        "answer 1 DescribeQuorum.nodes*": "a single node opens no listener for controllers"
    },
    "describe_topic_partitions: topics-by-name": {"answer 4 *": _TOLD},
    "incremental_alter_configs: changes-that-are-refused": {
        "answer 7 *": _TOLD,
        "answer 8 *": _TOLD,
    },
    "incremental_alter_configs: each-key-of-a-broker": {
        "*'NaN'": _NOT_A_NUMBER,
        "* sasl.*": _SASL,
        "* ssl.cipher.suites*": _TLS,
        "* ssl.enabled.protocols*": _TLS,
        "* ssl.endpoint.identification.algorithm*": _TLS,
        "*log.flush.interval.ms*'-7'": "Kafka takes it, and cannot describe a topic from then on",
    },
    "incremental_alter_configs: wrong-values-of-each-key-of-a-topic": {"*'NaN'": _NOT_A_NUMBER},
    "fetch: an-aborted-transaction-above-an-open-one": {
        "above Fetch*aborted_transactions*": "Kafka also names transactions above the records that"
        " it sends, as far as its sparse index reaches"
    },
    "join_group: member-when-the-leader-joins-again": {"answer 9 *": _FIRST},
    "join_group: member-with-more-protocols-when-the-leader-joins-again": {"answer 9 *": _FIRST},
    "join_group: member-with-other-metadata-when-the-leader-joins-again": {"answer 9 *": _FIRST},
    "leave_group: of-all-when-a-follower-asks": {"answer 8 *": _FIRST},
    "leave_group: of-one-twice-when-a-follower-asks": {"answer 8 *": _FIRST},
    "leave_group: of-second-when-a-follower-asks": {"answer 8 *": _FIRST},
    "offset_commit: a-refused-commit-leaves-no-group": {
        "answer 3 *": _LEFT,
        "answer 5 *": _LEFT,
    },
    "list_offsets: a-log-whose-records-are-deleted": {
        "answer 50 *": _GONE,
        "answer 72 *": _GONE,
    },
    "metadata: by-id": {"answer 5 *": _TOLD},
    "produce: a-refused-batch-of-a-later-epoch-in-an-open-transaction": {
        "then *": _POISONED,
        "the end *": _POISONED,
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
    },
    "describe_quorum: matrix-of-describe-quorum": {
        "*DescribeQuorum.nodes*": "a single node opens no listener for controllers"
    },
    "describe_topic_partitions: matrix-of-describe-topic-partitions": {"* = '' -> *": _TOLD},
    "describe_topic_partitions: matrix-of-describe-topic-partitions-from-a-cursor": {
        "extreme: cursor.partition_index = 2147483647 *": "Kafka's next cursor overflows: below 0"
    },
    "fetch: matrix-of-fetch": {"extreme: session_id = *": _SHARD},
    "write_txn_markers: matrix-of-write-txn-markers": {
        "extreme: markers[0].producer_id = -9223372036854775808 *": (
            "Kafka writes a marker of a producer id that no producer can have"
        )
    },
    "metadata: matrix-of-metadata": {"null allowed: topics[0].name = null *": _TOLD},
    "metadata: matrix-of-metadata-by-id": {"zero id: *": _TOLD},
    "produce: records-that-are-null": {"*": _SILENT},
    "streams_group_heartbeat: matrix-of-streams-group-heartbeat": {
        "*: topology.epoch = -*": _TOLD,
        "duplicates: topology.subtopologies twice *": _TOLD,
        "empty list: topology.subtopologies[0].source_topics = [] *": _TOLD,
        "*: topology.subtopologies[0].copartition_groups[0].*source_topics = *": _TOLD,
        "unknown word: topology.subtopologies[0].source_topics = 'no-such-word' *": _MISSING,
        "duplicates: client_tags twice *": _TOLD,
    },
    "streams_group_heartbeat: matrix-of-streams-group-heartbeat-with-internal-topics": {
        "*: topology.epoch = -*": _TOLD,
        "duplicates: topology.subtopologies twice *": _TOLD,
        "empty list: topology.subtopologies[0].source_topics = [] *": _TOLD,
        "*: topology.subtopologies[0].copartition_groups[0].*source_topics = *": _TOLD,
        "duplicates: client_tags twice *": _TOLD,
        "duplicates: topology.subtopologies[0].*_topics twice *": _INTERNAL,
        "duplicates: topology.subtopologies[0].*.topic_configs twice *": _INTERNAL,
        "*.partitions = -*": _INTERNAL,
    },
    "sync_group: follower-that-assigns-when-a-follower-asks": {"answer 9 *": _FIRST},
    "sync_group: follower-when-a-follower-asks": {"answer 9 *": _FIRST},
}
