"""Rebalance storm: members join, die, close and pause at random, while records are written.

The seed chooses what happens; what it meets differs from run to run. At the end everybody who
stands still goes on, and the group has to get through all that was written.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import barnabas
from barnabas.client.errors import ClientError
from barnabas.client.facade import Client
from barnabas.client.topic_partition import TopicPartition
from storms.checker import Verdict, check
from storms.history import Event, read_diaries
from storms.member import MemberOptions
from storms.nursery import Nursery, is_alive

PARTITIONS = 12
MEMBERS_MAX = 10
RECORDS_PER_ROUND = 60
# Longer than any session of a member, so that some who stood still are members no more.
PAUSE_S_MAX = 2.5
DRAIN_S_MAX = 90.0
CLOSE_S_MAX = 90.0
# A storm that goes wrong in so many ways is over.
PROBLEMS_MAX = 10
# How often each thing happens while it can.
CHANCES = {"join": 5, "kill": 2, "close": 2, "pause": 3}


@dataclass(frozen=True)
class StormOptions:
    """The options of a storm."""

    bootstrap: str
    protocol: str
    assignor: str
    rounds: int
    seed: int
    # Seconds between two events, on average.
    pace_s: float = 0.35

    @property
    def name(self) -> str:
        """Of topic and group."""
        return f"storm-{self.protocol}-{self.assignor}-{self.seed}"


@dataclass
class Outcome:
    """The result of a storm."""

    options: StormOptions
    verdict: Verdict
    records: int
    events: Counter[str]
    members: int
    seconds: float
    # From the last event to the last record's commit.
    drained_s: float
    problems: list[str] = field(default_factory=list)


@dataclass
class _Life:
    """The state of a member in the storm."""

    name: str
    pid: int
    # When it goes on, 0 while it does.
    paused_until: float = 0.0
    closing_since: float = 0.0


class Storm:
    """Does one; see `run_storm`."""

    def __init__(self, options: StormOptions, directory: Path, client: Client) -> None:
        self._options = options
        self._directory = directory
        self._client = client
        self._rng = random.Random(options.seed)
        self._lives: list[_Life] = []
        self._born = 0
        self._events: Counter[str] = Counter()
        self._problems: list[str] = []
        self._ends = dict.fromkeys(range(PARTITIONS), 0)
        self._seen: dict[int, list[int]] = {partition: [] for partition in range(PARTITIONS)}

    def run(self) -> Outcome:
        """All rounds, then calm until everything is processed and committed."""
        started = time.monotonic()
        options = self._options
        self._client.create_topic(options.name, partitions=PARTITIONS, replication_factor=1)
        with Nursery(self._directory) as nursery, self._client.producer() as producer:
            for _ in range(3):
                self._join(nursery)
            self._await_group()
            for _ in range(options.rounds):
                if len(self._problems) >= PROBLEMS_MAX:
                    break
                for _ in range(RECORDS_PER_ROUND):
                    partition = self._rng.randrange(PARTITIONS)
                    producer.send(options.name, b"x" * 100, partition=partition)
                    self._ends[partition] += 1
                producer.flush()
                self._look()
                self._happen(nursery)
                self._rest(self._rng.uniform(0.3, 1.7) * options.pace_s)
            calm = time.monotonic()
            self._calm_down(nursery)
            self._drain()
            drained = time.monotonic() - calm
            self._close_all()
        events = read_diaries(self._directory)
        self._note_failures(events)
        verdict = check(events, self._ends, self._seen)
        return Outcome(
            options,
            verdict,
            sum(self._ends.values()),
            self._events,
            self._born,
            time.monotonic() - started,
            drained,
            self._problems + verdict.problems,
        )

    def _await_group(self) -> None:
        """Let the first members have their partitions before anything happens to them."""
        end = time.monotonic() + DRAIN_S_MAX
        while time.monotonic() < end:
            if any(event.kind == "assigned" for event in read_diaries(self._directory)):
                return
            time.sleep(0.05)
        self._problems.append(f"nobody was assigned anything in {DRAIN_S_MAX:.0f} s")

    # What happens

    def _happen(self, nursery: Nursery) -> None:
        going = [life for life in self._lives if not life.paused_until and not life.closing_since]
        possible = dict(CHANCES)
        if len(self._lives) >= MEMBERS_MAX:
            del possible["join"]
        if len(going) < 2:
            possible = {"join": 1} if "join" in possible else {}
        if not possible:
            return
        name = self._rng.choices(list(possible), list(possible.values()))[0]
        self._events[name] += 1
        if name == "join":
            self._join(nursery)
            return
        life = self._rng.choice(going)
        match name:
            case "kill":
                _send(life, signal.SIGKILL)
                self._lives.remove(life)
            case "close":
                _send(life, signal.SIGTERM)
                life.closing_since = time.monotonic()
            case "pause":
                _send(life, signal.SIGSTOP)
                life.paused_until = time.monotonic() + self._rng.uniform(0.1, PAUSE_S_MAX)

    def _join(self, nursery: Nursery) -> None:
        options = self._options
        self._born += 1
        name = f"m{self._born:03}"
        member = MemberOptions(
            name=name,
            bootstrap=options.bootstrap,
            group=options.name,
            topic=options.name,
            directory=self._directory,
            protocol=options.protocol,
            assignor=options.assignor,
            auto_commit=self._born % 3 == 0,
            seed=self._rng.randrange(1 << 30),
        )
        self._lives.append(_Life(name, nursery.fork_member(member)))

    def _rest(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._look()
            time.sleep(0.05)

    def _look(self) -> None:
        """Resume paused members after their time, remove closed members, and read committed
        offsets.
        """
        now = time.monotonic()
        for life in list(self._lives):
            if life.paused_until and now >= life.paused_until:
                _send(life, signal.SIGCONT)
                life.paused_until = 0.0
            if not is_alive(life.pid):
                self._lives.remove(life)
                if not life.closing_since:
                    self._problems.append(f"{life.name} ended by itself")
            elif life.closing_since and now - life.closing_since > CLOSE_S_MAX:
                self._problems.append(f"{life.name} did not close in {CLOSE_S_MAX:.0f} s")
                _send(life, signal.SIGKILL)
                self._lives.remove(life)
        self._see_committed()

    def _see_committed(self) -> None:
        try:
            found = self._client.committed(self._options.name)
        except ClientError:
            # The coordinator is being loaded, or does not know the group.
            return
        for partition, seen in self._seen.items():
            committed = found.get(TopicPartition(self._options.name, partition))
            if committed is not None and (not seen or seen[-1] != committed.offset):
                seen.append(committed.offset)

    # The end

    def _calm_down(self, nursery: Nursery) -> None:
        for life in self._lives:
            life.paused_until = min(life.paused_until, 1e-9)
        self._look()
        if not any(not life.closing_since for life in self._lives):
            self._join(nursery)

    def _drain(self) -> None:
        """Wait until the group has committed all that was written."""
        end = time.monotonic() + DRAIN_S_MAX
        while time.monotonic() < end and len(self._problems) < PROBLEMS_MAX:
            self._look()
            ends = self._ends.items()
            if all(not end or self._seen[partition][-1:] == [end] for partition, end in ends):
                return
            time.sleep(0.05)
        self._problems.append(f"stuck: not drained in {DRAIN_S_MAX:.0f} s")

    def _close_all(self) -> None:
        for life in self._lives:
            if not life.closing_since:
                _send(life, signal.SIGTERM)
                life.closing_since = time.monotonic()
        end = time.monotonic() + CLOSE_S_MAX + 1
        while self._lives and time.monotonic() < end:
            self._look()
            time.sleep(0.05)

    def _note_failures(self, events: list[Event]) -> None:
        for event in events:
            if event.kind == "failed":
                self._problems.append(f"{event.member} failed: {event.words}")


def _send(life: _Life, number: signal.Signals) -> None:
    """A member that ended by itself is found by the next look."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(life.pid, number)


def run_storm(options: StormOptions, directory: Path) -> Outcome:
    """Do a storm and judge it; `directory` is for the diaries and must be empty."""
    directory.mkdir(parents=True, exist_ok=True)
    with barnabas.Client(options.bootstrap) as client:
        return Storm(options, directory, client).run()
