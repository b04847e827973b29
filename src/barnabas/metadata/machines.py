"""The machines of a cluster. A machine may have several brokers and a controller.

A machine fails as a whole, so replicas of a partition and voters belong on different machines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping

    from barnabas.metadata.broker_registration import BrokerRegistration, ControllerRegistration


def machine_of(registration: BrokerRegistration | ControllerRegistration) -> str:
    """Return the machine of a broker or controller: the hosts of its advertised endpoints.

    Two processes share a machine if their listeners have the same hosts. Thus an address that all
    machines share for outside clients, for example of a router, does not make them one machine:
    their listeners for each other have different hosts. Kafka's registrations have no field for a
    machine, and Kafka's controllers would drop an added one from their snapshots.

    Returns:
        The hosts in lower case, in alphabetical order, separated by commas.
    """
    return ",".join(sorted({each.host.lower() for each in registration.listeners.values()}))


def told_apart(machines: Mapping[int, str | None], brokers: Iterable[int]) -> dict[int, Hashable]:
    """Return the machine of each broker; if all brokers share one, as if each had its own.

    Args:
        machines: Machine by broker. A broker that is missing, or has None, is alone on its machine.
        brokers: The brokers that may get replicas.
    """
    found: dict[int, Hashable] = {}
    for broker in brokers:
        machine = machines.get(broker)
        found[broker] = broker if machine is None else machine
    return found if len(set(found.values())) > 1 else {broker: broker for broker in found}


def ids_by_machine(machines: Mapping[int, str]) -> dict[str, list[int]]:
    """Return the ids of the processes on each machine, all in ascending order of the ids."""
    found: dict[str, list[int]] = {}
    for each, machine in sorted(machines.items()):
        found.setdefault(machine, []).append(each)
    return found
