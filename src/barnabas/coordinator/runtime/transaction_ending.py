"""Transactions of clients in a state partition: their producers and their markers."""

from __future__ import annotations

import msgspec

from barnabas.record.batch import ControlType, encode_control_key, encode_end_marker
from barnabas.record.builder import BatchBuilder
from barnabas.storage.results import AppendOrigin

# Transactions of this version raise the producer's epoch at each end (KIP-890, KIP-1228).
_EPOCH_BUMP_VERSION = 2


class TransactionalProducer(msgspec.Struct, frozen=True):
    """The producer in whose transaction records are written."""

    producer_id: int
    producer_epoch: int


class TransactionEnding(msgspec.Struct, frozen=True):
    """The end of a producer's transaction in one partition."""

    producer_id: int
    producer_epoch: int
    # Leader epoch of the state partition of the transaction coordinator.
    coordinator_epoch: int
    is_commit: bool
    # Version of the client's transactions: 0, 1 or 2.
    transaction_version: int

    @property
    def origin(self) -> AppendOrigin:
        """The origin of the append, which decides which epochs are accepted."""
        if self.transaction_version >= _EPOCH_BUMP_VERSION:
            return AppendOrigin.BUMPING_MARKER
        return AppendOrigin.COORDINATOR


def build_end_marker(ending: TransactionEnding, now_ms: int) -> bytearray:
    """Return the control batch with the marker."""
    builder = BatchBuilder(
        producer_id=ending.producer_id,
        producer_epoch=ending.producer_epoch,
        transactional=True,
        control=True,
    )
    control_type = ControlType.COMMIT if ending.is_commit else ControlType.ABORT
    marker = encode_end_marker(ending.coordinator_epoch)
    builder.append(now_ms, encode_control_key(control_type), marker)
    return builder.build()
