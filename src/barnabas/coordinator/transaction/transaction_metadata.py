"""The coordinator's state of one transactional id (Kafka's TransactionMetadata)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from barnabas.coordinator.transaction.producer import NO_EPOCH, NO_PRODUCER_ID, Producer
from barnabas.coordinator.transaction.transaction_state import (
    TRANSACTION_STATES,
    TransactionEvent,
    TransactionState,
)

if TYPE_CHECKING:
    from barnabas.storage.topic_partition import TopicPartition

NO_TIME = -1
# Only the coordinator uses the last epoch, to fence the producer.
EPOCH_MAX = 0x7FFF
# Transactions of this version raise the epoch at each end (KIP-890).
EPOCH_BUMP_VERSION = 2


def is_epoch_exhausted(epoch: int) -> bool:
    """Return whether a producer with this epoch needs a new producer id."""
    return epoch >= EPOCH_MAX - 1


class TransactionMetadata(msgspec.Struct, frozen=True):
    """The state of one transactional id. Each transition returns a new object."""

    transactional_id: str
    producer_id: int
    # Epoch of the producer; -1 before the first InitProducerId is written. After the end of a
    # transaction of version 2, the epoch that the producer got with the response.
    producer_epoch: int
    # transaction.timeout.ms of the producer.
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    # When the first partition was added; -1 before the first transaction. Wall clock, ms.
    start_ms: int = NO_TIME
    # Time of the last change. Wall clock, ms.
    update_ms: int = NO_TIME
    # The producer id before the last transition, for retries after a change of the id.
    previous_producer_id: int = NO_PRODUCER_ID
    # The producer id after the end of the transaction; -1 if it stays the same. Set for a
    # transaction that ends with an exhausted epoch, and while a prepared transaction is kept.
    next_producer_id: int = NO_PRODUCER_ID
    # The epoch before the last bump, for retries. Not written to the log.
    last_producer_epoch: int = NO_EPOCH
    # Transaction version of the client: 0 for clients before version 2.
    client_version: int = 0
    # While a prepared transaction is kept (KIP-939): the epoch of the producer that may end it, and
    # after EndTxn the epoch that this producer continues with. Else -1. The records of the
    # transaction have `producer_id` and a lower epoch, so that its markers have these as well.
    # Invariant: `next_producer_id` is set if this is.
    next_producer_epoch: int = NO_EPOCH

    @property
    def is_kept(self) -> bool:
        """Whether a later producer has taken over the prepared transaction (KIP-939)."""
        return self.next_producer_epoch != NO_EPOCH

    @property
    def client_producer(self) -> Producer:
        """The producer id and epoch that the client has from the last response."""
        if self.next_producer_id == NO_PRODUCER_ID:
            return Producer(self.producer_id, self.producer_epoch)
        return Producer(self.next_producer_id, max(self.next_producer_epoch, 0))

    @property
    def is_epoch_exhausted(self) -> bool:
        """Whether the next bump of the epoch needs a new producer id."""
        return is_epoch_exhausted(self.producer_epoch)

    def initialized(
        self, producer_id: int, epoch: int, last_epoch: int, timeout_ms: int, now_ms: int
    ) -> TransactionMetadata:
        """Return the state after InitProducerId."""
        return self._after(
            TransactionEvent.INITIALIZED,
            now_ms,
            producer_id=producer_id,
            producer_epoch=epoch,
            last_producer_epoch=last_epoch,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            start_ms=NO_TIME,
        )

    def kept(self, following: Producer, timeout_ms: int, now_ms: int) -> TransactionMetadata:
        """Return the state after a producer has taken over the prepared transaction (KIP-939)."""
        assert following.is_given, f"{self}"
        return self._after(
            TransactionEvent.KEPT,
            now_ms,
            next_producer_id=following.producer_id,
            next_producer_epoch=following.epoch,
            timeout_ms=timeout_ms,
        )

    def with_partitions(
        self, added: frozenset[TopicPartition], client_version: int, now_ms: int
    ) -> TransactionMetadata:
        """Return the state after these partitions were added."""
        is_new = self.state is not TransactionState.ONGOING
        return self._after(
            TransactionEvent.PARTITIONS_ADDED,
            now_ms,
            partitions=self.partitions | added,
            start_ms=now_ms if is_new else self.start_ms,
            client_version=client_version,
        )

    def ended(
        self, *, is_commit: bool, client_version: int, next_producer_id: int, now_ms: int
    ) -> TransactionMetadata:
        """Return the state after EndTxn: the result is decided.

        Args:
            is_commit: the result.
            client_version: transaction version of the client; version 2 raises the epoch.
            next_producer_id: a new id for the producer if its epoch is exhausted, else -1.
            now_ms: the wall clock.
        """
        event = TransactionEvent.COMMITTED if is_commit else TransactionEvent.ABORTED
        return self._ended(event, client_version, next_producer_id, now_ms)

    def fenced(self, client_version: int, now_ms: int) -> TransactionMetadata:
        """Return the state after the coordinator has fenced the producer and decided to abort."""
        fenced = self
        if client_version < EPOCH_BUMP_VERSION:
            # From version 2 on, the abort itself raises the epoch.
            fenced = msgspec.structs.replace(
                self,
                producer_epoch=min(self.producer_epoch + 1, EPOCH_MAX),
                last_producer_epoch=NO_EPOCH,
            )
            if self.is_kept:
                # The producer that has taken over the transaction is fenced as well.
                fenced = msgspec.structs.replace(
                    fenced, next_producer_epoch=min(self.next_producer_epoch + 1, EPOCH_MAX)
                )
        return fenced._ended(TransactionEvent.FENCED, client_version, NO_PRODUCER_ID, now_ms)

    def _ended(
        self, event: TransactionEvent, client_version: int, next_producer_id: int, now_ms: int
    ) -> TransactionMetadata:
        epoch, last_epoch = self.producer_epoch, self.last_producer_epoch
        if client_version >= EPOCH_BUMP_VERSION:
            last_epoch = epoch
            epoch = min(epoch + 1, EPOCH_MAX)
        has_begun = self.state is TransactionState.ONGOING
        following = (next_producer_id, NO_EPOCH)
        client = self.client_producer
        if self.is_kept:
            following = self._following_kept(client_version, next_producer_id)
        return self._after(
            event,
            now_ms,
            producer_epoch=epoch,
            last_producer_epoch=client.epoch if self.is_kept else last_epoch,
            next_producer_id=following[0],
            next_producer_epoch=following[1],
            previous_producer_id=client.producer_id,
            start_ms=self.start_ms if has_begun else now_ms,
            client_version=client_version,
        )

    def _following_kept(self, client_version: int, new_producer_id: int) -> tuple[int, int]:
        """Return the id and epoch that the producer of a kept transaction continues with."""
        if new_producer_id != NO_PRODUCER_ID:
            return new_producer_id, 0
        bump = int(client_version >= EPOCH_BUMP_VERSION)
        return self.next_producer_id, min(self.next_producer_epoch + bump, EPOCH_MAX)

    def completed(self, now_ms: int) -> TransactionMetadata:
        """Return the state after every partition has its marker."""
        following = self.client_producer
        if not self.is_kept and self.client_version < EPOCH_BUMP_VERSION:
            following = Producer(self.producer_id, self.producer_epoch)
        return self._after(
            TransactionEvent.MARKERS_WRITTEN,
            now_ms,
            producer_id=following.producer_id,
            producer_epoch=following.epoch,
            next_producer_id=NO_PRODUCER_ID,
            next_producer_epoch=NO_EPOCH,
            # The client retries the end of a kept transaction with the id that it had then.
            previous_producer_id=self.previous_producer_id if self.is_kept else self.producer_id,
            partitions=frozenset(),
        )

    def _after(
        self, event: TransactionEvent, now_ms: int, **changes: object
    ) -> TransactionMetadata:
        changes.setdefault("previous_producer_id", self.producer_id)
        after = TRANSACTION_STATES[self.state].get(event)
        assert after is not None, (
            f"OneTransactionPerId: event={event.value} state={self.state.label}"
        )
        return msgspec.structs.replace(self, state=after, update_ms=now_ms, **changes)
