"""What members of a group did and when, as each wrote it down itself before it could be killed.

One line per event, one file per member, written by one system call each: what a process wrote
survives its death. Times are those of the machine's monotonic clock, the same for all processes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

NS_PER_S = 1_000_000_000


class Event(NamedTuple):
    """One line of a member's diary."""

    at_ns: int
    member: str
    # "assigned", "revoked", "lost", "processed", "committed", "refused", "closed", "failed".
    kind: str
    partition: int = -1
    # Of "processed": from `first` to before `end`. Of "committed": the offset is `end`.
    first: int = -1
    end: int = -1
    # The generation of a classic group, the member's epoch of one by KIP-848; -1 for none.
    generation: int = -1
    # Of "committed": when it was asked for.
    began_ns: int = 0
    words: str = ""


class Diary:
    """Where one member writes."""

    def __init__(self, directory: Path, member: str) -> None:
        self._member = member
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._file = os.open(directory / f"{member}.diary", flags, 0o644)

    def write(self, kind: str, *, words: str = "", **numbers: int) -> None:
        event = Event(time.monotonic_ns(), self._member, kind, words=words, **numbers)
        fields = [str(field).replace("\t", " ").replace("\n", " ") for field in event]
        os.write(self._file, ("\t".join(fields) + "\n").encode())


def read_diaries(directory: Path) -> list[Event]:
    """All members' events, in order of time."""
    events: list[Event] = []
    for path in sorted(directory.glob("*.diary")):
        events += parse(path.read_text().splitlines(keepends=True))
    return sorted(events)


def parse(lines: Iterable[str]) -> list[Event]:
    """Whole lines only: the last one of a killed member may be torn."""
    events = []
    for line in lines:
        if not line.endswith("\n"):
            continue
        at, member, kind, partition, first, end, generation, began, words = line[:-1].split("\t")
        numbers = (int(partition), int(first), int(end), int(generation), int(began))
        events.append(Event(int(at), member, kind, *numbers, words))
    return events
