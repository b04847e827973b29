"""Brokers that users name by ids or by their machine, and the names of brokers in messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from barnabas.cli.common.machine_lines import machines_of
from barnabas.cli.common.output import fail

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from barnabas.client.connections.metadata_cache import NodeInfo


def broker_ids(text: str, known: Collection[int], option: str) -> list[int]:
    """Parse ids of brokers, separated by commas; end the command if there is no such broker.

    Raises:
        click.UsageError: The text has another form.
    """
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdigit() for word in words):
        raise click.UsageError(f"{option} {text}: write ids such as 1,2,3")
    ids = sorted({int(word) for word in words})
    absent = [broker for broker in ids if broker not in known]
    if absent:
        fail(f"there is no broker {absent[0]}; the brokers are {sorted(known)}")
    return ids


def brokers_on(host: str, known: Iterable[NodeInfo]) -> list[int]:
    """Return the ids of the brokers on a machine; end the command if there are none."""
    machines = machines_of(known)
    found = sorted(broker for broker, machine in machines.items() if machine == host.lower())
    if not found:
        hosts = ", ".join(sorted(set(machines.values())))
        fail(f"no broker has the host {host}; the hosts are {hosts}")
    return found


def named_brokers(ids: Collection[int]) -> str:
    """Return "broker 1", or "brokers 1, 2"."""
    return f"broker{'' if len(ids) == 1 else 's'} {listed(ids)}"


def listed(ids: Iterable[int]) -> str:
    """Return ids in ascending order, separated by commas."""
    return ", ".join(map(str, sorted(ids)))
