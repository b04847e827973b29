"""`python -m bench.group_protocols`: many groups of each protocol, compared with Apache Kafka.

1,000 groups of 2 members, classic, consumer (KIP-848), share (KIP-932) and streams (KIP-1071). Each
member is a separate connection that joins and sends heartbeats as clients do. The brokers take
turns, protocol by protocol, after a warm-up with fewer groups. The table has processor time of the
broker until all groups are stable and for their heartbeats, its memory, and the time of a
heartbeat. It needs `ulimit -n 4096` or more. `--json FILE` stores the figures.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import statistics
import time
import uuid
from typing import TYPE_CHECKING

from barnabas.protocol.messages.metadata import FindCoordinatorRequest
from barnabas.protocol.messages.share_consumers import ShareGroupHeartbeatRequest
from barnabas.protocol.messages.streams_groups import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIdsRequest,
    Topology,
)
from bench import brokers
from bench.cases import add_rounds, new_parser
from bench.figures import Figures, show
from bench.groups import (
    CONNECTS_AT_ONCE,
    FIRST_EPOCH,
    HEARTBEAT_S,
    TOPIC,
    ConsumerMember,
    Member,
    Progress,
    create_topic,
    until_stable,
)
from bench.report import installed, new_console, write_figures

if TYPE_CHECKING:
    from bench.brokers import Broker

PROTOCOLS = ("classic", "consumer", "share", "streams")
MEMBERS = 2
# The interval of heartbeats is the same for all protocols: that of librdkafka.
_INTERVAL_MS = str(int(HEARTBEAT_S * 1_000))
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.heartbeat.interval.ms": _INTERVAL_MS,
    "group.consumer.min.heartbeat.interval.ms": _INTERVAL_MS,
    "group.share.heartbeat.interval.ms": _INTERVAL_MS,
    "group.share.min.heartbeat.interval.ms": _INTERVAL_MS,
    "group.streams.heartbeat.interval.ms": _INTERVAL_MS,
    "group.streams.min.heartbeat.interval.ms": _INTERVAL_MS,
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.max.session.timeout.ms": "300000",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "offsets.topic.replication.factor": "1",
}


class ShareMember(Member):
    """One connection of a share group."""

    async def live(self) -> None:
        """Join, and send heartbeats until cancelled."""
        self.id, epoch = str(uuid.uuid4()), 0
        while True:
            request = ShareGroupHeartbeatRequest(
                group_id=self.group,
                member_id=self.id,
                member_epoch=epoch,
                subscribed_topic_names=None if epoch else [TOPIC],
            )
            response = await self.heartbeat(request, 1)
            if response is None:
                continue
            epoch = response.member_epoch
            if response.assignment is not None and response.assignment.topic_partitions:
                self.settle()
            await asyncio.sleep(response.heartbeat_interval_ms / 1_000)


class StreamsMember(Member):
    """One thread of a streams group, which reads the topic."""

    async def live(self) -> None:
        """Join, and send heartbeats until cancelled."""
        self.id, epoch = str(uuid.uuid4()), 0
        process_id, owned = str(uuid.uuid4()), []
        while True:
            request = StreamsGroupHeartbeatRequest(
                group_id=self.group,
                member_id=self.id,
                member_epoch=epoch,
                endpoint_information_epoch=0,
                active_tasks=owned,
                standby_tasks=None if owned is None else [],
                warmup_tasks=None if owned is None else [],
            )
            if not epoch:
                request.topology = _topology()
                request.rebalance_timeout_ms = 300_000
                request.process_id, request.client_tags = process_id, []
            response = await self.heartbeat(request, 0)
            if response is None:
                continue
            owned, epoch = None, response.member_epoch
            if response.active_tasks is not None:
                owned = [
                    TaskIdsRequest(subtopology_id=each.subtopology_id, partitions=each.partitions)
                    for each in response.active_tasks
                ]
            if epoch >= FIRST_EPOCH + MEMBERS:
                self.settle()
            pause_s = response.heartbeat_interval_ms / 1_000
            # Clients confirm a revocation at once.
            await asyncio.sleep(pause_s if owned is None else min(pause_s, 0.1))


def _topology() -> Topology:
    """Return the topology of an application that reads the topic."""
    reader = Subtopology(
        subtopology_id="0",
        source_topics=[TOPIC],
        source_topic_regex=[],
        state_changelog_topics=[],
        repartition_sink_topics=[],
        repartition_source_topics=[],
        copartition_groups=[],
    )
    return Topology(epoch=0, subtopologies=[reader])


def make_members(protocol: str, groups: int, progress: Progress) -> list[Member]:
    """Return the members of all groups."""
    prefix = f"{protocol}-{uuid.uuid4().hex[:8]}"
    names = [f"{prefix}-{number % groups}" for number in range(groups * MEMBERS)]
    if protocol == "consumer":
        return [ConsumerMember(name, progress, MEMBERS) for name in names]
    kinds = {"share": ShareMember, "streams": StreamsMember}
    return [kinds.get(protocol, Member)(name, progress) for name in names]


async def measure(broker: Broker, protocol: str, groups: int, seconds: float) -> dict[str, float]:
    """Run the groups of one protocol; return the figures by row."""
    host, port = broker.host_and_port
    progress = Progress(groups * MEMBERS)
    members = make_members(protocol, groups, progress)
    for start in range(0, len(members), CONNECTS_AT_ONCE):
        batch = members[start : start + CONNECTS_AT_ONCE]
        await asyncio.gather(*(each.connect(host, port) for each in batch))
    while (await members[0].exchange(FindCoordinatorRequest(key="g"), 0)).error_code:
        await asyncio.sleep(0.1)
    await asyncio.sleep(1)
    memory, cpu = broker.resident_mb(), broker.cpu_seconds()
    tasks = [asyncio.create_task(each.live()) for each in members]
    await until_stable(progress)
    stable_cpu, grown = broker.cpu_seconds() - cpu, broker.resident_mb() - memory
    await asyncio.sleep(2 * HEARTBEAT_S)
    progress.heartbeat_ms.clear()
    cpu, started = broker.cpu_seconds(), time.perf_counter()
    await asyncio.sleep(seconds)
    taken = time.perf_counter() - started
    heartbeats = sorted(progress.heartbeat_ms)
    cpu = broker.cpu_seconds() - cpu
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for each in members:
        each.close()
    return {
        f"{protocol}: CPU until stable, s": stable_cpu,
        f"{protocol}: memory of the groups, MB": max(grown, 0.0),
        f"{protocol}: memory of the broker, MB": broker.resident_mb(),
        f"{protocol}: heartbeats/s": len(heartbeats) / taken,
        f"{protocol}: CPU per heartbeat, µs": 1e6 * cpu / len(heartbeats),
        f"{protocol}: heartbeat p50, ms": statistics.median(heartbeats),
        f"{protocol}: heartbeat p99, ms": heartbeats[int(len(heartbeats) * 0.99)],
    }


def main() -> None:
    """Run all protocols on all brokers and print the table."""
    parser = new_parser(__doc__)
    parser.add_argument("--groups", type=int, default=1_000)
    add_rounds(parser)
    parser.add_argument("--seconds", type=float, default=15.0, help="duration of the heartbeats")
    options = parser.parse_args()
    console = new_console()
    names = installed(options.brokers, console)
    figures = Figures()
    with contextlib.ExitStack() as stack:
        running = [stack.enter_context(brokers.running(name, SETTINGS)) for name in names]
        for broker in running:
            create_topic(broker.address, 1)
        warm_up = (options.groups // 10, 5.0)
        for number in range(options.rounds + 1):
            groups, seconds = (options.groups, options.seconds) if number else warm_up
            counted = figures if number else Figures()
            for protocol in PROTOCOLS:
                for broker in running:
                    load = os.getloadavg()[0]
                    console.print(f"  {broker.name}, {groups} {protocol} groups, load {load:.1f}")
                    counted.note(
                        broker.name, asyncio.run(measure(broker, protocol, groups, seconds))
                    )
    show(figures, names, console)
    write_figures(options.json, figures.rows)


if __name__ == "__main__":
    main()
