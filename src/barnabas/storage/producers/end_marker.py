"""The marker that ends a transaction, in a control batch (Kafka's EndTransactionMarker)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.record.control import ControlType, parse_control_key, parse_end_marker
from barnabas.record.errors import CorruptBatchError
from barnabas.record.reader import first_record
from barnabas.storage.errors import CorruptRecordError

if TYPE_CHECKING:
    from barnabas.record.batch import BatchHeader, Buffer

# Limit for a decompressed control batch; a marker has about twenty bytes.
_MARKER_BYTES_MAX = 1 << 16


class EndMarker(NamedTuple):
    """Content of a transaction's control batch."""

    control_type: ControlType
    # Epoch of the transaction coordinator that wrote the marker; older ones are fenced.
    coordinator_epoch: int
    timestamp: int


def read_end_marker(batch: Buffer, header: BatchHeader) -> EndMarker | None:
    """Return the marker in a control batch; None if it is empty or of another control type.

    Raises:
        CorruptRecordError: the record, its key or its value cannot be read.
    """
    if not header.record_count:
        return None
    try:
        record = first_record(batch, 0, header, _MARKER_BYTES_MAX)
        control_type = parse_control_key(record.key)
        if control_type not in (ControlType.ABORT, ControlType.COMMIT):
            return None
        return EndMarker(control_type, parse_end_marker(record.value), record.timestamp)
    except CorruptBatchError as error:
        raise CorruptRecordError(
            f"the control batch of offset {header.base_offset} cannot be read: {error}"
        ) from None
