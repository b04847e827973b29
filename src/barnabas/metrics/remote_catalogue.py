"""The metrics of tiered storage (KIP-405, KIP-963, KIP-1018): brokers without it have none."""

from __future__ import annotations

from barnabas.metrics import names
from barnabas.metrics.metric_row import MetricRow
from barnabas.metrics.registry import MetricKind

C, G, S = MetricKind.COUNTER, MetricKind.GAUGE, MetricKind.SUMMARY

_TOPIC = ("topic",)
_PARTITION = ("topic", "partition")

REMOTE_CATALOGUE: dict[str, MetricRow] = {
    names.REMOTE_COPY_BYTES: MetricRow(C, _TOPIC, "Bytes of segments copied to the remote tier."),
    names.REMOTE_COPY_REQUESTS: MetricRow(C, _TOPIC, "Copies of segments to the remote tier."),
    names.REMOTE_COPY_ERRORS: MetricRow(C, _TOPIC, "Copies of segments that failed."),
    names.REMOTE_FETCH_BYTES: MetricRow(C, _TOPIC, "Bytes of records read from the remote tier."),
    names.REMOTE_FETCH_REQUESTS: MetricRow(C, _TOPIC, "Reads of records from the remote tier."),
    names.REMOTE_FETCH_ERRORS: MetricRow(C, _TOPIC, "Reads of records that failed."),
    names.REMOTE_DELETE_REQUESTS: MetricRow(C, _TOPIC, "Deletions of remote segments."),
    names.REMOTE_DELETE_ERRORS: MetricRow(C, _TOPIC, "Deletions of remote segments that failed."),
    names.BUILD_REMOTE_STATE_REQUESTS: MetricRow(
        C, _TOPIC, "Followers that began behind the records that only the remote tier has."
    ),
    names.BUILD_REMOTE_STATE_ERRORS: MetricRow(
        C, _TOPIC, "Followers that could not begin there, because metadata or indexes are missing."
    ),
    names.REMOTE_COPY_LAG_BYTES: MetricRow(
        G, _TOPIC, "Bytes of segments that may be copied, and are not copied yet."
    ),
    names.REMOTE_COPY_LAG_SEGMENTS: MetricRow(
        G, _TOPIC, "Segments that may be copied, and are not copied yet."
    ),
    names.REMOTE_DELETE_LAG_BYTES: MetricRow(
        G, _TOPIC, "Bytes of remote segments that have expired, and are not deleted yet."
    ),
    names.REMOTE_DELETE_LAG_SEGMENTS: MetricRow(
        G, _TOPIC, "Remote segments that have expired, and are not deleted yet."
    ),
    names.REMOTE_LOG_METADATA_COUNT: MetricRow(
        G, _TOPIC, "Remote segments in the metadata, in any state, of led partitions."
    ),
    names.REMOTE_LOG_SIZE_BYTES: MetricRow(
        G, _TOPIC, "Bytes of remote segments of led partitions."
    ),
    names.REMOTE_LOG_SIZE_TIME: MetricRow(
        G, _TOPIC, "Time of the last computation of these bytes, ms."
    ),
    names.REMOTE_RETENTION_PERCENT: MetricRow(
        G, _PARTITION, "Size of a tiered log, as a percentage of retention.bytes; 0 without limit."
    ),
    names.REMOTE_LOCAL_RETENTION_PERCENT: MetricRow(
        G, _PARTITION, "Size of its local segments, as a percentage of local.retention.bytes."
    ),
    names.REMOTE_TASKS_IDLE: MetricRow(
        G, (), "Idle share of the threads that copy segments, 0 to 1."
    ),
    names.REMOTE_READER_IDLE: MetricRow(
        G, (), "Idle share of the threads that read from the remote tier, 0 to 1."
    ),
    names.REMOTE_READER_QUEUE: MetricRow(G, (), "Reads that wait for such a thread."),
    names.REMOTE_READER_TIME: MetricRow(S, (), "Duration of reads from the remote tier, ms."),
    names.REMOTE_COPY_RATE: MetricRow(G, (), "Bytes per second copied to the remote tier."),
    names.REMOTE_FETCH_RATE: MetricRow(G, (), "Bytes per second read from the remote tier."),
    names.REMOTE_COPY_THROTTLE_AVG: MetricRow(
        G, (), "Average time for which the rate limit delayed a copy, ms, of the last minute."
    ),
    names.REMOTE_COPY_THROTTLE_MAX: MetricRow(
        G, (), "Longest time for which the rate limit delayed a copy, ms, of the last minute."
    ),
    names.REMOTE_FETCH_THROTTLE_AVG: MetricRow(
        G, (), "Average time for which the rate limit delays reads, ms, of the last minute."
    ),
    names.REMOTE_FETCH_THROTTLE_MAX: MetricRow(
        G, (), "Longest time for which the rate limit delays reads, ms, of the last minute."
    ),
    names.DELAYED_REMOTE_FETCH_EXPIRES: MetricRow(
        C, (), "Fetches that timed out before all their remote reads were done."
    ),
    names.DELAYED_REMOTE_LIST_OFFSETS_EXPIRES: MetricRow(
        C, _PARTITION, "Searches by timestamp in the remote tier that timed out."
    ),
    names.REMOTE_STORE_FAILURES: MetricRow(
        C,
        ("call", "kind"),
        "Calls of the store that failed: `write` for copies, checks and deletions, or `read`.",
    ),
    names.REMOTE_COPIES_RUNNING: MetricRow(G, (), "Copies of segments that run."),
    names.REMOTE_COPIES_WAITING: MetricRow(
        G, (), "Partitions with a segment that may be copied, and waits for its turn."
    ),
    names.REMOTE_COPIES_PAUSED: MetricRow(
        G, ("cause",), "1 while no copy of this broker starts for this cause, else 0."
    ),
    names.REMOTE_WAITING_SECONDS: MetricRow(
        G,
        (*_PARTITION, "cause"),
        "Time for which the oldest closed segment of a partition has not been copied since the "
        "copy of the segment before it; only the 100 partitions that wait longest.",
    ),
    names.REMOTE_WAITING_OFFSET: MetricRow(G, _PARTITION, "First offset of this segment."),
    names.REMOTE_UNREADABLE_FIRST: MetricRow(
        G,
        (*_PARTITION, "kind"),
        "First offset of the remote segments that reads of the last ten minutes found missing or "
        "damaged; at most 100 partitions.",
    ),
    names.REMOTE_UNREADABLE_LAST: MetricRow(
        G, (*_PARTITION, "kind"), "Last offset of these segments."
    ),
    names.REMOTE_LOADS_WAITING: MetricRow(
        G, (), "Loads from the remote tier that wait for memory or for a thread."
    ),
    names.REMOTE_CACHE_BYTES: MetricRow(
        G, (), "Memory of records from the remote tier, including loads in progress, bytes."
    ),
    names.REMOTE_CACHE_LIMIT: MetricRow(
        G, (), "Limit of this memory: `barnabas.remote.read.cache.max.bytes`."
    ),
    names.REMOTE_METADATA_PROBLEM: MetricRow(
        G,
        ("problem",),
        "1 if the metadata topic is missing, or has another number of partitions, else 0.",
    ),
    names.REMOTE_METADATA_UNREADY: MetricRow(
        G, (), "Tiered replicas whose earlier events are not all read from the metadata topic yet."
    ),
    names.REMOTE_METADATA_SKIPPED: MetricRow(
        C, (), "Records of the metadata topic that are no events of segments."
    ),
    names.REMOTE_METADATA_DROPPED: MetricRow(
        C, (), "Events of segments that came too late or twice, and have no effect."
    ),
}
