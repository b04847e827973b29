"""What is counted per API (Kafka: RequestMetrics): plain numbers here, metrics when somebody looks.

A request that is answered while it is handled, as nearly all are, costs one distribution: its local
time is its total time, and it waited for nothing. Only those that were parked are counted in more.
"""

from __future__ import annotations

from math import frexp
from typing import TYPE_CHECKING

from barnabas.protocol.api_table import ApiKey
from barnabas.protocol.error_counting import error_counter, step_error_counter
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.schema import Array

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from barnabas.protocol.schema import Message

# Added to every time, so that the shortest fall into the first bucket.
SHORTEST_MS = 2.0**-10
_FIRST_EXPONENT = -9
_LAST_EXPONENT = 24
# Responses with more items are encoded in slices: about a millisecond's work.
LARGE_ITEMS = 500
_WITH_RECORDS = (int(ApiKey.PRODUCE), int(ApiKey.FETCH))
# Buckets per doubling.
_STEPS = 4
_BUCKETS = (_LAST_EXPONENT - _FIRST_EXPONENT + 1) * _STEPS
# What brings the exponent of the shortest time to the first bucket.
FIRST_BUCKET = -_FIRST_EXPONENT * _STEPS - _STEPS


def bucket_of(duration_ms: float) -> int:
    """The bucket of a time below two hours: four per doubling, of equal width.

    Worked out rather than looked up: a search through bounds touches memory that is cold by then.
    """
    mantissa, exponent = frexp(duration_ms + SHORTEST_MS)
    return FIRST_BUCKET + exponent * 4 + int(mantissa * 8.0)


def _middle_of(bucket: int) -> float:
    exponent, step = divmod(bucket, _STEPS)
    return (step + _STEPS + 0.5) / 8.0 * 2.0 ** (exponent + _FIRST_EXPONENT)


class Times:
    """A distribution of times."""

    __slots__ = ("counts", "total_ms")

    def __init__(self) -> None:
        # By bucket; the hot path adds to it itself.
        self.counts = [0] * _BUCKETS
        self.total_ms = 0.0

    def add(self, duration_ms: float) -> None:
        """Count one."""
        self.counts[min(bucket_of(duration_ms), _BUCKETS - 1)] += 1
        self.total_ms += duration_ms

    def remove(self, duration_ms: float) -> None:
        """Take back one that was counted: its time has turned out to be longer."""
        self.counts[min(bucket_of(duration_ms), _BUCKETS - 1)] -= 1
        self.total_ms -= duration_ms

    @property
    def count(self) -> int:
        """How many."""
        return sum(self.counts)

    def merged(self, other: Times) -> Times:
        """Both together."""
        made = Times()
        made.counts = [mine + its for mine, its in zip(self.counts, other.counts, strict=True)]
        made.total_ms = self.total_ms + other.total_ms
        return made

    def with_zeros(self, count: int) -> Times:
        """These, and so many that took no time."""
        made = Times()
        made.counts = [self.counts[0] + count, *self.counts[1:]]
        made.total_ms = self.total_ms
        return made

    def quantile(self, fraction: float) -> float:
        """The time below which that share lies, within an eighth; 0 without any."""
        rank = fraction * self.count
        seen = 0
        for bucket, count in enumerate(self.counts):
            seen += count
            if count and seen >= rank:
                return 0.0 if bucket == 0 else _middle_of(bucket)
        return 0.0


class ApiStatistics:
    """One API's requests since the start."""

    __slots__ = (
        "_response",
        "api_key",
        "arrays",
        "count_errors",
        "errors",
        "has_throttle_time",
        "immediate",
        "looked_into",
        "name",
        "parked_local",
        "parked_total",
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
        # The arrays of responses that may be large, each with the arrays of its items; none where
        # records are answered, which are never encoded item by item.
        self.arrays = () if api_key in _WITH_RECORDS else _arrays_of(response)
        # Kafka's name of the API, "Produce".
        self.name = name
        # Requests by version.
        self.versions = [0] * (last_version + 1)
        # Error codes of responses, by code; -1, the unknown error, is the last.
        self.errors = [0] * (max(ErrorCode) + 2)
        self.count_errors: Callable[[Message, list[int]], None] = error_counter(response)
        # Answers that were looked into for errors; handlers said of all others that they have none.
        self.looked_into = 0
        # Whether responses say how long their client has to wait.
        self.has_throttle_time = any(
            each.name == "throttle_time_ms" for each in response.__fields__
        )
        self.request_bytes = 0
        self.response_bytes = 0
        # Of requests that were answered when their handler returned: local and total time.
        self.immediate = Times()
        # Of requests that were parked: in the handler, waiting, and both.
        self.parked_local = Times()
        self.remote = Times()
        self.parked_total = Times()
        # Of requests that waited for their turn after all of them had been received.
        self.request_queue = Times()
        # Of answers that earlier requests of their connection held back.
        self.response_queue = Times()
        # Of responses for which the kernel's buffer had no room, until it had taken all.
        self.response_send = Times()
        # Of requests that were over a quota: how long their client has to wait.
        self.throttle = Times()

    def is_large(self, response: Message) -> bool:
        """Return whether a response has so many items that it is to be encoded in slices."""
        count = 0
        for name, inner_names in self.arrays:
            items = getattr(response, name) or ()
            count += len(items)
            if count > LARGE_ITEMS:
                return True
            for inner in inner_names:
                count += sum(len(getattr(each, inner) or ()) for each in items)
        return count > LARGE_ITEMS

    def count_errors_in_steps(self, response: Message) -> Generator[None, None, None]:
        """As `count_errors`, as a generator that stops after each item of an array."""
        return step_error_counter(self._response)(response, self.errors)

    def count_queued(self, queued_ms: float, local_ms: float) -> None:
        """Count the times of a request that waited for its turn and was answered in it."""
        self.request_queue.add(queued_ms)
        self.parked_local.add(local_ms)
        self.remote.add(0.0)
        self.parked_total.add(queued_ms + local_ms)

    def error_counts(self) -> list[int]:
        """By code; an answer of which the handler knew that it has no error is one NONE."""
        counts = list(self.errors)
        counts[0] += max(0, self.requests - self.looked_into)
        return counts

    @property
    def requests(self) -> int:
        """Of all versions."""
        return sum(self.versions)


def _arrays_of(response: type[Message]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    found = []
    for each in response.__fields__:
        if isinstance(each.kind, Array):
            element = each.kind.element
            inner = getattr(element, "__fields__", ())
            found.append(
                (each.name, tuple(one.name for one in inner if isinstance(one.kind, Array)))
            )
    return tuple(found)


class RequestStatistics:
    """All APIs that were asked for."""

    __slots__ = ("by_api",)

    def __init__(self) -> None:
        self.by_api: dict[int, ApiStatistics] = {}

    def of(
        self, api_key: int, name: str, last_version: int, response: type[Message]
    ) -> ApiStatistics:
        """The statistics of one API, made at the first call."""
        found = self.by_api.get(api_key)
        if found is None:
            found = ApiStatistics(api_key, name, last_version, response)
            self.by_api[api_key] = found
        return found
