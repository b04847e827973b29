"""Ids and epochs of fetch sessions in Fetch requests (KIP-227; Kafka's FetchMetadata)."""

from __future__ import annotations

__all__ = ["FINAL_EPOCH", "INITIAL_EPOCH", "NO_SESSION", "next_epoch"]

# Session id of a request or response without a session.
NO_SESSION = 0
# Epoch of a full request. It requests a new session, and closes the session whose id it carries.
INITIAL_EPOCH = 0
# Epoch of a request that closes its session, or that uses no session.
FINAL_EPOCH = -1

_EPOCH_MAX = 0x7FFF_FFFF


def next_epoch(epoch: int) -> int:
    """Return the epoch after `epoch`. Epochs run from 1 to 2^31 - 1 and wrap around to 1."""
    return 1 if epoch == _EPOCH_MAX else epoch + 1
