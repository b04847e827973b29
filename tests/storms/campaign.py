"""`make storms`: rebalance storms over every assignor and protocol, with a verdict on each.

    python -m storms.campaign --rounds 200 --seed 7 --result FILE.json

Prints the table for docs/lab/rebalance-storms.md. Groups of both protocols, classic and consumer
(KIP-848), live on Barnabas and on Apache Kafka.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from barnabas.client.group.group_leader import BUILT_IN
from barnabas.testing.broker_process import BrokerProcess
from jvm.kafka_process import KafkaProcess
from storms.storm import Outcome, StormOptions, run_storm

CLASSIC = tuple(BUILT_IN)
MODERN = ("uniform", "range")
# A limit for what hangs.
START_S_MAX = 300.0
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "offsets.topic.num.partitions": "3",
    "auto.create.topics.enable": "false",
    # The consumer protocol's counterpart to what classic members choose.
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.session.timeout.ms": "1500",
    "group.consumer.min.session.timeout.ms": "1000",
}


@contextmanager
def started(kind: str, directory: Path) -> Iterator[str]:
    """HOST:PORT of a fresh broker, "barnabas" or "kafka"."""
    process: BrokerProcess | KafkaProcess
    if kind == "kafka":
        process = KafkaProcess(directory, SETTINGS)
    else:
        process = BrokerProcess(directory, SETTINGS)
    try:
        yield process.start(START_S_MAX).bootstrap
    finally:
        process.close()


def table(outcomes: list[tuple[str, Outcome]]) -> str:
    """Return the table for docs/lab/rebalance-storms.md."""
    head = "| broker | protocol | assignor | rounds | joined / killed / closed / paused |"
    head += " records | generations | processed again | commits refused | drained |"
    lines = [head + " problems |", "|" + "---|" * 11]
    for kind, outcome in outcomes:
        options, verdict, events = outcome.options, outcome.verdict, outcome.events
        happened = " / ".join(
            str(number)
            for number in (outcome.members, events["kill"], events["close"], events["pause"])
        )
        cells = (
            kind, options.protocol, options.assignor, options.rounds, happened, outcome.records,
            verdict.generations, verdict.again, f"{verdict.refused} of {verdict.commits}",
            f"{outcome.drained_s:.1f} s", len(outcome.problems),
        )  # fmt: skip
        lines.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    return "\n".join(lines)


def plans_of(
    assignors: list[str] | None, remote_assignors: list[str] | None
) -> list[tuple[str, str]]:
    """Return pairs of protocol and assignor: the chosen ones, or all if none is chosen."""
    if assignors is None and remote_assignors is None:
        assignors, remote_assignors = list(CLASSIC), list(MODERN)
    chosen = [("classic", assignor) for assignor in assignors or ()]
    return chosen + [("consumer", assignor) for assignor in remote_assignors or ()]


def main() -> int:
    parser = argparse.ArgumentParser(prog="storms.campaign")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--broker", choices=("barnabas", "kafka"), action="append")
    parser.add_argument("--assignor", action="append", help="of the classic protocol")
    parser.add_argument("--remote-assignor", action="append", help="of the consumer protocol")
    parser.add_argument("--result", type=Path)
    given = parser.parse_args()
    outcomes: list[tuple[str, Outcome]] = []
    with tempfile.TemporaryDirectory(prefix="storms-") as name:
        for kind in given.broker or ["barnabas", "kafka"]:
            plans = plans_of(given.assignor, given.remote_assignor)
            with started(kind, Path(name) / kind) as bootstrap:
                for protocol, assignor in plans:
                    options = StormOptions(bootstrap, protocol, assignor, given.rounds, given.seed)
                    outcome = run_storm(options, Path(name) / f"{kind}-{options.name}")
                    outcomes.append((kind, outcome))
                    print(table([(kind, outcome)]).splitlines()[-1], flush=True)
                    for problem in outcome.problems:
                        print(f"  {problem}", flush=True)
    print(table(outcomes))
    if given.result is not None:
        told = [
            {"broker": kind} | asdict(outcome) | {"events": dict(outcome.events)}
            for kind, outcome in outcomes
        ]
        given.result.write_text(json.dumps(told, indent=1))
    return int(any(outcome.problems for _, outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
