"""`make fuzz`: hostile requests to a real broker, with a well-behaved client at the same time.

The broker must survive, with bounded memory and bounded turns of its event loop, and without
unexpected errors in its log. The well-behaved client must get every record once and in order. Every
two minutes, and at the end, the broker is killed and must start with the files that exist then. At
the end, a reader must get each good record between batches with false records or times.

    python -m fuzz.campaign --seconds 600 --frames 1000000 --seed 7
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.testing.broker_process import BrokerProcess, BrokerStartError
from fuzz import endless_waits
from fuzz.attacker import Attacker
from fuzz.conversions import CONVERTED, PARTITIONS, TOPIC_CONFIG, conversion_requests
from fuzz.costly_inputs import CostlyInputs
from fuzz.false_batches import TOPIC, FalseBatches
from fuzz.large_requests import large_requests, send
from loop_turns import LoopTurns, long_turns_in, loop_turns

ROOT = Path(__file__).resolve().parents[2]
# Memory limit of a broker with all topics, groups and producers of the pools, and with one batch
# that decompresses to the limit of 128 MiB.
MEMORY_MB_MAX = 400
# CPU time that one turn of the loop may take. Reading a hostile batch at once took minutes.
TURN_CPU_MS_MAX = 100.0
# Seconds between two kills of the broker, and probability of a very large request in each turn.
RESTART_S = 120.0
LARGE_SHARE = 0.25
# Probability of clients that leave while their requests wait, in each turn, and their number.
LEAVING_SHARE = 0.1
LEAVING = 50
# Short rebalance delay, so that the well-behaved client's group is stable soon.
# All features that are off by default are on.
SETTINGS = {
    "group.initial.rebalance.delay.ms": "100",
    "metrics.listener": "127.0.0.1:0",
    "barnabas.client.telemetry": "log",
    "unstable.api.versions.enable": "true",
    "transaction.two.phase.commit.enable": "true",
    "errors.deadletterqueue.auto.create.topics.enable": "true",
    "delegation.token.secret.key": "secret",
    "remote.log.storage.system.enable": "true",
    "follower.fetch.last.tiered.offset.enable": "true",
    "remote.log.manager.task.interval.ms": "1000",
}
# Topics of the pool whose records the broker has to decode.
TOPIC_CONFIGS = {
    "fuzz-0": {"cleanup.policy": "compact"},
    "fuzz-1": {"message.timestamp.type": "LogAppendTime"},
    "fuzz-2": {
        "compression.type": "gzip",
        "remote.storage.enable": "true",
        "internal.segment.bytes": "10000",
        "local.retention.bytes": "1",
    },
    "fuzz-3": {"compression.type": "zstd", "cleanup.policy": "compact"},
    "fuzz-4": {"message.timestamp.before.max.ms": "3600000"},
    # The topic of the very large requests.
    "t": {},
}
# Lines that the log must not have: unexpected errors.
UNEXPECTED = ("Traceback", "AssertionError", "never retrieved")
# Time limit for the end of the well-behaved client.
POLITE_SECONDS = 240


class AttackedBroker(BrokerProcess):
    """A broker without standard input: its first file or socket could get the descriptor 0."""

    def __init__(self, directory: Path | None) -> None:
        super().__init__(directory, SETTINGS)
        self.settings["barnabas.remote.storage"] = f"file://{self.directory.resolve()}/tier"

    def _command(self) -> list[str]:
        return ["sh", "-c", 'exec "$@" <&-', "sh", *super()._command()]


@dataclass
class Outcome:
    """Observations of a campaign. `problems` is empty after a success."""

    seed: int
    commit: str
    seconds: float
    frames: int
    damaged: int
    # Requests of about 500 KB, or floods of small ones.
    large_requests: int
    # Requests with random expressions, metrics and old message sets.
    costly_inputs: int
    connections: int
    # Number of kills and restarts of the broker.
    restarts: int
    megabytes_sent: float
    memory_mb_before: float
    memory_mb_most: float
    longest_turn_ms: float
    longest_turn_cpu_ms: float
    # Log lines of the broker about requests and callbacks that blocked the loop for over 100 ms.
    long_turns: list[str]
    polite: dict[str, Any]
    problems: list[str]


class Watched:
    """A broker under attack: its memory and the turns of its event loop, over all restarts."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker
        self.memory_mb = self._memory_mb()
        self.memory_mb_most = self.memory_mb
        self.turns = LoopTurns(0, 0, 0.0, 0.0)
        self.restarts = 0

    def look(self) -> None:
        """Measure the memory of the broker."""
        self.memory_mb_most = max(self.memory_mb_most, self._memory_mb())

    def sample_turns(self) -> None:
        """Add the turns of the current process."""
        if self.broker.is_running:
            now = loop_turns(self.broker.metrics_address)
            self.turns = LoopTurns(
                self.turns.long_turns + now.long_turns,
                self.turns.long_cpu_turns + now.long_cpu_turns,
                max(self.turns.longest_ms, now.longest_ms),
                max(self.turns.longest_cpu_ms, now.longest_cpu_ms),
            )

    def restart(self) -> None:
        """Kill the broker by SIGKILL, and restart it with its files.

        Raises:
            BrokerStartError: the broker does not start.
        """
        self.sample_turns()
        self.broker.kill()
        self.broker.start()
        self.restarts += 1

    def problems(self) -> list[str]:
        """Return the problems at the end of the campaign."""
        found = []
        if not self.broker.is_running:
            found.append("the broker's process has ended")
        if self.memory_mb_most > MEMORY_MB_MAX:
            found.append(f"memory grew to {self.memory_mb_most:.0f} MB, over {MEMORY_MB_MAX} MB")
        if self.turns.longest_cpu_ms > TURN_CPU_MS_MAX:
            found.append(f"a turn of the loop took {self.turns.longest_cpu_ms:.0f} ms of CPU time")
        return found + unexpected(self.broker.log())

    def _memory_mb(self) -> float:
        return float(psutil.Process(self.broker.pid).memory_info().rss / 1e6)


