"""The list of brokers on the console's first page."""

from __future__ import annotations

from barnabas.client.connections.metadata_cache import NodeInfo
from barnabas.console.pages.cluster import broker_columns, broker_row


def columns(*hosts: str) -> list[str]:
    """Return the columns of the list of brokers on these hosts."""
    rows = [broker_row(NodeInfo(n, host, 9000 + n), None, {}) for n, host in enumerate(hosts)]
    return [column.key for column in broker_columns(rows)]


def test_machines_are_shown_if_one_has_several_brokers() -> None:
    assert "machine" in columns("host1", "HOST1", "host2")
    assert "machine" in columns("host1", "host1")
    assert "machine" not in columns("host1", "host2")
    assert "machine" not in columns("host1")


def test_the_machine_of_a_broker_is_its_host() -> None:
    row = broker_row(NodeInfo(1, "HOST1", 9092), None, {}, is_fenced=True)
    [machine] = [each for each in broker_columns([row, row]) if each.key == "machine"]
    assert machine.value is not None
    assert machine.value(row) == "host1"
