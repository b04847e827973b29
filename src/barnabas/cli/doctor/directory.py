"""Diagnosis of a data directory, before or while a broker uses it."""

from __future__ import annotations

import os
import resource
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import click

from barnabas.cli.common.advice import Advice
from barnabas.cli.log.paths import partition_directories
from barnabas.cli.log.read_only import is_locked
from barnabas.runtime.disk import RealDisk
from barnabas.runtime.interpreter import UNOPTIMIZED, is_optimized
from barnabas.storage.errors import InconsistentDirectoryError
from barnabas.storage.files.log_directory import LOCK_FILE
from barnabas.storage.files.metadata_files import CLEAN_SHUTDOWN, MetaProperties

if TYPE_CHECKING:
    from barnabas.cli.doctor.diagnosis import Diagnosis

__all__ = ["check_space", "examine_directory"]

# With less free space than this share or this number of bytes, a broker soon stops.
_FREE_PART_MIN = 0.05
_FREE_BYTES_MIN = 1 << 30
# Descriptors for an active segment: the log file and its indexes.
_FILES_PER_PARTITION = 4
_GIB = 1 << 30


def examine_directory(
    path: str,
    diagnosis: Diagnosis,
    *,
    node_id: int | None = None,
    cluster_id: str | None = None,
) -> MetaProperties | None:
    """Examine a data directory.

    Args:
        path: The directory.
        diagnosis: Receives the findings.
        node_id: The node that will use the directory, if it is known.
        cluster_id: The cluster that the directory must belong to, if it is known.

    Returns:
        The content of its meta.properties; None if it cannot be read.
    """
    if not RealDisk().is_directory(path):
        _examine_absent(path, diagnosis)
        return None
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        diagnosis.wrong(
            f"{path} cannot be read and written by this user",
            f"run the broker as the owner, or: chown -R $(id -un) {path}",
        )
        return None
    in_use = is_locked(f"{path}/{LOCK_FILE}")
    if in_use:
        diagnosis.note(f"{path} is used by a broker", "a second broker needs a separate directory")
    meta = _examine_identity(path, diagnosis, node_id, cluster_id)
    try:
        partitions = len(partition_directories(path)) if RealDisk().list(path) else 0
    except click.UsageError as error:
        if meta is None:
            diagnosis.note(f"{error.message}: it contains other files", "use an empty directory")
        partitions = 0
    if meta is not None and not in_use:
        _examine_shutdown(path, partitions, diagnosis)
        _examine_metadata_log(path, diagnosis)
    check_space(path, *RealDisk().space(path), diagnosis)
    _examine_descriptors(partitions, diagnosis)
    if not is_optimized():
        diagnosis.note(
            UNOPTIMIZED, "use the Python of the Linux distribution, or one of uv or conda"
        )
    return meta


def _examine_absent(path: str, diagnosis: Diagnosis) -> None:
    if RealDisk().exists(path):
        diagnosis.wrong(f"{path} is a file", "use a directory")
        return
    parent = PurePosixPath(RealDisk().absolute(path))
    while not RealDisk().exists(str(parent)):
        parent = parent.parent
    if os.access(parent, os.W_OK | os.X_OK):
        diagnosis.ok(f"{path} does not exist yet: the broker creates it")
    else:
        diagnosis.wrong(
            f"{path} does not exist, and this user cannot write to {parent}",
            f"create it and make the broker's user its owner: mkdir -p {path}",
        )


def _examine_identity(
    path: str, diagnosis: Diagnosis, node_id: int | None, cluster_id: str | None
) -> MetaProperties | None:
    try:
        meta = MetaProperties.read(RealDisk(), path)
    except InconsistentDirectoryError as error:
        diagnosis.wrong(
            str(error),
            "a directory from a ZooKeeper cluster must first be migrated with Apache Kafka 3.9"
            if "version '0'" in str(error)
            else "copy meta.properties from another data directory of the same node",
        )
        return None
    if meta is None:
        names = [name for name in RealDisk().list(path) if name != LOCK_FILE]
        if any("-" in name for name in names):
            diagnosis.wrong(
                f"{path} contains logs but no meta.properties, which identifies their node",
                "copy the file from another data directory of the node, or from a backup",
            )
        else:
            diagnosis.ok(f"{path} is not formatted: the broker formats it at its start")
        return None
    if node_id is not None and meta.node_id != node_id:
        diagnosis.wrong(
            f"{path} belongs to node {meta.node_id}, but this is node {node_id}",
            f"set node.id={meta.node_id}, or use another directory",
        )
    elif cluster_id is not None and meta.cluster_id != cluster_id:
        diagnosis.wrong(
            f"{path} belongs to cluster {meta.cluster_id}, but cluster.id={cluster_id}",
            f"set cluster.id={meta.cluster_id}; or, to join the other cluster, use "
            "another directory",
        )
    else:
        diagnosis.ok(f"{path} belongs to node {meta.node_id} of cluster {meta.cluster_id}")
    return meta


def _examine_shutdown(path: str, partitions: int, diagnosis: Diagnosis) -> None:
    if RealDisk().exists(f"{path}/{CLEAN_SHUTDOWN}"):
        diagnosis.ok(f"{path} was closed cleanly, with {partitions} partitions")
    else:
        diagnosis.note(
            f"{path} was not closed cleanly: the next start recovers {partitions} partitions",
            f"no action is needed; to check first: {Advice.VERIFY_LOG.text(directory=path)}",
        )


def _examine_metadata_log(path: str, diagnosis: Diagnosis) -> None:
    """Check the metadata log: a node does not start if it is damaged."""
    from barnabas.cli.log.findings import Findings
    from barnabas.cli.log.verify_partition import METADATA_TOPIC, VerifyOptions, verify_partition

    options = VerifyOptions(deep=False, is_running=False, advance=lambda _count: None)
    for partition in partition_directories(path):
        if partition.topic != METADATA_TOPIC:
            continue
        findings = Findings()
        verify_partition(partition, options, findings)
        # The next start rebuilds indexes and checkpoints from the segments.
        in_segments = [each for each in findings.problems if each.path.endswith(".log")]
        for finding in in_segments[:1]:
            diagnosis.wrong(
                f"the metadata log is damaged, so the node does not start: {finding.path}: "
                f"{finding.what}",
                f"{Advice.REPAIR_LOG_APPLY.text(directory=path)}; without --apply, it shows what "
                "would be lost. If there are other voters, the node can copy their log "
                f"instead: move {path} aside and start the node",
            )


def check_space(name: str, total: int, free: int, diagnosis: Diagnosis) -> None:
    """Report whether a disk has enough free space."""
    words = f"{name}: {free / _GIB:.1f} of {total / _GIB:.1f} GiB free"
    if free < _FREE_BYTES_MIN or free < total * _FREE_PART_MIN:
        diagnosis.wrong(
            words,
            f"free space: `{Advice.PURGE_TOPIC.text()}`, a shorter retention.ms, or another "
            "directory in log.dirs",
        )
    else:
        diagnosis.ok(words)


def _examine_descriptors(partitions: int, diagnosis: Diagnosis) -> None:
    """Check the hard limit of open files; the broker raises its soft limit itself."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 1024 + _FILES_PER_PARTITION * partitions
    if hard != resource.RLIM_INFINITY and hard < needed:
        diagnosis.wrong(
            f"{hard} open files are allowed; {partitions} partitions may need {needed}",
            "raise the limit: LimitNOFILE= of the service, or ulimit -Hn",
        )
    else:
        allowed = "any number of" if hard == resource.RLIM_INFINITY else str(hard)
        diagnosis.ok(f"{allowed} open files are allowed")