def run(
    seconds: float,
    frames: int | None,
    seed: int,
    directory: Path | None = None,
    restart_s: float = RESTART_S,
) -> Outcome:
    """Attack a new broker.

    Args:
        seconds: duration.
        frames: end after this number of frames.
        seed: seed of all random choices.
        directory: directory of the broker; None: a temporary directory.
        restart_s: seconds between two kills of the broker.
    """
    with AttackedBroker(directory) as broker:
        _make_topics(broker.bootstrap)
        watched = Watched(broker)
        polite = start_polite(broker.bootstrap)
        started = time.monotonic()
        attacker = Attacker(broker.bootstrap, seed)
        large, leaving = LargeRequests(random.Random(seed)), random.Random(seed + 1)
        costly = CostlyInputs(random.Random(seed))
        false_batches = FalseBatches(random.Random(seed))
        problems: list[str] = []
        restart_at = started + restart_s
        try:
            while (left := started + seconds - time.monotonic()) > 0 and not _is_enough(
                attacker, frames
            ):
                attacker.run(min(left, 2.0), frames)
                for others in (large, costly, false_batches):
                    others.send(broker.bootstrap)
                if leaving.random() < LEAVING_SHARE:
                    endless_waits.leave(broker.bootstrap, LEAVING)
                watched.look()
                if time.monotonic() >= restart_at:
                    watched.restart()
                    restart_at = time.monotonic() + restart_s
            # All conversions that the attack caused must have ended, so that this one ends too.
            large.send_conversions(broker.bootstrap)
            # Files that clients have caused must not prevent a start of the broker.
            watched.restart()
            problems += false_batches.unread(broker.bootstrap)
        except (OSError, psutil.Error, BrokerStartError) as error:
            problems.append(f"the broker is gone: {error}")
        elapsed = time.monotonic() - started
        seen = finish_polite(polite, problems)
        watched.sample_turns()
        tally = attacker.tally
        return Outcome(
            seed=seed,
            commit=_commit(),
            seconds=round(elapsed, 1),
            frames=tally.frames,
            damaged=tally.damaged,
            large_requests=large.sent,
            costly_inputs=costly.sent,
            connections=tally.connections,
            restarts=watched.restarts,
            megabytes_sent=round(tally.bytes_sent / 1e6, 1),
            memory_mb_before=round(watched.memory_mb, 1),
            memory_mb_most=round(watched.memory_mb_most, 1),
            longest_turn_ms=round(watched.turns.longest_ms, 1),
            longest_turn_cpu_ms=round(watched.turns.longest_cpu_ms, 1),
            long_turns=long_turns_in(broker.log()),
            polite=seen,
            problems=problems + watched.problems(),
        )


class LargeRequests:
    """Sends very large requests at random, and reads their responses."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._conversions = list(conversion_requests().values())
        self._requests = [*large_requests().values(), *self._conversions]
        self.sent = 0

    def send(self, bootstrap: str) -> None:
        """Send a request with some probability.

        Raises:
            OSError: the broker does not accept the request or does not respond.
        """
        if self._rng.random() < LARGE_SHARE:
            send(bootstrap, self._rng.choice(self._requests))
            self.sent += 1

    def send_conversions(self, bootstrap: str) -> None:
        """Send each request whose records are converted.

        Raises:
            OSError: a conversion does not end.
        """
        for request in self._conversions:
            send(bootstrap, request)


def _make_topics(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [NewTopic(name, 1, 1, config=config) for name, config in TOPIC_CONFIGS.items()]
    topics.append(NewTopic(CONVERTED, PARTITIONS, 1, config=TOPIC_CONFIG))
    topics.append(NewTopic(TOPIC, 1, 1))
    for made in admin.create_topics(topics).values():
        made.result(POLITE_SECONDS)


def _is_enough(attacker: Attacker, frames: int | None) -> bool:
    return frames is not None and attacker.tally.frames >= frames


def start_polite(bootstrap: str, keys: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    """Start the well-behaved client, with additional keys of librdkafka."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "tests"), *sys.path])}
    process = subprocess.Popen(
        [sys.executable, "-m", "fuzz.polite", bootstrap, "polite", json.dumps(dict(keys or {}))],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n", "the polite client did not start"
    return process


def finish_polite(process: subprocess.Popen[str], problems: list[str]) -> dict[str, Any]:
    """Stop the client, add its errors to the problems, and return its observations."""
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


def unexpected(log: str) -> list[str]:
    """Return the unexpected errors in a broker's log."""
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
    """Run a campaign from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--frames", type=int, help="end after this number of frames")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--restart-seconds", type=float, default=RESTART_S)
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    outcome = run(options.seconds, options.frames, options.seed, restart_s=options.restart_seconds)
    print(json.dumps(asdict(outcome), indent=1))
    sys.exit(1 if outcome.problems else 0)


if __name__ == "__main__":
    main()
