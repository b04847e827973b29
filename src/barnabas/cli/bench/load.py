"""How much load there is, and when each record is due.

With a rate the time at which a record is due does not depend on how the ones before it went. Its
latency counts from then on: a broker that stalls for a second delays all records of that second,
and all of them count. (Latency from the real send would leave that out: "coordinated omission".)
"""

from __future__ import annotations

import math
import random
import time
from typing import NamedTuple

__all__ = ["Load", "Payloads", "Schedule"]

# Values differ, so that compression does not meet the same bytes in all records.
_VALUES = 256


class Load(NamedTuple):
    """What is asked for on the command line."""

    # End after so many records, or None.
    records_max: int | None
    # End after so many seconds, or None.
    seconds_max: float | None
    # Records per second; None for as fast as possible.
    rate: float | None
    # Of a value, in bytes.
    record_size: int
    # How many different keys; 0 for no keys.
    keys: int


class Schedule:
    """When the records of a run are due, and whether it is over."""

    def __init__(self, load: Load) -> None:
        self._load = load
        planned = [] if load.records_max is None else [load.records_max]
        if load.rate is not None and load.seconds_max is not None:
            planned.append(math.ceil(load.rate * load.seconds_max))
        # How many records there are; None if only the time ends the run.
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
        """Return the time from which the latency of record `number` counts, from 0 on."""
        return now if self._load.rate is None else self.started_s + number / self._load.rate

    def is_over(self, sent: int, now: float) -> bool:
        """Return whether no further record is to be sent."""
        if self.planned is not None and sent >= self.planned:
            return True
        limit_s = self._load.seconds_max
        if limit_s is None:
            return False
        if self._load.rate is not None:
            # Records that are late are sent all the same, but not for ever: the broker may stall.
            limit_s *= 2
        return now - self.started_s >= limit_s


class Payloads:
    """Keys and values of the size that was asked for, half of whose bytes can be compressed."""

    def __init__(self, load: Load) -> None:
        # The same bytes in each run.
        chance = random.Random(1)  # noqa: S311
        half = load.record_size // 2
        self._values = [
            chance.randbytes(load.record_size - half) + b"x" * half for _ in range(_VALUES)
        ]
        self._keys: list[bytes | None] = [b"key-%d" % n for n in range(load.keys)] or [None]

    def value(self, number: int) -> bytes:
        """Return the value of a record."""
        return self._values[number % _VALUES]

    def key(self, number: int) -> bytes | None:
        """Return the key of a record, None without keys."""
        return self._keys[number % len(self._keys)]
