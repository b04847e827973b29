"""Metrics of requests and connections (Kafka: RequestMetrics, socket-server-metrics).

Most requests are handled in the turn of the loop that reads them, and their response is written in
the same turn. They wait in no queue, so their queue and send times count as 0 ms.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from barnabas.metrics import names
from barnabas.metrics.family import MetricFamily, Summary
from barnabas.metrics.registry import QUANTILES
from barnabas.network.principal import ANONYMOUS
from barnabas.protocol.errors import ErrorCode
from barnabas.server.dispatch.client_software import UNKNOWN_SOFTWARE, ClientSoftware
from barnabas.server.dispatch.request_statistics import BOUNDS_MS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from barnabas.metrics.family import Tags
    from barnabas.server.dispatch.request_statistics import ApiStatistics, RequestStatistics, Times
    from barnabas.server.listeners.listener import Listener

# Maximum number of principals per listener in the metrics.
_PRINCIPALS_MAX = 1000


def request_families(statistics: RequestStatistics) -> Iterator[MetricFamily]:
    """Yield the metrics of all APIs that have had requests."""
    apis = list(statistics.by_api.values())
    yield MetricFamily(
        names.REQUESTS,
        [
            ((("request", api.name), ("version", str(version))), count)
            for api in apis
            for version, count in enumerate(api.versions)
            if count
        ],
    )
    yield MetricFamily(
        names.REQUEST_ERRORS,
        [
            ((("request", api.name), ("error", error_name(code, len(api.errors)))), count)
            for api in apis
            for code, count in enumerate(api.error_counts())
            if count
        ],
    )
    yield _by_api(names.REQUEST_BYTES, apis, [_sum(a, a.request_bytes) for a in apis])
    yield _by_api(names.RESPONSE_BYTES, apis, [_sum(a, a.response_bytes) for a in apis])
    times: tuple[tuple[str, list[Times]], ...] = (
        (names.REQUEST_TOTAL_TIME, [a.immediate.merged(a.parked_total) for a in apis]),
        (names.REQUEST_LOCAL_TIME, [a.immediate.merged(a.parked_local) for a in apis]),
        (names.REQUEST_REMOTE_TIME, [a.remote.with_zeros(a.immediate.count) for a in apis]),
        (
            names.REQUEST_QUEUE_TIME,
            [a.request_queue.with_zeros(max(0, a.requests - a.request_queue.count)) for a in apis],
        ),
        (
            names.RESPONSE_QUEUE_TIME,
            [
                a.response_queue.with_zeros(max(0, a.requests - a.response_queue.count))
                for a in apis
            ],
        ),
        (
            names.RESPONSE_SEND_TIME,
            [a.response_send.with_zeros(max(0, a.requests - a.response_send.count)) for a in apis],
        ),
        (
            names.REQUEST_THROTTLE_TIME,
            [a.throttle.with_zeros(max(0, a.requests - a.throttle.count)) for a in apis],
        ),
    )
    for name, each in times:
        yield _by_api(name, apis, [summary_of(one) for one in each])
    yield _by_api(names.REQUEST_SECONDS, apis, [_histogram(api) for api in apis])


def error_name(code: int, slots: int) -> str:
    """Return Kafka's name of the error code at this index. The last index stands for -1."""
    return ErrorCode(-1 if code == slots - 1 else code).name


def summary_of(times: Times) -> Summary:
    """Return count, sum and quantiles of a histogram."""
    quantiles = {fraction: times.quantile(fraction) for fraction in QUANTILES}
    return Summary(times.count, times.total_ms, quantiles)


def _histogram(api: ApiStatistics) -> Summary:
    """Return the total times in seconds as a histogram, whose numbers only grow."""
    times = api.immediate.merged(api.parked_total)
    numbers = times.numbers_below(BOUNDS_MS)
    api.exposed = list(map(max, api.exposed, numbers))
    buckets = {bound / 1000: number for bound, number in zip(BOUNDS_MS, api.exposed, strict=True)}
    return Summary(times.count, times.total_ms / 1000, {}, buckets)


def _sum(api: ApiStatistics, total: int) -> Summary:
    return Summary(api.requests, total, {})


def _by_api(name: str, apis: Sequence[ApiStatistics], values: Sequence[Summary]) -> MetricFamily:
    return MetricFamily(
        name,
        [((("request", api.name),), value) for api, value in zip(apis, values, strict=True)],
    )


def connection_families(listeners: Sequence[Listener]) -> Iterator[MetricFamily]:
    """Yield the metrics of all listeners. The loop appears as Kafka's first network processor."""
    where: list[Tags] = [(("listener", each.name), ("networkProcessor", "0")) for each in listeners]
    traffic = [each.bytes_in_and_out() for each in listeners]
    values: dict[str, list[int]] = {
        names.CONNECTION_COUNT: [len(each) for each in listeners],
        names.CONNECTIONS_CREATED: [each.accepted for each in listeners],
        names.CONNECTIONS_CLOSED: [each.closed for each in listeners],
        names.CONNECTIONS_EXPIRED: [each.idle_closed for each in listeners],
        names.INCOMING_BYTES: [received for received, _ in traffic],
        names.OUTGOING_BYTES: [sent for _, sent in traffic],
    }
    for name, counts in values.items():
        yield MetricFamily(name, list(zip(where, counts, strict=True)))
    yield MetricFamily(
        names.CONNECTIONS_WAITING,
        [((("listener", each.name),), each.waiting) for each in listeners],
    )
    software: list[tuple[Tags, float]] = []
    for tags, listener in zip(where, listeners, strict=True):
        found = Counter(_software(each.session) for each in listener.connections)
        software += [
            (
                (("clientSoftwareName", it.name), ("clientSoftwareVersion", it.version), *tags),
                count,
            )
            for it, count in found.items()
        ]
    yield MetricFamily(names.CONNECTIONS, software)
    yield MetricFamily(
        names.PRINCIPAL_CONNECTIONS,
        [
            ((("principal", principal), ("listener", listener.name)), count)
            for listener in listeners
            for principal, count in _by_principal(listener).items()
        ],
    )


def _by_principal(listener: Listener) -> dict[str, int]:
    """Return the open connections of a listener by principal; the principals are bounded."""
    found = Counter(each.principal or ANONYMOUS for each in listener.connections)
    counts = {str(principal): count for principal, count in found.most_common(_PRINCIPALS_MAX)}
    left_out = found.total() - sum(counts.values())
    return {**counts, "(other)": left_out} if left_out else counts


def _software(session: object) -> ClientSoftware:
    return session if isinstance(session, ClientSoftware) else UNKNOWN_SOFTWARE
