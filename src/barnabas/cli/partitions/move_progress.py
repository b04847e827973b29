"""Wait for reassignments, with the copied bytes and the time that is left."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from barnabas.cli.common.printable import counted, echo
from barnabas.cli.common.units import duration_text, size
from barnabas.client.errors import ClientError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from barnabas.cli.partitions.planning import Move
    from barnabas.client.facade import Client
    from barnabas.client.topic_partition import TopicPartition

_POLL_S = 0.5
# Each poll asks for the sizes of all replicas, which is much work if there are many.
_LONG_POLL_S = 3.0
_FEW_PARTITIONS = 100
# Broker -> bytes of each of its replicas.
ReplicaSizes = dict[int, dict["TopicPartition", int]]


def replica_sizes(client: Client, brokers: Iterable[int]) -> ReplicaSizes:
    """Return the bytes of all replicas on the brokers, without copies to another directory.

    Raises:
        ClientError: A broker does not answer, or the user may not describe its directories.
    """
    found: ReplicaSizes = {}
    for broker, directories in client.admin.describe_log_dirs(sorted(brokers)).items():
        if isinstance(directories, ClientError):
            raise directories
        found[broker] = {
            tp: replica.size
            for directory in directories
            for tp, replica in directory.replicas.items()
            if not replica.is_future
        }
    return found


def partition_sizes(found: ReplicaSizes) -> dict[TopicPartition, int]:
    """Return the bytes of one complete replica of each partition: of the largest replica."""
    sizes: dict[TopicPartition, int] = {}
    for replicas in found.values():
        for tp, replica in replicas.items():
            sizes[tp] = max(replica, sizes.get(tp, 0))
    return sizes


def known_sizes(client: Client, brokers: Iterable[int] | None = None) -> dict[TopicPartition, int]:
    """Return the bytes of one complete replica of each partition; empty if brokers do not say.

    Args:
        client: The client.
        brokers: The brokers that are asked; None for all.
    """
    try:
        if brokers is None:
            brokers = [node.id for node in client.describe_cluster().brokers]
        return partition_sizes(replica_sizes(client, brokers))
    except ClientError:
        return {}


def bytes_to_copy(planned: Iterable[Move], sizes: Mapping[TopicPartition, int]) -> int:
    """Return the bytes that the new replicas of a plan copy."""
    return sum(len(move.adding) * sizes.get(move.partition, 0) for move in planned)


class Progress(NamedTuple):
    """How far the reassignments of a plan are."""

    moved: int
    partitions: int
    # Bytes; 0 in all if they are unknown.
    copied: int
    total: int

    def text(self, seconds: float) -> str:
        """Return the progress in words.

        Args:
            seconds: The time since the start.
        """
        words = f"moved {self.moved} of {counted(self.partitions, 'partition')}"
        if not self.total:
            return words
        words += f", {size(self.copied)} of {size(self.total)}"
        if 0 < self.copied < self.total and seconds > 0:
            left_s = (self.total - self.copied) * seconds / self.copied
            words += f", {duration_text(left_s)} left"
        return words


def measured(
    planned: Sequence[Move],
    active: Iterable[TopicPartition],
    sizes: Mapping[TopicPartition, int],
    now: ReplicaSizes,
) -> Progress:
    """Return the progress of a plan.

    Args:
        planned: The changes of the plan.
        active: The partitions whose reassignments are not complete.
        sizes: Bytes of a complete replica of each partition.
        now: The replicas that the brokers have now.
    """
    moving = frozenset(active)
    copied = 0
    for move in planned:
        whole = sizes.get(move.partition, 0)
        for broker in move.adding:
            has = now.get(broker, {}).get(move.partition, 0)
            copied += min(has, whole) if move.partition in moving else whole
    moved = sum(move.partition not in moving for move in planned)
    return Progress(moved, len(planned), copied, bytes_to_copy(planned, sizes))


def await_moves(client: Client, planned: Sequence[Move]) -> None:
    """Wait until all reassignments are complete, and show the progress.

    Retriable errors are ignored meanwhile. Ctrl-C ends the command, and not the reassignments.
    """
    wanted = [move.partition for move in planned]
    receivers = {broker for move in planned for broker in move.adding}
    sources = {broker for move in planned for broker in move.before}
    sizes = partition_sizes(_known_sizes(client, sources))
    started = time.monotonic()
    progress = Progress(0, len(planned), 0, 0)
    with _shown() as show:
        while progress.moved < progress.partitions:
            time.sleep(_POLL_S if len(planned) <= _FEW_PARTITIONS else _LONG_POLL_S)
            try:
                active = client.admin.list_reassignments(wanted)
            except ClientError as error:
                if not error.retriable:
                    raise
                continue
            now = _known_sizes(client, receivers) if sizes and active else {}
            progress = measured(planned, active, sizes, now)
            show(progress, time.monotonic() - started)


def _known_sizes(client: Client, brokers: Collection[int]) -> ReplicaSizes:
    """Return the sizes on the brokers that serve; empty if they cannot be read.

    The progress is then shown in partitions. For example, a dead broker is being emptied, or the
    user may not describe the directories.
    """
    try:
        serving = {node.id for node in client.describe_cluster().brokers}
        return replica_sizes(client, serving.intersection(brokers))
    except ClientError:
        return {}


@contextmanager
def _shown() -> Iterator[Callable[[Progress, float], None]]:
    """Yield a function that shows the progress: as a bar on a terminal, else as lines."""
    if not sys.stderr.isatty():
        reported = -1

        def echo_line(progress: Progress, seconds: float) -> None:
            nonlocal reported
            if progress.moved != reported:
                echo(progress.text(seconds), err=True)
                reported = progress.moved

        yield echo_line
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress as Bar, TextColumn

    columns = (BarColumn(), TextColumn("{task.fields[text]}"))
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("moves", total=None, text="the replicas move")

        def update(progress: Progress, seconds: float) -> None:
            done, total = progress.copied, progress.total
            if not total:
                done, total = progress.moved, progress.partitions
            bar.update(task, completed=done, total=total, text=progress.text(seconds))

        yield update
