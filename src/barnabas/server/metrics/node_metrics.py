"""Metrics of a node in each role: requests, connections, client quotas and the process.

Most requests are handled in the turn of the loop that reads them, and their response is written in
the same turn. They wait in no queue, so their queue and send times count as 0 ms. A client has
metrics of quotas while it has a quota, and until an hour after its last request. Their tags name
the user and the client id that share the quota: both, or one of them and "".
"""

from __future__ import annotations

import gc
from collections import Counter
from typing import TYPE_CHECKING

from barnabas.metrics import names
from barnabas.metrics.measurements import RecentBuckets, quantiles_of
from barnabas.metrics.registry import MetricFamily, Summary
from barnabas.network.principal import ANONYMOUS
from barnabas.protocol.errors import ErrorCode
from barnabas.server.dispatch.client_software import UNKNOWN_SOFTWARE, ClientSoftware
from barnabas.server.dispatch.request_statistics import BOUNDS_MS, Times, middle_of
from barnabas.server.listeners.client_traffic import largest
from barnabas.server.quotas.sanitized_user import sanitized_user

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import TypeVar

    from barnabas.metrics.registry import Tags
    from barnabas.runtime.clock import Clock, Timer
    from barnabas.runtime.loop_watch import LoopWatch
    from barnabas.server.dispatch.request_statistics import ApiStatistics, RequestStatistics
    from barnabas.server.listeners.client_traffic import ClientKey, Traffic
    from barnabas.server.listeners.listener import Listener
    from barnabas.server.listeners.listener_tls import ListenerTls
    from barnabas.server.quotas.client_quotas import ClientQuotas, ClientUsage

    U = TypeVar("U", bound="ClientUsage")


# Maximum number of principals per listener in the metrics.
_PRINCIPALS_MAX = 1000


def request_families(statistics: RequestStatistics, now_ms: float) -> Iterator[MetricFamily]:
    """Yield the metrics of all APIs that have had requests.

    Args:
        statistics: the statistics of the node.
        now_ms: the monotonic time, which limits quantiles to recent requests.
    """
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
        pairs = zip(apis, each, strict=True)
        yield _by_api(name, apis, [summary_of(one, api.recent[name], now_ms) for api, one in pairs])
    yield _by_api(names.REQUEST_SECONDS, apis, [_histogram(api) for api in apis])


def error_name(code: int, slots: int) -> str:
    """Return Kafka's name of the error code at this index. The last index stands for -1."""
    return ErrorCode(-1 if code == slots - 1 else code).name


def summary_of(times: Times, recent: RecentBuckets, now_ms: float) -> Summary:
    """Return the count and sum of all times, and the quantiles of those of the last minute."""
    quantiles = quantiles_of(recent.select(times.by_bucket(), now_ms), middle_of)
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
        name, [((("request", api.name),), value) for api, value in zip(apis, values, strict=True)]
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
            ((("clientSoftwareName", it.name), ("clientSoftwareVersion", it.version), *tags), count)
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


def client_families(listeners: Sequence[Listener]) -> Iterator[MetricFamily]:
    """Yield requests and bytes of the clients with the most traffic."""
    sums: dict[ClientKey, Traffic] = {}
    for listener in listeners:
        for key, own in listener.traffic_by_client().items():
            sums[key] = own.plus(sums[key]) if key in sums else own
    found = [
        ((("principal", key.principal), ("client-id", key.client_id)), own)
        for key, own in largest(sums).items()
    ]
    yield MetricFamily(names.CLIENT_REQUESTS, [(tags, own.requests) for tags, own in found])
    yield MetricFamily(names.CLIENT_BYTES_IN, [(tags, own.bytes_in) for tags, own in found])
    yield MetricFamily(names.CLIENT_BYTES_OUT, [(tags, own.bytes_out) for tags, own in found])


def certificate_families(contexts: Mapping[str, ListenerTls]) -> Iterator[MetricFamily]:
    """Yield when the certificates of the listeners with TLS expire."""
    ends = {name: tls.expires_at_s() for name, tls in contexts.items()}
    yield MetricFamily(
        names.CERTIFICATE_EXPIRY,
        [((("listener", name),), end) for name, end in ends.items() if end is not None],
    )


def _by_principal(listener: Listener) -> dict[str, int]:
    """Return the open connections of a listener by principal; the principals are bounded."""
    found = Counter(each.principal or ANONYMOUS for each in listener.connections)
    counts = {str(principal): count for principal, count in found.most_common(_PRINCIPALS_MAX)}
    left_out = found.total() - sum(counts.values())
    return {**counts, "(other)": left_out} if left_out else counts


def _software(session: object) -> ClientSoftware:
    return session if isinstance(session, ClientSoftware) else UNKNOWN_SOFTWARE


