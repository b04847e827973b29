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
}
