"""The result of a campaign, and its text."""

from __future__ import annotations

import statistics
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from chaos.resources import ResourceUse

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Event:
    """One fault and its result."""

    name: str
    detail: str
    # Seconds since the load began.
    at: float
    # Seconds from the fault to the first acknowledgement of a record sent behind it: of the last
    # partition and producer to have one, and of the median of them.
    recovery: float
    recovery_median: float
    # From healing until every replica was in sync.
    in_sync: float
    # Changes of the leader epochs of all partitions, and of the controller epoch.
    elections: int
    controller_elections: int
    # Number of errors that clients reported.
    errors: int
    failed_sends: int


@dataclass
class Outcome:
    """The result of a campaign; `problems` is empty if it passed."""

    options: dict[str, Any]
    commit: str
    machine: str
    server: str
    seconds: float = 0.0
    records: int = 0
    failed_sends: int = 0
    read_by_group: int = 0
    events: list[Event] = field(default_factory=list)
    errors: dict[str, int] = field(default_factory=dict)
    verdict: str = ""
    # Records read by the consumer group, deliveries to the share group, and the verdict on it.
    read_by_modern_group: int = 0
    delivered_to_share_group: int = 0
    share_verdict: str = ""
    # Commits that the streams group's coordinator accepted, and the verdict on the group.
    committed_by_streams_group: int = 0
    streams_verdict: str = ""
    # Number of transactions, faults of their clients, and the verdict.
    transactions: str = ""
    transactions_verdict: str = ""
    transactional_errors: dict[str, int] = field(default_factory=dict)
    # What each side load did, and the verdict on it.
    sides: dict[str, str] = field(default_factory=dict)
    # Memory, descriptors and threads of each node (`make soak`).
    resources: dict[int, ResourceUse] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    # The batches around the findings, from the segment files of each node.
    evidence: str = ""
    # Lines of the logs about turns of the event loop over 100 ms of CPU time, and the longest turn.
    long_turns: list[str] = field(default_factory=list)
    longest_turn_cpu_ms: float = 0.0


def table(outcome: Outcome) -> str:
    """Return the table of faults for docs/reliability.md and docs/lab/chaos.md."""
    by_name: dict[str, list[Event]] = {}
    for event in outcome.events:
        by_name.setdefault(event.name, []).append(event)
    lines = [
        "| fault | times | next ack: median / worst | healed: worst | elections | failed sends |",
        "|---|---|---|---|---|---|",
    ]
    for name, events in by_name.items():
        recoveries = [event.recovery for event in events]
        lines.append(
            f"| {name} | {len(events)} | {statistics.median(recoveries):.2f} s / "
            f"{max(recoveries):.2f} s | {max(e.in_sync for e in events):.1f} s | "
            f"{sum(e.elections for e in events)} + "
            f"{sum(e.controller_elections for e in events)} of controllers | "
            f"{sum(e.failed_sends for e in events)} |"
        )
    return "\n".join(lines)


def summary(outcome: Outcome) -> str:
    """Return the result as one paragraph."""
    verdict = "; ".join(outcome.problems) if outcome.problems else outcome.verdict
    return (
        f"{outcome.server}, commit {outcome.commit}, seed {outcome.options['seed']}, "
        f"{outcome.seconds:.0f} s, {len(outcome.events)} faults, {outcome.records} records sent, "
        f"{outcome.failed_sends} failed sends, {outcome.read_by_group} read by the group, "
        f"{_groups(outcome)}, "
        f"{outcome.transactions or 'no transactions'}, "
        + "".join(f"{name}: {told}, " for name, told in outcome.sides.items())
        + f"{len(outcome.long_turns)} turns over 100 ms of CPU time, the longest "
        f"{outcome.longest_turn_cpu_ms:.0f} ms, "
        f"{outcome.machine}: {verdict}"
    )


def _groups(outcome: Outcome) -> str:
    if not outcome.share_verdict:
        return "no other groups"
    return (
        f"{outcome.read_by_modern_group} read by the consumer group, "
        f"{outcome.delivered_to_share_group} delivered to the share group: "
        f"{outcome.share_verdict}, {outcome.committed_by_streams_group} commits of the streams "
        f"group: {outcome.streams_verdict}"
    )


def commit_id() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or "unknown"


def describe_machine() -> str:
    memory = psutil.virtual_memory().total / 2**30
    load = psutil.getloadavg()[1]
    return (
        f"{psutil.cpu_count()} cores, {memory:.0f} GiB, Python {sys.version.split()[0]}, "
        f"load average {load:.0f} before it began"
    )
