"""Records of a state partition: those of an operation, and the markers that end transactions.

Kafka: CoordinatorRecord and CoordinatorResult.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from barnabas.protocol.record_frame import encode_coordinator_key, encode_coordinator_value
from barnabas.protocol.schema import Record  # noqa: TC001 - field type
from barnabas.record.batch import ControlType, encode_control_key, encode_end_marker
from barnabas.record.builder import BatchBuilder
from barnabas.storage.results import AppendOrigin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from barnabas.protocol.errors import ErrorCode


class CoordinatorRecord(msgspec.Struct, frozen=True, eq=False):
    """One encoded record of a state partition, with the messages that it was encoded from."""

    # The record type, followed by the encoded key.
    key: bytes
    # The version, followed by the encoded value. None for a tombstone.
    value: bytes | None
    # Key and value before encoding, for a replay without decoding. Decoding gives equal messages.
    key_message: Record
    value_message: Record | None

    @classmethod
    def of(cls, key: Record, value: Record | None, value_version: int = 0) -> CoordinatorRecord:
        """Return the record of a key and a value."""
        return cls(
            encode_coordinator_key(key),
            None if value is None else encode_coordinator_value(value, value_version),
            key,
            value,
        )

    @classmethod
    def tombstones(
        cls, keys: Iterable[Callable[..., Record]], **ids: str
    ) -> list[CoordinatorRecord]:
        """Return the tombstone of each of these types of key. All keys have the fields `ids`."""
        return [cls.of(key(**ids), None) for key in keys]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CoordinatorRecord):
            return NotImplemented
        return self.key == other.key and self.value == other.value

    def __hash__(self) -> int:
        return hash((self.key, self.value))


R = TypeVar("R")


class CoordinatorResult(msgspec.Struct, Generic[R]):
    """A response and its records. The records are appended as one batch, so they are atomic."""

    response: R
    records: list[CoordinatorRecord] = msgspec.field(default_factory=list)
    # False if the operation has already changed the shard. Then the records are replayed only when
    # the log is loaded, not after the append.
    is_replayed: bool = True
    # Changes the shard after the append in place of the replay of many records, if it is set. The
    # result is the same.
    apply: Callable[[], None] | None = None
    # Whether a response without records is held until this broker's leadership is confirmed. The
    # state of a coordinator that is cut off from the cluster may be out of date.
    needs_leadership: bool = False
    # Called before the response is sent: with NONE after commit, or with an error. After an error,
    # the records may still be committed.
    on_appended: Callable[[ErrorCode], None] | None = None


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
