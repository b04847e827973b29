"""Sends batches: several requests in flight per leader, retries in order.

Idempotence (KIP-98): a batch gets producer id, epoch and sequence when it is first sent. It keeps
them on a retry, so that the broker appends it once. A failed batch with a sequence leaves a gap in
the sequences of its partition. The sender then waits for all requests in flight, requests a higher
epoch, and restarts the sequences of pending batches at 0 (KIP-360).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.client.connections.connections import Call
from barnabas.client.connections.metadata_cache import ZERO_ID
from barnabas.client.connections.versions import (
    PRODUCE_MAX_BEFORE_TRANSACTIONS_V2,
    PRODUCE_MAX_BY_NAME,
)
from barnabas.client.errors import (
    BrokerError,
    ClientClosedError,
    ClientError,
    DeliveryTimeoutError,
    broker_error,
)
from barnabas.client.producer.producer_batch import ProducerMetrics
from barnabas.client.producer.producer_identity import ProducerIdentity
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.client.config import ClientConfig
    from barnabas.client.connections.cluster import Cluster
    from barnabas.client.producer.accumulator import Accumulator, PartitionQueue
    from barnabas.client.producer.producer_batch import ProducerBatch
    from barnabas.client.topic_partition import TopicPartition
    from barnabas.client.transactions.manager import TransactionManager
    from barnabas.protocol.schema import Message

__all__ = ["Sender"]

_SEQUENCE_MASK = 0x7FFFFFFF
# Interval of the check for pending batches past delivery.timeout.ms.
_EXPIRY_INTERVAL_MS = 1_000.0
_STALE_METADATA = frozenset({
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.KAFKA_STORAGE_ERROR,
})  # fmt: skip
# Errors of a leader that may be isolated, so that the other replicas may have a new leader.
_SUSPECTED_LEADER = frozenset({
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
})  # fmt: skip
_NEW_EPOCH_NEEDED = frozenset({
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.INVALID_PRODUCER_EPOCH,
})  # fmt: skip


class Sender:
    """Sends the batches of an accumulator to the leaders and completes them."""

    def __init__(
        self,
        cluster: Cluster,
        config: ClientConfig,
        on_completed: Callable[[ProducerBatch, ClientError | None], None],
    ) -> None:
        """Call `on_completed(batch, error)` per completed batch, before the record callbacks."""
        self._cluster = cluster
        self._config = config
        self._on_completed = on_completed
        self._accumulator: Accumulator | None = None
        # Set for a transactional producer; the manager then provides producer id and epoch.
        self._transactions: TransactionManager | None = None
        self._identity: ProducerIdentity | None = None
        if self._config.enable_idempotence and self._config.transactional_id is None:
            self._identity = ProducerIdentity(cluster, self.pump)
        self.metrics = ProducerMetrics()
        # Number of requests in flight, by node id and in total.
        self._in_flight: dict[int, int] = {}
        self._in_flight_total = 0
        # Since when pending batches of a node could not be sent, in ms; absent after a send.
        self._stuck_since: dict[int, float] = {}
        # Whether sequences have a gap; nothing is sent until the epoch is raised.
        self._new_epoch_wanted = False
        # Whether the timer for the delivery timeout is set.
        self._expiry_armed = False
        # Whether `pump` is running: callbacks of a send can call it again.
        self._pumping = False
        self._closed = False
        self._acks = -1 if self._config.acks == "all" else int(self._config.acks)
        cluster.on_update(self.pump)

    def attach(self, accumulator: Accumulator) -> None:
        """Set the source of batches."""
        self._accumulator = accumulator

    def attach_transactions(self, transactions: TransactionManager) -> None:
        """Make the sender transactional: batches are sent within transactions only."""
        self._transactions = transactions

    @property
    def accumulator(self) -> Accumulator:
        """The source of batches."""
        assert self._accumulator is not None, "not attached"
        return self._accumulator

    def close(self) -> None:
        """Stop and fail all batches that are not delivered."""
        self._closed = True
        self._cluster.remove_listener(self.pump)
        for queue in self.accumulator.queues.values():
            if queue.open is not None:
                self.accumulator.close_open(queue)
            batches = [*queue.in_flight, *queue.closed]
            queue.in_flight.clear()
            queue.closed.clear()
            for batch in batches:
                self._give_up(batch, ClientClosedError("the producer was closed"))

    # Sending

    def pump(self) -> None:
        """Send all batches that can be sent now."""
        if self._closed or self._pumping or not self.accumulator.ready:
            return
        self._pumping = True
        try:
            self._arm_expiry()
            if self._has_identity():
                self._send_ready()
        finally:
            self._pumping = False

    def _has_identity(self) -> bool:
        if self._transactions is not None:
            return self._transactions.may_send
        identity = self._identity
        if identity is None:
            return True
        if identity.error is not None:
            self._fail_all(identity.error)
            return False
        if self._new_epoch_wanted:
            if self._in_flight_total == 0:
                self._new_epoch_wanted = False
                self.restart_sequences()
                identity.request()
            return False
        if not identity.is_ready:
            identity.request()
            return False
        return True

    def _send_ready(self) -> None:
        # Partitions may have been added, which only a refresh shows.
        self._cluster.maybe_update_by_age()
        by_node: dict[int, list[PartitionQueue]] = {}
        metadata = self._cluster.metadata
        limit = self._config.max_in_flight_requests_per_connection
        for queue in self.accumulator.ready:
            if queue.delayed:
                continue
            if self._transactions is not None and not self._transactions.may_send_to(queue.tp):
                continue
            leader = metadata.leader(queue.tp)
            if leader not in metadata.nodes:
                self._cluster.request_update()
            elif self._in_flight.get(leader, 0) < limit:
                by_node.setdefault(leader, []).append(queue)
            elif leader not in self._stuck_since:
                self._stuck_since[leader] = self._cluster.runtime.clock.monotonic_ms()
        for node_id, queues in by_node.items():
            while queues and self._in_flight.get(node_id, 0) < limit:
                batches = self._take_batches(queues)
                if not batches:
                    break
                self._send(node_id, batches)

    def _take_batches(self, queues: list[PartitionQueue]) -> list[ProducerBatch]:
        """Take at most one batch of each queue, up to max.request.size; drop queues without any."""
        batches: list[ProducerBatch] = []
        size = 0
        for queue in list(queues):
            if queue.closed and batches:
                size_next = size + queue.closed[0].size
                if size_next > self._config.max_request_size:
                    break
            batch = self.accumulator.take(queue)
            if batch is None:
                queues.remove(queue)
                continue
            self._prepare(queue, batch)
            batches.append(batch)
            size += batch.size
        return batches

    def _prepare(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Mark the batch as in flight; write producer id and sequence if it has none, and CRC."""
        batch.attempts += 1
        queue.in_flight.append(batch)
        queue.in_flight.sort(key=_by_number)
        identity = self._transactions or self._identity
        if identity is None:
            batch.set_crc()
        elif batch.producer_id < 0:
            batch.set_producer(
                identity.producer_id,
                identity.producer_epoch,
                queue.next_sequence,
                is_transactional=self._transactions is not None,
            )
            queue.next_sequence = (queue.next_sequence + batch.count) & _SEQUENCE_MASK

    def stuck_ms(self, node_id: int) -> float:
        """Return for how many ms batches of the node have been waiting for a send (KIP-794)."""
        since = self._stuck_since.get(node_id)
        return 0.0 if since is None else self._cluster.runtime.clock.monotonic_ms() - since

    def _send(self, node_id: int, batches: list[ProducerBatch]) -> None:
        self._stuck_since.pop(node_id, None)
        ids = {
            tp.topic: self._cluster.metadata.topic_id(tp.topic) for tp in (b.tp for b in batches)
        }
        names = {topic_id: name for name, topic_id in ids.items()}
        self._in_flight[node_id] = self._in_flight.get(node_id, 0) + 1
        self._in_flight_total += 1
        clock = self._cluster.runtime.clock
        sent_ms = clock.monotonic_ms()
        self.metrics.on_sent(batches, sent_ms)

        def build(_version: int) -> Message:
            request = _produce_request(batches, ids, self._acks, self._config.request_timeout_ms)
            request.transactional_id = self._config.transactional_id
            return request

        is_counted = False

        def on_done(response: Message | None, error: ClientError | None) -> None:
            nonlocal is_counted
            # If the response cannot be used, this is called a second time, with an error.
            if not is_counted:
                is_counted = True
                self._in_flight[node_id] -= 1
                self._in_flight_total -= 1
            self.metrics.on_response(sent_ms, clock.monotonic_ms())
            if self._closed:
                return
            assert response is None or isinstance(response, ProduceResponse)
            if error is not None:
                self._on_request_failed(batches, error)
            elif response is None:
                for batch in batches:
                    self._on_delivered(batch, -1, -1)
            else:
                self._on_response(batches, names, response)
            self.pump()
            if self._transactions is not None:
                self._transactions.advance()

        max_version = PRODUCE_MAX_BY_NAME if ZERO_ID in names else None
        if self._transactions is not None and not self._transactions.is_v2:
            max_version = PRODUCE_MAX_BEFORE_TRANSACTIONS_V2
        timeout_ms = min(self._config.request_timeout_ms, self._config.delivery_timeout_ms)
        call = Call(
            ApiKey.PRODUCE,
            build,
            on_done,
            timeout_ms,
            max_version,
            expects_response=self._acks != 0,
        )
        self._cluster.call(node_id, call)

    # Responses

    def _on_request_failed(self, batches: list[ProducerBatch], error: ClientError) -> None:
        if error.retriable:
            self._cluster.request_update()
        for batch in batches:
            if batch in self.accumulator.queue(batch.tp).in_flight:
                self._on_batch_error(batch, error)

    def _on_response(
        self, batches: list[ProducerBatch], names: dict[bytes, str], response: ProduceResponse
    ) -> None:
        responses: dict[tuple[str, int], PartitionProduceResponse] = {}
        for topic in response.responses:
            name = topic.name or names.get(topic.topic_id, "")
            for partition in topic.partition_responses:
                responses[name, partition.index] = partition
        for batch in batches:
            result = responses.get(batch.tp)
            if result is None:
                error = broker_error(
                    ErrorCode.UNKNOWN_SERVER_ERROR,
                    str(batch.tp),
                    "missing in the response",
                )
                self._on_batch_error(batch, error)
            elif result.error_code in (0, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                self._on_delivered(batch, result.base_offset, result.log_append_time_ms)
            else:
                self._note_leader(batch.tp, result)
                self._on_batch_error(batch, _error_of(batch.tp, result))

    def _note_leader(self, tp: TopicPartition, result: PartitionProduceResponse) -> None:
        if result.error_code in _SUSPECTED_LEADER:
            self._cluster.request_update()
        if result.error_code not in _STALE_METADATA:
            return
        leader = result.current_leader
        if not self._cluster.metadata.move_leader(tp, leader.leader_id, leader.leader_epoch):
            self._cluster.request_update()

    def _on_delivered(self, batch: ProducerBatch, base_offset: int, append_time: int) -> None:
        queue = self.accumulator.queue(batch.tp)
        queue.in_flight.remove(batch)
        queue.known_producer_id = batch.producer_id
        self.accumulator.release(batch)
        batch.complete(base_offset, append_time)
        self._on_completed(batch, None)
        batch.run_callbacks()

    def _on_batch_error(self, batch: ProducerBatch, error: ClientError) -> None:
        queue = self.accumulator.queue(batch.tp)
        queue.in_flight.remove(batch)
        batch.last_error = error
        if error.error_code == ErrorCode.MESSAGE_TOO_LARGE and self._may_split(batch):
            self.metrics.splits += 1
            self.accumulator.split(queue, batch)
        elif self._may_retry(queue, batch, error):
            queue.put_back(batch)
            self._delay(queue, batch.attempts)
        elif error.retriable and self._is_overdue(batch):
            self._give_up(batch, self._expired(batch))
        else:
            self._give_up(batch, error)

    def _is_overdue(self, batch: ProducerBatch) -> bool:
        age_ms = self._cluster.runtime.clock.monotonic_ms() - batch.created_ms
        return age_ms >= self._config.delivery_timeout_ms

    def _may_split(self, batch: ProducerBatch) -> bool:
        return batch.count > 1 and not self._is_overdue(batch)

    def _may_retry(self, queue: PartitionQueue, batch: ProducerBatch, error: ClientError) -> bool:
        if self._is_overdue(batch) or batch.attempts > self._config.retries:
            return False
        if self._transactions is not None:
            # Here the abort raises the epoch, not a retry as in a plain idempotent producer.
            waits = error.error_code in _NEW_EPOCH_NEEDED and not queue.is_head(batch)
            return self._transactions.may_send and (waits or error.retriable)
        if self._identity is not None and error.error_code in _NEW_EPOCH_NEEDED:
            # Behind an earlier pending batch the batch only waits for its turn. At the head, the
            # broker has lost records or forgotten the producer: restart the sequences.
            if queue.is_head(batch):
                self._new_epoch_wanted = True
            return True
        return error.retriable

    def _delay(self, queue: PartitionQueue, attempts: int) -> None:
        self.accumulator.ready[queue] = None
        queue.delayed = True

        def resume() -> None:
            queue.delayed = False
            self.pump()

        delay = self._cluster.retry_backoff.delay_ms(attempts)
        self._cluster.runtime.timer.call_later(delay, resume)

    def _give_up(self, batch: ProducerBatch, error: ClientError) -> None:
        has_sequence = batch.producer_id >= 0
        if self._transactions is None:
            self._new_epoch_wanted |= has_sequence
        self.accumulator.release(batch)
        batch.fail(error)
        self._on_completed(batch, error)
        batch.run_callbacks()
        if self._transactions is not None:
            self._transactions.on_batch_failed(error, has_sequence=has_sequence)

    # Interface for the transaction manager

    @property
    def has_incomplete(self) -> bool:
        """Whether batches are pending or in flight."""
        return not self.accumulator.is_empty

    def send_all(self) -> None:
        """Send all pending batches, including open ones."""
        self.accumulator.make_all_due()
        self.pump()

    def give_up_queued(self, error: ClientError) -> None:
        """Fail all batches that are not in flight."""
        for queue in self.accumulator.queues.values():
            self._fail_queued(queue, error)

    def _fail_queued(self, queue: PartitionQueue, error: ClientError) -> None:
        if queue.open is not None:
            self.accumulator.close_open(queue)
        batches = list(queue.closed)
        queue.closed.clear()
        self.accumulator.ready.pop(queue, None)
        for batch in batches:
            self._give_up(batch, error)

    def restart_sequences(self) -> None:
        """Remove the sequences of pending batches; new ones are assigned at the next send.

        An idempotent batch that may be in the log keeps its producer id, epoch and sequence, by
        which the broker recognizes it. It is sent alone, before batches with the new epoch.
        """
        for queue in self.accumulator.queues.values():
            queue.next_sequence = 0
            if self._transactions is None:
                # The broker may have forgotten the producer id.
                queue.known_producer_id = -1
            for batch in queue.closed:
                if self._transactions is not None or not _may_be_written(batch):
                    batch.producer_id = -1

    def _fail_all(self, error: ClientError) -> None:
        for queue in list(self.accumulator.ready):
            self._fail_queued(queue, error)

    # Expiry

    def _arm_expiry(self) -> None:
        if not self._expiry_armed:
            self._expiry_armed = True
            interval = min(_EXPIRY_INTERVAL_MS, self._config.delivery_timeout_ms)
            self._cluster.runtime.timer.call_later(interval, self._expire)

    def _expire(self) -> None:
        """Fail pending batches past delivery.timeout.ms; those in flight end by themselves."""
        self._expiry_armed = False
        if self._closed:
            return
        limit = self._cluster.runtime.clock.monotonic_ms() - self._config.delivery_timeout_ms
        for queue in self.accumulator.queues.values():
            if queue.open is not None and queue.open.created_ms <= limit:
                self.accumulator.close_open(queue)
            while queue.closed and queue.closed[0].created_ms <= limit:
                batch = queue.closed.popleft()
                self._give_up(batch, self._expired(batch))
        if not self.accumulator.is_empty:
            self._arm_expiry()
        self.pump()
        if self._transactions is not None:
            self._transactions.advance()

    def _expired(self, batch: ProducerBatch) -> ClientError:
        known = self._cluster.metadata.errors.get(batch.tp.topic)
        cause = str(batch.last_error or "")
        if not cause and known:
            cause = str(broker_error(known, batch.tp.topic))
        if not cause:
            leader = self._cluster.metadata.leader(batch.tp)
            cause = f"never sent (leader of the partition: {leader if leader >= 0 else 'none'})"
        config = self._config
        limit = f"{config.spell('delivery_timeout_ms')}={config.delivery_timeout_ms}"
        return DeliveryTimeoutError(batch.tp, batch.count, limit, cause)


def _by_number(batch: ProducerBatch) -> int:
    return batch.number


def _error_of(tp: TopicPartition, result: PartitionProduceResponse) -> BrokerError:
    detail = result.error_message
    if result.error_code == ErrorCode.MESSAGE_TOO_LARGE:
        detail = "the batch exceeds the topic's max.message.bytes: raise it, or lower batch.size"
    return broker_error(result.error_code, f"produce to {tp}", detail)


def _produce_request(
    batches: list[ProducerBatch], ids: dict[str, bytes], acks: int, timeout_ms: int
) -> ProduceRequest:
    topics: dict[str, TopicProduceData] = {}
    for batch in batches:
        name, partition = batch.tp
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = TopicProduceData(
                name=name, topic_id=ids[name], partition_data=[]
            )
        topic.partition_data.append(PartitionProduceData(index=partition, records=batch.data))
    return ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=list(topics.values()))


def _may_be_written(batch: ProducerBatch) -> bool:
    """Return whether a pending batch may be in the log: its last error does not exclude that."""
    error = batch.last_error
    return error is not None and error.error_code not in _NEW_EPOCH_NEEDED
