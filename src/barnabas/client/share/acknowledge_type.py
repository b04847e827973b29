"""A share consumer's result for a record that it has acquired (KIP-932)."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["GAP", "AcknowledgeType"]

# Acknowledges offsets without a record: removed by compaction, or control records. Only the client
# itself uses it.
GAP = 0


class AcknowledgeType(IntEnum):
    """How a record was processed; the values are those of the protocol."""

    # The record was processed.
    ACCEPT = 1
    # The record was not processed: deliver it again, to any member of the group.
    RELEASE = 2
    # The record cannot be processed: do not deliver it again.
    REJECT = 3
    # The record is still being processed: extend its acquisition lock (KIP-1222).
    RENEW = 4
