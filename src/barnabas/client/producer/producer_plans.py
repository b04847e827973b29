"""Calls that the blocking and the asyncio producer share: plans, and those that do not wait.

A plan waits for conditions of the producer's core. The producers differ only in how they wait.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from barnabas.client.errors import (
    BufferFullError,
    ClientTimeoutError,
    IllegalTransactionStateError,
)
from barnabas.client.group.group_offsets import offsets_of
from barnabas.client.group.membership import GroupGeneration
from barnabas.client.producer.producer_core import (
    GRACE_MS,
    ProducerCore,
    ProducerSession,
    TransactionCall,
)
from barnabas.client.session.plans import PlanMethod, Until

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from barnabas.client.config import ClientConfig
    from barnabas.client.connections.metadata_cache import PartitionInfo
    from barnabas.client.errors import ClientError
    from barnabas.client.group.group_offsets import CommittedOffset
    from barnabas.client.producer.producer_batch import ProducerBatch
    from barnabas.client.producer.producer_core import SendOptions, Target
    from barnabas.client.producer.user_objects import ProducerParts
    from barnabas.client.retries import OnDone
    from barnabas.client.session.plans import WaitingPlan
    from barnabas.client.topic_partition import K
    from barnabas.client.transactions.state import OpenTransaction, PreparedTransaction

__all__ = ["ProducerBase"]

_MS_PER_S = 1000


def flush(core: ProducerCore, timeout: float | None = None) -> WaitingPlan[None]:
    """Wait until all records sent so far are delivered or have failed.

    Args:
        timeout: seconds; None means until `delivery.timeout.ms` has passed for all of them.

    Raises:
        ClientTimeoutError: records are still undelivered after the timeout.
        ClientError: a record failed whose error was not reported yet; the first such error.
    """
    limit_ms = core.delivery_limit_ms if timeout is None else timeout * _MS_PER_S
    if not (yield Until(core.flush(), limit_ms)):
        seconds = limit_ms / _MS_PER_S
        raise ClientTimeoutError(f"flush: records still undelivered after {seconds:g} s")
    error = core.pop_unreported_error()
    if error is not None:
        raise error


def partitions_for(core: ProducerCore, topic: str) -> WaitingPlan[list[PartitionInfo]]:
    """Return the topic's partitions by number; waits for metadata if the topic is unknown.

    The broker creates the topic if auto-creation is enabled.

    Raises:
        UnknownTopicError: the topic does not exist.
        ClientTimeoutError: the metadata did not arrive within `max.block.ms`.
    """
    if core.target(topic) is None:
        yield from find_target(core, topic, None)
    return core.partitions(topic)


def find_target(core: ProducerCore, topic: str, partition: int | None) -> WaitingPlan[Target]:
    """Wait for metadata of the topic's partition; this may create the topic on the broker."""
    core.check_open()
    outcome: list[ClientError | None] = []

    def on_done(_found: bool | None, error: ClientError | None) -> None:
        outcome.append(error)
        core.on_progress()

    core.fetch_target(topic, partition, on_done)
    if not (yield Until(lambda: bool(outcome), core.config.max_block_ms + GRACE_MS)):
        limit = f"{core.config.spell('max_block_ms')}={core.config.max_block_ms}"
        raise ClientTimeoutError(f"metadata of {topic} did not arrive within {limit}")
    if outcome[0] is not None:
        raise outcome[0]
    target = core.target(topic, partition)
    assert target is not None, f"no metadata of {topic}, partition {partition}, after its lookup"
    return target


def enqueue(
    core: ProducerCore,
    topic: str,
    record: tuple[bytes | None, bytes | None, int | None],
    options: SendOptions,
    now: int,
) -> WaitingPlan[ProducerBatch]:
    """Wait for the topic's metadata or for room in the buffer until the record is queued."""
    while True:
        if core.target(topic, record[2]) is None:
            yield from find_target(core, topic, record[2])
        else:
            yield from wait_for_room(core)
        batch = core.enqueue(topic, *record, options, now)
        if batch is not None:
            return batch


def wait_for_room(core: ProducerCore) -> WaitingPlan[None]:
    """Send all pending batches and wait until the buffer has room.

    Raises:
        BufferFullError: the buffer had no room within `max.block.ms`.
    """
    core.check_open()
    config = core.config
    if core.manager is not None:
        core.manager.check_sending()
    core.accumulator.make_all_due()
    core.sender.pump()
    if not (yield Until(lambda: core.accumulator.has_room, config.max_block_ms)):
        raise BufferFullError(
            f"{config.spell('buffer_memory')}={config.buffer_memory} stayed full for "
            f"{config.spell('max_block_ms')}={config.max_block_ms}: the brokers accept records "
            f"more slowly than they are sent, or not at all"
        )


