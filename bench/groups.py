"""`python -m bench.groups`: many consumer groups on one broker, their cost and their speed.

Every member is a connection of its own that joins, syncs and sends heartbeats as clients do. It
prints the broker's processor time and memory, the time until all groups are stable, the time of a
heartbeat, and the same after one member of each group has left. `--bootstrap HOST:PORT --pid PID`
measures another broker, an Apache Kafka for instance. 1,000 groups want `ulimit -n 4096` or more.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import psutil
from confluent_kafka import Producer

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.headers import decode_response, encode_request
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from barnabas.protocol.schema import Message
from barnabas.testing.broker_process import BrokerProcess

SESSION_MS = 45_000
# librdkafka's default.
HEARTBEAT_S = 3.0
SUBSCRIPTION = b"\x00\x00\x00\x00\x00\x01\x00\x07flights\xff\xff\xff\xff"
ASSIGNMENT = (
    b"\x00\x00\x00\x00\x00\x01\x00\x07flights\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00"
)
CONNECTS_AT_ONCE = 50


@dataclass
class Progress:
    """What all members share."""

    target: int
    # Of each group its generation with so many members that have their assignment.
    settled: dict[str, int] = field(default_factory=dict)
    stable_at: float = 0.0
    heartbeat_ms: list[float] = field(default_factory=list)
    errors: dict[str, int] = field(default_factory=dict)

    def note(self, group: str, change: int) -> None:
        """A member of the group got its assignment, or lost it."""
        self.settled[group] = self.settled.get(group, 0) + change
        if sum(self.settled.values()) == self.target:
            self.stable_at = time.perf_counter()


class Member:
    """One connection."""

    def __init__(self, group: str, progress: Progress) -> None:
        self.group = group
        self._progress = progress
        self._is_settled = False
        self._correlation_id = 0
        self.id = ""
        self._generation = -1

    async def connect(self, host: str, port: int) -> None:
        """Open the connection."""
        self._reader, self._writer = await asyncio.open_connection(host, port)

    async def ask(self, request: Message, version: int) -> Any:
        """Send, and wait for the answer."""
        self._correlation_id += 1
        chunks = encode_request(self._correlation_id, "bench", request, version)
        self._writer.write(b"".join(bytes(each) for each in chunks))
        size = int.from_bytes(await self._reader.readexactly(4))
        frame = await self._reader.readexactly(size)
        return decode_response(type(request), version, frame)[1]

    async def live(self) -> None:
        """Join, sync and send heartbeats until cancelled."""
        while True:
            if not await self._join_and_sync():
                continue
            while True:
                await asyncio.sleep(HEARTBEAT_S)
                request = HeartbeatRequest(
                    group_id=self.group, generation_id=self._generation, member_id=self.id
                )
                started = time.perf_counter()
                error = (await self.ask(request, 4)).error_code
                self._progress.heartbeat_ms.append((time.perf_counter() - started) * 1_000)
                if error:
                    self._unsettle()
                    break

    async def _join_and_sync(self) -> bool:
        joined = await self.ask(
            JoinGroupRequest(
                group_id=self.group,
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=300_000,
                member_id=self.id,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)],
            ),
            9,
        )
        if joined.error_code:
            self._count(joined.error_code)
            self.id = joined.member_id
            return False
        self.id, self._generation = joined.member_id, joined.generation_id
        synced = await self.ask(
            SyncGroupRequest(
                group_id=self.group,
                generation_id=self._generation,
                member_id=self.id,
                protocol_type="consumer",
                protocol_name="range",
                assignments=[
                    SyncGroupRequestAssignment(member_id=each.member_id, assignment=ASSIGNMENT)
                    for each in joined.members
                ],
            ),
            5,
        )
        if synced.error_code:
            self._count(synced.error_code)
            return False
        self._is_settled = True
        self._progress.note(self.group, 1)
        return True

    async def leave(self) -> None:
        """Leave the group."""
        members = [MemberIdentity(member_id=self.id)]
        await self.ask(LeaveGroupRequest(group_id=self.group, members=members), 5)
        self._unsettle()

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()

    def _unsettle(self) -> None:
        if self._is_settled:
            self._is_settled = False
            self._progress.note(self.group, -1)

    def _count(self, error: int) -> None:
        name = ErrorCode(error).name
        self._progress.errors[name] = self._progress.errors.get(name, 0) + 1


class Meter:
    """Processor time and memory of the broker."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)

    def cpu_seconds(self) -> float:
        """User and system time so far."""
        times = self._process.cpu_times()
        return float(times.user + times.system)

    def resident_mb(self) -> float:
        """Resident memory."""
        return float(self._process.memory_info().rss) / 1e6


