"""`python -m bench.flame`: processor time of the broker by stage, for Produce and Fetch.

One client, one request in flight, one record of 100 bytes (Produce v7, acks=1; Fetch v11 of one
batch). py-spy (PyPI), from a separate environment, samples the broker (`--py-spy COMMAND`). The
benchmark draws `docs/images/flame-produce.svg` and `flame-fetch.svg`, and prints microseconds by
stage. py-spy also counts time in which the process waits for a processor, mostly in system calls.
The kernel's user and system times are therefore distributed over the samples of the same kind.
"""

from __future__ import annotations

import argparse
import socket
import subprocess
import tempfile
import threading
import time
from collections import Counter, defaultdict
from html import escape
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

from barnabas.protocol.codec import encode_request
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.testing.broker_process import BrokerProcess
from bench.brokers import Broker, compile_sources
from bench.loads import create_topic, produce_request
from bench.report import machine

TOPIC = "flame"
IMAGES = Path(__file__).parents[1] / "docs" / "images"
RATE = 500
WIDTH, ROW, CHARACTER_WIDTH = 1200, 17, 6.3
FONT = 'font-family="Menlo, Consolas, monospace" font-size="10.5"'
# Share of the narrowest visible box.
SHARE_MIN = 0.002

# Stages by file and method, or by file. The innermost frame in this table determines the stage of a
# stack.
STAGES = {
    "loop_stream.py:write": "send",
    "loop_stream.py:_wrote_at_once": "send",
    "framed_protocol.py:flush": "send",
    "framed_protocol.py:get_buffer": "frame",
    "framed_protocol.py:received": "frame",
    "framed_protocol.py:_cut": "frame",
    "framed_protocol.py:_continue": "frame",
    "framed_protocol.py": "receive",
    "codec.py:decode_request_header": "decode",
    "codec.py:decode": "decode",
    "codec.py:decode_from": "decode",
    "codec.py": "answer",
    "request.py": "answer",
    "connection.py": "answer",
    "validator.py": "validate",
    "append_plan.py": "validate",
    "append_info.py": "validate",
    "producer_state.py": "validate",
    "produced_records.py": "validate",
    "disk.py": "log",
    "segment.py": "log",
    "log.py": "log",
    "local_log.py": "log",
    "readable_log.py": "log",
    "batch_scan.py": "log",
    "segment_indexes.py": "log",
    "replica_appends.py": "replica",
    "leader_role.py": "replica",
    "partition.py": "replica",
    "partition_roles.py": "replica",
    "replica_reads.py": "replica",
    "replica_manager.py": "replica",
    "replica_fetches.py": "replica",
    "fetch.py": "handler",
    "produce.py": "handler",
    "dispatch.py": "dispatch and metrics",
    "listener.py": "dispatch and metrics",
    "request_statistics.py": "dispatch and metrics",
}
CALLS = {
    "writev": "send: system call", "sendto": "send: system call", "write": "send: system call",
    "read": "receive: system call", "recv": "receive: system call",
    "epoll_pwait": "selector: system call", "epoll_wait": "selector: system call",
    "pwrite64": "log: system call", "pwritev": "log: system call", "pread64": "log: system call",
    "preadv2": "log: system call", "preadv64v2": "log: system call",
}  # fmt: skip
COLORS = {
    "selector: system call": "#bdbdbd", "selector": "#e0e0e0", "receive: system call": "#76a5af",
    "receive": "#a2c4c9", "frame": "#b7d7a8", "decode": "#ffe599",
    "dispatch and metrics": "#d9d2e9", "handler": "#e6d5b8", "replica": "#f4cccc",
    "validate": "#d5a6bd", "log": "#c9dfbc",
    "log: system call": "#93c47d", "answer": "#f9cb9c", "send": "#9fc5e8",
    "send: system call": "#6fa8dc",
}  # fmt: skip
# Only frames inside the event loop belong to a request.
LOOP = "uv_run"

# By stack: number of samples, or microseconds per request.
Stacks = dict[tuple[str, ...], float]


class Load:
    """A thread that sends one request repeatedly until it is stopped."""

    def __init__(self, process: BrokerProcess, request: bytes) -> None:
        self._address = (process.host, process.port)
        self._request = request
        self._stopped = threading.Event()
        self.responses = 0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with socket.create_connection(self._address) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while not self._stopped.is_set():
                connection.sendall(self._request)
                response = connection.recv(65536)
                assert int.from_bytes(response[:4]) == len(response) - 4, (
                    "a response arrived in pieces"
                )
                self.responses += 1

    def stop(self) -> None:
        """Stop after the next response."""
        self._stopped.set()
        self._thread.join()


def fetch_request() -> bytes:
    """Return a Fetch v11 request for the first batch."""
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)
    topics = [FetchTopic(topic=TOPIC, partitions=[partition])]
    request = FetchRequest(max_wait_ms=0, min_bytes=1, topics=topics)
    return b"".join(bytes(chunk) for chunk in encode_request(1, "bench", request, 11))


