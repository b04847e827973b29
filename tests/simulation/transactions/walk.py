"""Random faults in a `TransactionalWorld`.

Nodes die, are isolated or paused, or get a wrong wall clock. Clients are replaced and resumed.

    python -m simulation.transactions.walk FIRST LAST [STYLE] [SECONDS]

runs these seeds, and prints the verdict of each.
"""

from __future__ import annotations

import logging
import random
import sys
from collections.abc import Callable

from barnabas.sim.network import NetworkConditions
from chaos.transaction_checker import check_transactions
from chaos.verdict import Verdict
from simulation.cluster_world import NODES
from simulation.transactions.actors import TRANSACTION_TIMEOUT_MS
from simulation.transactions.styles import MIXED, STYLES, Style
from simulation.transactions.targets import Targets
from simulation.transactions.transactional_world import Client, TransactionalWorld

# Virtual seconds of a walk.
SECONDS = 20.0
# Duration of a pause of a process (ms): short, or longer than sessions and transactions.
NODE_PAUSE_MS = ((20.0, 400.0), (500.0, 10_000.0))
# Error of a wrong wall clock (ms), in either direction.
CLOCK_ERROR_MS = (60_000, 6 * 3_600_000)
# Delay of the records of a zombie (ms), in which its successor runs some transactions.
ZOMBIE_MS = (20.0, 500.0)
# Delay of a late request (ms): longer than the request timeout of the client.
LATE_MS = (2_050.0, 3_000.0)


