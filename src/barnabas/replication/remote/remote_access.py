"""The parts of the remote tier that a broker gives to its replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.replication.remote.interfaces import RemoteMetadata
    from barnabas.replication.remote.remote_log_manager import RemoteLogManager
    from barnabas.replication.remote.remote_metrics import RemoteMetrics
    from barnabas.replication.remote.remote_tier import RemoteReads
    from barnabas.runtime.worker_pool import WorkerPool
    from barnabas.storage.remote.remote_storage import RemoteStorage


class RemoteAccess(msgspec.Struct, frozen=True):
    """The store, its metadata, and the threads that read it, for followers."""

    storage: RemoteStorage
    metadata: RemoteMetadata
    # Runs the blocking reads of `storage`.
    reads: WorkerPool
    metrics: RemoteMetrics
    # Whether an empty follower starts behind the last segment of the tier (KIP-1023). The key is
    # dynamic.
    starts_at_last_tiered: Callable[[], bool]


class RemoteReplication(msgspec.Struct, frozen=True):
    """The remote tier, for the replica manager."""

    # Reads for consumers.
    reads: RemoteReads
    access: RemoteAccess
    # Copies and deletes segments.
    manager: RemoteLogManager