def init_transactions(
    core: ProducerCore, timeout: float | None = None, *, keep_prepared_txn: bool = False
) -> WaitingPlan[PreparedTransaction | None]:
    """Register `transactional_id` with its coordinator; call it once, before all transactions.

    Other producers with this id are fenced. Their open transaction is aborted; a commit that has
    started is completed.

    Args:
        timeout: seconds; None means `max.block.ms`. After a timeout the operation continues; call
            the same method again to wait for it.
        keep_prepared_txn: whether an open transaction is kept instead of aborted (KIP-939). This
            producer must then end it with `complete_transaction`, commit or abort. The brokers must
            allow two-phase commit; those of Apache Kafka 4.4 refuse to keep a transaction.

    Returns:
        The transaction that was kept; None if there is none.

    Raises:
        ClientTimeoutError: the operation did not end in time.
        ClientConfigError: the producer has no `transactional_id`.
        IllegalTransactionStateError: the producer is already initialized.
        ClientError: the coordinator refused.
    """
    manager = core.transactions
    start = partial(manager.initialize, keeps_prepared=keep_prepared_txn)
    yield from _run_call(core, "init_transactions", start, timeout)
    return manager.prepared


def send_offsets_to_transaction(
    core: ProducerCore,
    offsets: Mapping[K, int | CommittedOffset],
    group_metadata: GroupGeneration | str,
    timeout: float | None = None,
) -> WaitingPlan[None]:
    """Commit a group's offsets as part of the transaction (KIP-447).

    Args:
        offsets: for each (topic, partition) the next offset to read.
        group_metadata: `consumer.group_metadata()` of the consumer that read the records, which
            lets the coordinator refuse an outdated member; or only the group's name.
        timeout: as of `init_transactions`.

    Raises:
        ClientTimeoutError: the operation did not end in time; call again.
        ProducerFencedError: another producer uses the id; fatal.
        ClientError: the coordinator refused; call `abort_transaction`.
    """
    member = GroupGeneration(group_metadata) if isinstance(group_metadata, str) else group_metadata
    wanted = offsets_of(offsets)
    start = partial(core.transactions.send_offsets, wanted, member)
    return _run_call(core, "send_offsets_to_transaction", start, timeout)


def prepare_transaction(
    core: ProducerCore, timeout: float | None = None
) -> WaitingPlan[PreparedTransaction]:
    """Send all pending records and prepare the transaction for a two-phase commit (KIP-939).

    Store the result in the other system's transaction, then commit. The prepared transaction
    survives this producer: a new producer calls `init_transactions(keep_prepared_txn=True)`, and
    `complete_transaction` with the stored result.

    Args:
        timeout: as of `init_transactions`.

    Raises:
        ClientTimeoutError: records are still undelivered; call again to wait for them.
        ClientConfigError: the producer has no `transaction_two_phase_commit_enable`.
        ProducerFencedError: another producer uses the id; fatal.
        ClientError: a record was not delivered; call `abort_transaction` and start over.
    """
    manager = core.transactions
    yield from _run_call(core, "prepare_transaction", manager.prepare, timeout)
    assert manager.prepared is not None
    return manager.prepared


def complete_transaction(
    core: ProducerCore, stored: PreparedTransaction, timeout: float | None = None
) -> WaitingPlan[None]:
    """Commit the prepared transaction if the other system stored it; abort any other (KIP-939).

    Args:
        stored: what `prepare_transaction` returned, as the other system committed it.
        timeout: as of `init_transactions`.

    Raises:
        ClientTimeoutError: the outcome is unknown; call again to wait for it.
        IllegalTransactionStateError: no transaction is prepared.
        ProducerFencedError: another producer uses the id; fatal.
    """
    start = partial(core.transactions.complete, stored)
    return _run_call(core, "complete_transaction", start, timeout)


def commit_transaction(core: ProducerCore, timeout: float | None = None) -> WaitingPlan[None]:
    """Send all pending records and commit the transaction.

    Args:
        timeout: as of `init_transactions`.

    Raises:
        ClientTimeoutError: the outcome is unknown; call again to wait for it.
        ProducerFencedError: another producer uses the id; fatal.
        ClientError: a record was not delivered; call `abort_transaction` and start over.
    """
    return _run_call(core, "commit_transaction", core.transactions.commit, timeout)


def abort_transaction(core: ProducerCore, timeout: float | None = None) -> WaitingPlan[None]:
    """Abort the transaction: `read_committed` consumers see none of its records.

    Args:
        timeout: as of `init_transactions`.

    Raises:
        ClientTimeoutError: the operation did not end in time; call again.
        ProducerFencedError: another producer uses the id; fatal.
    """
    return _run_call(core, "abort_transaction", core.transactions.abort, timeout)


