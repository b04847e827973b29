"""Samples of the memory, descriptors and threads of processes under steady load."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass

import psutil

# Part of the time at the beginning that does not count: caches fill, and modules are imported.
WARM_UP = 1 / 3
# Descriptors and threads vary with the segments and clients of the moment.
DESCRIPTORS_MORE, THREADS_MORE = 40, 4
# Slope (KiB a minute) of the resident memory of a node that has another reason than `Leftovers`:
# segments that stay stored need 2 KiB each, and the samples vary.
ALLOWED_KIB_PER_MINUTE = 30.0


@dataclass(frozen=True)
class Leftovers:
    """Numbers of objects that a load has made, and whose state the nodes may keep."""

    groups_with_offset: int = 0
    transactional_ids: int = 0
    # Producer ids, counted once for each partition that has records of them.
    producers_in_partitions: int = 0
    fetch_sessions: int = 0

    def __add__(self, other: Leftovers) -> Leftovers:
        return Leftovers(*map(sum, zip(astuple(self), astuple(other), strict=True)))

    @property
    def kib(self) -> float:
        """What the nodes need for them, all together."""
        return (
            1.2 * self.groups_with_offset
            + 0.9 * self.transactional_ids
            + 0.4 * self.producers_in_partitions
            + 0.8 * self.fetch_sessions
        )


def slope_max(made: Leftovers, seconds: float, nodes: int) -> float:
    """Return the largest slope (KiB a minute) of the resident memory of a node.

    Args:
        made: What the loads have made. The coordinators and leaders are spread over the nodes.
        seconds: The time in which the loads have made it.
        nodes: The number of nodes.
    """
    return made.kib / nodes / (seconds / 60) + ALLOWED_KIB_PER_MINUTE


@dataclass(frozen=True)
class Sample:
    """What a process has at one moment."""

    seconds: float
    resident_bytes: int
    descriptors: int
    threads: int


@dataclass(frozen=True)
class ResourceUse:
    """The course of a process after the warm-up."""

    # Slope of the line through the samples of the resident memory.
    kib_per_minute: float
    # Resident memory at the end of the warm-up and at the end (KiB).
    first_kib: int
    last_kib: int
    # Medians of the first and of the last half.
    descriptors: tuple[int, int]
    threads: tuple[int, int]

    def problems(self, kib_per_minute_max: float) -> list[str]:
        """Return what rises."""
        found = []
        if self.kib_per_minute > kib_per_minute_max:
            found.append(f"resident memory rises by {self.kib_per_minute:.1f} KiB a minute")
        for what, (before, after), more in (
            ("descriptors", self.descriptors, DESCRIPTORS_MORE),
            ("threads", self.threads, THREADS_MORE),
        ):
            if after > before + more:
                found.append(f"{what} rise from {before} to {after}")
        return found


def use_of(samples: Sequence[Sample]) -> ResourceUse:
    """Return the course of a process; there must be samples of at least two moments."""
    begin = samples[0].seconds + WARM_UP * (samples[-1].seconds - samples[0].seconds)
    warm = [sample for sample in samples if sample.seconds >= begin]
    middle = max(1, len(warm) // 2)
    line = statistics.linear_regression(
        [sample.seconds / 60 for sample in warm], [sample.resident_bytes / 1024 for sample in warm]
    )

    def medians(values: Sequence[int]) -> tuple[int, int]:
        return round(statistics.median(values[:middle])), round(statistics.median(values[middle:]))

    return ResourceUse(
        line.slope,
        warm[0].resident_bytes >> 10,
        warm[-1].resident_bytes >> 10,
        medians([sample.descriptors for sample in warm]),
        medians([sample.threads for sample in warm]),
    )


class ResourceSampler:
    """Takes samples of processes with these ids, each with a name."""

    def __init__(self, pids: Mapping[int, int]) -> None:
        self._processes = {name: psutil.Process(pid) for name, pid in pids.items()}
        self._samples: dict[int, list[Sample]] = {name: [] for name in pids}
        self._started = time.monotonic()

    def take(self) -> None:
        """Take a sample of each process."""
        for name, process in self._processes.items():
            with process.oneshot():
                sample = Sample(
                    time.monotonic() - self._started,
                    process.memory_info().rss,
                    process.num_fds(),
                    process.num_threads(),
                )
            self._samples[name].append(sample)

    def use(self) -> dict[int, ResourceUse]:
        """Return the course of each process."""
        return {name: use_of(samples) for name, samples in self._samples.items()}
