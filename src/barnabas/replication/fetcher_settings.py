"""Settings that all fetchers of a broker share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.replication.config import ReplicationConfig


class FetcherSettings(msgspec.Struct, frozen=True):
    """Identity, protocol version and configuration of the fetchers."""

    node_id: int
    # Returns the epoch of this broker's registration (KIP-903), or -1 while not registered.
    broker_epoch: Callable[[], int]
    # Returns the Fetch version that all brokers of the cluster support.
    fetch_version: Callable[[], int]
    config: ReplicationConfig


# (minimum metadata.version level, Fetch version that all brokers at this level support).
_FETCH_VERSIONS = ((27, 18), (21, 17), (19, 16), (10, 15), (9, 14))
_OLDEST_FETCH_VERSION = 13


def fetch_version(metadata_version: int) -> int:
    """Return the version of Fetch requests between brokers at that level, as in Kafka."""
    for level, version in _FETCH_VERSIONS:
        if metadata_version >= level:
            return version
    return _OLDEST_FETCH_VERSION
