"""Faults by chance over a `TransactionalWorld`.

Nodes die, are cut off, stand still, or get a wrong wall clock; clients are replaced and come back.

    python -m simulation.transactions.walk FIRST LAST [STYLE] [SECONDS]

plays these seeds, and prints the verdict of each.
"""

from __future__ import annotations

import logging
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from barnabas.sim.network import NetworkWeather
from chaos.transaction_checker import TransactionVerdict, check_transactions
from simulation.transactions.transactional_world import NODES, Client, TransactionalWorld

# Virtual seconds of a walk.
SECONDS = 20.0
STATE_TOPIC = "__transaction_state"
# Faults come this often (ms).
PAUSE_MS = (100.0, 1_500.0)
# How long a fault lasts (ms): longer than a session, at most.
HOLD_MS = (50.0, 5_000.0)
# Faults after which a broker may not know that it leads no more.
ISOLATING = (
    "_cut_link",
    "_isolate_node",
    "_isolate_coordinator",
    "_pause_node",
    "_pause_coordinator",
)
# How long a process stands still (ms): a blink, or longer than sessions and transactions.
STILL_MS = ((20.0, 400.0), (500.0, 10_000.0))
# How far a wall clock is from the true time (ms), in either direction: minutes to hours.
WRONG_MS = (60_000, 6 * 3_600_000)
CLIENTS = (
    ("move", "mover-1"),
    ("move", "mover-2"),
    ("process", "processor"),
    ("read", "reader"),
    ("look", "looker"),
)


@dataclass(frozen=True)
class Style:
    """What is done how often."""

    # Chance of a deed to a client and of a fault of the cluster, in each step (0 to 1).
    deeds: float = 0.5
    faults: float = 0.4
    # Names of the methods to choose from; all if empty.
    chosen: tuple[str, ...] = ()
    # Names of the methods that are never chosen.
    left_out: tuple[str, ...] = ()
    # Milliseconds between two steps.
    pause_ms: tuple[float, float] = PAUSE_MS
    clients: tuple[tuple[str, str], ...] = CLIENTS
    weather: NetworkWeather = field(default_factory=NetworkWeather)


# Processes stand still, and wall clocks jump.
STALLED = (
    "_pause_node",
    "_pause_coordinator",
    "_jump_node_clock",
    "_jump_client_clock",
    "_freeze_client",
)
MIXED = Style(left_out=STALLED)
EVERYTHING = Style()
# Clients with one transactional id follow each other closely.
FENCING = Style(
    deeds=1.0, faults=0.0, chosen=("_double_client", "_pause_client"), pause_ms=(5.0, 150.0)
)
# Coordinators die or are cut off, over a slow network, so that many decisions are under way.
COORDINATORS = Style(
    deeds=0.0,
    faults=0.8,
    chosen=("_kill_coordinator", "_isolate_coordinator"),
    pause_ms=(100.0, 500.0),
    clients=(*CLIENTS, ("move", "mover-3"), ("move", "mover-4")),
    weather=NetworkWeather(delay_min_ms=2.0, delay_max_ms=15.0),
)
# Coordinators die. No broker leads on without knowing that it leads no more.
KILLS = replace(COORDINATORS, chosen=("_kill_coordinator",))
# Connections end at any time.
RESETS = Style(
    deeds=0.2,
    faults=0.8,
    chosen=("_reset_client", "_cut_client", "_kill_client"),
    pause_ms=(5.0, 200.0),
    weather=NetworkWeather(delay_max_ms=5.0, reset_chance=0.002),
)
STALLS = Style(
    deeds=0.4,
    faults=0.7,
    chosen=(*STALLED, "_leave_transaction"),
    pause_ms=(20.0, 600.0),
)
STYLES = {
    "mixed": MIXED,
    "fencing": FENCING,
    "coordinators": COORDINATORS,
    "kills": KILLS,
    "resets": RESETS,
    "stalls": STALLS,
    "everything": EVERYTHING,
}


