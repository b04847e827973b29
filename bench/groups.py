"""`python -m bench.groups`: cost and speed of many consumer groups on one broker.

Every member is a separate connection that joins and sends heartbeats as clients do, by the classic
protocol or with `--protocol consumer` by the new one (KIP-848). The benchmark prints the broker's
processor time and memory, the time until all groups are stable, the time of a heartbeat, and the
response time for another client. It prints them again after one member of each group has left.
`--bootstrap HOST:PORT --pid PID` measures another broker, for example Apache Kafka. 1,000 groups
need `ulimit -n 4096` or more. `--groups 1 --members 1000 --partitions 1000` measures one large
group.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import psutil
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.protocol.codec import decode_response, encode_request
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.connection import ApiVersionsRequest
from barnabas.protocol.messages.groups import (
    ConsumerGroupHeartbeatRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    TopicPartitionsRequest,
)
from barnabas.protocol.messages.metadata import FindCoordinatorRequest
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
TOPIC = "flights"
PROBE_S = 0.005
# Group epoch of a consumer group before its first member.
FIRST_EPOCH = 1


@dataclass
class Progress:
    """State that all members share."""

    target: int
    # Number of members with an assignment, by group.
    settled: dict[str, int] = field(default_factory=dict)
    stable_at: float = 0.0
    heartbeat_ms: list[float] = field(default_factory=list)
    probe_ms: list[float] = field(default_factory=list)
    errors: dict[str, int] = field(default_factory=dict)

    def note(self, group: str, change: int) -> None:
        """Count a member of the group that got or lost its assignment."""
        self.settled[group] = self.settled.get(group, 0) + change
        if sum(self.settled.values()) == self.target:
            self.stable_at = time.perf_counter()


class Member:
    """A member of the classic protocol, with its connection."""

    def __init__(self, group: str, progress: Progress) -> None:
        self.group = group
        self.progress = progress
        self._is_settled = False
        self._correlation_id = 0
        self.id = ""
        self._generation = -1

    async def connect(self, host: str, port: int) -> None:
        """Open the connection."""
        self._reader, self._writer = await asyncio.open_connection(host, port)

    async def exchange(self, request: Message, version: int) -> Any:
        """Send a request and wait for the response."""
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
                error = (await self.exchange(request, 4)).error_code
                self.progress.heartbeat_ms.append((time.perf_counter() - started) * 1_000)
                if error:
                    self._unsettle()
                    break

    async def _join_and_sync(self) -> bool:
        joined = await self.exchange(
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
            self.count(joined.error_code)
            self.id = joined.member_id
            return False
        self.id, self._generation = joined.member_id, joined.generation_id
        synced = await self.exchange(
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
            self.count(synced.error_code)
            return False
        self.settle()
        return True

    async def leave(self) -> None:
        """Leave the group."""
        members = [MemberIdentity(member_id=self.id)]
        await self.exchange(LeaveGroupRequest(group_id=self.group, members=members), 5)
        self._unsettle()

    async def heartbeat(self, request: Any, version: int) -> Any:
        """Send a heartbeat that has a member epoch, and note how long the response took.

        Returns: the response; None after an error, which is counted.
        """
        started = time.perf_counter()
        response = await self.exchange(request, version)
        if request.member_epoch:
            self.progress.heartbeat_ms.append((time.perf_counter() - started) * 1_000)
        if not response.error_code:
            return response
        self.count(response.error_code)
        await asyncio.sleep(0.1)
        return None

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()

    def settle(self) -> None:
        """Record that the member has its assignment."""
        if not self._is_settled:
            self._is_settled = True
            self.progress.note(self.group, 1)

    def _unsettle(self) -> None:
        if self._is_settled:
            self._is_settled = False
            self.progress.note(self.group, -1)

    def count(self, error: int) -> None:
        """Count an error of a response."""
        name = ErrorCode(error).name
        self.progress.errors[name] = self.progress.errors.get(name, 0) + 1


class ConsumerMember(Member):
    """A member of the consumer protocol, with its connection."""

    def __init__(self, group: str, progress: Progress, members: int) -> None:
        super().__init__(group, progress)
        # Each join and each leave raises the group epoch by one.
        self.settled_epoch = FIRST_EPOCH + members

    async def live(self) -> None:
        """Join, and send heartbeats until cancelled."""
        self.id, epoch, pause_s = str(uuid.uuid4()), 0, 0.0
        owned: list[TopicPartitionsRequest] | None = []
        while True:
            request = ConsumerGroupHeartbeatRequest(
                group_id=self.group, member_id=self.id, member_epoch=epoch, topic_partitions=owned
            )
            if not epoch:
                request.subscribed_topic_names = [TOPIC]
                request.rebalance_timeout_ms = 300_000
            response = await self.heartbeat(request, 1)
            if response is None:
                continue
            owned, epoch = None, response.member_epoch
            if response.assignment is not None:
                owned = [
                    TopicPartitionsRequest(topic_id=each.topic_id, partitions=each.partitions)
                    for each in response.assignment.topic_partitions
                ]
            if epoch >= self.settled_epoch:
                self.settle()
            pause_s = response.heartbeat_interval_ms / 1_000
            # Clients confirm a revocation at once.
            await asyncio.sleep(pause_s if owned is None else min(pause_s, 0.1))

    async def leave(self) -> None:
        """Leave the group."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group, member_id=self.id, member_epoch=-1
        )
        await self.exchange(request, 1)
        self._unsettle()

    def await_next_epoch(self) -> None:
        """Wait for the assignment of the next epoch, because a member has left."""
        self.settled_epoch += 1
        self._unsettle()