class Walk:
    """A world with random actions.

    Args:
        seed: seed of all random choices.
        style: actions with their probabilities.
        is_synced: whether batches are synced before they are acknowledged. Then all nodes may lose
            their power at once.
    """

    def __init__(self, seed: int, style: Style = MIXED, *, is_synced: bool = False) -> None:
        settings = {"log_flush_interval_messages": "1"} if is_synced else {}
        if not style.is_verified:
            settings["transaction_partition_verification_enable"] = "false"
        self.world = TransactionalWorld(seed, style.transaction_version, **settings)
        self.style = style
        self.rng = random.Random(f"walk {seed}")
        self._targets = Targets(self.world, self.rng)
        # Description of each action.
        self.log: list[str] = []
        self._faults = self._chosen(
            self._kill_node,
            self._lose_power,
            self._cut_link,
            self._isolate_node,
            self._reset_connections,
            self._reset_client,
            self._reset_sender,
            self._cut_client,
            self._kill_coordinator,
            self._kill_decider,
            self._kill_after_decision,
            self._kill_written_leader,
            self._kill_marked_leader,
            self._kill_group_coordinator,
            self._isolate_coordinator,
            self._isolate_decider,
            self._isolate_group_coordinator,
            self._pause_node,
            self._pause_coordinator,
            self._pause_decider,
            self._jump_node_clock,
            self._jump_client_clock,
        )
        if is_synced:
            self._faults.append(self._lose_all_power)
        self._actions = self._chosen(
            self._kill_client,
            self._double_client,
            self._pause_client,
            self._freeze_client,
            self._leave_transaction,
            self._revive_zombie,
            self._outlive_transaction,
            self._delay_batches,
        )

    def _chosen(self, *actions: Callable[[], None]) -> list[Callable[[], None]]:
        names, left_out = self.style.chosen, self.style.left_out
        return [
            action
            for action in actions
            if (not names or action.__name__ in names) and action.__name__ not in left_out
        ]

    def play(self, seconds: float = SECONDS) -> Verdict:
        """Cause faults for some virtual seconds, end them, and return the verdict."""
        network = self.world.cluster.world.network
        network.conditions = self.style.conditions
        for role, name in self.style.clients:
            self.world.launch(role, name)
        end = self.world.now + seconds
        while self.world.now < end:
            self.world.run_for(self.rng.uniform(*self.style.pause_ms))
            if self.rng.random() < self.style.actions:
                self._perform(self.rng.choice(self._actions))
            if self.rng.random() < self.style.faults:
                self._do_fault()
            self.world.replace_ended()
        network.conditions = NetworkConditions()
        for host in self.world.cluster.world.hosts.values():
            host.clock.wall_offset_ms = 0
        return check_transactions(self.world.finish())

    def _do_fault(self) -> None:
        self._perform(self.rng.choice(self._faults))
        self._heal()

    def _perform(self, action: Callable[[], None]) -> None:
        self.log.append(f"{self.world.now:.2f} {action.__name__}")
        action()

    # Faults of the cluster.

    def _hold(self) -> None:
        self.world.run_for(self.rng.uniform(*self.style.hold_ms))

    def _heal(self) -> None:
        network = self.world.cluster.world.network
        network.heal()
        for node in NODES:
            if node not in self.world.cluster.ready:
                self.world.cluster.launch(node)
        self.world.await_full_isr()

    def _kill_node(self) -> None:
        self._kill(self.rng.choice(NODES))

    def _kill_coordinator(self) -> None:
        self._kill(self._targets.coordinator())

    def _kill_decider(self) -> None:
        self._kill(self._targets.deciding_coordinator())

    def _kill_after_decision(self) -> None:
        """Kill a coordinator before the markers, and often start another client with the id."""
        client, node = self._targets.decided_coordinator()
        if self.rng.random() < 0.7:
            self._double_client_of(client)
        self._kill(node)

    def _kill_written_leader(self) -> None:
        self._kill(self._targets.written_leader())

    def _kill_marked_leader(self) -> None:
        self._kill(self._targets.marked_leader())

    def _kill_group_coordinator(self) -> None:
        self._kill(self._targets.group_coordinator())

    def _kill(self, node: int) -> None:
        self.world.cluster.kill(node)
        self._hold()

    def _isolate_coordinator(self) -> None:
        self._isolate(self._targets.coordinator())

    def _isolate_decider(self) -> None:
        self._isolate(self._targets.deciding_coordinator())

    def _isolate_group_coordinator(self) -> None:
        self._isolate(self._targets.group_coordinator())

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
        self._reset(self.rng.choice(self.world.clients))

    def _reset_sender(self) -> None:
        """Reset the connections of a client while its records are in flight."""
        client = self._targets.beginning_producer()
        self.world.run_for(self.rng.uniform(0.0, 15.0))
        self._reset(client)

    def _reset(self, client: Client) -> None:
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
        self._pause(f"node-{self._targets.coordinator()}")
        self._hold()

    def _pause_decider(self) -> None:
        self._pause(f"node-{self._targets.deciding_coordinator()}")
        self._hold()

    def _pause(self, host: str, duration_ms: float | None = None) -> None:
        """Pause a process. Afterwards its timers fire late."""
        if duration_ms is None:
            duration_ms = self.rng.uniform(*self.rng.choice(NODE_PAUSE_MS))
        self.world.cluster.world.host(host).timer.pause(duration_ms)

    def _jump_node_clock(self) -> None:
        self._jump_clock(f"node-{self.rng.choice(NODES)}")

    def _jump_client_clock(self) -> None:
        self._jump_clock(self.rng.choice(self.world.clients).host)

    def _jump_clock(self, host: str) -> None:
        """Set a wall clock to a wrong time or to the right time, but not the monotonic clock."""
        wrong_ms = self.rng.choice((-1, 0, 1)) * self.rng.randint(*CLOCK_ERROR_MS)
        self.world.cluster.world.host(host).clock.wall_offset_ms = wrong_ms

    # Clients.

    def _kill_client(self) -> None:
        client = self._targets.producer()
        self.world.kill(client)
        if self.rng.random() < 0.5:
            # Let its transaction time out before another client fences it.
            self.world.run_for(self.rng.uniform(0, 8_000))

    def _leave_transaction(self) -> None:
        """Kill a client in a transaction, and do not use its transactional id again."""
        client = self.world.launch("move", f"leaver-{len(self.log)}")
        client.is_replaced = True
        self._targets.await_transaction(client)
        self.world.run_for(self.rng.uniform(2.0, 6.0))
        self.world.kill(client)

    def _double_client(self) -> None:
        self._double_client_of(self._targets.producer())

    def _double_client_of(self, client: Client) -> None:
        if not client.is_replaced:
            client.is_replaced = True
            self.world.launch(client.role, client.name)

    def _pause_client(self) -> None:
        client = self._targets.producer()
        client.actor.is_paused = True
        if self.rng.random() < 0.5:
            self._double_client()
        self.world.run_for(self.rng.uniform(0, 8_000))
        client.actor.is_paused = False

    def _freeze_client(self) -> None:
        """Pause a whole process, including its sender and connections."""
        client = self._targets.producer()
        self._pause(client.host)
        if self.rng.random() < 0.5:
            self._double_client_of(client)

    def _revive_zombie(self) -> None:
        """Let records of a client arrive after another client has fenced it."""
        client = self._targets.beginning_producer()
        self._cut_from_leaders(client)
        self._double_client_of(client)
        self.world.run_for(self.rng.uniform(*ZOMBIE_MS))
        self.world.cluster.world.network.heal()

    def _outlive_transaction(self) -> None:
        """Let a client continue after its transaction has timed out."""
        client = self._targets.beginning_producer()
        late_ms = TRANSACTION_TIMEOUT_MS + self.rng.uniform(600.0, 1_500.0)
        if client.role == "move" and self.rng.random() < 0.7:
            client.ends_after = self.world.now + late_ms / 1000
            self.world.run_for(late_ms)
            return
        self.world.run_for(self.rng.uniform(0.0, 8.0))
        client.actor.is_paused = True
        self.world.run_for(late_ms)
        client.actor.is_paused = False

    def _delay_batches(self) -> None:
        """Let records of a client arrive after it has aborted their transaction."""
        self._cut_from_leaders(self._targets.client_about_to_abort())
        self.world.run_for(self.rng.uniform(*LATE_MS))
        self.world.cluster.world.network.heal()

    def _cut_from_leaders(self, client: Client) -> None:
        """Hold back the requests of a client to its transaction's partitions.

        It still reaches its coordinator.
        """
        if client.current is None:
            return
        leaders = {self.world.leader(place) for place in client.current.places}
        for node in sorted(leaders - {self.world.coordinator(client.name)}):
            self.world.cluster.world.network.partition(client.host, f"node-{node}")


def main() -> None:
    logging.disable()
    first, last, *rest = sys.argv[1:]
    for seed in range(int(first), int(last) + 1):
        walk = Walk(seed, STYLES[rest[0]] if rest else MIXED)
        verdict = walk.play(float(rest[1]) if len(rest) > 1 else SECONDS)
        transactions = len(walk.world.history.transactions)
        print(f"seed {seed}: {transactions} transactions, {verdict}", flush=True)
        if not verdict.is_clean:
            print("\n".join(walk.log), flush=True)


if __name__ == "__main__":
    main()
