"""The transaction coordinator of a broker (Kafka's TransactionCoordinator).

The path of a request: handler -> `TransactionCoordinator` -> runtime -> `TransactionShard` ->
response and records. Then the markers are sent, and a second record states that they are written.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, cast

from barnabas.coordinator.runtime.coordinator_record import CoordinatorResult
from barnabas.coordinator.runtime.coordinator_runtime import CoordinatorRuntime
from barnabas.coordinator.runtime.responses import client_error
from barnabas.coordinator.transaction import decisions
from barnabas.coordinator.transaction.decisions import NeedsProducerIdError
from barnabas.coordinator.transaction.transaction_metadata import EPOCH_BUMP_VERSION
from barnabas.coordinator.transaction.transaction_shard import TransactionShard
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.coordinator.runtime.runtime_dependencies import RuntimeDependencies
    from barnabas.coordinator.runtime.shard import ShardContext
    from barnabas.coordinator.transaction.config import TransactionConfig
    from barnabas.coordinator.transaction.decisions import EndRequest, Initialization
    from barnabas.coordinator.transaction.transaction_metadata import (
        Markers,
        MarkerSender,
        Producer,
        TransactionMetadata,
    )
    from barnabas.storage.topic_partition import TopicPartition

    # Calls its argument with a new producer id and NONE, or with -1 and an error.
    NextProducerId = Callable[[Callable[[int, ErrorCode], None]], None]
    # The state of the id after the request, or an error.
    OnState = Callable[[TransactionMetadata | ErrorCode], None]
    Operation = Callable[
        [TransactionShard, int | None], CoordinatorResult[TransactionMetadata | ErrorCode]
    ]

_log = logging.getLogger(__name__)

TRANSACTION_TOPIC = "__transaction_state"
# Delay before the end of a transaction is written again, in ms.
_RETRY_MS = 100
# The coordinator has moved to another broker, which will end the transaction.
_MOVED = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS})


class TransactionCoordinator:
    """The transactional ids whose partition of `__transaction_state` this broker leads."""

    def __init__(
        self,
        config: TransactionConfig,
        dependencies: RuntimeDependencies,
        transaction_version: Callable[[], int],
        next_producer_id: NextProducerId,
        markers: MarkerSender,
    ) -> None:
        """Create the coordinator.

        Args:
            config: timeouts and intervals.
            dependencies: of the runtime.
            transaction_version: returns the finalized level of the feature transaction.version.
            next_producer_id: reserves an unused producer id.
            markers: sends markers to the leaders of partitions.
        """
        self._config = config
        self._wheel = dependencies.wheel
        self._clock = dependencies.clock
        self._next_producer_id = next_producer_id
        self._transaction_version = transaction_version
        # Ended transactions whose last record is written again after a delay.
        self.append_retries = 0

        def make_shard(context: ShardContext) -> TransactionShard:
            return TransactionShard(
                context,
                config,
                dependencies.clock,
                transaction_version,
                markers,
                self._on_markers_written,
            )

        self.runtime: CoordinatorRuntime[TransactionShard] = CoordinatorRuntime(
            TRANSACTION_TOPIC, dependencies, make_shard
        )

    # Requests.

    def initialize(self, request: Initialization, on_done: OnState) -> None:
        """Handle InitProducerId with a transactional id (KIP-98, KIP-360, KIP-939)."""
        error = self._check_initialization(request)
        if error is not ErrorCode.NONE:
            on_done(error)
            return
        self._decide(
            request.transactional_id,
            lambda shard, producer_id: shard.initialize(request, producer_id),
            on_done,
        )

    def _check_initialization(self, request: Initialization) -> ErrorCode:
        is_enabled = self._config.transaction_two_phase_commit_enable
        if request.has_two_phases and not is_enabled:
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        if request.keeps_prepared and not (
            is_enabled and self._transaction_version() >= EPOCH_BUMP_VERSION
        ):
            # Kafka 4.4 always returns this error.
            return ErrorCode.UNSUPPORTED_VERSION
        is_allowed = 0 < request.timeout_ms <= self._config.transaction_max_timeout_ms
        if not (request.has_two_phases or is_allowed):
            return ErrorCode.INVALID_TRANSACTION_TIMEOUT
        return ErrorCode.NONE

    def end(self, request: EndRequest, on_done: OnState) -> None:
        """Handle EndTxn: decide the result. The markers follow after the response."""
        self._decide(
            request.transactional_id,
            lambda shard, producer_id: shard.end(request, producer_id),
            on_done,
        )

    def _decide(self, transactional_id: str, operation: Operation, on_done: OnState) -> None:
        """Write the operation's result. Reserve a producer id first if it needs one."""

        def on_written(response: TransactionMetadata | ErrorCode | None, error: ErrorCode) -> None:
            on_done(client_error(error) if response is None else response)

        def on_producer_id(producer_id: int, error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                on_done(error)
                return
            self.runtime.write(
                transactional_id, lambda shard: operation(shard, producer_id), on_written
            )

        def attempt(
            shard: TransactionShard,
        ) -> CoordinatorResult[TransactionMetadata | ErrorCode | None]:
            try:
                result = operation(shard, None)
            except NeedsProducerIdError:
                return CoordinatorResult(None)
            # The type is invariant; a response that is never None is fine here.
            return cast("CoordinatorResult[TransactionMetadata | ErrorCode | None]", result)

        def on_attempted(
            response: TransactionMetadata | ErrorCode | None, error: ErrorCode
        ) -> None:
            if response is None and error is ErrorCode.NONE:
                self._next_producer_id(on_producer_id)
            else:
                on_written(response, error)

        self.runtime.write(transactional_id, attempt, on_attempted)

    def add_partitions(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: frozenset[TopicPartition],
        client_version: int,
        on_done: Callable[[ErrorCode], None],
    ) -> None:
        """Handle AddPartitionsToTxn and AddOffsetsToTxn.

        Args:
            transactional_id: the id.
            producer: its producer id and epoch.
            partitions: the partitions, which exist.
            client_version: transaction version of the client: 2 if a broker sends the request.
            on_done: called with the result for all partitions.
        """
        if not transactional_id:
            on_done(ErrorCode.INVALID_REQUEST)
            return
        self.runtime.write(
            transactional_id,
            lambda shard: shard.add_partitions(
                transactional_id, producer, partitions, client_version
            ),
            lambda response, error: on_done(client_error(error) if response is None else response),
        )

    def verify_partitions(
        self, transactional_id: str, producer: Producer, partitions: frozenset[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Return for each partition whether the producer's transaction has it (KIP-890)."""
        if not transactional_id:
            return dict.fromkeys(partitions, ErrorCode.INVALID_REQUEST)
        found = self.runtime.read(
            transactional_id,
            lambda shard: decisions.verify_partitions(
                shard.find(transactional_id), producer, partitions
            ),
        )
        return dict.fromkeys(partitions, found) if isinstance(found, ErrorCode) else found

    def describe(self, transactional_id: str) -> TransactionMetadata | ErrorCode:
        """Return the state of an id, or an error.

        While markers are written, only the partitions that have no marker yet.
        """
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        found = self.runtime.read(transactional_id, lambda shard: shard.describe(transactional_id))
        return ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if found is None else found

    # The end of a transaction.

    def _on_markers_written(self, markers: Markers, error: ErrorCode) -> None:
        if error is not ErrorCode.NONE:
            _log.info(
                "Another coordinator must end the transaction: transactional_id=%s error=%s",
                markers.transactional_id,
                error.name,
            )
            return
        self._complete(markers)

    def _complete(self, markers: Markers) -> None:
        self.runtime.write(
            markers.transactional_id,
            lambda shard: shard.complete(markers),
            partial(self._on_completed, markers),
        )

    def _on_completed(self, markers: Markers, _response: None, error: ErrorCode) -> None:
        for_client = client_error(error)
        if error is ErrorCode.NONE or for_client in _MOVED:
            return
        _log.warning(
            "End of a transaction could not be written, retrying: transactional_id=%s error=%s",
            markers.transactional_id,
            error.name,
        )
        self.append_retries += 1

        def again() -> None:
            self.append_retries -= 1
            self._complete(markers)

        self._wheel.add(_RETRY_MS, again)