class Probe(Member):
    """A client that measures the response times of small requests."""

    async def live(self) -> None:
        """Send requests until cancelled."""
        while True:
            started = time.perf_counter()
            await self.exchange(ApiVersionsRequest(), 0)
            self.progress.probe_ms.append((time.perf_counter() - started) * 1_000)
            await asyncio.sleep(PROBE_S)


class Meter:
    """Processor time and memory of the broker."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)

    def cpu_seconds(self) -> float:
        """Return the user and system time so far."""
        times = self._process.cpu_times()
        return float(times.user + times.system)

    def resident_mb(self) -> float:
        """Return the resident memory."""
        return float(self._process.memory_info().rss) / 1e6


async def until_stable(progress: Progress) -> None:
    """Wait until all groups are stable."""
    progress.stable_at = 0.0
    while not progress.stable_at:
        await asyncio.sleep(0.02)


@dataclass(frozen=True)
class Size:
    """Size of a run: number of groups, members per group, duration and protocol."""

    groups: int
    members: int
    seconds: float
    protocol: str


def make_members(size: Size, progress: Progress) -> list[Member]:
    """Return the members of all groups, the last ones of each group at the end."""
    names = [f"group-{n % size.groups}" for n in range(size.groups * size.members)]
    if size.protocol == "consumer":
        return [ConsumerMember(name, progress, size.members) for name in names]
    return [Member(name, progress) for name in names]


def describe_probe(progress: Progress) -> str:
    """Return the response times of the probe as text, and reset them."""
    marks, longest = statistics.quantiles(progress.probe_ms, n=100), max(progress.probe_ms)
    progress.probe_ms.clear()
    figures = f"p50 {marks[49]:.1f}, p99 {marks[98]:.1f}, max {longest:.1f} ms"
    return f"response times of another client: {figures}"


async def measure(address: str, meter: Meter, size: Size) -> None:
    """Run the members and print the figures."""
    host, _, port = address.rpartition(":")
    groups, members = size.groups, size.members
    progress = Progress(groups * members)
    all_members = make_members(size, progress)
    probe = Probe("", progress)
    await probe.connect(host, int(port))
    memory = meter.resident_mb()
    for start in range(0, len(all_members), CONNECTS_AT_ONCE):
        batch = all_members[start : start + CONNECTS_AT_ONCE]
        await asyncio.gather(*(each.connect(host, int(port)) for each in batch))
    while (await all_members[0].exchange(FindCoordinatorRequest(key="g"), 0)).error_code:
        await asyncio.sleep(0.1)
    await asyncio.sleep(1)
    connected = meter.resident_mb()
    print(f"memory: {memory:.0f} MB idle, {connected:.0f} MB with {len(all_members)} connections")
    started, cpu = time.perf_counter(), meter.cpu_seconds()
    probing = asyncio.create_task(probe.live())
    tasks = [asyncio.create_task(each.live()) for each in all_members]
    await until_stable(progress)
    print(
        f"{groups} groups of {members} stable after {progress.stable_at - started:.2f} s, "
        f"{meter.cpu_seconds() - cpu:.2f} s of CPU, {meter.resident_mb():.0f} MB, {progress.errors}"
    )
    print(describe_probe(progress))
    await asyncio.sleep(HEARTBEAT_S)
    progress.heartbeat_ms.clear()
    cpu, started = meter.cpu_seconds(), time.perf_counter()
    await asyncio.sleep(size.seconds)
    taken = time.perf_counter() - started
    marks = statistics.quantiles(progress.heartbeat_ms, n=100)
    print(
        f"{len(progress.heartbeat_ms) / taken:.0f} heartbeats a second: "
        f"{100 * (meter.cpu_seconds() - cpu) / taken:.1f} % of a core, "
        f"p50 {marks[49]:.2f} ms, p99 {marks[98]:.2f} ms (busy client included)"
    )
    progress.probe_ms.clear()
    leaving = all_members[-groups:]
    for task in tasks[-groups:]:
        task.cancel()
    progress.target -= groups
    for each in all_members[:-groups]:
        if isinstance(each, ConsumerMember):
            each.await_next_epoch()
    cpu, started = meter.cpu_seconds(), time.perf_counter()
    for each in leaving:
        with contextlib.suppress(asyncio.IncompleteReadError):
            await each.connect(host, int(port))
            await each.leave()
    await until_stable(progress)
    print(
        f"one member of each group has left: stable after {progress.stable_at - started:.2f} s "
        f"(other members detect it by their heartbeats, every {HEARTBEAT_S:.0f} s), "
        f"{meter.cpu_seconds() - cpu:.2f} s of CPU"
    )
    print(describe_probe(progress))
    for task in (*tasks, probing):
        task.cancel()
    await asyncio.gather(*tasks, probing, return_exceptions=True)
    for each in (*all_members, probe):
        each.close()


@contextlib.contextmanager
def broker(delay_ms: int) -> Iterator[BrokerProcess]:
    """Run Barnabas with an initial rebalance delay."""
    with BrokerProcess(settings={"group.initial.rebalance.delay.ms": str(delay_ms)}) as process:
        yield process


def create_topic(bootstrap: str, partitions: int) -> None:
    """Create the topic that the members subscribe to."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for created in admin.create_topics([NewTopic(TOPIC, partitions, 1)]).values():
        created.result(60)


def main() -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, default=1_000)
    parser.add_argument("--members", type=int, default=2)
    parser.add_argument("--delay-ms", type=int, default=3_000, help="initial rebalance delay")
    parser.add_argument("--partitions", type=int, default=1, help="partitions of the topic")
    parser.add_argument("--protocol", choices=("classic", "consumer"), default="classic")
    parser.add_argument("--seconds", type=float, default=15.0, help="duration of the heartbeats")
    parser.add_argument("--bootstrap", help="address of a running broker")
    parser.add_argument("--pid", type=int, help="process id of that broker")
    options = parser.parse_args()
    size = Size(options.groups, options.members, options.seconds, options.protocol)
    if options.bootstrap:
        create_topic(options.bootstrap, options.partitions)
        asyncio.run(measure(options.bootstrap, Meter(options.pid), size))
        return
    with broker(options.delay_ms) as process:
        create_topic(process.bootstrap, options.partitions)
        asyncio.run(measure(process.bootstrap, Meter(process.pid), size))


if __name__ == "__main__":
    main()