def detach_transaction(
    core: ProducerCore, timeout: float | None = None
) -> WaitingPlan[OpenTransaction | None]:
    """Send all pending records and leave the transaction open for another process.

    Afterwards the producer can only be closed, which does not abort the transaction. The other
    process calls `Admin.end_transactions`; without that call the coordinator aborts the transaction
    after `transaction.timeout.ms`.

    Args:
        timeout: as of `init_transactions`.

    Returns:
        The open transaction; None if nothing was sent in it, so that it has no end.

    Raises:
        ClientTimeoutError: records are still undelivered; call again to wait for them.
        ProducerFencedError: another producer uses the id; fatal.
        ClientError: a record was not delivered; call `abort_transaction` and start over.
    """
    manager = core.transactions
    yield from _run_call(core, "detach_transaction", manager.detach, timeout)
    return manager.detached


def _run_call(
    core: ProducerCore, name: str, start: Callable[[OnDone[bool]], None], timeout: float | None
) -> WaitingPlan[None]:
    """Start a transaction call, wait for its end and raise its error.

    A call that was started before and has the same name is not started again: only its outcome is
    awaited (KIP-691: the timeout of a commit does not determine its outcome).
    """
    call = core.unclaimed
    if call is None or call.name != name:
        call = _started(core, name, start)
    limit_ms = core.config.max_block_ms if timeout is None else timeout * _MS_PER_S
    if not (yield Until(lambda: call.is_done, limit_ms)):
        raise ClientTimeoutError(
            f"{name} did not end within {limit_ms / _MS_PER_S:g} s; it continues: call it again to "
            f"wait for its end"
        )
    if core.unclaimed is call:
        core.unclaimed = None
    if call.error is not None:
        raise call.error


def _started(
    core: ProducerCore, name: str, start: Callable[[OnDone[bool]], None]
) -> TransactionCall:
    _check_unclaimed(core, name)
    call = TransactionCall(name)

    def on_done(_done: bool | None, error: ClientError | None) -> None:
        call.error = error
        call.is_done = True
        core.on_progress()

    start(on_done)
    core.unclaimed = call
    return call


def _check_unclaimed(core: ProducerCore, name: str) -> None:
    """Raise an error if another transaction call has not ended, or its outcome was not read."""
    unclaimed = core.unclaimed
    if unclaimed is None:
        return
    if not unclaimed.is_done or unclaimed.error is None:
        raise IllegalTransactionStateError(
            f"{name}: {unclaimed.name} has not ended: first call it again to wait for its end"
        )
    # The failed call needs no reader; the transaction's state decides which calls are allowed.
    core.unclaimed = None


class ProducerBase:
    """Base of the blocking producers and of `barnabas.aio.Producer`."""

    def __init__(
        self, session: ProducerSession, config: ClientConfig, parts: ProducerParts
    ) -> None:
        self._clock = session.cluster.runtime.clock
        self._wall_ms = self._clock.wall_ms
        self._core = ProducerCore(session, config, parts)
        self._accumulator = self._core.accumulator
        # `closed_count` of the accumulator at the last loop iteration.
        self._closed_seen = 0
        # Wall clock time (ms) of the next loop iteration, unless enough batches are closed earlier.
        self._step_due_ms = 0

    def _is_turn_full(self) -> bool:
        """Return whether enough batches were closed since the last loop iteration to send them."""
        closed = self._accumulator.closed_count - self._closed_seen
        return closed >= self._core.batches_per_turn

    @property
    def delivered(self) -> int:
        """Number of acknowledged records."""
        return self._core.delivered

    @property
    def failed(self) -> int:
        """Number of records whose delivery failed."""
        return self._core.failed

    def _undelivered(self) -> int:
        """Return the number of records that are neither delivered nor failed."""
        return self._core.undelivered

    @property
    def _has_transaction(self) -> bool:
        return self._core.is_in_transaction

    def metrics(self) -> dict[str, float]:
        """Return totals and averages since the producer was created, under Kafka's names.

        Times are in milliseconds, sizes in bytes.
        """
        return self._core.metrics()

    def begin_transaction(self) -> None:
        """Begin a transaction: `read_committed` consumers see all of its records, or none.

        Raises:
            IllegalTransactionStateError: the producer is not initialized, or a transaction is open.
            ProducerFencedError: another producer uses the transactional id.
        """
        self._core.check_open()
        _check_unclaimed(self._core, "begin_transaction")
        self._core.transactions.begin()

    flush = PlanMethod(flush)
    partitions_for = PlanMethod(partitions_for)
    init_transactions = PlanMethod(init_transactions)
    send_offsets_to_transaction = PlanMethod(send_offsets_to_transaction)
    prepare_transaction = PlanMethod(prepare_transaction)
    complete_transaction = PlanMethod(complete_transaction)
    commit_transaction = PlanMethod(commit_transaction)
    abort_transaction = PlanMethod(abort_transaction)
    detach_transaction = PlanMethod(detach_transaction)
