"""The panels of the dashboard, in rows. The heading of a row and the text of a panel are questions.

tools/grafana_dashboard.py writes them in Grafana's format.
"""

# ruff: noqa: E501 - a query is one line

from __future__ import annotations

from typing import NamedTuple

# Grafana replaces this by an interval of at least four scrapes.
RATE = "$__rate_interval"
# The topics, groups and queries of Spark that the user has chosen.
_TOPIC = 'topic=~"$topic"'
_GROUP = 'consumergroup=~"$group"'
_QUERY = 'query=~"$query"'
# Of the samples by topic, only the total.
_ALL_TOPICS = ', topic=""'
_CONTROLLER = "kafka_controller_kafkacontroller"
_TOPICS = "kafka_server_brokertopicmetrics"
_REQUESTS = "kafka_network_requestmetrics"
_COORDINATOR = "kafka_server_group_coordinator_metrics"


class Query(NamedTuple):
    """One query of a panel."""

    # @ stands for the selector of the nodes.
    expression: str
    legend: str


class Panel(NamedTuple):
    """One panel: a number (`stat`) or lines over time (`timeseries`)."""

    title: str
    # Grafana's name of the unit: "short", "Bps", "ms", "s", "percentunit", "bytes".
    unit: str
    queries: tuple[Query, ...]
    kind: str = "timeseries"
    text: str = ""
    # The smallest value at which the panel is red.
    red_from: float | None = None


class Row(NamedTuple):
    """A heading that can be folded, and its panels."""

    question: str
    panels: tuple[Panel, ...]


def _number(title: str, expression: str, text: str, red_from: float | None = 1) -> Panel:
    return Panel(title, "short", (Query(expression, ""),), "stat", text, red_from)


def _lines(title: str, unit: str, text: str, *queries: tuple[str, str]) -> Panel:
    return Panel(title, unit, tuple(Query(*each) for each in queries), text=text)


def _rate(metric: str, by: str, labels: str = "") -> str:
    return f"sum by ({by}) (rate({metric}{{@{labels}}}[{RATE}]))"


def _total(metric: str, labels: str = "") -> str:
    return f"sum(rate({metric}{{@{labels}}}[{RATE}]))"


def _average_ms(part: str) -> str:
    """Return the average time (ms) that produce requests spend in a part."""
    of = ', request="Produce"'
    return (
        f"{_total(f'{_REQUESTS}_{part}_sum', of)} / {_total(f'{_REQUESTS}_totaltimems_count', of)}"
    )


def _quantile(fraction: float, by: str, request: str) -> str:
    buckets = _rate("barnabas_request_seconds_bucket", by, f', request=~"{request}"')
    return f"histogram_quantile({fraction}, {buckets})"


def _largest(metric: str) -> str:
    return f"topk(5, {_rate(metric, 'principal, client_id')})"


