"""Lookups of offsets by time that wait for the remote tier (KIP-405, KIP-1075).

Kafka's DelayedRemoteListOffsets. A search runs in slices of the queue that also serves the lookups
in local logs. It leaves the queue while something is loaded from the tier.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from barnabas.protocol.errors import ErrorCode
from barnabas.replication.partition.offset_lookup import visible_result
from barnabas.replication.partition.results import ListOffsetResult
from barnabas.storage.errors import StorageError
from barnabas.storage.remote.remote_reader import Miss
from barnabas.storage.remote.remote_storage import RemoteStorageError
from barnabas.waiting.purgatory import DelayedOperation

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from barnabas.replication.partition.results import RemoteLookup
    from barnabas.replication.remote.remote_tier import RemoteReads
    from barnabas.replication.requests.delayed_writes import PartitionLookup
    from barnabas.runtime.clock import Cancellable
    from barnabas.storage.topic_partition import TopicPartition
    from barnabas.waiting.purgatory import Purgatory
    from barnabas.waiting.steps import OffLoop, Steps

    Found = tuple[int, int, int] | None
    Search = Generator[Miss | OffLoop | None, Any, Found]

_log = logging.getLogger(__name__)

_NONE = ErrorCode.NONE
# Searches of one request that run at the same time. The others follow.
_SEARCHES_AT_ONCE = 4


class SearchQueue(Protocol):
    """Runs work in steps between the turns of the event loop."""

    def submit(self, lane: object, steps: Steps, on_done: Callable[[Any], None]) -> Cancellable:
        """Run `steps`, and pass the result to `on_done`, perhaps before this returns."""
        ...


class PendingLookup(msgspec.Struct, eq=False):
    """A lookup in one partition."""

    topic_partition: TopicPartition
    lookup: RemoteLookup
    # As in the request; the access is checked again when the search has ended.
    current_leader_epoch: int
    only_leader: bool
    # Receives the result.
    on_done: Callable[[ListOffsetResult], None]
    search: Search | None = None
    # The job in the queue, or the load.
    step: Cancellable | None = None
    is_done: bool = False


class DelayedOffsetLookups(DelayedOperation):
    """Completes when all searches are done. After the timeout, the others are REQUEST_TIMED_OUT."""

    __slots__ = ("_lookups", "_on_done", "_queue", "_remote", "_source", "_unstarted")

    def __init__(
        self,
        timeout_ms: int,
        lookups: list[PendingLookup],
        source: PartitionLookup,
        remote: RemoteReads,
        queue: SearchQueue,
        on_done: Callable[[], None],
    ) -> None:
        """Create the pending lookups of one request.

        Args:
            timeout_ms: how long the request waits.
            lookups: at least one.
            source: finds the partitions.
            remote: searches them.
            queue: runs the searches.
            on_done: called once, after all lookups have their results.
        """
        super().__init__(timeout_ms)
        self._lookups = lookups
        self._source = source
        self._remote = remote
        self._queue = queue
        self._on_done = on_done
        # In the reverse order of the request.
        self._unstarted = lookups[::-1]

    def start(self, purgatory: Purgatory) -> None:
        """Wait in the purgatory, and start the searches."""
        purgatory.watch(self, [each.topic_partition for each in self._lookups])
        for _ in range(_SEARCHES_AT_ONCE):
            if self._unstarted and not self.is_completed:
                self._start(self._unstarted.pop())

    def _start(self, pending: PendingLookup) -> None:
        partition = self._source.partition(pending.topic_partition)
        if isinstance(partition, ErrorCode):
            self._end(pending, ListOffsetResult(partition))
            return
        timestamp = pending.lookup.timestamp
        pending.search = self._remote.offset_for_timestamp(partition, timestamp)
        self._run(pending, None)

    def _run(self, pending: PendingLookup, failure: StorageError | None) -> None:
        """Run a search to its next load or to its end."""
        if self.is_completed:
            return
        assert pending.search is not None, "the search has started"
        pending.step = None
        steps = _until_load(pending.search, failure)
        job = self._queue.submit(pending, steps, partial(self._on_step, pending))
        if pending.step is None:
            pending.step = job

    def _on_step(self, pending: PendingLookup, outcome: Miss | Found | StorageError) -> None:
        if self.is_completed:
            return
        if isinstance(outcome, Miss):
            on_loaded = partial(self._run, pending)
            pending.step = self._remote.load_or_fail(outcome, on_loaded)
            return
        pending.step = None
        self._end(pending, self._result(pending, outcome))

    def _end(self, pending: PendingLookup, result: ListOffsetResult) -> None:
        """End a search, and start the next one."""
        self._finish(pending, result)
        if self._unstarted:
            self._start(self._unstarted.pop())
        else:
            self.try_complete()

    def _result(self, pending: PendingLookup, outcome: Found | StorageError) -> ListOffsetResult:
        key = pending.topic_partition
        if isinstance(outcome, RemoteStorageError):
            return ListOffsetResult(self._remote.failed(key.topic, outcome))
        if isinstance(outcome, StorageError):
            return ListOffsetResult(outcome.error_code)
        partition = self._source.partition(key)
        if isinstance(partition, ErrorCode):
            return ListOffsetResult(partition)
        error = partition.check_access(pending.current_leader_epoch, pending.only_leader)
        if error is not _NONE:
            return ListOffsetResult(error)
        return visible_result(partition, outcome, pending.lookup.isolation)

    def _finish(self, pending: PendingLookup, result: ListOffsetResult) -> None:
        pending.is_done = True
        if pending.search is not None:
            pending.search.close()
        pending.on_done(result)

    def try_complete(self) -> bool:
        """Complete when all searches are done."""
        return all(each.is_done for each in self._lookups) and self.force_complete()

    def on_complete(self) -> None:
        """Respond. A search that is not done has timed out."""
        self._stop()
        for pending in self._lookups:
            if not pending.is_done:
                self._remote.metrics.count_list_offsets_expired(pending.topic_partition)
                self._finish(pending, ListOffsetResult(ErrorCode.REQUEST_TIMED_OUT))
        self._on_done()

    def on_cancel(self) -> None:
        """Stop the searches: the client is gone."""
        self._stop()

    def _stop(self) -> None:
        self._unstarted.clear()
        for pending in self._lookups:
            step, pending.step = pending.step, None
            if step is not None:
                step.cancel()


def _until_load(
    search: Search, failure: StorageError | None
) -> Generator[OffLoop | None, Any, Miss | Found | StorageError]:
    """Continue a search to what it must load next, or to its end.

    Args:
        search: the search.
        failure: why the last load has failed; None if it has not.

    Returns:
        What must be loaded, the result of the search, or its error.
    """
    answer: Any = None
    raised: Exception | None = failure
    while True:
        try:
            wanted = search.send(answer) if raised is None else search.throw(raised)
        except StopIteration as end:
            found: Found = end.value
            return found
        except StorageError as error:
            return error
        except AssertionError:
            raise
        except Exception:  # noqa: BLE001 - the other lookups of the request are still answered
            _log.exception("Unexpected error in a lookup of an offset in the remote tier")
            return StorageError("unexpected error")
        if isinstance(wanted, Miss):
            return wanted
        answer = raised = None
        try:
            answer = yield wanted
        except Exception as error:  # noqa: BLE001 - thrown where the call was made
            raised = error
