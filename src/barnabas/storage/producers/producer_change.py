"""The change that one batch of an append makes to its producer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from barnabas.storage.producers.completed_txn import CompletedTxn
    from barnabas.storage.producers.producer_entry import ProducerEntry


class ProducerChange(msgspec.Struct, gc=False):
    """The producer's state after a batch, to be committed when the batch is in the file."""

    entry: ProducerEntry
    # The transaction that the batch ends, if it is a marker.
    completed: CompletedTxn | None = None
    # Whether the batch is a marker that began a new producer epoch (KIP-890).
    is_bumped: bool = False
