"""Random faults in a `MemberWorld`.

    python -m simulation.groups.member_walk FIRST LAST [STYLE] [SECONDS]

runs these seeds, and prints the verdict of each.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from barnabas.sim.network import NetworkConditions
from chaos.groups.member_checker import check_consumer_group
from chaos.verdict import Verdict
from simulation.cluster_faults import ClusterFaults
from simulation.cluster_world import NODES
from simulation.groups.member_world import SESSION_MS, MemberWorld
from simulation.groups.walking import SECONDS, Action, chosen, play_seeds
from storms.history import NS_PER_S

# Members of each kind: dynamic ones, and instance ids of static ones.
DYNAMIC = 2
INSTANCES = ("static-1", "static-2")
# Time (s) in which an isolated or paused node may still respond as a coordinator.
RECOVERY_S = 3.0
MEMBERS_MAX = 6


@dataclass(frozen=True)
class Style:
    """Actions with their probabilities."""

    # Probability of an action on a member, of a request that must be refused, and of a fault of the
    # cluster, in each step (0 to 1).
    actions: float = 0.5
    probes: float = 0.5
    faults: float = 0.25
    # Names of the methods to choose from; all if empty.
    chosen: tuple[str, ...] = ()
    # Milliseconds between two steps.
    pause_ms: tuple[float, float] = (100.0, 900.0)
    hold_ms: tuple[float, float] = (50.0, 3_000.0)
    conditions: NetworkConditions = field(default_factory=NetworkConditions)


FAILOVER = ("_join", "_leave", "_kill_member", "_kill_coordinator")
STYLES = {
    "mixed": Style(),
    # Members join and leave, without faults of the cluster.
    "members": Style(actions=0.8, faults=0.0),
    # The coordinator dies while members join and leave.
    "failover": Style(faults=0.5, chosen=FAILOVER, hold_ms=(50.0, 1_500.0)),
    "stalls": Style(actions=0.8, faults=0.0, chosen=("_freeze_member", "_pause_user", "_join")),
    "slow": Style(conditions=NetworkConditions(delay_min_ms=1.0, delay_max_ms=15.0)),
    # Isolated or paused nodes that do not know of their successor as coordinator.
    "isolated": Style(
        faults=0.5, chosen=("_isolate_coordinator", "_pause_coordinator", "_join", "_leave")
    ),
}


class MemberWalk:
    """A world with random actions.

    Args:
        seed: seed of all random choices.
        style: actions with their probabilities.
        is_synced: whether batches are synced before they are acknowledged. Then all nodes may lose
            their power at once.
    """

    def __init__(self, seed: int, style: Style, *, is_synced: bool = False) -> None:
        settings = {"log_flush_interval_messages": "1"} if is_synced else {}
        self.world = MemberWorld(seed, **settings)
        self.style = style
        self.rng = random.Random(f"walk {seed}")
        self.log: list[str] = []
        self._cluster = ClusterFaults(self.world, self.rng, style.hold_ms)
        faults = [
            self._kill_coordinator,
            self._kill_node,
            self._lose_power,
            self._cut_link,
            self._isolate_coordinator,
            self._pause_coordinator,
        ]
        if is_synced:
            faults.append(self._lose_all_power)
        actions = [
            self._join,
            self._leave,
            self._kill_member,
            self._restart_instance,
            self._freeze_member,
            self._pause_user,
            self._reset_member,
        ]
        self._faults, self._actions = chosen(faults, style.chosen), chosen(actions, style.chosen)
        self._probes = [
            self.world.probe_departed,
            self.world.probe_stale,
            self.world.probe_double,
        ]
        # When paused users continue (virtual seconds), by host.
        self._user_pauses: dict[str, float] = {}

    def play(self, seconds: float = SECONDS) -> Verdict:
        """Cause faults for some virtual seconds, end them, and return the verdict."""
        world, network = self.world, self.world.cluster.world.network
        network.conditions = self.style.conditions
        self._fill_up()
        end = world.now + seconds
        while world.now < end:
            world.run_for(self.rng.uniform(*self.style.pause_ms))
            self._resume_users()
            if self._actions and self.rng.random() < self.style.actions:
                self._perform(self.rng.choice(self._actions))
            for probe in self._probes:
                if self.rng.random() < self.style.probes:
                    probe()
            if self._faults and self.rng.random() < self.style.faults:
                self._perform(self.rng.choice(self._faults))
                self._heal()
            self._fill_up()
        network.conditions = NetworkConditions()
        self._cluster.end()
        world.delay_removals()
        self._user_pauses.clear()
        for client in world.clients:
            client.actor.is_paused = False
        return check_consumer_group(world.finish())

    def _perform(self, action: Action) -> None:
        self.log.append(f"{self.world.now:.2f} {action.__name__}")
        action()

    def _fill_up(self) -> None:
        """Start missing members. Static members get the missing instance ids."""
        present = {each.identity.instance_id for each in self.world.clients}
        for instance_id in INSTANCES:
            if instance_id not in present:
                self.world.launch(instance_id)
        while len(self.world.clients) < DYNAMIC + len(INSTANCES):
            self.world.launch()

    # Faults of the cluster.

    def _heal(self) -> None:
        self._cluster.heal()
        self.world.delay_removals()

    def _kill_coordinator(self) -> None:
        """Kill the coordinator, often while members join or leave."""
        if self.rng.random() < 0.7:
            actions = [self._join, self._leave, self._kill_member, self._kill_member]
            self._perform(self.rng.choice(actions))
            self.world.run_for(self.rng.uniform(0.0, 300.0))
        self._cluster.kill(self.world.coordinator())
        # Kill again when the next coordinator has just loaded the group.
        for _ in range(4):
            self.world.probe_departed()
            self.world.run_for(250)

    def _kill_node(self) -> None:
        self._cluster.kill(self.rng.choice(NODES))

    def _lose_power(self) -> None:
        self._cluster.lose_power(self.rng.choice(NODES))

    def _lose_all_power(self) -> None:
        self._cluster.lose_power(*NODES)

    def _cut_link(self) -> None:
        self._cluster.cut_link()
        self._isolate(self._cluster.hold)

    def _isolate_coordinator(self) -> None:
        self._cluster.isolate(self.world.coordinator())
        self._isolate(self._cluster.hold)

    def _pause_coordinator(self) -> None:
        duration_ms = self.rng.uniform(20.0, 5_000.0)
        self._cluster.pause(self.world.coordinator(), duration_ms)
        self._isolate(self._cluster.hold)

    def _isolate(self, hold: Action) -> None:
        """Record the time in which a node may not know of the new coordinator."""
        index, began = len(self.world.history.isolations), self.world.now_ns
        forever_ns = 1 << 62
        self.world.history.isolations.append((began, forever_ns))
        hold()
        self._heal()
        ended = max(self.world.now, self._cluster.paused_until) + RECOVERY_S
        self.world.history.isolations[index] = (began, round(ended * NS_PER_S))

    # Members.

    def _join(self) -> None:
        if len(self.world.clients) < MEMBERS_MAX:
            self.world.launch()

    def _leave(self) -> None:
        self.world.stop_member(self.rng.choice(self.world.clients))

    def _kill_member(self) -> None:
        self.world.kill(self.rng.choice(self.world.clients))

    def _restart_instance(self) -> None:
        """Stop a static member temporarily. `_fill_up` restarts it immediately."""
        static = [each for each in self.world.clients if each.identity.instance_id is not None]
        self.world.stop_member(self.rng.choice(static))
        self.world.run_for(self.rng.uniform(10.0, 500.0))

    def _freeze_member(self) -> None:
        """Pause a process, often for longer than its session."""
        client = self.rng.choice(self.world.clients)
        duration_ms = self.rng.uniform(0.2, 2.5) * SESSION_MS
        self.world.cluster.world.host(client.host).timer.pause(duration_ms)

    def _pause_user(self) -> None:
        """Pause the polls of a user while heartbeats continue."""
        client = self.rng.choice(self.world.clients)
        client.actor.is_paused = True
        self._user_pauses[client.host] = self.world.now + self.rng.uniform(0.2, 2.5)

    def _resume_users(self) -> None:
        for client in self.world.clients:
            if self._user_pauses.get(client.host, 0.0) <= self.world.now:
                client.actor.is_paused = False
                self._user_pauses.pop(client.host, None)

    def _reset_member(self) -> None:
        client = self.rng.choice(self.world.clients)
        self._cluster.reset_client(client.host)


def _summary(world: MemberWorld) -> str:
    history = world.history
    counts = (sum(history.ends.values()), len(history.events), len(history.probes))
    return "{} records, {} events, {} probes".format(*counts)


if __name__ == "__main__":
    play_seeds(lambda seed, style: MemberWalk(seed, STYLES[style]), _summary)
