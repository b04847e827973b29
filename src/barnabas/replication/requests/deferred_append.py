"""A deferred append: its records need an inspection over several turns of the event loop.

Other partitions accept appends during the inspection. Leadership, ISR and disk are checked after
the inspection, as for any append.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol

from barnabas.storage.validation.batch_inspection import InspectedRecords
from barnabas.waiting.purgatory import CanceledTogether

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.replication.partition.results import ProduceResult
    from barnabas.replication.requests.delayed_produce import PendingAppend
    from barnabas.storage.results import AppendOrigin
    from barnabas.storage.topic_partition import TopicPartition
    from barnabas.storage.validation.batch_inspection import Inspection
    from barnabas.waiting.purgatory import Cancellable
    from barnabas.waiting.steps import Steps

    Outcome = InspectedRecords | Exception


class StepQueue(Protocol):
    """Runs work in steps between the turns of the event loop. The server provides it."""

    def submit(self, lane: object, steps: Steps, on_done: Callable[[Outcome], None]) -> object:
        """Run `steps` and pass the result to `on_done`. Jobs of one lane keep their order."""
        ...


class Appender(Protocol):
    """The part of `ReplicaAppends` that a deferred append uses."""

    def append_records(
        self,
        timeout_ms: int,
        required_acks: int,
        entries: dict[TopicPartition, InspectedRecords],
        origin: AppendOrigin,
        on_done: Callable[[dict[TopicPartition, ProduceResult]], None],
    ) -> Cancellable | None:
        """Append the inspected records and call `on_done`, see `ReplicaAppends`."""
        ...

    def failed(self, topic_partition: TopicPartition, error: Exception, size: int) -> ProduceResult:
        """Count and return the result of an append that failed."""
        ...

    def park(
        self,
        timeout_ms: int,
        required_acks: int,
        pending: list[PendingAppend],
        results: dict[TopicPartition, ProduceResult],
        on_done: Callable[[dict[TopicPartition, ProduceResult]], None],
    ) -> Cancellable:
        """Answer when all pending appends are acknowledged."""
        ...


class DeferredAppend:
    """Waits for the inspections of one request, appends the records, and calls `on_done`."""

    __slots__ = (
        "_appender",
        "_is_done",
        "_on_done",
        "_origin",
        "_outcomes",
        "_pending",
        "_required_acks",
        "_results",
        "_sizes",
        "_timeout_ms",
        "_waiting",
    )

    def __init__(
        self,
        appender: Appender,
        required_acks: int,
        timeout_ms: int,
        origin: AppendOrigin,
        on_done: Callable[[dict[TopicPartition, ProduceResult]], None],
    ) -> None:
        self._appender = appender
        self._required_acks = required_acks
        self._timeout_ms = timeout_ms
        self._origin = origin
        self._on_done = on_done
        # Results of the partitions that needed no inspection, and their unacknowledged appends.
        self._results: dict[TopicPartition, ProduceResult] = {}
        self._pending: list[PendingAppend] = []
        # Size of the inspected records in bytes, by partition.
        self._sizes: dict[TopicPartition, int] = {}
        self._outcomes: dict[TopicPartition, Outcome] = {}
        # The operations that wait for the other replicas after the append.
        self._waiting = CanceledTogether()
        # Whether `on_done` was called. Never reset.
        self._is_done = False

    def begin(
        self,
        inspections: dict[TopicPartition, Inspection],
        results: dict[TopicPartition, ProduceResult],
        pending: list[PendingAppend],
        queue: StepQueue,
    ) -> DeferredAppend | None:
        """Start the inspections. Return None if the request is complete already."""
        self._results, self._pending = results, pending
        self._sizes = {key: len(inspection) for key, inspection in inspections.items()}
        for key, inspection in inspections.items():
            queue.submit(key, inspection.outcome(), partial(self._on_inspected, key))
        return None if self._is_done else self

    def cancel(self) -> None:
        """Do not wait for the other replicas, since the client is gone.

        As in Kafka, the records are appended even so.
        """
        self._waiting.cancel()

    def _on_inspected(self, key: TopicPartition, outcome: Outcome) -> None:
        self._outcomes[key] = outcome
        if len(self._outcomes) == len(self._sizes):
            self._append()

    def _append(self) -> None:
        entries: dict[TopicPartition, InspectedRecords] = {}
        for key, outcome in self._outcomes.items():
            if isinstance(outcome, InspectedRecords):
                entries[key] = outcome
            else:
                self._results[key] = self._appender.failed(key, outcome, self._sizes[key])
        self._outcomes = {}
        if entries:
            self._wait_for(
                self._appender.append_records(
                    self._timeout_ms, self._required_acks, entries, self._origin, self._on_appended
                )
            )
        else:
            self._on_appended({})

    def _on_appended(self, results: dict[TopicPartition, ProduceResult]) -> None:
        self._results.update(results)
        if self._pending:
            self._wait_for(
                self._appender.park(
                    self._timeout_ms,
                    self._required_acks,
                    self._pending,
                    self._results,
                    self._complete,
                )
            )
        else:
            self._complete(self._results)

    def _wait_for(self, operation: Cancellable | None) -> None:
        if operation is not None:
            self._waiting.add(operation)

    def _complete(self, results: dict[TopicPartition, ProduceResult]) -> None:
        self._is_done = True
        self._on_done(results)
