"""Whole machines die in virtual time, with two brokers and a controller each."""

from __future__ import annotations

import pytest

from simulation.data_brokers import DataBrokers

MACHINES = {101: "host1", 102: "host1", 201: "host2", 202: "host2", 301: "host3", 302: "host3"}
HOSTS = ("host1", "host2", "host3")
PARTITIONS = 12
TOPIC = "spread"


class MachineWorld(DataBrokers):
    """Six brokers on three machines, and a topic that the controller has placed."""

    machines = MACHINES

    def _create_topics(self) -> None:
        self.create_topic(TOPIC, PARTITIONS, 3)

    def kill_machine(self, host: str, *, is_noticed: bool = True) -> None:
        """Kill the brokers of a machine, and its controller: 1 is on host1, and so on."""
        for broker, machine in MACHINES.items():
            if machine == host:
                self.kill(broker, is_noticed=is_noticed)
        self.hosts.kill(HOSTS.index(host) + 1)

    def start_machine(self, host: str) -> None:
        """Start its brokers and its controller."""
        self.hosts.start(HOSTS.index(host) + 1)
        for broker, machine in MACHINES.items():
            if machine == host:
                self.start(broker)

    def await_writable(self) -> None:
        """Advance time until every partition has acknowledged one more record."""
        before = {key: len(self.acknowledged[key]) for key in self.partitions()}
        self.run_until(
            lambda: all(len(self.acknowledged[key]) > count for key, count in before.items())
        )

    def await_full_isr(self) -> None:
        self.run_until(lambda: all(len(each.isr) == 3 for each in self.partitions().values()))


def test_the_replicas_of_every_partition_are_on_different_machines() -> None:
    world = MachineWorld(1, min_isr=2)
    for partition in world.partitions().values():
        assert {MACHINES[replica] for replica in partition.replicas} == set(HOSTS)


@pytest.mark.parametrize("is_noticed", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_partitions_stay_writable_while_any_machine_is_down(seed: int, is_noticed: bool) -> None:
    world = MachineWorld(seed, min_isr=2)
    for host in HOSTS:
        world.kill_machine(host, is_noticed=is_noticed)
        # An elected leader has all acknowledged records: the world checks this at each election.
        world.await_writable()
        live = {broker for broker, machine in MACHINES.items() if machine != host}
        world.run_until(lambda live=live: world.unfenced() == live)
        assert all(set(each.isr) <= live for each in world.partitions().values())
        assert all(len(each.isr) == 2 for each in world.partitions().values())
        world.start_machine(host)
        world.await_full_isr()


def test_topics_made_while_a_machine_is_down_have_a_replica_on_it_when_it_returns() -> None:
    world = MachineWorld(5, min_isr=2)
    world.kill_machine("host2")
    world.await_writable()
    world.run_until(lambda: len(world.unfenced()) == 4)
    world.create_topic("later", 6, 3)
    world.start_machine("host2")
    world.await_full_isr()
    for (name, _), partition in world.partitions().items():
        assert {MACHINES[replica] for replica in partition.replicas} == set(HOSTS), name