_MS_PER_S = 1000.0
_CHECK_MS = 1000.0
_WALL = (("clock", "wall"),)
_CPU = (("clock", "cpu"),)


class ProcessMetrics:
    """Measures pauses and lags between `start` and `stop`, with one timer per second."""

    def __init__(self, clock: Clock, timer: Timer, watch: LoopWatch, version: str) -> None:
        self._clock = clock
        self._watch = watch
        self._timer = timer
        self._version = version
        # Durations (ms) of garbage collections, and lags (ms) of the loop's timer.
        self._pauses = Times()
        self._lags = Times()
        self._recent = {names.GC_PAUSE: RecentBuckets(), names.LOOP_LAG: RecentBuckets()}
        # Time (ms, monotonic) at which the current garbage collection began.
        self._pause_began_ms = 0.0
        # Time (ms, monotonic) at which the next check is due.
        self._due_ms = 0.0
        self._running = False

    def start(self) -> None:
        """Begin to measure."""
        self._running = True
        gc.callbacks.append(self._on_collection)
        self._arm()

    def stop(self) -> None:
        """Stop measuring."""
        if self._running:
            self._running = False
            gc.callbacks.remove(self._on_collection)

    def families(self) -> Iterator[MetricFamily]:
        """Yield the metrics, with times in seconds as is usual in Prometheus."""
        for name, times in ((names.GC_PAUSE, self._pauses), (names.LOOP_LAG, self._lags)):
            found = summary_of(times, self._recent[name], self._clock.monotonic_ms())
            in_seconds = {part: value / _MS_PER_S for part, value in found.quantiles.items()}
            summary = Summary(found.number, found.total / _MS_PER_S, in_seconds)
            yield MetricFamily(name, [((), summary)])
        watch = self._watch
        longest = ((_WALL, watch.longest_ms / _MS_PER_S), (_CPU, watch.longest_cpu_ms / _MS_PER_S))
        yield MetricFamily(names.LOOP_LONGEST_TURN, longest)
        counts = ((_WALL, watch.long_turns), (_CPU, watch.long_cpu_turns))
        yield MetricFamily(names.LOOP_LONG_TURNS, counts)
        yield MetricFamily(names.BUILD_INFO, [((("version", self._version),), 1.0)])

    def _on_collection(self, phase: str, _info: Mapping[str, int]) -> None:
        now_ms = self._clock.monotonic_ms()
        if phase == "start":
            self._pause_began_ms = now_ms
        else:
            self._pauses.add(now_ms - self._pause_began_ms)

    def _arm(self) -> None:
        self._due_ms = self._clock.monotonic_ms() + _CHECK_MS
        self._timer.call_later(_CHECK_MS, self._check)

    def _check(self) -> None:
        if self._running:
            self._lags.add(max(0.0, self._clock.monotonic_ms() - self._due_ms))
            self._arm()


def quota_families(quotas: ClientQuotas) -> Iterator[MetricFamily]:
    """Yield rates and throttle times of all clients that have a quota.

    The values are computed during the iteration, because there may be thousands of clients.
    """
    now_ms = quotas.clock.monotonic_ms()
    for quota, rate_name, throttle_name in (
        (quotas.produce, names.PRODUCE_QUOTA_RATE, names.PRODUCE_QUOTA_THROTTLE),
        (quotas.fetch, names.FETCH_QUOTA_RATE, names.FETCH_QUOTA_THROTTLE),
        (quotas.request, names.REQUEST_QUOTA_RATE, names.REQUEST_QUOTA_THROTTLE),
    ):
        usage = quota.usage()
        yield _family(rate_name, usage, lambda each: each.rate.measure(now_ms)[0])
        yield _family(throttle_name, usage, lambda each: each.throttle_time(now_ms))
    mutation = quotas.mutation
    mutations = mutation.usage()
    yield _family(names.MUTATION_QUOTA_RATE, mutations, lambda each: each.rate.measure(now_ms)[0])
    yield _family(names.MUTATION_QUOTA_THROTTLE, mutations, lambda each: each.throttle_time(now_ms))
    yield MetricFamily(
        names.MUTATION_QUOTA_TOKENS,
        (
            (_tags(user, client_id), tokens)
            for user, client_id, each in mutations
            if (tokens := mutation.tokens(user, client_id, each)) is not None
        ),
    )
    yield MetricFamily(names.EXEMPT_REQUEST_TIME, [((), quotas.exempt_request_time())])


def _family(
    name: str, usage: Iterable[tuple[str, str, U]], value: Callable[[U], float]
) -> MetricFamily:
    return MetricFamily(
        name, ((_tags(user, client_id), value(each)) for user, client_id, each in usage)
    )


def _tags(user: str, client_id: str) -> Tags:
    return (("user", sanitized_user(user)), ("client-id", client_id))
