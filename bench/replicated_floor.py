"""`python -m bench.replicated_floor`: the least time that a replicated write takes on a machine.

Four bare processes exchange messages of the same sizes, in the same order, as a client, a leader
and two followers of `bench.replication` for a write with acks=all. They only receive, write to a
file and send. So the round trip is that of the kernel: its sockets, its files and its scheduler.

With `--work`, the leader and the followers also compute for that number of µs per message that they
receive. A write has five of these messages: three of the leader, and one of each follower.
"""

from __future__ import annotations

import argparse
import os
import select
import signal
import tempfile
import time
from functools import partial
from typing import TYPE_CHECKING

import psutil

from bench.floors import connected_pair

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

# Bytes of the messages.
PRODUCE, PRODUCED, FETCH, FETCHED = 240, 60, 110, 280
BATCH = 170
FOLLOWERS = 2
ROUND_TRIPS = 4_000


def work_for(microseconds: float) -> None:
    """Use the processor for that time."""
    end = time.perf_counter() + microseconds / 1e6
    while microseconds and time.perf_counter() < end:
        pass


def _log_file() -> int:
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def lead(client: socket.socket, followers: list[socket.socket], work: float) -> None:
    """Append each record, answer the waiting fetches, then acknowledge when all fetch again."""
    log, end, batch = _log_file(), 0, bytes(BATCH)
    poll = select.epoll()
    for each in (client, *followers):
        poll.register(each, select.EPOLLIN)
    missing = 0
    while True:
        for ready, _ in poll.poll():
            work_for(work)
            if ready == client.fileno():
                client.recv(4096)
                end += os.pwrite(log, batch, end)
                missing = len(followers)
                for each in followers:
                    each.send(bytes(FETCHED))
                continue
            next(each for each in followers if each.fileno() == ready).recv(4096)
            missing -= 1
            if missing == 0:
                client.send(bytes(PRODUCED))


def follow(leader: socket.socket, work: float) -> None:
    """Append what each response has, and fetch again."""
    log, end, batch = _log_file(), 0, bytes(BATCH)
    poll = select.epoll()
    poll.register(leader, select.EPOLLIN)
    while True:
        poll.poll()
        leader.recv(4096)
        work_for(work)
        end += os.pwrite(log, batch, end)
        leader.send(bytes(FETCH))


def _start(run: Callable[[], None]) -> psutil.Process:
    pid = os.fork()
    if pid == 0:
        try:
            run()
        finally:
            os._exit(1)
    return psutil.Process(pid)


def _seconds(processes: list[psutil.Process]) -> float:
    return sum(sum(each.cpu_times()[:2]) for each in processes)


def measure(work: float, count: int) -> tuple[float, float, float]:
    """Return p50, p99 and the processor time of the three servers of a round trip, in µs."""
    client, accepted = connected_pair()
    pairs = [connected_pair() for _ in range(FOLLOWERS)]
    processes = [_start(partial(lead, accepted, [leading for leading, _ in pairs], work))]
    processes += [_start(partial(follow, following, work)) for _, following in pairs]
    times, request = [], bytes(PRODUCE)
    try:
        for number in range(count):
            if number == count // 4:
                before = _seconds(processes)
            started = time.perf_counter()
            client.sendall(request)
            client.recv(4096)
            times.append((time.perf_counter() - started) * 1e6)
        spent = _seconds(processes) - before
    finally:
        for each in processes:
            each.send_signal(signal.SIGKILL)
            each.wait()
    counted = sorted(times[count // 4 :])
    return (
        counted[len(counted) // 2],
        counted[len(counted) * 99 // 100],
        spent * 1e6 / len(counted),
    )


def main() -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=float, nargs="*", default=[0.0], help="µs per message")
    parser.add_argument("--round-trips", type=int, default=ROUND_TRIPS)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    for _ in range(options.rounds):
        for work in options.work:
            p50, p99, cpu = measure(work, options.round_trips)
            print(f"work {work:.0f} µs: p50 {p50:.0f} µs, p99 {p99:.0f} µs, CPU {cpu:.0f} µs")


if __name__ == "__main__":
    main()
