"""The amount of load, and the due time of each record.

With a rate, the due time of a record does not depend on earlier records, and its latency counts
from the due time. A broker that stalls for a second therefore delays all records of that second,
and all these delays count. Latency from the actual send would omit them ("coordinated omission").
"""

from __future__ import annotations

import math
import random
import time
from typing import NamedTuple

__all__ = ["Load", "Payloads", "Schedule"]

# Number of different values, so that compression does not see identical records.
_VALUES = 256


class Load(NamedTuple):
    """The load that the command line requests."""

    # End after this number of records; None: no limit.
    records_max: int | None
    # End after this number of seconds; None: no limit.
    seconds_max: float | None
    # Records per second; None for as fast as possible.
    rate: float | None
    # Size of a value in bytes.
    record_size: int
    # Number of different keys; 0 for no keys.
    keys: int


class Schedule:
    """The due times of the records of a run, and whether the run is over."""

    def __init__(self, load: Load) -> None:
        self._load = load
        planned = [] if load.records_max is None else [load.records_max]
        if load.rate is not None and load.seconds_max is not None:
            planned.append(math.ceil(load.rate * load.seconds_max))
        # Number of records in the run; None if only the time ends the run.
        self.planned = min(planned, default=None)
        self.started_s = time.perf_counter()

    def ready(self, sent: int, now: float, at_once: int) -> int:
        """Return how many further records may be sent now, at most `at_once`."""
        count = at_once
        if self._load.rate is not None:
            count = min(count, int((now - self.started_s) * self._load.rate) + 1 - sent)
        if self.planned is not None:
            count = min(count, self.planned - sent)
        return max(count, 0)

    def due_s(self, number: int, now: float) -> float:
        """Return the time from which the latency of record `number` (from 0) counts."""
        return now if self._load.rate is None else self.started_s + number / self._load.rate

    def is_over(self, sent: int, now: float) -> bool:
        """Return whether no further record is to be sent."""
        if self.planned is not None and sent >= self.planned:
            return True
        limit_s = self._load.seconds_max
        if limit_s is None:
            return False
        if self._load.rate is not None:
            # Late records are still sent, but only up to twice the time: the broker may stall.
            limit_s *= 2
        return now - self.started_s >= limit_s


class Payloads:
    """Keys and values of the requested size; half of the bytes of a value are compressible."""

    def __init__(self, load: Load) -> None:
        # A fixed seed gives the same bytes in each run.
        chance = random.Random(1)  # noqa: S311 - the same values in each run
        half = load.record_size // 2
        self._values = [
            chance.randbytes(load.record_size - half) + b"x" * half for _ in range(_VALUES)
        ]
        self._keys: list[bytes | None] = [b"key-%d" % n for n in range(load.keys)] or [None]

    def value(self, number: int) -> bytes:
        """Return the value of a record."""
        return self._values[number % _VALUES]

    def key(self, number: int) -> bytes | None:
        """Return the key of a record; None without keys."""
        return self._keys[number % len(self._keys)]
