"""Random faults in a `ShareWorld`.

    python -m simulation.groups.share_walk FIRST LAST [STYLE] [SECONDS]

runs these seeds, and prints the verdict of each.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from barnabas.sim.network import NetworkConditions
from chaos.groups.share_checker import check_share_group
from chaos.verdict import Verdict
from simulation.cluster_faults import ClusterFaults
from simulation.cluster_world import NODES
from simulation.groups.share_world import LOCK_MS, Behavior, ShareWorld
from simulation.groups.walking import SECONDS, Action, chosen, play_seeds

# Time (s) in which sessions and locks may end because of a fault that was ended.
RECOVERY_S = 2.5
MEMBERS = 3


@dataclass(frozen=True)
class Style:
    """Actions with their probabilities."""

    behavior: Behavior = field(default_factory=Behavior)
    # Probability of an action on a member and of a fault of the cluster, in each step (0 to 1).
    actions: float = 0.3
    faults: float = 0.3
    # Names of the methods to choose from; all if empty.
    chosen: tuple[str, ...] = ()
    # Milliseconds between two steps.
    pause_ms: tuple[float, float] = (100.0, 1_200.0)
    hold_ms: tuple[float, float] = (50.0, 3_000.0)
    conditions: NetworkConditions = field(default_factory=NetworkConditions)


STYLES = {
    "mixed": Style(),
    # Without any fault, all rules about locks and counts hold.
    "calm": Style(actions=0.0, faults=0.0),
    "members": Style(actions=0.6, faults=0.0, pause_ms=(100.0, 600.0)),
    # Records are never accepted, so that each one reaches the limit of deliveries.
    "limits": Style(
        Behavior(release=0.7, reject=0.0, renew=0.0, hold_past_lock=0.0, delivery_limit=3),
        actions=0.0,
        faults=0.0,
    ),
    # Members need about as long as a lock lasts, so that many are late.
    "late": Style(
        Behavior(renew=0.0, hold_past_lock=0.0, hold=(0.7, 1.4), rate=60.0), actions=0.0, faults=0.0
    ),
    # Members need longer than a lock lasts, and renew it in time.
    "renewals": Style(
        Behavior(renew=0.7, hold_past_lock=0.0, hold=(0.5, 0.7), rate=60.0), actions=0.0, faults=0.0
    ),
    "leaders": Style(
        actions=0.0, faults=0.9, chosen=("_kill_leader", "_stop_leader", "_pause_leader")
    ),
    # Leaders and share coordinators die; both hold a part of the state.
    "kills": Style(
        actions=0.0,
        faults=0.9,
        chosen=("_kill_leader", "_kill_share_coordinator"),
        hold_ms=(50.0, 500.0),
        conditions=NetworkConditions(delay_min_ms=1.0, delay_max_ms=8.0),
    ),
    "coordinators": Style(
        actions=0.0,
        faults=0.9,
        chosen=("_kill_share_coordinator", "_isolate_share_coordinator"),
        conditions=NetworkConditions(delay_min_ms=1.0, delay_max_ms=5.0),
    ),
    "resets": Style(actions=0.8, faults=0.0, chosen=("_reset_member",), pause_ms=(50.0, 400.0)),
}


class ShareWalk:
    """A world with random actions.

    Args:
        seed: seed of all random choices.
        style: actions with their probabilities.
        is_synced: whether batches are synced before they are acknowledged. Then all nodes may lose
            their power at once.
    """

    def __init__(self, seed: int, style: Style, *, is_synced: bool = False) -> None:
        settings = {"log_flush_interval_messages": "1"} if is_synced else {}
        self.world = ShareWorld(seed, style.behavior, **settings)
        self.style = style
        self.rng = random.Random(f"walk {seed}")
        self.log: list[str] = []
        self._cluster = ClusterFaults(self.world, self.rng, style.hold_ms)
        faults = [
            self._kill_leader,
            self._stop_leader,
            self._pause_leader,
            self._lose_power,
            self._kill_share_coordinator,
            self._isolate_share_coordinator,
            self._kill_group_coordinator,
            self._cut_link,
            self._reset_connections,
        ]
        if is_synced:
            faults.append(self._lose_all_power)
        actions = [self._kill_member, self._leave, self._freeze_member, self._reset_member]
        self._faults, self._actions = chosen(faults, style.chosen), chosen(actions, style.chosen)

    def play(self, seconds: float = SECONDS) -> Verdict:
        """Cause faults for some virtual seconds, end them, and return the verdict."""
        world, network = self.world, self.world.cluster.world.network
        network.conditions = self.style.conditions
        for _ in range(MEMBERS):
            world.launch()
        end = world.now + seconds
        while world.now < end:
            world.run_for(self.rng.uniform(*self.style.pause_ms))
            if self._actions and self.rng.random() < self.style.actions:
                self._perform(self.rng.choice(self._actions))
            if self._faults and self.rng.random() < self.style.faults:
                self._do_fault()
            while len(world.members) < MEMBERS:
                world.launch()
        network.conditions = NetworkConditions()
        self._cluster.end()
        return check_share_group(world.finish())

    def _perform(self, action: Action) -> None:
        self.log.append(f"{self.world.now:.2f} {action.__name__}")
        action()

    def _do_fault(self) -> None:
        began = self.world.now
        self._perform(self.rng.choice(self._faults))
        self._cluster.heal()
        ended = max(self.world.now, self._cluster.paused_until)
        self.world.history.disturbances.append((began, ended + RECOVERY_S))

    # Faults of the cluster.

    def _kill_leader(self) -> None:
        self._cluster.kill(self.world.leader_of_records())

    def _stop_leader(self) -> None:
        """Stop a node: its partitions move to other leaders before it ends."""
        self.world.cluster.stop(self.world.leader_of_records())
        self._cluster.hold()

    def _pause_leader(self) -> None:
        duration_ms = self.rng.uniform(*self.rng.choice(((20.0, 400.0), (1_000.0, 6_000.0))))
        self._cluster.pause(self.world.leader_of_records(), duration_ms)
        self._cluster.hold()

    def _lose_power(self) -> None:
        self._cluster.lose_power(self.rng.choice(NODES))

    def _lose_all_power(self) -> None:
        self._cluster.lose_power(*NODES)

    def _kill_share_coordinator(self) -> None:
        self._cluster.kill(self.world.share_coordinator())

    def _kill_group_coordinator(self) -> None:
        self._cluster.kill(self.world.group_coordinator())

    def _isolate_share_coordinator(self) -> None:
        self._cluster.isolate(self.world.share_coordinator())
        self._cluster.hold()

    def _cut_link(self) -> None:
        self._cluster.cut_link()
        self._cluster.hold()

    def _reset_connections(self) -> None:
        self._cluster.reset_link()

    # Members.

    def _kill_member(self) -> None:
        self.world.kill(self.rng.choice(self.world.members))

    def _leave(self) -> None:
        member = self.rng.choice(self.world.members)
        member.is_stopped = True
        self.world.members.remove(member)

    def _freeze_member(self) -> None:
        """Pause a member, often for longer than its locks."""
        member = self.rng.choice(self.world.members)
        duration_ms = self.rng.uniform(0.2, 2.5) * LOCK_MS
        self.world.cluster.world.host(member.host).timer.pause(duration_ms)
        began = self.world.now
        self.world.history.drops.append((began, began + duration_ms / 1000 + RECOVERY_S))

    def _reset_member(self) -> None:
        """Reset the connections of a member, so that the brokers release its records."""
        member = self.rng.choice(self.world.members)
        self._cluster.reset_client(member.host)
        now = self.world.now
        member.consumer.notes.end()
        self.world.history.drops.append((now - 0.1, now + 0.5))


def _summary(world: ShareWorld) -> str:
    return f"{len(world.history.deliveries)} deliveries"


if __name__ == "__main__":
    play_seeds(lambda seed, style: ShareWalk(seed, STYLES[style]), _summary)
