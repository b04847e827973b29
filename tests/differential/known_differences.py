"""Accepted differences between the responses of Barnabas and Apache Kafka 4.4, with reasons.

Case -> path (`*` matches any text) -> reason. A case fails if one of its differences no longer
exists. docs/compatibility.md lists the differences for users.
"""

from __future__ import annotations

_TOLD = "Kafka fails with an internal error; Barnabas refuses the request with a specific error"
_MISSING = (
    "Kafka fails on the endpoint of a member while a topic is missing; Barnabas names the missing"
    " topic"
)
_INTERNAL = "repeated internal topics and configs, and negative numbers of partitions, are refused"
_GONE = "Barnabas returns offsets of existing records; Kafka returns one below the log start offset"
_NOT_A_NUMBER = "Barnabas refuses NaN, which passes Kafka's check of the range"
_SHARD = "Kafka looks up the session in a shard that does not exist, and fails"
_LEFT = (
    "Kafka keeps an empty group whose only commit was refused, and lists it after another write;"
    " its next check for expired offsets removes the group"
)
_SILENT = "Kafka never responds; Barnabas does"
_OLD = "versions that Kafka 4.0 dropped are served for older clients"

# A member that sends a request twice has two connections. The pending request on the first
# connection gets a response.
_FIRST = (
    "Barnabas responds to a pending SyncGroup or JoinGroup if the member leaves or sends another"
)

_POISONED = (
    "Kafka stores the sequence of a batch that it refused for a wrong epoch, and then refuses the"
    " next batches of the open transaction"
)

_ABORTED = (
    "Kafka also names transactions above the records that it sends, up to the next entry of its"
    " sparse index"
)
_COUNTED = (
    "Kafka counts remote records with the limit of their partition, so the next partitions get"
    " less; Barnabas counts the bytes of records that it has already loaded"
)
_SASL = "settings of SASL change only at the next start"
_TLS = "Barnabas refuses unknown values, and an empty list of suites means all suites"

KNOWN_DIFFERENCES: dict[str, dict[str, str]] = {
    "alter_configs: a-resource-named-twice": {"*": _SILENT},
    "alter_user_scram_credentials: matrix-of-alter-user-scram-credentials": {
        "odd bytes: upsertions[0].salt* = b'' -> *": "Barnabas refuses salts that allow no login",
    },
    "api_versions: invalid-software-names": {
        "response 6 ApiVersions.api_keys[*].min_version": _OLD,
    },
    "create_topics: invalid-configs": {
        "response 15 *": "message.downconversion.enable exists for older consumers",
    },
    "describe_configs: all-of-a-broker-s-configs-that-barnabas-has": {
        "response 1 socket.*.buffer.bytes *": "-1 by default: the operating system adapts the"
        " size, while 100 KiB limit a connection to 100 KiB per round trip",
        "response 1 queued.max.request.bytes *": "256 MiB by default: Barnabas limits queued"
        " requests, Kafka does not",
        "response 1 sasl.* read_only*": _SASL,
    },
    "describe_quorum: the-metadata-quorum": {
        "response 1 DescribeQuorum.nodes*": "a single node opens no listener for controllers"
    },
    "describe_topic_partitions: topics-by-name": {"response 4 *": _TOLD},
    "incremental_alter_configs: changes-that-are-refused": {
        "response 7 *": _TOLD,
        "response 8 *": _TOLD,
    },
    "incremental_alter_configs: each-key-of-a-broker": {
        "*'NaN'": _NOT_A_NUMBER,
        "* sasl.*": _SASL,
        "* ssl.cipher.suites*": _TLS,
        "* ssl.enabled.protocols*": _TLS,
        "* ssl.endpoint.identification.algorithm*": _TLS,
        "*log.flush.interval.ms*'-7'": "Kafka accepts it, and then cannot describe a topic",
    },
    "incremental_alter_configs: wrong-values-of-each-key-of-a-topic": {"*'NaN'": _NOT_A_NUMBER},
    "fetch: an-aborted-transaction-above-an-open-one": {
        "above Fetch*aborted_transactions*": _ABORTED
    },
    "fetch: tiered-a-local-and-a-remote-partition": {
        "response 5 Fetch.responses[1].partitions[0].records": _COUNTED
    },
    "fetch: tiered-two-remote-partitions": {
        "response * Fetch.responses[1].partitions[0].records": _COUNTED
    },
    "fetch: tiered-aborted-transactions": {"limited Fetch*aborted_transactions*": _ABORTED},
    "join_group: member-when-the-leader-joins-again": {"response 9 *": _FIRST},
    "join_group: member-with-more-protocols-when-the-leader-joins-again": {"response 9 *": _FIRST},
    "join_group: member-with-other-metadata-when-the-leader-joins-again": {"response 9 *": _FIRST},
    "leave_group: of-all-when-a-follower-syncs": {"response 8 *": _FIRST},
    "leave_group: of-one-twice-when-a-follower-syncs": {"response 8 *": _FIRST},
    "leave_group: of-second-when-a-follower-syncs": {"response 8 *": _FIRST},
    "offset_commit: a-refused-commit-leaves-no-group": {
        "response 3 *": _LEFT,
        "response 5 *": _LEFT,
    },
    "list_offsets: a-log-whose-records-are-deleted": {
        "response 50 *": _GONE,
        "response 72 *": _GONE,
    },
    "metadata: by-id": {"response 5 *": _TOLD},
    "produce: a-refused-batch-of-a-later-epoch-in-an-open-transaction": {
        "then *": _POISONED,
        "the end *": _POISONED,
    },
    "produce: invalid-compressed-bytes": {"*": _TOLD},
    "produce: wrong-header-fields": {"response 3 *": _TOLD},
    "produce: wrong-lengths": {"response 6 *": _TOLD},
    "produce: a-producer-whose-records-are-deleted": {
        f"response {number} ListOffsets.*": _GONE for number in (11, 17, 31)
    },
    "produce: into-a-log-whose-records-are-deleted": {
        f"response {number} ListOffsets.*": _GONE for number in (6, 12, 18, 24)
    },
    "produce: log-after-an-unknown-compression": {"response * Produce.*": _TOLD},
    "produce: log-after-compressed-it-would-fit": {
        "response * Fetch.*records": "the bytes depend on the broker's compressor"
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
    "sync_group: follower-that-assigns-when-a-follower-syncs": {"response 9 *": _FIRST},
    "sync_group: follower-when-a-follower-syncs": {"response 9 *": _FIRST},
}