ROWS = (
    Row(
        "Is the cluster healthy?",
        (
            _number("Nodes up", "sum(up{@})", "How many nodes answer for their metrics?", None),
            _number(
                "Active controllers",
                f"sum({_CONTROLLER}_activecontrollercount{{@}})",
                "Is there exactly one active controller?",
                2,
            ),
            _number(
                "Silent voters",
                "max(barnabas_quorum_silent_voters{@})",
                "Is the metadata quorum lost? Then this is more than 0.",
            ),
            _number(
                "Offline partitions",
                f"max({_CONTROLLER}_offlinepartitionscount{{@}})",
                "How many partitions have no leader?",
            ),
            _number(
                "Under min ISR",
                "sum(kafka_server_replicamanager_underminisrpartitioncount{@})",
                "To how many partitions can producers with acks=all not write?",
            ),
            _number(
                "Under-replicated",
                "sum(kafka_server_replicamanager_underreplicatedpartitions{@})",
                "How many partitions have a replica out of sync?",
            ),
            _number(
                "Offline directories",
                "sum(kafka_log_logmanager_offlinelogdirectorycount{@})",
                "How many data directories have failed?",
            ),
            _number(
                "Alerts", 'count(ALERTS{alertstate="firing"}) or vector(0)', "How many alerts fire?"
            ),
        ),
    ),
    Row(
        "How much traffic is there?",
        (
            _lines(
                "Records in",
                "short",
                "How many records per second do producers write to each topic?",
                (_rate(f"{_TOPICS}_messagesin_total", "topic", f', topic!="", {_TOPIC}'), "{{topic}}"),
            ),
            _lines(
                "Bytes in and out",
                "Bps",
                "How many bytes do clients write and read, and how many do followers copy?",
                (_total(f"{_TOPICS}_bytesin_total", ', topic=""'), "in"),
                (_total(f"{_TOPICS}_bytesout_total", ', topic=""'), "out"),
                (_total(f"{_TOPICS}_replicationbytesin_total"), "replication"),
            ),
            _lines(
                "Requests",
                "short",
                "How many requests per second does each API get?",
                (f"{_rate(f'{_REQUESTS}_requests_total', 'request')} > 0", "{{request}}"),
            ),
        ),
    ),
    Row(
        "Are requests fast, and do they succeed?",
        (
            _lines(
                "Time of a Produce",
                "s",
                "How long do producers wait? The lines are percentiles of the requests in each interval.",
                *((_quantile(f, "le", "Produce"), f"{f:.0%}") for f in (0.5, 0.95, 0.99)),
            ),
            _lines(
                "Time of requests, 99th percentile",
                "s",
                "Which API is slow? Fetches are left out, because they wait for data.",
                (_quantile(0.99, "request, le", "Produce|Metadata|OffsetCommit|FindCoordinator"), "{{request}}"),
            ),
            _lines(
                "Where the time of a Produce goes",
                "ms",
                "Does a Produce wait for the broker (queue, local), for followers (remote) or for its client (send)? Averages.",
                *(
                    (_average_ms(part), legend)
                    for part, legend in (
                        ("requestqueuetimems", "queue"),
                        ("localtimems", "local"),
                        ("remotetimems", "remote"),
                        ("responsequeuetimems", "response queue"),
                        ("responsesendtimems", "send"),
                    )
                ),
            ),
            _lines(
                "Request queue, 99th percentile",
                "ms",
                "Do requests wait before they are handled? Of the last 30 to 60 s.",
                (f'max by (request) ({_REQUESTS}_requestqueuetimems{{@, quantile="0.99"}})', "{{request}}"),
            ),
            _lines(
                "Delayed requests",
                "short",
                "How many requests wait for followers (Produce) or for data (Fetch)?",
                ("sum by (delayedOperation) (kafka_server_delayedoperationpurgatory_numdelayedoperations{@})", "{{delayedOperation}}"),
            ),
            _lines(
                "Errors",
                "short",
                "Which requests fail, per second? After an election clients get NOT_LEADER_OR_FOLLOWER for a moment.",
                (f"""{_rate(f'{_REQUESTS}_errors_total', 'request, error', ', error!="NONE"')} > 0""", "{{request}} {{error}}"),
            ),
        ),
    ),
    Row(
        "Which clients cause the load?",
        (
            *(
                _lines(
                    f"Clients with the most {what}",
                    unit,
                    f"{question} A client is a client id and a principal. Brokers are clients of each other.",
                    (_largest(f"barnabas_client_{metric}_total"), "{{client_id}} {{principal}}"),
                )
                for what, unit, metric, question in (
                    ("bytes in", "Bps", "bytes_in", "Which clients send the most bytes?"),
                    ("bytes out", "Bps", "bytes_out", "Which clients read the most bytes?"),
                    ("requests", "short", "requests", "Which clients send the most requests per second?"),
                )
            ),
            _lines(
                "Busiest partitions",
                "short",
                "Do a few partitions get most of the records? Records per second.",
                (f"topk(5, max by (topic, partition) (rate(kafka_log_log_logendoffset{{@, {_TOPIC}}}[{RATE}])))", "{{topic}}-{{partition}}"),
            ),
            _lines(
                "Throttle time",
                "ms",
                "For how long do quotas delay clients, per second?",
                (_rate(f"{_REQUESTS}_throttletimems_sum", "request", ', request=~"Produce|Fetch"'), "{{request}}"),
            ),
            _lines(
                "Connections",
                "short",
                "How many connections are open?",
                ("sum by (instance, listener) (kafka_server_socket_server_metrics_connection_count{@})", "{{instance}} {{listener}}"),
            ),
        ),
    ),
    Row(
        "Do consumers keep up?",
        (
            _lines(
                "Lag of groups in records",
                "short",
                "How many records has a group not committed? Recorded by barnabas-rules.yml.",
                (f"barnabas:consumergroup_lag{{{_TOPIC}, {_GROUP}}}", "{{consumergroup}} {{topic}}"),
            ),
            _lines(
                "Lag of groups in seconds",
                "s",
                "How old is the oldest record that a group has not committed? In steps of 15 s; an hour stands for longer.",
                (f"barnabas:consumergroup_lag_seconds{{{_TOPIC}, {_GROUP}}}", "{{consumergroup}} {{topic}}"),
            ),
            _lines(
                "Rebalances",
                "short",
                "Do groups rebalance all the time? Per second, by protocol.",
                (_total(f"{_COORDINATOR}_group_completed_rebalance_count_total"), "classic"),
                *((_total(f"{_COORDINATOR}_{kind}_group_rebalance_count_total"), kind) for kind in ("consumer", "share", "streams")),
            ),
        ),
    ),
    Row(
        "Are replicas in sync, and who controls the cluster?",
        (
            _lines(
                "Under-replicated partitions",
                "short",
                "Which leaders miss a replica?",
                ("kafka_server_replicamanager_underreplicatedpartitions{@}", "{{instance}}"),
            ),
            _lines(
                "Changes of in-sync replicas",
                "short",
                "Do replicas leave and join the ISR? Per second.",
                *((_total(f"kafka_server_replicamanager_isr{name}_total"), name) for name in ("shrinks", "expands")),
            ),
            _lines(
                "Lag of followers",
                "short",
                "By how many records is the slowest replica of a broker behind?",
                ("max by (instance) (kafka_server_replicafetchermanager_maxlag{@})", "{{instance}}"),
            ),
            _lines(
                "Active controller",
                "short",
                "Which node is the active controller? A change of color is a change of controller.",
                (f"{_CONTROLLER}_activecontrollercount{{@}} == 1", "{{instance}}"),
            ),
            _lines(
                "Elections",
                "short",
                "How often was a controller elected, or a leader that may lack records (unclean)?",
                (f"max(increase(kafka_server_raft_metrics_current_epoch{{@}}[{RATE}]))", "controller"),
                (f"max(increase(kafka_controller_controllerstats_uncleanleaderelections_total{{@}}[{RATE}]))", "unclean leaders"),
            ),
            _lines(
                "Partitions led",
                "short",
                "Do brokers share the work? barnabas partitions elect gives leadership back to preferred replicas.",
                ("kafka_server_replicamanager_leadercount{@}", "{{instance}}"),
            ),
        ),
    ),
    Row(
        "Is there room?",
        (
            _lines(
                "Free disk",
                "percentunit",
                "Which part of the file system of each data directory is free?",
                ("barnabas_log_directory_usable_bytes{@} / barnabas_log_directory_bytes{@}", "{{instance}} {{logDirectory}}"),
            ),
            _lines(
                "Time until the disk is full",
                "s",
                "When is the disk full at the rate of the last hour? 30 days stands for later or never.",
                ("clamp_max(barnabas_log_directory_usable_bytes{@} / clamp_min(-deriv(barnabas_log_directory_usable_bytes{@}[1h]), 1), 2592000)", "{{instance}} {{logDirectory}}"),
            ),
            _lines(
                "Size of topics",
                "bytes",
                "Which topics fill the disks? Bytes of all replicas, without indexes.",
                (f"sum by (topic) (kafka_log_log_size{{@, {_TOPIC}}})", "{{topic}}"),
            ),
            _lines(
                "Processor time",
                "percentunit",
                "How busy is each broker? One core is the limit, except for compression and compaction.",
                (f"rate(process_cpu_seconds_total{{@}}[{RATE}])", "{{instance}}"),
            ),
            _lines(
                "Resident memory",
                "bytes",
                "How much memory does each broker use? The page cache with the records is not included.",
                ("process_resident_memory_bytes{@}", "{{instance}}"),
            ),
            _lines(
                "Open files",
                "percentunit",
                "How near is each broker to its limit of file descriptors?",
                ("process_open_fds{@} / process_max_fds{@}", "{{instance}}"),
            ),
            _lines(
                "Lag of the event loop",
                "s",
                "How late are timers called, on average? All requests wait for so long.",
                (f"rate(barnabas_loop_lag_seconds_sum{{@}}[{RATE}]) / rate(barnabas_loop_lag_seconds_count{{@}}[{RATE}])", "{{instance}}"),
            ),
            _lines(
                "Long turns of the event loop",
                "short",
                "How many turns per second take over 100 ms? Only clock=cpu is the broker's own work.",
                (_rate("barnabas_loop_long_turns_total", "instance, clock"), "{{instance}} {{clock}}"),
            ),
            _lines(
                "Time of log syncs, 99th percentile",
                "ms",
                "Is the disk slow? Of the last 30 to 60 s.",
                ('kafka_log_logflushstats_logflushrateandtimems{@, quantile="0.99"}', "{{instance}}"),
            ),
        ),
    ),
    Row(
        "Does the remote tier keep up?",
        (
            _lines(
                "Bytes to and from the remote tier",
                "Bps",
                "How much is copied to the remote tier, and how much is read from it?",
                (f"{_total(f'{_TOPICS}_remotecopybytes_total', _ALL_TOPICS)} or vector(0)", "copied"),
                (f"{_total(f'{_TOPICS}_remotefetchbytes_total', _ALL_TOPICS)} or vector(0)", "read"),
            ),
            _lines(
                "Bytes that are not copied yet",
                "bytes",
                "How many bytes of closed segments stay on disks until they are copied?",
                (f"sum by (instance) ({_TOPICS}_remotecopylagbytes{{@{_ALL_TOPICS}}}) or vector(0)", "{{instance}}"),
            ),
            _lines(
                "Longest wait of a segment, by cause",
                "s",
                "For how long has a segment not been copied, and why? Run: barnabas why TOPIC:PARTITION",
                ("max by (cause) (barnabas_remote_segment_waiting_seconds{@}) or vector(0)", "{{cause}}"),
            ),
            _lines(
                "Failures of the store",
                "short",
                "Which calls of the store fail, per second?",
                (f"{_rate('barnabas_remote_store_failures_total', 'call, kind')} or vector(0)", "{{call}} {{kind}}"),
            ),
            _lines(
                "Memory of reads",
                "bytes",
                "Is the memory for records from the remote tier used up?",
                ("sum by (instance) (barnabas_remote_read_cache_bytes{@}) or vector(0)", "used {{instance}}"),
                ("sum by (instance) (barnabas_remote_read_cache_limit_bytes{@}) or vector(0)", "limit {{instance}}"),
            ),
            _lines(
                "Size of the remote tier and its metadata",
                "bytes",
                "How large is the remote tier, and the topic that lists its segments?",
                (f"sum({_TOPICS}_remotelogsizebytes{{@{_ALL_TOPICS}}}) or vector(0)", "tier"),
                ('sum(kafka_log_log_size{@, topic="__remote_log_metadata"}) or vector(0)', "metadata"),
            ),
        ),
    ),
    Row(
        "Do streaming queries of Spark keep up?",
        (
            _lines(
                "Lag of queries",
                "short",
                "How many records had a query not read after its last batch? Recorded by barnabas-rules.yml.",
                (f"barnabas:query_lag{{{_QUERY}, {_TOPIC}}}", "{{query}} {{topic}}"),
            ),
            _lines(
                "Rows of queries",
                "short",
                "How many rows per second does each query read?",
                (f"rate(barnabas_query_rows_read_total{{{_QUERY}}}[{RATE}])", "{{query}}"),
            ),
            _lines(
                "Time since the last batch",
                "s",
                "Does each running query still start batches? A trigger that found no data counts too.",
                (f"time() - barnabas_query_last_trigger_timestamp_seconds{{{_QUERY}}} and barnabas_query_running == 1", "{{query}}"),
            ),
            _lines(
                "Duration of batches",
                "s",
                "How long did the last batch of each query take?",
                (f"barnabas_query_last_batch_seconds{{{_QUERY}}}", "{{query}}"),
            ),
            _lines(
                "Phases of batches",
                "percentunit",
                "In which phase do queries spend their time? The names are Spark's.",
                (f'rate(barnabas_query_phase_seconds_total{{{_QUERY}, phase!="triggerExecution"}}[{RATE}])', "{{query}} {{phase}}"),
            ),
            _lines(
                "State of queries",
                "short",
                "Does the state only grow? Then the query lacks a watermark.",
                (f"barnabas_query_state_rows{{{_QUERY}}}", "{{query}}"),
            ),
        ),
    ),
)  # fmt: skip
