"""The machine of a broker or controller, which replica placement and the commands compare."""

from barnabas.metadata.broker_registration import (
    BrokerRegistration,
    ControllerRegistration,
    Endpoint,
)
from barnabas.metadata.machines import ids_by_machine, machine_of, told_apart


def registered(**hosts: str) -> BrokerRegistration:
    """Return a registration with a listener on each host, by listener name."""
    listeners = {name: Endpoint(host, 9000 + len(name)) for name, host in hosts.items()}
    return BrokerRegistration(1, 1, b"i" * 16, listeners, {})


def test_brokers_whose_listeners_have_the_same_hosts_share_a_machine() -> None:
    one = registered(INTERNAL="10.0.0.1", EXTERNAL="Host1.example.com")
    two = registered(EXTERNAL="host1.example.com", INTERNAL="10.0.0.1")
    assert machine_of(one) == machine_of(two)


def test_brokers_behind_one_public_address_have_machines_of_their_own() -> None:
    machines = {
        machine_of(registered(INTERNAL=f"10.0.0.{number}", EXTERNAL="kafka.example.com"))
        for number in (1, 2, 3)
    }
    assert len(machines) == 3


def test_a_controller_and_a_broker_on_one_host_share_a_machine() -> None:
    controller = ControllerRegistration(1, b"i" * 16, {"CONTROLLER": Endpoint("host1", 9093)}, {})
    assert machine_of(controller) == machine_of(registered(PLAINTEXT="host1"))


def test_brokers_that_all_share_a_machine_are_placed_as_if_each_had_its_own() -> None:
    machines = {1: "a", 2: "a", 3: "b"}
    assert told_apart(machines, [1, 2, 3]) == machines
    assert told_apart(machines, [1, 2]) == {1: 1, 2: 2}
    assert told_apart({1: "a", 2: None}, [1, 2, 3]) == {1: "a", 2: 2, 3: 3}


def test_the_processes_of_a_machine_are_listed_by_their_ids() -> None:
    found = ids_by_machine({3: "a", 2: "b", 1: "b"})
    assert list(found.items()) == [("b", [1, 2]), ("a", [3])]
