"""`make soak`: a steady mixed load without faults, and what it leaves behind.

python -m chaos.soak --minutes 30 --seed 7 --result soak.json

Three nodes have the load of the chaos campaign: producers, groups of all protocols, transactions,
and the side loads (`chaos/side`). At the end the checkers of the campaign judge what clients saw.
No node may have logged an error or found damage in its files. The resident memory of the nodes must
not rise without end, nor the numbers of their descriptors and threads.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import signal
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from chaos.campaign import SIDE_LOADS, Options, run_in_new_directory, stressed
from chaos.chaos_node import ChaosNode
from chaos.judgment import judge, long_turns, unexpected_errors, watched_clients
from chaos.outcome import Outcome, commit_id, describe_machine, summary
from chaos.resources import ResourceSampler, slope_max
from chaos.stress import Stress
from chaos.transactional_load import TransactionalOptions

SAMPLES = 200
# Lines of a log that report an error.
ERROR_LINE = re.compile(r"^\S+ \S+ ERROR .*$", re.MULTILINE)
# Kafka's default: what a node keeps of a growing segment shows as rising memory.
SEGMENT_BYTES = 1 << 30
# The least time in which a slope of the memory is one: before, caches are filled.
SLOPE_S_MIN = 20 * 60
# Of all nodes. Indexes of growing segments are trimmed with each check of the retention.
SETTINGS = (("log.retention.check.interval.ms", "10000"),)


def run(options: Options, directory: Path, report: Any = print) -> Outcome:
    """Run the load for the time of the options on a cluster of its own, and judge."""
    outcome = Outcome(
        options=asdict(options),
        commit=commit_id(),
        machine=describe_machine(),
        server="Barnabas, soak",
    )
    with watched_clients() as dropped, stressed(options, directory) as stress:
        started = time.monotonic()
        sampler = ResourceSampler({n: node.pid for n, node in stress.cluster.nodes.items()})
        try:
            while time.monotonic() - started < options.seconds:
                time.sleep(options.seconds / SAMPLES)
                stress.check_alive()
                sampler.take()
                report(f"{time.monotonic() - started:7.1f} s  {stress.load.records()} records")
        except AssertionError as error:
            outcome.problems.append(str(error))
        outcome.seconds = time.monotonic() - started
        outcome.resources = sampler.use()
        limit = float("inf")
        if outcome.seconds >= SLOPE_S_MIN:
            limit = slope_max(stress.leftovers(), outcome.seconds, options.brokers)
        outcome.errors = dict(stress.load.errors.counts.most_common())
        if not outcome.problems:
            outcome.problems += storage_damage(stress)
            stress.sample_turns()
            judge(stress, outcome)
        outcome.longest_turn_cpu_ms = stress.longest_turn_cpu_ms
        outcome.long_turns = long_turns(stress.cluster)
        outcome.problems += unexpected_errors(stress.cluster) + error_lines(stress) + dropped()
    for number, use in outcome.resources.items():
        outcome.problems += [f"node {number}: {told}" for told in use.problems(limit)]
    return outcome


def storage_damage(stress: Stress) -> list[str]:
    """Return the nodes that have found damage in their files: nothing has damaged them."""
    return [
        f"node {number} has found damage {node.storage_damage()} times"
        for number, node in stress.cluster.nodes.items()
        if isinstance(node, ChaosNode) and node.storage_damage()
    ]


def error_lines(stress: Stress) -> list[str]:
    """Return the errors in the logs of the nodes."""
    return [
        f"log of node {number}: {line}"
        for number, node in stress.cluster.nodes.items()
        for line in ERROR_LINE.findall(node.log())[:10]
    ]


def resource_table(outcome: Outcome) -> str:
    """Return the table of the nodes' resources, for docs/lab/steady-load.md."""
    lines = [
        "| node | resident memory after a third, at the end | slope | descriptors | threads |",
        "|---|---|---|---|---|",
    ]
    for number, use in outcome.resources.items():
        lines.append(
            f"| {number} | {use.first_kib / 1024:.1f} MiB, {use.last_kib / 1024:.1f} MiB | "
            f"{use.kib_per_minute:.1f} KiB a minute | {use.descriptors[0]}, {use.descriptors[1]} | "
            f"{use.threads[0]}, {use.threads[1]} |"
        )
    return "\n".join(lines)


def soak_options(seconds: float, seed: int, rate: int) -> Options:
    """Return the options of a soak: all loads, no faults."""
    return Options(
        seconds,
        seed,
        rate=rate,
        relays=False,
        settings=SETTINGS,
        has_groups=True,
        transactional=TransactionalOptions(has_faults=False),
        segment_bytes=SEGMENT_BYTES,
        sides=tuple(SIDE_LOADS),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--rate", type=int, default=150, help="records/s of each producer")
    parser.add_argument("--side", action="append", default=[], help="only these side loads")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="data directories, on a problem")
    parser.add_argument("--result", type=Path, help="write JSON there, and a table beside it")
    given = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 30) if given.seed is None else given.seed
    options = soak_options(given.minutes * 60, seed, given.rate)
    settings = (*SETTINGS, *(tuple(each.split("=", 1)) for each in given.set))
    options = replace(options, settings=settings, sides=tuple(given.side) or options.sides)
    # The end of the campaign also ends its processes.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    print(f"seed {options.seed}", flush=True)
    outcome = run_in_new_directory(run, options, given.keep)
    text = f"{summary(outcome)}\n\n{resource_table(outcome)}\n"
    print(f"\n{text}", flush=True)
    for error, count in (outcome.errors | outcome.transactional_errors).items():
        print(f"{count} x {error}", flush=True)
    if given.result is not None:
        given.result.write_text(json.dumps(asdict(outcome), indent=1) + "\n")
        given.result.with_suffix(".md").write_text(text)
    sys.exit(bool(outcome.problems))


if __name__ == "__main__":
    main()