def sample(process: BrokerProcess, py_spy: str, seconds: int) -> Stacks:
    """Return the broker's stacks, with C functions if py-spy finds their names."""
    with tempfile.NamedTemporaryFile() as output:
        command = [py_spy, "record", "--pid", str(process.pid), "--format", "raw", "--native"]
        command += ["--rate", str(RATE), "--duration", str(seconds), "--output", output.name]
        subprocess.run(command, check=True, capture_output=True)
        stacks: Counter[tuple[str, ...]] = Counter()
        for line in Path(output.name).read_text().splitlines():
            stack, _, count = line.rpartition(" ")
            frames = tuple(map(name_of, stack.split(";")))
            if LOOP in frames:
                stacks[frames[frames.index(LOOP) :]] += int(count)
    return dict(stacks)


def name_of(frame: str) -> str:
    """Return "file:function" for a Python frame, and the function for a C frame."""
    function, _, place = frame.partition(" (")
    path = place.rstrip(")").rpartition(":")[0] or place.rstrip(")")
    file = path.rpartition("/")[2]
    return f"{file}:{function}" if file.endswith((".py", ".pyx")) else function


def stage_of(stack: tuple[str, ...]) -> str:
    """Return the stage of the innermost known frame."""
    if stack[-1] in CALLS:
        return CALLS[stack[-1]]
    for frame in reversed(stack):
        file, _, function = frame.partition(":")
        stage = STAGES.get(f"{file}:{function.rpartition('.')[2]}") or STAGES.get(file)
        if stage is not None:
            return stage
    return "selector"


def measure(process: BrokerProcess, request: bytes, py_spy: str, seconds: int) -> Stacks:
    """Return the broker's processor time per request in µs, by stack."""
    load = Load(process, request)
    try:
        time.sleep(1)
        times = psutil.Process(process.pid).cpu_times
        responses, before = load.responses, times()
        time.sleep(seconds)
        after, count = times(), load.responses - responses
        stacks = sample(process, py_spy, seconds)
    finally:
        load.stop()
    spent = {False: after.user - before.user, True: after.system - before.system}
    kinds: Counter[bool] = Counter()
    for stack, samples in stacks.items():
        kinds[stack[-1] in CALLS] += int(samples)
    return {
        stack: samples * 1e6 * spent[is_call] / count / kinds[is_call]
        for stack, samples in stacks.items()
        for is_call in (stack[-1] in CALLS,)
    }


def svg(stacks: Stacks, title: str) -> str:
    """Return the flame graph: one row per depth, with box widths by the share of samples."""
    total = sum(stacks.values())
    boxes: list[str] = []
    deepest = 0

    def draw(group: Stacks, depth: int, left: float) -> None:
        nonlocal deepest
        by_frame: dict[str, Stacks] = {}
        for stack, count in group.items():
            if len(stack) >= depth:
                by_frame.setdefault(stack[depth - 1], {})[stack] = count
        for frame, inner in sorted(by_frame.items()):
            count = sum(inner.values())
            width = WIDTH * count / total
            if count >= SHARE_MIN * total:
                deepest = max(deepest, depth)
                stage = stage_of(next(iter(inner))[:depth])
                boxes.append(box(frame, stage, (left, (depth + 1) * ROW, width), count))
                draw(inner, depth + 1, left)
            left += width

    draw(stacks, 1, 0)
    height = (deepest + 2) * ROW + 4
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" {FONT}>',
            f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
            f'<text x="6" y="19" font-size="14">{escape(title)}</text>',
            *boxes,
            "</svg>\n",
        ]
    )


def box(frame: str, stage: str, place: tuple[float, float, float], us: float) -> str:
    """Return a frame: colored by its stage, with a truncated name and the full name as tool tip."""
    left, top, width = place
    name = frame.rpartition(":")[2][: max(0, int((width - 4) / CHARACTER_WIDTH))]
    color = COLORS[stage]
    text = f'<text x="{left + 3:.1f}" y="{top + 12}">{escape(name)}</text>' if len(name) > 2 else ""
    return (
        f'<g><title>{escape(frame)}: {us:.1f} µs, {stage}</title><rect x="{left:.1f}" y="{top}" '
        f'width="{max(width - 0.5, 0.3):.1f}" height="{ROW - 1}" fill="{color}"/>{text}</g>'
    )


def main() -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--py-spy", default="py-spy", help="the command")
    parser.add_argument("--seconds", type=int, default=15, help="seconds per request type")
    parser.add_argument("--output", type=Path, default=IMAGES)
    options = parser.parse_args()
    compile_sources()
    table = Table("stage, µs", "Produce", "Fetch", title=machine())
    rows: dict[str, list[str]] = {stage: [] for stage in COLORS}
    totals = []
    with BrokerProcess() as process:
        broker = Broker("barnabas", process.bootstrap, psutil.Process(process.pid), 0.0)
        create_topic(broker, TOPIC, 1)
        for name, request in (("Produce", produce_request(TOPIC)), ("Fetch", fetch_request())):
            stacks = measure(process, request, options.py_spy, options.seconds)
            cpu = sum(stacks.values())
            title = f"{name} of one record of 100 B: {cpu:.0f} µs of the broker's processor time"
            (options.output / f"flame-{name.lower()}.svg").write_text(svg(stacks, title))
            shares: defaultdict[str, float] = defaultdict(float)
            for stack, count in stacks.items():
                shares[stage_of(stack)] += count
            for stage, row in rows.items():
                row.append(f"{shares[stage]:.1f}")
            totals.append(f"{cpu:.0f}")
    for stage, row in rows.items():
        table.add_row(stage, *row)
    table.add_row("in all", *totals)
    Console().print(table)


if __name__ == "__main__":
    main()
