"""`python -m bench.steps`: number of interpreter instructions of a Produce and a Fetch.

`python -m bench.steps --acls 10000` counts them with an authorizer and this number of entries.
`python -m bench.steps --in-flight 16` sends 16 requests at once, and counts those of one request.
`python -m bench.steps --replicas` counts those of each of three nodes for a Produce with acks=all.

For a single request, code and branches are not in the processor's caches, so each instruction
costs about 15 ns. Their number is therefore more reliable than a clock on a busy machine. The most
frequent number is shown, because every 4 KB an append also adds index entries.
"""

from __future__ import annotations

import argparse
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from barnabas import Admin
from barnabas.client.admin.acls import Acl
from barnabas.network import connection as connection_module
from barnabas.protocol.resources import AclOperation, AclResourceType, PatternType
from barnabas.runtime.loop import ProcessControl, Runtime, run
from barnabas.server.configs.config import STANDARD_AUTHORIZER
from barnabas.server.configs.configuration import read_configuration
from barnabas.server.process.node import Node
from bench.brokers import Broker
from bench.flame import TOPIC, fetch_request
from bench.loads import create_topic, produce_request
from bench.replicated_steps import count_replicated

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    Trace = Callable[[FrameType, str, Any], Any]

REQUESTS = 20
# Time (s) for work after the response.
SETTLED_S = 0.05
BEGIN_MS = 20.0
ROWS = 25
ACLS_AT_ONCE = 2_000
# Share of a turn for the requests of one read (ms): counting makes each request many times slower.
SHARE_MS = 60_000.0


class Steps:
    """Counts the instructions of the traced thread."""

    def __init__(self) -> None:
        self.by_function: Counter[str] = Counter()
        # Whether counting may begin, because the topic and the entries exist.
        self.is_due = False
        self.is_tracing = False

    def trace(self, frame: FrameType, event: str, _argument: Any) -> Trace:
        """Count an instruction. The interpreter calls this method."""
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        if event == "opcode":
            code = frame.f_code
            self.by_function[f"{Path(code.co_filename).name}:{code.co_qualname}"] += 1
        return self.trace


def count(steps: Steps, address: str, request: bytes, in_flight: int) -> Counter[str]:
    """Return the instructions of `in_flight` requests with the most frequent number."""
    host, port = address.rsplit(":", 1)
    counted: list[Counter[str]] = []
    with (
        socket.create_connection((host, int(port))) as connection,
        connection.makefile("rb") as responses,
    ):
        for _ in range(REQUESTS):
            steps.by_function = Counter()
            connection.sendall(request * in_flight)
            for _ in range(in_flight):
                responses.read(int.from_bytes(responses.read(4)))
            time.sleep(SETTLED_S)
            counted.append(steps.by_function)
    usual = Counter(each.total() for each in counted).most_common(1)[0][0]
    return next(each for each in counted if each.total() == usual)


def measure(steps: Steps, address: str, control: ProcessControl, acls: int, in_flight: int) -> None:
    """Run the client in a separate thread, then end the process."""
    create_topic(Broker("barnabas", address, psutil.Process(), 0.0), TOPIC, 1)
    if acls:
        create_acls(address, acls)
    steps.is_due = True
    while not steps.is_tracing:
        time.sleep(SETTLED_S)
    for name, request in (("Produce", produce_request(TOPIC)), ("Fetch", fetch_request())):
        show(name, count(steps, address, request, in_flight), in_flight)
    control.request_stop()


def show(name: str, found: Counter[str], requests: int = 1) -> None:
    """Print the functions with the most instructions, per request."""
    print(f"{name}: {found.total() / requests:.0f} steps in {len(found)} functions")
    for function, number in found.most_common(ROWS):
        print(f"{number / requests:6.0f} {function}")


def create_acls(address: str, count: int) -> None:
    """Create entries of other users, and one entry that allows the requests."""
    all_operations = {"principal": "User:ANONYMOUS", "operation": AclOperation.ALL}
    entries = [
        Acl(AclResourceType.TOPIC, TOPIC, **all_operations),
        Acl(AclResourceType.CLUSTER, "kafka-cluster", **all_operations),
    ]
    for number in range(count - len(entries)):
        pattern = PatternType.PREFIXED if number % 2 else PatternType.LITERAL
        name = f"team-{number:05}-"[: 8 + number % 4] if number % 2 else f"topic-{number}"
        user = f"User:user-{number % 500}"
        entries.append(
            Acl(AclResourceType.TOPIC, name, user, AclOperation.READ, pattern_type=pattern)
        )
    with Admin(address) as admin:
        for start in range(0, len(entries), ACLS_AT_ONCE):
            admin.create_acls(entries[start : start + ACLS_AT_ONCE])


def main() -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--acls", type=int, default=0, metavar="N")
    parser.add_argument("--in-flight", type=int, default=1, metavar="N")
    parser.add_argument("--replicas", action="store_true")
    options = parser.parse_args()
    if options.replicas:
        for name, found in count_replicated().items():
            show(name, found)
        return
    acls, in_flight = options.acls, options.in_flight
    connection_module.SHARE_MS = SHARE_MS
    steps = Steps()

    def start(runtime: Runtime, control: ProcessControl) -> None:
        def on_ready(address: str) -> None:
            arguments = (steps, address, control, acls, in_flight)
            threading.Thread(target=measure, args=arguments).start()

        settings = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": directory}
        if acls:
            settings["authorizer.class.name"] = STANDARD_AUTHORIZER
            settings["allow.everyone.if.no.acl.found"] = "true"

        def begin() -> None:
            steps.is_tracing = steps.is_due
            if steps.is_due:
                # It measures at most 200 times a second, so most requests do not pay for it.
                runtime.watch.end()
                sys.settrace(steps.trace)
            else:
                runtime.timer.call_later(BEGIN_MS, begin)

        Node(read_configuration(settings), runtime, on_ready, control.fail).start()
        begin()

    with tempfile.TemporaryDirectory() as directory:
        run(start)


if __name__ == "__main__":
    main()
