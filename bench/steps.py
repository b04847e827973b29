"""`python -m bench.steps`: how many steps of the interpreter a Produce and a Fetch take, and where.

A request is served once, so its steps find neither code nor branches in the processor's caches: a
step costs 15 ns, whatever it does, and their number says more than a clock on a busy machine. What
most of the requests take is shown: every 4 KB an append makes entries of the indexes too.
"""

from __future__ import annotations

import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from barnabas.runtime.loop import ProcessControl, Runtime, run
from barnabas.server.configs.configuration import read_configuration
from barnabas.server.process.node import Node
from bench.brokers import Broker
from bench.flame import TOPIC, fetch_request
from bench.loads import create_topic, produce_request

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    Trace = Callable[[FrameType, str, Any], Any]

REQUESTS = 20
# What is done after an answer has left is done by then.
SETTLED_S = 0.05
ROWS = 25


class Steps:
    """Counts the instructions of the thread that it is set to trace."""

    def __init__(self) -> None:
        self.by_function: Counter[str] = Counter()

    def trace(self, frame: FrameType, event: str, _argument: Any) -> Trace:
        """Called by the interpreter."""
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        if event == "opcode":
            code = frame.f_code
            self.by_function[f"{Path(code.co_filename).name}:{code.co_qualname}"] += 1
        return self.trace


def count(steps: Steps, address: str, request: bytes) -> Counter[str]:
    """The steps of a request that took as many as most do."""
    host, port = address.rsplit(":", 1)
    counted: list[Counter[str]] = []
    with socket.create_connection((host, int(port))) as connection:
        for _ in range(REQUESTS):
            steps.by_function = Counter()
            connection.sendall(request)
            connection.recv(65536)
            time.sleep(SETTLED_S)
            counted.append(steps.by_function)
    usual = Counter(each.total() for each in counted).most_common(1)[0][0]
    return next(each for each in counted if each.total() == usual)


def measure(steps: Steps, address: str, control: ProcessControl) -> None:
    """The client, in a thread of its own; ends the process."""
    create_topic(Broker("barnabas", address, psutil.Process(), 0.0), TOPIC, 1)
    for name, request in (("Produce", produce_request(TOPIC)), ("Fetch", fetch_request())):
        found = count(steps, address, request)
        print(f"{name}: {found.total()} steps in {len(found)} functions")
        for function, number in found.most_common(ROWS):
            print(f"{number:6} {function}")
    control.request_stop()


def main() -> None:
    """Command line."""
    steps = Steps()

    def start(runtime: Runtime, control: ProcessControl) -> None:
        def on_ready(address: str) -> None:
            threading.Thread(target=measure, args=(steps, address, control)).start()

        settings = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": directory}
        Node(read_configuration(settings), runtime, on_ready, control.fail).start()
        sys.settrace(steps.trace)

    with tempfile.TemporaryDirectory() as directory:
        run(start)


if __name__ == "__main__":
    main()