async def until_stable(progress: Progress) -> None:
    """Wait for the last group."""
    progress.stable_at = 0.0
    while not progress.stable_at:
        await asyncio.sleep(0.02)


async def measure(address: str, meter: Meter, groups: int, members: int, seconds: float) -> None:
    """Run the members and print the figures."""
    host, _, port = address.rpartition(":")
    progress = Progress(groups * members)
    everyone = [Member(f"group-{n % groups}", progress) for n in range(groups * members)]
    memory = meter.resident_mb()
    for start in range(0, len(everyone), CONNECTS_AT_ONCE):
        batch = everyone[start : start + CONNECTS_AT_ONCE]
        await asyncio.gather(*(each.connect(host, int(port)) for each in batch))
    while (await everyone[0].ask(FindCoordinatorRequest(key="g"), 0)).error_code:
        await asyncio.sleep(0.1)
    await asyncio.sleep(1)
    connected = meter.resident_mb()
    print(f"memory: {memory:.0f} MB idle, {connected:.0f} MB with {len(everyone)} connections")
    started, cpu = time.perf_counter(), meter.cpu_seconds()
    tasks = [asyncio.create_task(each.live()) for each in everyone]
    await until_stable(progress)
    print(
        f"{groups} groups of {members} stable after {progress.stable_at - started:.2f} s, "
        f"{meter.cpu_seconds() - cpu:.2f} s of CPU, {meter.resident_mb():.0f} MB, {progress.errors}"
    )
    await asyncio.sleep(HEARTBEAT_S)
    progress.heartbeat_ms.clear()
    cpu, started = meter.cpu_seconds(), time.perf_counter()
    await asyncio.sleep(seconds)
    taken = time.perf_counter() - started
    marks = statistics.quantiles(progress.heartbeat_ms, n=100)
    print(
        f"{len(progress.heartbeat_ms) / taken:.0f} heartbeats a second: "
        f"{100 * (meter.cpu_seconds() - cpu) / taken:.1f} % of a core, "
        f"p50 {marks[49]:.2f} ms, p99 {marks[98]:.2f} ms (busy client included)"
    )
    gone = everyone[-groups:]
    for task in tasks[-groups:]:
        task.cancel()
    progress.target -= groups
    cpu, started = meter.cpu_seconds(), time.perf_counter()
    for each in gone:
        with contextlib.suppress(asyncio.IncompleteReadError):
            await each.connect(host, int(port))
            await each.leave()
    await until_stable(progress)
    print(
        f"one member of each has left: stable again after {progress.stable_at - started:.2f} s "
        f"(heartbeats tell the others, every {HEARTBEAT_S:.0f} s), "
        f"{meter.cpu_seconds() - cpu:.2f} s of CPU"
    )
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for each in everyone:
        each.close()


@contextlib.contextmanager
def broker(delay_ms: int) -> Iterator[BrokerProcess]:
    """Barnabas with the topic that the members name."""
    with BrokerProcess(settings={"group.initial.rebalance.delay.ms": str(delay_ms)}) as process:
        producer = Producer({"bootstrap.servers": process.bootstrap})
        producer.produce("flights", b"x")
        producer.flush(10)
        yield process


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, default=1_000)
    parser.add_argument("--members", type=int, default=2)
    parser.add_argument("--delay-ms", type=int, default=3_000, help="initial rebalance delay")
    parser.add_argument("--seconds", type=float, default=15.0, help="of heartbeats")
    parser.add_argument("--bootstrap", help="a broker that runs already")
    parser.add_argument("--pid", type=int, help="its process")
    options = parser.parse_args()
    size = (options.groups, options.members, options.seconds)
    if options.bootstrap:
        asyncio.run(measure(options.bootstrap, Meter(options.pid), *size))
        return
    with broker(options.delay_ms) as process:
        asyncio.run(measure(process.bootstrap, Meter(process.pid), *size))


if __name__ == "__main__":
    main()
