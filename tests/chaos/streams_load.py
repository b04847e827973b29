"""Additional load: members of a streams group (KIP-1071), by raw heartbeats and commits.

They join, leave, and stay silent for longer than their session. Afterwards they commit with their
old epochs, which the coordinator must refuse. There are two processes with two members each, one of
them static, and tasks with state have a standby task.
"""

from __future__ import annotations

import random
import threading
import time
from typing import Any

import barnabas
from barnabas.client.admin.configs import ConfigResource, ResourceType
from barnabas.protocol.schema import Message
from chaos.cluster_view import ClusterView, NoAnswerError
from chaos.groups.streams_actor import StreamsActor, settle
from chaos.groups.streams_checker import check_streams_group
from chaos.groups.streams_history import StreamsHistory, StreamsIdentity
from chaos.groups.streams_topology import GROUP, GROUP_CONFIGS, StreamsTopology
from chaos.load import LoadOptions, Worker
from chaos.verdict import Verdict
from waiting import PATIENCE_S

STREAMS_GROUP = GROUP
MEMBERS = 4
REPARTITION_PARTITIONS = 3
SESSION_S = 3.0
SESSION_MS = str(round(SESSION_S * 1000))
# Of the brokers.
SETTINGS = {
    "group.streams.session.timeout.ms": SESSION_MS,
    "group.streams.min.session.timeout.ms": SESSION_MS,
    "group.streams.heartbeat.interval.ms": "500",
    "group.streams.min.heartbeat.interval.ms": "500",
    "group.streams.assignment.interval.ms": "0",
    "group.streams.initial.rebalance.delay.ms": "0",
}
HEARTBEAT_S = 0.2
# Probabilities of the actions at each heartbeat.
LEAVE, STAY_SILENT = 0.02, 0.02


class _Member(Worker):
    """A member in a thread. When it leaves, a new one takes its place."""

    def __init__(self, number: int, load: StreamsLoad) -> None:
        super().__init__(f"streams member {number}")
        self._number = number
        self._load = load
        self._rng = random.Random(f"streams {number}")
        self._generation = 0
        # None if the coordinator is unknown.
        self._coordinator: int | None = None
        self.actor = self._new_actor()

    def _new_actor(self) -> StreamsActor:
        self._generation += 1
        name = f"streams-{self._number}"
        identity = StreamsIdentity(
            f"{name}-{self._generation}",
            f"process-{self._number % 2}",
            name if self._number < MEMBERS / 2 else None,
        )
        return StreamsActor(identity, self._ask, time.monotonic, self._load.history)

    def _ask(self, message: Message, version: int) -> Any:
        """Send a request to the coordinator. Return None if there is no response."""
        view = self._load.view
        try:
            if self._coordinator is None:
                self._coordinator = view.coordinator(GROUP)
            response = view.ask(self._coordinator, message, version)
        except (OSError, NoAnswerError):
            self._coordinator = None
            return None
        if getattr(response, "error_code", 0):
            self._coordinator = None
        return response

    def _run(self) -> None:
        while not self._stopping.wait(HEARTBEAT_S):
            chance = 1.0 if self._load.is_calm.is_set() else self._rng.random()
            if chance < LEAVE:
                self.actor.leave()
                self.actor.commit_lost()
                self.actor = self._new_actor()
            elif chance < LEAVE + STAY_SILENT:
                self._stopping.wait(1.5 * SESSION_S)
                # It does not know yet that it has lost its tasks.
                self.actor.commit()
            self.actor.heartbeat()
            self._rng.choice((self.actor.commit, self.actor.commit_lost))()


class StreamsLoad:
    """The members of the streams group, whose source is the topic of the load."""

    def __init__(self, view: ClusterView, bootstrap: str, options: LoadOptions) -> None:
        self.view = view
        self._bootstrap = bootstrap
        self.options = options
        topology = StreamsTopology(options.topic, options.partitions, REPARTITION_PARTITIONS)
        self.history = StreamsHistory(topology)
        # Set at the end: then no member leaves or stays silent.
        self.is_calm = threading.Event()
        self._members = [_Member(number, self) for number in range(MEMBERS)]

    def configure(self) -> None:
        """Set the configs of the group."""
        with barnabas.Client(self._bootstrap, **self.options.keys) as client:
            client.admin.alter_configs(ConfigResource(ResourceType.GROUP, GROUP), GROUP_CONFIGS)

    @property
    def workers(self) -> list[Worker]:
        """All members."""
        return [*self._members]

    @property
    def commits(self) -> int:
        """How many commits were accepted."""
        return sum(not each.error_code for each in self.history.commits)

    def finish(self) -> Verdict:
        """Wait until all tasks are assigned, stop the members, and judge."""
        self.is_calm.set()
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            if settle([each.actor for each in self._members], self.history):
                break
            time.sleep(HEARTBEAT_S)
        for member in self._members:
            member.stop()
        for member in self._members:
            member.join()
        return check_streams_group(self.history)
