"""How long changes took from the commit in PostgreSQL until a Delta table showed them.

All is read afterwards from what the pipeline keeps: the topics have the time of each commit, the
checkpoint has the batch of each record, and each Delta table's log has the time at which it took
the batch. So kills of the job hide nothing.
"""

from __future__ import annotations

import json
import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from airline import TABLES
from barnabas import Client
from changes import decode_event
from connect import topic_of


@dataclass(slots=True)
class Changes:
    """What came through the pipeline."""

    # Rows that the tables had when the connector was created.
    snapshot: int = 0
    # Seconds from commit to visibility, one for each later change.
    seconds: list[float] = field(default_factory=list)
    # Events that are in a topic more than once.
    repeated: int = 0
    first_commit: float = float("inf")
    last_visible: float = 0.0

    @property
    def count(self) -> int:
        """Changes after the snapshot."""
        return len(self.seconds)

    def report(self) -> str:
        """Return the line for the end of a run."""
        rate = self.count / (self.last_visible - self.first_commit)
        median, worst = statistics.median(self.seconds), max(self.seconds)
        return (
            f"{self.count:,} changes after a snapshot of {self.snapshot:,} rows,"
            f" {rate:,.0f} rows/s; freshness (from commit to visible):"
            f" median {median:.1f} s, worst {worst:.1f} s"
        )


def measure(bootstrap: str, output: Path) -> Changes:
    """Read topics, checkpoint and Delta tables of a finished run."""
    found = Changes()
    ends = _batch_ends(output / "checkpoint")
    with Client(bootstrap, isolation_level="read_committed") as client:
        for name in TABLES:
            _measure_table(client, topic_of(name), ends, output / "tables" / name, found)
    return found


def _measure_table(
    client: Client, topic: str, ends: list[dict[str, int]], table: Path, found: Changes
) -> None:
    topic_ends = [end.get(topic, 0) for end in ends]
    visible = sorted(_visible_times(table))
    seen: set[tuple[int | None, str, bytes | None]] = set()
    partition = (topic, 0)
    end = client.list_offsets({partition: "latest"})[partition].offset
    with client.stream({partition: (0, end)}) as stream:
        for record in stream.records():
            if record.value is None:
                continue
            payload = decode_event(record.value).payload
            if payload.op == "r":
                found.snapshot += 1
                continue
            # A batch that changes no row of the table is in no commit: the next one counts.
            batch = bisect_right(topic_ends, record.offset)
            visible_at = visible[bisect_left(visible, (batch, 0.0))][1]
            committed_at = payload.source.ts_us / 1e6
            found.seconds.append(visible_at - committed_at)
            found.first_commit = min(found.first_commit, committed_at)
            found.last_visible = max(found.last_visible, visible_at)
            identity = (payload.source.lsn, payload.op, record.key)
            found.repeated += identity in seen
            seen.add(identity)


def _batch_ends(checkpoint: Path) -> list[dict[str, int]]:
    """Return, for each batch, the offset of each topic at which it ends."""
    files = sorted((int(path.name), path) for path in (checkpoint / "offsets").glob("[0-9]*"))
    assert [number for number, _ in files] == list(range(len(files)))
    offsets = [json.loads(path.read_text().splitlines()[-1]) for _, path in files]
    return [{topic: parts.get("0", 0) for topic, parts in each.items()} for each in offsets]


def _visible_times(table: Path) -> Iterator[tuple[int, float]]:
    """Yield the batch of each commit and the time at which readers could see it."""
    for path in (table / "_delta_log").glob("*.json"):
        for line in path.read_text().splitlines():
            transaction = json.loads(line).get("txn")
            if transaction is not None:
                yield int(transaction["version"]), path.stat().st_mtime
