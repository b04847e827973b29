"""`make fuzz`: minutes of hostile requests against a real broker, with a polite client beside them.

The broker must live, its memory stay bounded, its log tell of no unexpected error, the polite
client see every record once and in order, and every API be answered at the end.

    python -m fuzz.campaign --seconds 600 --frames 1000000 --seed 7
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.testing.broker_process import BrokerProcess
from fuzz.attacker import Attacker
from loop_turns import LoopTurns, long_turns_in, loop_turns

ROOT = Path(__file__).resolve().parents[2]
# What a broker with all the pools' topics, groups and producers may hold, and one batch that
# decompresses to the limit of 128 MiB.
MEMORY_MB_MAX = 400
# CPU time that one turn of the loop may take. Reading a hostile batch at once took minutes.
TURN_CPU_MS_MAX = 250.0
# Kafka's own default, 10 minutes, would leave the polite client's group to itself meanwhile.
SETTINGS = {"group.initial.rebalance.delay.ms": "100", "metrics.listener": "127.0.0.1:0"}
# Topics of the pool whose records the broker has to look into.
TOPIC_CONFIGS = {
    "fuzz-0": {"cleanup.policy": "compact"},
    "fuzz-1": {"message.timestamp.type": "LogAppendTime"},
    "fuzz-2": {"compression.type": "gzip"},
    "fuzz-3": {"compression.type": "zstd", "cleanup.policy": "compact"},
    "fuzz-4": {"message.timestamp.before.max.ms": "3600000"},
}
# What the log must not have: an error that nobody expected.
UNEXPECTED = ("Traceback", "AssertionError", "never retrieved")
# A limit for what hangs.
POLITE_SECONDS = 240


@dataclass
class Outcome:
    """What a campaign saw; `problems` is empty when the broker stood it."""

    seed: int
    commit: str
    seconds: float
    frames: int
    damaged: int
    connections: int
    megabytes_sent: float
    memory_mb_before: float
    memory_mb_most: float
    longest_turn_ms: float
    longest_turn_cpu_ms: float
    # Log lines of the broker: which request or callback held the loop over 100 ms.
    long_turns: list[str]
    polite: dict[str, Any]
    problems: list[str]


def run(seconds: float, frames: int | None, seed: int, directory: Path | None = None) -> Outcome:
    """Attack a broker of its own."""
    with BrokerProcess(directory, SETTINGS) as broker:
        process = psutil.Process(broker.pid)
        _make_topics(broker.bootstrap)
        before = process.memory_info().rss / 1e6
        polite = _start_polite(broker.bootstrap)
        started = time.monotonic()
        attacker = Attacker(broker.bootstrap, seed)
        most = before
        problems: list[str] = []
        until = started + seconds
        try:
            while (left := until - time.monotonic()) > 0 and not _is_enough(attacker, frames):
                attacker.run(min(left, 2.0), frames)
                most = max(most, process.memory_info().rss / 1e6)
        except (OSError, psutil.Error) as error:
            problems.append(f"the broker is gone: {error}")
        elapsed = time.monotonic() - started
        seen = _finish_polite(polite, problems)
        turns = loop_turns(broker.metrics_address) if broker.is_running else LoopTurns(0, 0, 0, 0)
        if not broker.is_running:
            problems.append("the broker's process has ended")
        if most > MEMORY_MB_MAX:
            problems.append(f"memory grew to {most:.0f} MB, over {MEMORY_MB_MAX} MB")
        if turns.longest_cpu_ms > TURN_CPU_MS_MAX:
            problems.append(f"a turn of the loop took {turns.longest_cpu_ms:.0f} ms of CPU time")
        problems += _unexpected(broker.log())
        tally = attacker.tally
        return Outcome(
            seed=seed,
            commit=_commit(),
            seconds=round(elapsed, 1),
            frames=tally.frames,
            damaged=tally.damaged,
            connections=tally.connections,
            megabytes_sent=round(tally.bytes_sent / 1e6, 1),
            memory_mb_before=round(before, 1),
            memory_mb_most=round(most, 1),
            longest_turn_ms=round(turns.longest_ms, 1),
            longest_turn_cpu_ms=round(turns.longest_cpu_ms, 1),
            long_turns=long_turns_in(broker.log()),
            polite=seen,
            problems=problems,
        )


def _make_topics(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [NewTopic(name, 1, 1, config=config) for name, config in TOPIC_CONFIGS.items()]
    for made in admin.create_topics(topics).values():
        made.result(POLITE_SECONDS)


def _is_enough(attacker: Attacker, frames: int | None) -> bool:
    return frames is not None and attacker.tally.frames >= frames


def _start_polite(bootstrap: str) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "tests"), *sys.path])}
    process = subprocess.Popen(
        [sys.executable, "-m", "fuzz.polite", bootstrap, "polite"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n", "the polite client did not start"
    return process


def _finish_polite(process: subprocess.Popen[str], problems: list[str]) -> dict[str, Any]:
    try:
        output, _ = process.communicate("", timeout=POLITE_SECONDS)
        seen: dict[str, Any] = json.loads(output)
    except (subprocess.TimeoutExpired, ValueError) as error:
        process.kill()
        process.wait()
        problems.append(f"the polite client did not come to its end: {error}")
        return {}
    if seen["errors"] or not (seen["read_in_order"] and seen["acknowledged_in_order"]):
        problems.append(f"the polite client was disturbed: {seen}")
    return seen


def _unexpected(log: str) -> list[str]:
    lines = log.splitlines()
    return [
        "the log has an unexpected error: " + " | ".join(lines[index : index + 25])
        for index, line in enumerate(lines)
        if any(sign in line for sign in UNEXPECTED)
    ][:5]


def _commit() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stdout.strip() or "unknown"


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--frames", type=int, help="end when so many were sent")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    outcome = run(options.seconds, options.frames, options.seed)
    print(json.dumps(asdict(outcome), indent=1))
    sys.exit(1 if outcome.problems else 0)


if __name__ == "__main__":
    main()
