"""`make link-chaos`: random faults of two linked clusters under load, and a verdict.

python -m chaos.link_campaign --minutes 30 --seed 7 --result links.json

The topics of a link move to the other cluster and back in between. With --kafka the source is
Apache Kafka, to which nothing can move back: its mirrors are promoted at the end. The checkers of
`make chaos` judge what all clients saw with the logs of both clusters, and the files of all
replicas are compared. The same seed selects the same faults; their effects differ between runs.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import statistics
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException

from barnabas.testing.broker_process import BrokerStartError
from chaos.campaign import TURN_CPU_MS_MAX, run_in_new_directory
from chaos.judgment import long_turns, unexpected_errors, verify_directories
from chaos.links.ledger import Fate
from chaos.links.link_faults import LINK_FAULTS, LinkFault
from chaos.links.link_stress import LinkOptions, LinkStress
from chaos.links.linked_load import LinkedLoad
from chaos.links.moves import move, promote
from chaos.outcome import commit_id, describe_machine

MOVE = "move to the other cluster"
_MOVE_WEIGHT = 5


@dataclass(frozen=True)
class LinkEvent:
    """One fault and its result."""

    name: str
    detail: str
    # Seconds since the load began.
    at: float
    # Seconds of the fault itself, with its commands.
    lasted: float
    # From healing until all mirrors had all records, and all replicas were in sync.
    mirrored: float


@dataclass
class LinkOutcome:
    """The result of a campaign; `problems` is empty if it passed."""

    options: dict[str, Any]
    commit: str
    machine: str
    seconds: float = 0.0
    records: int = 0
    failed_sends: int = 0
    transactions: str = ""
    events: list[LinkEvent] = field(default_factory=list)
    errors: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    longest_turn_cpu_ms: float = 0.0
    long_turns: list[str] = field(default_factory=list)


def run(options: LinkOptions, directory: Path, report: Callable[[str], object]) -> LinkOutcome:
    """Run a campaign against two separate clusters."""
    outcome = LinkOutcome(asdict(options), commit_id(), describe_machine())
    clusters = LinkStress(options, directory)
    load = LinkedLoad(clusters)
    started = time.monotonic()
    try:
        clusters.start()
        load.start()
        started = time.monotonic()
        _do_faults(clusters, load, outcome, report)
        if clusters.active is clusters.second:
            move(clusters, load)
        promote(clusters, load, disturbed=False)
        load.problems += load.judge(clusters.active)
    except (AssertionError, BrokerStartError, KafkaException):
        logs = "\n".join(f"{side.name} cluster: {side.cluster.log()}" for side in clusters.sides)
        outcome.problems.append(f"{traceback.format_exc()}\n{logs}")
    finally:
        load.abandon()
        try:
            outcome.seconds = time.monotonic() - started
            _finish(clusters, load, outcome)
        finally:
            clusters.close()
    return outcome


def _finish(clusters: LinkStress, load: LinkedLoad, outcome: LinkOutcome) -> None:
    """Fill the outcome with what the load, the logs and the files show."""
    fates = load.fates
    outcome.problems += load.problems
    outcome.records = load.records()
    outcome.failed_sends = load.failed_sends
    outcome.errors = dict(load.errors.counts.most_common())
    outcome.transactions = ", ".join(f"{fates.count(fate)} {fate.value}" for fate in Fate)
    for side in clusters.sides:
        outcome.long_turns += long_turns(side.cluster)
        longest = side.stress.longest_turn_cpu_ms
        outcome.longest_turn_cpu_ms = max(outcome.longest_turn_cpu_ms, longest)
        found = unexpected_errors(side.cluster) + verify_directories(side.cluster)
        outcome.problems += [f"{side.name} cluster: {each}" for each in found]
    if outcome.longest_turn_cpu_ms > TURN_CPU_MS_MAX:
        outcome.problems.append(f"a turn took {outcome.longest_turn_cpu_ms:.0f} ms of CPU time")


def _do_faults(
    clusters: LinkStress,
    load: LinkedLoad,
    outcome: LinkOutcome,
    report: Callable[[str], object],
) -> None:
    options = clusters.options
    faults = list(LINK_FAULTS)
    if not options.kafka:
        faults.append(LinkFault(MOVE, lambda clusters: move(clusters, load), _MOVE_WEIGHT))
    chosen = [each for each in faults if not options.faults or each.name in options.faults]
    assert chosen, f"no such faults: {options.faults}"
    began = time.monotonic()
    while (at := time.monotonic() - began) < options.seconds and not load.problems:
        (fault,) = clusters.rng.choices(chosen, [each.weight for each in chosen])
        event = _do(clusters, load, fault, at)
        outcome.events.append(event)
        report(
            f"{event.at:7.1f} s  {event.name}: {event.detail}; took {event.lasted:.1f} s, "
            f"all mirrored {event.mirrored:.1f} s after healing"
        )


def _do(clusters: LinkStress, load: LinkedLoad, fault: LinkFault, at: float) -> LinkEvent:
    began = time.monotonic()
    detail = fault.do(clusters)
    load.await_progress()
    healing = time.monotonic()
    clusters.heal()
    clusters.await_mirrored()
    mirrored = time.monotonic()
    load.await_progress()
    load.sample()
    for side in clusters.sides:
        side.stress.balance()
        side.stress.sample_turns()
    notes, clusters.notes = clusters.notes, []
    detail = "; ".join([detail, *notes])
    return LinkEvent(fault.name, detail, at, healing - began, mirrored - healing)


def summary(outcome: LinkOutcome) -> str:
    """Return the result as one paragraph and a table."""
    options = outcome.options
    source = "Apache Kafka" if options["kafka"] else "Barnabas"
    verdict = "; ".join(outcome.problems) if outcome.problems else "no faults"
    text = (
        f"source {source}, commit {outcome.commit}, seed {options['seed']}, "
        f"{outcome.seconds:.0f} s, {len(outcome.events)} faults, {outcome.records} records sent, "
        f"{outcome.failed_sends} failed sends, transactions: {outcome.transactions}, longest turn "
        f"{outcome.longest_turn_cpu_ms:.0f} ms of CPU time, {outcome.machine}: {verdict}"
    )
    lines = [
        text,
        "",
        "| fault | times | all mirrored: median / worst |",
        "|---|---|---|",
    ]
    by_name: dict[str, list[float]] = {}
    for event in outcome.events:
        by_name.setdefault(event.name, []).append(event.mirrored)
    lines += [
        f"| {name} | {len(found)} | {statistics.median(found):.1f} s / {max(found):.1f} s |"
        for name, found in sorted(by_name.items())
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--kafka", action="store_true", help="Apache Kafka as the source")
    parser.add_argument("--rate", type=int, default=60, help="records/s of each producer")
    parser.add_argument("--fault", action="append", default=[], help="only these; repeated")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="data directories, on a problem")
    parser.add_argument("--result", type=Path, help="write JSON there, and a table beside it")
    given = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 30) if given.seed is None else given.seed
    options = LinkOptions(
        given.minutes * 60, seed, given.kafka, rate=given.rate, faults=tuple(given.fault)
    )
    # The end of the campaign also ends its processes.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    print(f"seed {options.seed}", flush=True)
    outcome = run_in_new_directory(run, options, given.keep)
    text = summary(outcome)
    print(f"\n{text}\n", flush=True)
    for error, count in outcome.errors.items():
        print(f"{count} x {error}", flush=True)
    if given.result is not None:
        given.result.write_text(json.dumps(asdict(outcome), indent=1) + "\n")
        given.result.with_suffix(".md").write_text(f"{text}\n")
    sys.exit(bool(outcome.problems))


if __name__ == "__main__":
    main()