class Walk:
    """A world, and what is done to it.

    Args:
        seed: decides all of it.
        style: what is done how often.
        is_synced: whether batches are synced before they are acknowledged. Then all nodes may lose
            their power at once.
    """

    def __init__(self, seed: int, style: Style = MIXED, *, is_synced: bool = False) -> None:
        settings = {"log_flush_interval_messages": "1"} if is_synced else {}
        self.world = TransactionalWorld(seed, **settings)
        self.style = style
        self.rng = random.Random(f"walk {seed}")
        # What was done, in words.
        self.told: list[str] = []
        # Virtual seconds: when the last paused process goes on.
        self._still_until = 0.0
        self._faults = self._chosen(
            self._kill_node,
            self._lose_power,
            self._cut_link,
            self._isolate_node,
            self._reset_connections,
            self._reset_client,
            self._cut_client,
            self._kill_coordinator,
            self._isolate_coordinator,
            self._pause_node,
            self._pause_coordinator,
            self._jump_node_clock,
            self._jump_client_clock,
        )
        if is_synced:
            self._faults.append(self._lose_all_power)
        self._deeds = self._chosen(
            self._kill_client,
            self._double_client,
            self._pause_client,
            self._freeze_client,
            self._leave_transaction,
        )

    def _chosen(self, *deeds: Callable[[], None]) -> list[Callable[[], None]]:
        names, left_out = self.style.chosen, self.style.left_out
        return [
            deed
            for deed in deeds
            if (not names or deed.__name__ in names) and deed.__name__ not in left_out
        ]

    def play(self, seconds: float = SECONDS) -> TransactionVerdict:
        """Do faults for some virtual seconds, heal everything, and judge."""
        network = self.world.cluster.world.network
        network.weather = self.style.weather
        for role, name in self.style.clients:
            self.world.launch(role, name)
        end = self.world.now + seconds
        while self.world.now < end:
            self.world.run_for(self.rng.uniform(*self.style.pause_ms))
            if self.rng.random() < self.style.deeds:
                self._tell(self.rng.choice(self._deeds))
            if self.rng.random() < self.style.faults:
                self._do_fault()
            self.world.replace_ended()
        network.weather = NetworkWeather()
        for host in self.world.cluster.world.hosts.values():
            host.clock.wall_offset_ms = 0
        return check_transactions(self.world.finish())

    def _do_fault(self) -> None:
        began, fault = self.world.now, self.rng.choice(self._faults)
        self._tell(fault)
        self._heal()
        if fault.__name__ in ISOLATING:
            # A node may stand still for longer than the cluster needs to look whole.
            ended = max(self.world.now, self._still_until)
            self.world.history.isolations.append((began, ended))

    def _tell(self, deed: Callable[[], None]) -> None:
        self.told.append(f"{self.world.now:.2f} {deed.__name__}")
        deed()

    # Faults of the cluster.

    def _hold(self) -> None:
        self.world.run_for(self.rng.uniform(*HOLD_MS))

    def _heal(self) -> None:
        network = self.world.cluster.world.network
        network.heal()
        for node in NODES:
            if node not in self.world.cluster.ready:
                self.world.cluster.launch(node)
        self.world.await_full_isr()

    def _kill_node(self) -> None:
        self.world.cluster.kill(self.rng.choice(NODES))
        self._hold()

    def _coordinator(self) -> int:
        """Return a node that leads transactional ids."""
        topic = self.world.cluster.image(self.rng.choice(NODES)).topics.by_name(STATE_TOPIC)
        leaders = [each.leader for each in topic.partitions.values()] if topic else []
        return self.rng.choice([each for each in leaders if each >= 0] or NODES)

    def _kill_coordinator(self) -> None:
        self.world.cluster.kill(self._coordinator())
        self._hold()

    def _isolate_coordinator(self) -> None:
        self._isolate(self._coordinator())

    def _lose_power(self) -> None:
        node = self.rng.choice(NODES)
        self.world.cluster.kill(node)
        self.world.cluster.world.host(f"node-{node}").lose_power()
        self._hold()

    def _lose_all_power(self) -> None:
        for node in NODES:
            self.world.cluster.kill(node)
        for node in NODES:
            self.world.cluster.world.host(f"node-{node}").lose_power()
        self._hold()

    def _cut_link(self) -> None:
        one, other = self.rng.sample(NODES, 2)
        self.world.cluster.world.network.partition(f"node-{one}", f"node-{other}")
        self._hold()

    def _isolate_node(self) -> None:
        self._isolate(self.rng.choice(NODES))

    def _isolate(self, node: int) -> None:
        for other in NODES:
            if other != node:
                self.world.cluster.world.network.partition(f"node-{node}", f"node-{other}")
        self._hold()

    def _reset_connections(self) -> None:
        one, other = self.rng.sample(NODES, 2)
        self.world.cluster.world.network.reset_connections(f"node-{one}", f"node-{other}")

    def _reset_client(self) -> None:
        client = self.rng.choice(self.world.clients)
        for node in NODES:
            self.world.cluster.world.network.reset_connections(client.host, f"node-{node}")

    def _cut_client(self) -> None:
        client, node = self.rng.choice(self.world.clients), self.rng.choice(NODES)
        self.world.cluster.world.network.partition(client.host, f"node-{node}")
        self._hold()

    def _pause_node(self) -> None:
        self._pause(f"node-{self.rng.choice(NODES)}")
        self._hold()

    def _pause_coordinator(self) -> None:
        self._pause(f"node-{self._coordinator()}")
        self._hold()

    def _pause(self, host: str) -> None:
        """Let a process stand still. Afterwards its timers fire late."""
        duration_ms = self.rng.uniform(*self.rng.choice(STILL_MS))
        self._still_until = max(self._still_until, self.world.now + duration_ms / 1000)
        self.world.cluster.world.host(host).timer.pause(duration_ms)

    def _jump_node_clock(self) -> None:
        self._jump_clock(f"node-{self.rng.choice(NODES)}")

    def _jump_client_clock(self) -> None:
        self._jump_clock(self.rng.choice(self.world.clients).host)

    def _jump_clock(self, host: str) -> None:
        """Set a wall clock wrong, or right. The monotonic clock goes on."""
        wrong_ms = self.rng.choice((-1, 0, 1)) * self.rng.randint(*WRONG_MS)
        self.world.cluster.world.host(host).clock.wall_offset_ms = wrong_ms

    # Clients.

    def _victim(self) -> Client:
        return self.rng.choice(
            [each for each in self.world.clients if each.role in ("move", "process")]
        )

    def _kill_client(self) -> None:
        client = self._victim()
        self.world.kill(client)
        if self.rng.random() < 0.5:
            # Its transaction times out before another client fences it.
            self.world.run_for(self.rng.uniform(0, 8_000))

    def _leave_transaction(self) -> None:
        """Kill a client whose transactional id nobody uses again."""
        client = self.world.launch("move", f"leaver-{len(self.told)}")
        client.is_replaced = True
        self.world.run_for(self.rng.uniform(50, 400))
        self.world.kill(client)

    def _double_client(self) -> None:
        self._double_client_of(self._victim())

    def _double_client_of(self, client: Client) -> None:
        if not client.is_replaced:
            client.is_replaced = True
            self.world.launch(client.role, client.name)

    def _pause_client(self) -> None:
        client = self._victim()
        client.actor.is_paused = True
        if self.rng.random() < 0.5:
            self._double_client()
        self.world.run_for(self.rng.uniform(0, 8_000))
        client.actor.is_paused = False

    def _freeze_client(self) -> None:
        """Let a whole process stand still: also its sender and its connections."""
        client = self._victim()
        self._pause(client.host)
        if self.rng.random() < 0.5:
            self._double_client_of(client)


def main() -> None:
    logging.disable()
    first, last, *rest = sys.argv[1:]
    for seed in range(int(first), int(last) + 1):
        walk = Walk(seed, STYLES[rest[0]] if rest else MIXED)
        verdict = walk.play(float(rest[1]) if len(rest) > 1 else SECONDS)
        transactions = len(walk.world.history.transactions)
        print(f"seed {seed}: {transactions} transactions, {verdict}", flush=True)
        if not verdict.is_clean:
            print("\n".join(walk.told), flush=True)


if __name__ == "__main__":
    main()
