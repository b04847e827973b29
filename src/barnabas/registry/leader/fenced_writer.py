"""Appends to one partition so that a deposed writer cannot append any more.

Each new leader requests a higher epoch of one transactional id. Its first batch tells the partition
this epoch, and from then on the partition refuses batches of earlier leaders
(INVALID_PRODUCER_EPOCH). There are no transactions: a transaction's end would be a record that
Karapace's registry never reads, so that it would wait for it without end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from barnabas.client.connections.connections import Call
from barnabas.client.connections.lookups import TRANSACTION, Coordinators
from barnabas.client.errors import ClientError, broker_error
from barnabas.client.producer.producer_batch import ProducerBatch
from barnabas.client.retries import RetryingCall
from barnabas.client.transactions.requests import ProducerIdAndEpoch, TwoPhases, initialize
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas.protocol.messages.transactions import InitProducerIdResponse
from barnabas.record.batch import HEADER_SIZE
from barnabas.record.builder import record_size_max
from barnabas.record.compression import NONE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.client.aio.session import AsyncSession
    from barnabas.client.retries import OnDone
    from barnabas.client.topic_partition import TopicPartition
    from barnabas.protocol.schema import Message

__all__ = ["FencedWriter", "NotFencedError"]

T = TypeVar("T")
_ALL_REPLICAS = -1
_EPOCH = "epoch of the registry's leader"
_TRANSACTION_TIMEOUT_MS = 60_000


class NotFencedError(ClientError):
    """The writer has no epoch: `fence` was not called, or an append has failed since."""


class FencedWriter:
    """Appends batches to a partition, one at a time.

    Args:
        session: Reaches the brokers.
        tp: The partition.
        transactional_id: The id that all writers of the partition share.
    """

    def __init__(self, session: AsyncSession, tp: TopicPartition, transactional_id: str) -> None:
        self._session = session
        self._cluster = session.cluster
        self._tp = tp
        self._transactional_id = transactional_id
        self._coordinators = Coordinators(self._cluster, TRANSACTION)
        # None before `fence`, during an append, and after a failed one: the failed batch may be in
        # the log or not.
        self._identity: ProducerIdAndEpoch | None = None
        self._next_sequence = 0
        # Raised by `fence` and `resign`; an append of an earlier era leaves no epoch behind.
        self._era = 0
        self._cluster.tracked.add(tp.topic)

    def resign(self) -> None:
        """Append nothing any more, until `fence` is called again."""
        self._era += 1
        self._identity = None

    async def fence(self) -> None:
        """Request a new epoch. The next batch fences earlier writers.

        Raises:
            ClientError: The coordinator did not give an epoch.
        """
        self.resign()
        era = self._era

        def attempt(done: OnDone[ProducerIdAndEpoch]) -> None:
            def on_response(response: Message | None, error: ClientError | None) -> None:
                if isinstance(response, InitProducerIdResponse):
                    if not response.error_code:
                        found = (response.producer_id, response.producer_epoch)
                        done(ProducerIdAndEpoch(*found), None)
                        return
                    error = broker_error(response.error_code, _EPOCH)
                assert error is not None
                if error.retriable:
                    self._coordinators.forget(self._transactional_id)
                done(None, error)

            self._coordinators.call(
                self._transactional_id, ApiKey.INIT_PRODUCER_ID, self._initialization, on_response
            )

        identity = await self._with_retries(_EPOCH, attempt)
        if era == self._era:
            self._identity, self._next_sequence = identity, 0

    def _initialization(self, version: int) -> Message:
        none = ProducerIdAndEpoch()
        return initialize(
            self._transactional_id, _TRANSACTION_TIMEOUT_MS, none, version, TwoPhases()
        )

    async def _with_retries(self, operation: str, attempt: Callable[[OnDone[T]], None]) -> T:
        """Repeat a call while its errors are retriable, for default.api.timeout.ms."""
        retry = self._cluster.retry_timer(self._session.config.default_api_timeout_ms)

        def start(done: OnDone[T]) -> None:
            RetryingCall(retry, operation, attempt, done).start()

        return await self._session.wait(start, operation=operation)

    async def append(self, records: Sequence[tuple[bytes, bytes | None]]) -> int:
        """Append records as one batch; all of them are in the log or none.

        Returns:
            The offset of the last record.

        Raises:
            ClientError: The batch was refused, or its fate is unknown. The writer has no epoch
                afterwards.
        """
        identity, self._identity = self._identity, None
        if identity is None:
            raise NotFencedError("this process does not lead the registry")
        era = self._era
        batch = self._batch(records)
        batch.set_producer(*identity, self._next_sequence)

        def attempt(done: OnDone[int]) -> None:
            self._send(batch, done)

        base_offset = await self._with_retries(f"write to {self._tp}", attempt)
        if era == self._era:
            self._identity = identity
            self._next_sequence += len(records)
        return base_offset + len(records) - 1

    def _batch(self, records: Sequence[tuple[bytes, bytes | None]]) -> ProducerBatch:
        now_ms = self._cluster.runtime.clock.wall_ms()
        size = HEADER_SIZE + sum(record_size_max(key, value, []) for key, value in records)
        batch = ProducerBatch(self._tp, 0, size, self._cluster.runtime.clock.monotonic_ms())
        (key, value), *others = records
        batch.append_first(now_ms, key, value, [])
        for index, (key, value) in enumerate(others, 1):
            added = batch.append(index, now_ms, key, value, [])
            assert added is not None, "a batch of this size must hold all records"
        batch.count = len(records)
        batch.close(NONE, None)
        return batch

    def _send(self, batch: ProducerBatch, done: OnDone[int]) -> None:
        """Send a batch to the leader of the partition; the broker detects a repeated batch."""
        metadata = self._cluster.metadata
        leader = metadata.leader(self._tp)
        if leader < 0:
            self._refresh_before_retry(None, done)
            return

        def build(_version: int) -> Message:
            topic = metadata.topics.get(self._tp.topic)
            part = PartitionProduceData(index=self._tp.partition, records=batch.data)
            data = TopicProduceData(name=self._tp.topic, partition_data=[part])
            if topic is not None:
                data.topic_id = topic.topic_id
            timeout_ms = self._session.config.request_timeout_ms
            return ProduceRequest(acks=_ALL_REPLICAS, timeout_ms=timeout_ms, topic_data=[data])

        def on_response(response: Message | None, error: ClientError | None) -> None:
            if isinstance(response, ProduceResponse):
                result = response.responses[0].partition_responses[0]
                if not result.error_code:
                    done(result.base_offset, None)
                    return
                words = f"write to {self._tp}"
                error = broker_error(result.error_code, words, result.error_message)
            assert error is not None
            if error.retriable:
                self._refresh_before_retry(error, done)
            else:
                done(None, error)

        self._cluster.call(leader, Call(ApiKey.PRODUCE, build, on_response))

    def _refresh_before_retry(self, error: ClientError | None, done: OnDone[int]) -> None:
        """Refresh the metadata, then report a retriable error."""

        def on_refreshed(_none: None, failure: ClientError | None) -> None:
            done(
                None,
                error or failure or broker_error(ErrorCode.LEADER_NOT_AVAILABLE, self._tp.topic),
            )

        self._cluster.refresh([self._tp.topic], on_refreshed)
