"""The results of acknowledgements: for `commit_sync`, and for the user's callback."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from barnabas.client.consumer.errors import ConcurrentUseError
from barnabas.client.errors import ClientTimeoutError
from barnabas.client.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.client.errors import ClientError

__all__ = ["AcknowledgementCallback", "AcknowledgementResults", "ShareCommit"]

# Called with the offsets of acknowledged records by partition, and their error or None.
AcknowledgementCallback: TypeAlias = Callable[
    [Mapping[TopicPartition, frozenset[int]], "ClientError | None"], object
]


class ShareCommit:
    """Acknowledgements that one call of `commit_sync` waits for."""

    __slots__ = ("_results", "_waiting")

    def __init__(self, partitions: Iterable[TopicPartition]) -> None:
        # Number of pending results by partition: a partition may have moved between brokers.
        self._waiting: dict[TopicPartition, int] = {}
        for tp in partitions:
            self._waiting[tp] = self._waiting.get(tp, 0) + 1
        self._results: dict[TopicPartition, ClientError | None] = {}

    @property
    def is_done(self) -> bool:
        """Whether the results of all partitions are known."""
        return not self._waiting

    def on_result(self, tp: TopicPartition, error: ClientError | None) -> None:
        """Store a result; an error of a partition stays."""
        self._results[tp] = self._results.get(tp) or error
        left = self._waiting.pop(tp) - 1
        if left:
            self._waiting[tp] = left

    def results(self, timeout_ms: float) -> dict[TopicPartition, ClientError | None]:
        """Return the result of each partition; a timeout error where it is not known yet."""
        late = {
            tp: ClientTimeoutError(f"acknowledgements of {tp} took longer than {timeout_ms:.0f} ms")
            for tp in self._waiting
        }
        return {**self._results, **late}


class AcknowledgementResults:
    """Results for the user's callback, which runs only inside calls of the user."""

    __slots__ = ("_completed", "_is_inside", "callback")

    def __init__(self) -> None:
        # Set by the user; None without a callback.
        self.callback: AcknowledgementCallback | None = None
        self._completed: deque[tuple[TopicPartition, frozenset[int], ClientError | None]] = deque()
        self._is_inside = False

    def add(self, tp: TopicPartition, offsets: frozenset[int], error: ClientError | None) -> None:
        """Queue a result for the next `run`."""
        if self.callback is not None and offsets:
            self._completed.append((tp, offsets, error))

    def check_outside(self) -> None:
        """Refuse calls of the consumer that the callback makes.

        Raises:
            ConcurrentUseError: The callback is running.
        """
        if self._is_inside:
            raise ConcurrentUseError(
                "the acknowledgement commit callback may not call the consumer, except for wakeup()"
            )

    def run(self) -> None:
        """Pass all queued results to the callback.

        Raises:
            BaseException: The callback raised this exception; later results stay queued.
        """
        while self._completed:
            tp, offsets, error = self._completed.popleft()
            if self.callback is None:
                continue
            self._is_inside = True
            try:
                self.callback({tp: offsets}, error)
            finally:
                self._is_inside = False
