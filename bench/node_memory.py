"""`python -m bench.node_memory`: memory and connections of the processes of a node.

The table has each process of a node of `--brokers N`, idle and after a load on all brokers, in MB:
memory of its own (pages that no other process has), its proportional share with the pages that
several processes have, and all that is mapped. The row *in all* is what the node costs. Then there
are the connections between the processes, and the cost of one broker more.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import psutil
from rich.table import Table

from bench import brokers
from bench.loads import temporary_topic
from bench.node import CLIENTS, MEMORY, PARTITIONS, SETTINGS, broker_ids, leaders_of
from bench.raw_load import prepared_batch, read_batches, run_clients, send_batches
from bench.report import machine, new_console, write_figures

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.brokers import Broker

SETTLED_S = 5.0
LOAD_BYTES = 200_000_000


class Memory(NamedTuple):
    """Memory of a process, MB."""

    own: float
    proportional: float
    resident: float


def memory_of(process: psutil.Process) -> Memory:
    """Return the memory of a process."""
    sizes = dict.fromkeys(("Private_Clean", "Private_Dirty", "Pss", "Rss"), 0.0)
    for line in Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, size = line.split()[:2]
        sizes[name.rstrip(":")] = int(size) * 1024 / 1e6
    return Memory(sizes["Private_Clean"] + sizes["Private_Dirty"], sizes["Pss"], sizes["Rss"])


def role_of(process: psutil.Process) -> str:
    """Return what a process of a node is."""
    words = process.cmdline()
    text = " ".join(words)
    if "process_template" in text:
        return "template"
    if "--brokers" in words:
        return "supervisor"
    ids = [word for word in text.split() if word.startswith("node.id=")]
    return f"process {ids[-1]}" if ids else text


def connections_between(processes: Sequence[psutil.Process]) -> Counter[str]:
    """Return the number of connections by their two processes, each connection once."""
    owners = {}
    listening = set()
    for process in processes:
        for each in process.net_connections("tcp"):
            if each.status == psutil.CONN_LISTEN:
                listening.add(each.laddr)
            elif each.status == psutil.CONN_ESTABLISHED:
                owners[each.laddr, each.raddr] = role_of(process)
    return Counter(
        f"{name} to {owners[there, here]}"
        for (here, there), name in owners.items()
        if (there, here) in owners and there in listening
    )


def use(server: Broker) -> None:
    """Produce to all brokers and consume it."""
    ids = broker_ids(server)
    batch = prepared_batch(100, 16 * 1024)
    replicas = [[ids[number % len(ids)]] for number in range(PARTITIONS)]
    with temporary_topic(server, "memory", replicas=replicas) as topic:
        leaders = leaders_of(server, topic)
        for work in (
            partial(send_batches, topic, leaders, batch, LOAD_BYTES // CLIENTS, 1),
            partial(read_batches, topic, leaders, batch, LOAD_BYTES // CLIENTS),
        ):
            run_clients([work] * CLIENTS)
    time.sleep(SETTLED_S)


def main() -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--brokers", type=int, nargs="*", default=[1, 2, 4], metavar="N")
    parser.add_argument("--json", type=Path, help="file for the figures")
    options = parser.parse_args()
    console = new_console(120)
    tempfile.tempdir = MEMORY
    figures: dict[str, object] = {}
    totals: dict[int, float] = {}
    for count in options.brokers:
        with brokers.running_node(SETTINGS, count) as server:
            time.sleep(SETTLED_S)
            processes = [server.process, *server.others]
            idle = [memory_of(each) for each in processes]
            connections = connections_between(processes)
            use(server)
            loaded = [memory_of(each) for each in processes]
            roles = [role_of(each) for each in processes]
        table = Table(title=f"node of {count} brokers, MB; {machine()}")
        for column in (
            "",
            "own, idle",
            "share, idle",
            "mapped, idle",
            "own, after",
            "share, after",
        ):
            table.add_column(column, justify="left" if not column else "right")
        for role, before, after in zip(roles, idle, loaded, strict=True):
            cells = (
                before.own,
                before.proportional,
                before.resident,
                after.own,
                after.proportional,
            )
            table.add_row(role, *(f"{cell:.1f}" for cell in cells))
        totals[count] = sum(each.proportional for each in idle)
        after_all = sum(each.proportional for each in loaded)
        table.add_row("in all", "", f"{totals[count]:.1f}", "", "", f"{after_all:.1f}")
        console.print(table)
        console.print(f"{connections.total()} connections:", dict(connections))
        figures[f"{count} brokers"] = {
            "idle": dict(zip(roles, idle, strict=True)),
            "after": dict(zip(roles, loaded, strict=True)),
            "connections": connections,
        }
    if len(totals) > 1:
        first, last = min(totals), max(totals)
        each = (totals[last] - totals[first]) / (last - first)
        console.print(f"one broker more costs {each:.1f} MB")
    write_figures(options.json, figures)


if __name__ == "__main__":
    main()
