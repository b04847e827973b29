"""Start, memory and lookup latency of the schema registry, with another registry beside it.

Starts `barnabas registry` beside a broker, registers a schema in 100 subjects, and asks for one by
its id over one connection that stays open. `--peer URL` asks another registry with Confluent's
interface in turns with it, and `--peer-pid PID` shows the memory of the peer.

`python -m bench.registry --count 5000`. On a busy machine, compare both registries only.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import time
from pathlib import Path
from urllib.parse import urlsplit

from barnabas.serializers import Schema, SchemaRegistry
from barnabas.testing.broker_process import BROKER_SETTINGS, BrokerProcess
from barnabas.testing.registry_process import RegistryProcess

SUBJECTS = 100
_SHARES = (0.5, 0.99, 0.999)


class Lookups:
    """GET /schemas/ids/N over one connection, with the times of all requests (s)."""

    def __init__(self, name: str, url: str) -> None:
        self.name = name
        self.times: list[float] = []
        registry = SchemaRegistry(url)
        for number in range(SUBJECTS):
            fields = [{"name": f"field{number}", "type": "string"}]
            text = json.dumps({"type": "record", "name": f"R{number}", "fields": fields})
            self._id = registry.register(f"bench-{number}", Schema(text))
        parts = urlsplit(url)
        assert parts.hostname is not None
        self._path = f"{parts.path}/schemas/ids/{self._id}"
        self._connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=60)

    def run(self, count: int) -> None:
        """Send requests, one after the other."""
        for _ in range(count):
            began = time.perf_counter()
            self._connection.request("GET", self._path)
            with self._connection.getresponse() as response:
                body = response.read()
            self.times.append(time.perf_counter() - began)
            assert response.status == 200, body

    def report(self) -> None:
        """Print the percentiles."""
        found = sorted(self.times)
        shown = [
            f"p{100 * share:g} {1000 * found[int(share * len(found))]:.2f} ms" for share in _SHARES
        ]
        print(f"{self.name:10} {len(found)} lookups   {'   '.join(shown)}")


def memory_mib(pid: int) -> float:
    """Return the resident memory of a process and its children, without what they share."""
    total = 0
    for each in (pid, *_children(pid)):
        for line in Path(f"/proc/{each}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1])
    return total / 1024


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += [int(child), *_children(int(child))]
    return found


def _start_s(broker: BrokerProcess) -> float:
    began = time.perf_counter()
    with RegistryProcess(broker.bootstrap):
        return time.perf_counter() - began


def main() -> None:
    """Print start, memory and latency."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--peer", metavar="URL")
    parser.add_argument("--peer-pid", type=int)
    given = parser.parse_args()
    print(f"load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
    with BrokerProcess(settings=BROKER_SETTINGS) as broker:
        starts = sorted(_start_s(broker) for _ in range(5))
        print(f"start      fastest {starts[0]:.2f} s   median {starts[2]:.2f} s")
        with RegistryProcess(broker.bootstrap) as registry:
            loads = [Lookups("barnabas", registry.url)]
            if given.peer:
                loads.append(Lookups("peer", given.peer))
            for _ in range(10):
                for load in loads:
                    load.run(given.count // 10)
            print(f"memory     {memory_mib(registry.pid):.0f} MiB")
            if given.peer_pid:
                print(f"peer       {memory_mib(given.peer_pid):.0f} MiB")
            for load in loads:
                load.report()


if __name__ == "__main__":
    main()
