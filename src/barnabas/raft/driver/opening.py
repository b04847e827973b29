"""Opens a metadata directory and creates a driver that is ready to start."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from barnabas.raft.driver.raft_driver import RaftDependencies, RaftDriver
from barnabas.raft.election_state import QUORUM_STATE_FILE, QuorumStateError, QuorumStateStore
from barnabas.raft.log.metadata_check import MetadataDamagedError
from barnabas.raft.log.metadata_log import (
    METADATA_PARTITION,
    FirstContent,
    format_metadata_directory,
    open_metadata_log,
)
from barnabas.raft.log.snapshot import (
    BOOTSTRAP_SNAPSHOT,
    list_snapshots,
    old_bootstrap_path,
    read_snapshot,
    read_snapshot_file,
)
from barnabas.raft.transport.transport import NoTransport, RaftTransport

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from barnabas.protocol.schema import Record
    from barnabas.raft.config import RaftConfig
    from barnabas.raft.voter_set import VoterSet
    from barnabas.runtime.rng import Rng
    from barnabas.storage.log_dependencies import LogDependencies


class RaftOpening(msgspec.Struct, frozen=True):
    """The arguments for opening a quorum replica."""

    # The data directory (`metadata.log.dir`, else the first of `log.dirs`).
    data_directory: str
    log_dependencies: LogDependencies
    rng: Rng
    # Called once when the log or the quorum state cannot be written: the process has to stop.
    on_fatal: Callable[[BaseException], None]
    # Feature levels of a new cluster, by feature name.
    bootstrap_features: Mapping[str, int]
    # Sends requests to the other voters; None for a lone voter.
    transport: RaftTransport | None = None
    # The first voters of a new cluster with a dynamic quorum; None otherwise.
    initial_voters: VoterSet | None = None


def open_raft(config: RaftConfig, opening: RaftOpening) -> RaftDriver:
    """Open the metadata partition in the data directory, and format it if it is empty.

    The returned driver is not started: add listeners, then call `start`.

    Raises:
        MetadataDamagedError: committed metadata, or the `quorum-state` file, is damaged.
        StorageError: the log cannot be opened.
    """
    log_dependencies = opening.log_dependencies
    directory = f"{opening.data_directory}/{METADATA_PARTITION.directory_name}"
    now_ms = log_dependencies.clock.wall_ms()
    first = FirstContent(opening.initial_voters)
    format_metadata_directory(
        log_dependencies.disk, directory, opening.bootstrap_features, now_ms, first
    )
    log = open_metadata_log(directory, config, log_dependencies)
    store = QuorumStateStore(log_dependencies.disk, directory)
    try:
        store.read()
    except QuorumStateError as error:
        path = f"{directory}/{QUORUM_STATE_FILE}"
        raise MetadataDamagedError(
            path,
            f"{error}; the file contains the last election and the vote of this node. It "
            "may only be deleted on the sole controller of a cluster",
        ) from error
    transport = NoTransport() if opening.transport is None else opening.transport
    dependencies = RaftDependencies(
        log,
        store,
        log_dependencies,
        opening.rng,
        opening.on_fatal,
        transport,
        opening.data_directory,
    )
    return RaftDriver(config, dependencies)


def bootstrap_records(driver: RaftDriver) -> list[tuple[Record, int]]:
    """Return the records that the formatter wrote; empty if the checkpoint is missing.

    The first active controller of the cluster writes these records to the log. They have no effect
    before that.

    Raises:
        SnapshotError: the checkpoint is damaged.
    """
    disk, directory = driver.log_dependencies.disk, driver.log.directory
    if BOOTSTRAP_SNAPSHOT in list_snapshots(disk, directory):
        return list(read_snapshot(disk, directory, BOOTSTRAP_SNAPSHOT).records)
    path = old_bootstrap_path(directory)
    return list(read_snapshot_file(disk, path).records) if disk.exists(path) else []
