"""Request statistics per API (Kafka: RequestMetrics), kept as plain numbers until metrics are read.

Most requests get their response while they are handled. Such a request costs one update of one
distribution: its total time is its local time, and all other times are zero. Only requests that
were pending or queued update more distributions.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import accumulate
from math import frexp
from typing import TYPE_CHECKING

from barnabas.metrics.measurements import RecentBuckets
from barnabas.protocol.api_table import ApiKey
from barnabas.protocol.errors import ErrorCode, error_counter, step_error_counter
from barnabas.protocol.schema import Array

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from barnabas.protocol.schema import Message

# Added to every time, so that the shortest times fall into the first bucket.
SHORTEST_MS = 2.0**-10
_FIRST_EXPONENT = -9
_LAST_EXPONENT = 24
# Responses with more items are encoded in slices. This number takes about one millisecond.
LARGE_ITEMS = 500
_WITH_RECORDS = (int(ApiKey.PRODUCE), int(ApiKey.FETCH))
# Buckets per doubling of the time.
_STEPS = 4
_BUCKETS = (_LAST_EXPONENT - _FIRST_EXPONENT + 1) * _STEPS
# Offset that maps the exponent of the shortest time to the first bucket.
FIRST_BUCKET = -_FIRST_EXPONENT * _STEPS - _STEPS


# Bounds of the histogram that Prometheus reads, ms.
BOUNDS_MS = tuple(2.0**exponent for exponent in range(-2, 15))


def bucket_of(duration_ms: float) -> int:
    """Return the bucket of a time below two hours. Each doubling has four buckets of equal width.

    The bucket is computed, because a search in a table would read memory that is not in the cache.
    """
    mantissa, exponent = frexp(duration_ms + SHORTEST_MS)
    return FIRST_BUCKET + exponent * 4 + int(mantissa * 8.0)


def middle_of(bucket: int) -> float:
    """Return the time that stands for all times of a bucket, with an error of one eighth."""
    if bucket == 0:
        return 0.0
    exponent, step = divmod(bucket, _STEPS)
    return (step + _STEPS + 0.5) / 8.0 * 2.0 ** (exponent + _FIRST_EXPONENT)


class Times:
    """A histogram of times in ms."""

    __slots__ = ("counts", "total_ms")

    def __init__(self) -> None:
        # Number of times by bucket. The dispatcher also updates this list directly.
        self.counts = [0] * _BUCKETS
        self.total_ms = 0.0

    def add(self, duration_ms: float) -> None:
        """Count a time."""
        self.counts[min(bucket_of(duration_ms), _BUCKETS - 1)] += 1
        self.total_ms += duration_ms

    def remove(self, duration_ms: float) -> None:
        """Remove a counted time, for a request whose final time is longer."""
        self.counts[min(bucket_of(duration_ms), _BUCKETS - 1)] -= 1
        self.total_ms -= duration_ms

    @property
    def count(self) -> int:
        """Number of times in the histogram."""
        return sum(self.counts)

    def merged(self, other: Times) -> Times:
        """Return the sum of both histograms."""
        total = Times()
        total.counts = [mine + its for mine, its in zip(self.counts, other.counts, strict=True)]
        total.total_ms = self.total_ms + other.total_ms
        return total

    def with_zeros(self, count: int) -> Times:
        """Return a copy with `count` additional times of zero."""
        times = Times()
        times.counts = [self.counts[0] + count, *self.counts[1:]]
        times.total_ms = self.total_ms
        return times

    def numbers_below(self, bounds_ms: Iterable[float]) -> list[int]:
        """Return how many times are below each bound, a power of two; the bounds ascend."""
        sums = [0, *accumulate(self.counts)]
        return [sums[bucket_of(bound_ms - SHORTEST_MS)] for bound_ms in bounds_ms]

    def by_bucket(self) -> dict[int, int]:
        """Return the number of times by bucket, without empty buckets."""
        return {bucket: count for bucket, count in enumerate(self.counts) if count}


class ApiStatistics:
    """Statistics of the requests of one API since the start."""

    __slots__ = (
        "_response",
        "api_key",
        "arrays",
        "count_errors",
        "error_searches",
        "errors",
        "exposed",
        "has_throttle_time",
        "immediate",
        "name",
        "parked_local",
        "parked_total",
        "recent",
        "remote",
        "request_bytes",
        "request_queue",
        "response_bytes",
        "response_queue",
        "response_send",
        "throttle",
        "versions",
    )

    def __init__(self, api_key: int, name: str, last_version: int, response: type[Message]) -> None:
        self.api_key = api_key
        self._response = response
        # Array fields of responses that may be large, each with the array fields of its items.
        # Empty for APIs with records, which are not encoded item by item.
        self.arrays = () if api_key in _WITH_RECORDS else _arrays_of(response)
        # Kafka's name of the API, for example "Produce".
        self.name = name
        # Largest numbers of total times by bound that were exposed. The number of a request that is
        # later found to be slow moves to a larger bound, and Prometheus takes a number that falls
        # for a restart.
        self.exposed = [0] * len(BOUNDS_MS)
        # Number of requests by version.
        self.versions = [0] * (last_version + 1)
        # Number of error codes in responses, by code. The last item counts -1, the unknown error.
        self.errors = [0] * (max(ErrorCode) + 2)
        self.count_errors: Callable[[Message, list[int]], None] = error_counter(response)
        # Number of responses that were searched for errors. The handlers marked all others as
        # clean.
        self.error_searches = 0
        # Whether the response has a throttle time.
        self.has_throttle_time = any(
            each.name == "throttle_time_ms" for each in response.__fields__
        )
        # Bytes of all requests and of all responses since the start.
        self.request_bytes = 0
        self.response_bytes = 0
        # Requests that got their response within the handler: local time, which is also the total
        # time.
        self.immediate = Times()
        # Pending requests: time in the handler, time until the response, and their sum.
        self.parked_local = Times()
        self.remote = Times()
        self.parked_total = Times()
        # Requests that waited in the queue after they were received: time in the queue.
        self.request_queue = Times()
        # Responses that waited for the responses to earlier requests: waiting time.
        self.response_queue = Times()
        # Responses that did not fit into the kernel's send buffer: time until the buffer had taken
        # them.
        self.response_send = Times()
        # Requests that exceeded a quota: throttle time.
        self.throttle = Times()
        # Select recent times for the quantiles, by the name of the metric.
        self.recent: defaultdict[str, RecentBuckets] = defaultdict(RecentBuckets)

    def is_large(self, response: Message) -> bool:
        """Return whether the response has so many items that it must be encoded in slices."""
        count = 0
        for name, inner_names in self.arrays:
            items = getattr(response, name)
            if not items:
                continue
            count += len(items)
            if count > LARGE_ITEMS:
                return True
            for inner in inner_names:
                count += sum(len(getattr(each, inner) or ()) for each in items)
        return count > LARGE_ITEMS

    def count_errors_in_steps(self, response: Message) -> Generator[None, None, None]:
        """Count errors like `count_errors`, in a generator that yields after each array item."""
        return step_error_counter(self._response)(response, self.errors)

    def count_queued(self, queued_ms: float, local_ms: float) -> None:
        """Count the times of a request that waited in the queue and whose handler responded."""
        self.request_queue.add(queued_ms)
        self.parked_local.add(local_ms)
        self.remote.add(0.0)
        self.parked_total.add(queued_ms + local_ms)

    def error_counts(self) -> list[int]:
        """Return the number of errors by code. A clean response counts as one NONE."""
        counts = list(self.errors)
        counts[0] += max(0, self.requests - self.error_searches)
        return counts

    @property
    def requests(self) -> int:
        """Number of requests of all versions."""
        return sum(self.versions)


def _arrays_of(response: type[Message]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    arrays = []
    for field in response.__fields__:
        if isinstance(field.kind, Array):
            inner = getattr(field.kind.element, "__fields__", ())
            names = tuple(each.name for each in inner if isinstance(each.kind, Array))
            arrays.append((field.name, names))
    return tuple(arrays)


class RequestStatistics:
    """Statistics of all APIs that have had requests."""

    __slots__ = ("by_api",)

    def __init__(self) -> None:
        self.by_api: dict[int, ApiStatistics] = {}

    def of(
        self, api_key: int, name: str, last_version: int, response: type[Message]
    ) -> ApiStatistics:
        """Return the statistics of one API, which the first call creates."""
        statistics = self.by_api.get(api_key)
        if statistics is None:
            statistics = ApiStatistics(api_key, name, last_version, response)
            self.by_api[api_key] = statistics
        return statistics
