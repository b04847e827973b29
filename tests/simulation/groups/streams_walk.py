"""Members of a streams group (KIP-1071) on three simulated brokers, under faults from a seed.

    python -m simulation.groups.streams_walk FIRST LAST [STYLE] [SECONDS]

runs these seeds, and prints the verdict of each. The styles are "members", without faults of the
cluster, and "mixed".
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from barnabas.protocol.messages.metadata import FindCoordinatorRequest
from chaos.groups.streams_actor import StreamsActor, settle
from chaos.groups.streams_checker import check_streams_group
from chaos.groups.streams_history import StreamsHistory, StreamsIdentity
from chaos.groups.streams_topology import GROUP, GROUP_CONFIGS, StreamsTopology
from simulation.cluster_faults import ClusterFaults
from simulation.cluster_world import ClusterWorld
from simulation.groups.walking import SECONDS, play_seeds

if TYPE_CHECKING:
    from barnabas.protocol.schema import Message
    from chaos.verdict import Verdict

TOPIC, OFFSETS = "input", "__consumer_offsets"
PARTITIONS = 5
TOPOLOGY = StreamsTopology(TOPIC, PARTITIONS, repartition_partitions=3)
# The first ones are static. Every second one belongs to the same process.
MEMBERS, STATIC_MEMBERS, PROCESSES = 4, 2, 2
SESSION_MS = 1_500
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "group.streams.heartbeat.interval.ms": "200",
    "group.streams.min.heartbeat.interval.ms": "200",
    "group.streams.session.timeout.ms": str(SESSION_MS),
    "group.streams.min.session.timeout.ms": str(SESSION_MS),
    "group.streams.assignment.interval.ms": "0",
    "group.streams.initial.rebalance.delay.ms": "0",
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "300",
    "min.insync.replicas": "2",
    "auto.create.topics.enable": "false",
}
# Time limit of one request, and of the assignment of all tasks after the last fault.
ANSWER_MS, CALM_MS = 2_000.0, 15_000.0
# Probabilities of the actions in each step.
LEAVE, PAUSE, KILL, FAULT = 0.02, 0.03, 0.01, 0.02


class StreamsWorld(ClusterWorld):
    """The cluster, and the history of the group."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, SETTINGS)
        self.history = StreamsHistory(TOPOLOGY)
        self.make_topic(TOPIC, PARTITIONS)
        self.configure_group(GROUP, GROUP_CONFIGS)
        # A search for the coordinator creates the offsets topic.
        self.cluster.ask(1, FindCoordinatorRequest(coordinator_keys=[GROUP]), 4)
        self.await_that(lambda: self.leader((OFFSETS, 0)) >= 0)
        self.await_full_isr()

    def coordinator(self) -> int:
        """Return the coordinator of the group; without one, any running node."""
        found = self.leader((OFFSETS, 0))
        return found if found in self.cluster.ready else self.rng.choice(sorted(self.cluster.ready))

    def ask(self, message: Message, version: int) -> Any:
        """Send a request to the coordinator. Return None if there is no response in time."""
        outcome = self.cluster.send(self.coordinator(), message, version)
        self.await_that(lambda: bool(outcome), ANSWER_MS)
        return outcome[0][0] if outcome else None

    def join(self, index: int) -> StreamsActor:
        """Return a new member at this place."""
        identity = StreamsIdentity(
            f"member-{index}-{self.next_instance()}",
            f"process-{index % PROCESSES}",
            f"instance-{index}" if index < STATIC_MEMBERS else None,
        )
        return StreamsActor(identity, self.ask, lambda: self.now, self.history)


class StreamsWalk:
    """A world with random actions.

    Args:
        seed: seed of all random choices.
        style: "members" or "mixed".
    """

    def __init__(self, seed: int, style: str) -> None:
        self.world = StreamsWorld(seed)
        self.rng = random.Random(f"walk {seed}")
        self.log: list[str] = []
        self._has_faults = style == "mixed"
        self._faults = ClusterFaults(self.world, self.rng, (50.0, 3_000.0))
        self._members = [self.world.join(index) for index in range(MEMBERS)]
        # When paused members continue (virtual seconds).
        self._pauses: dict[str, float] = {}

    def play(self, seconds: float = SECONDS) -> Verdict:
        """Cause faults for some virtual seconds, end them, and return the verdict."""
        world = self.world
        end = world.now + seconds
        while world.now < end:
            world.run_for(self.rng.uniform(5.0, 40.0))
            self._act(self.rng.randrange(MEMBERS))
            if self._has_faults and self.rng.random() < FAULT:
                self._break()
        self._faults.end()
        self._pauses.clear()
        deadline = world.now + CALM_MS / 1000
        while not settle(self._members, world.history) and world.now < deadline:
            world.run_for(50.0)
            for member in self._members:
                member.heartbeat()
        return check_streams_group(world.history)

    def _act(self, index: int) -> None:
        """Let a member do something."""
        member = self._members[index]
        name = member.identity.member_id
        pause_end = self._pauses.get(name)
        if pause_end is not None:
            if pause_end > self.world.now:
                return
            # It does not know yet whether it has lost its tasks.
            del self._pauses[name]
            member.commit()
        chance = self.rng.random()
        if chance < LEAVE:
            self._note(f"{name} leaves")
            member.leave()
            member.commit_lost()
            self._members[index] = self.world.join(index)
        elif chance < LEAVE + KILL:
            self._note(f"the process of {name} is killed")
            for each in range(index % PROCESSES, MEMBERS, PROCESSES):
                self._members[each] = self.world.join(each)
        elif chance < LEAVE + KILL + PAUSE:
            seconds = self.rng.uniform(0.5, 2.0) * SESSION_MS / 1000
            self._note(f"{name} pauses for {seconds:.2f} s")
            self._pauses[name] = self.world.now + seconds
        else:
            member.heartbeat()
            self.rng.choice((member.commit, member.commit_lost))()

    def _break(self) -> None:
        """Kill or isolate the coordinator, while members continue, and heal."""
        node = self.world.coordinator()
        is_killed = self.rng.random() < 0.5
        self._note(f"coordinator {node} is {'killed' if is_killed else 'isolated'}")
        if is_killed:
            self._faults.kill(node)
        else:
            self._faults.isolate(node)
            for _ in range(self.rng.randrange(10)):
                self._members[self.rng.randrange(MEMBERS)].heartbeat()
            self._faults.hold()
        self._faults.heal()

    def _note(self, text: str) -> None:
        self.log.append(f"{self.world.now:.2f} {text}")


def _summary(world: StreamsWorld) -> str:
    return f"{len(world.history.heartbeats)} heartbeats, {len(world.history.commits)} commits"


if __name__ == "__main__":
    play_seeds(StreamsWalk, _summary)
