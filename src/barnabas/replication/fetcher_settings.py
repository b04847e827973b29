"""What all fetchers of a broker share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.replication.config import ReplicationConfig


class FetcherSettings(msgspec.Struct, frozen=True):
    """Who asks, and how."""

    node_id: int
    # Of this broker's registration (KIP-903); -1 while it has none.
    broker_epoch: Callable[[], int]
    # The version of Fetch that the whole cluster speaks.
    fetch_version: Callable[[], int]
    config: ReplicationConfig


# (level of metadata.version, version of Fetch that all brokers of such a cluster have).
_FETCH_VERSIONS = ((27, 18), (21, 17), (19, 16), (10, 15), (9, 14))
_OLDEST_FETCH_VERSION = 13


def fetch_version(metadata_version: int) -> int:
    """The version in which brokers fetch from each other at that level, as in Kafka."""
    for level, version in _FETCH_VERSIONS:
        if metadata_version >= level:
            return version
    return _OLDEST_FETCH_VERSION
