"""`python -m bench.replication`: three brokers that replicate many idle partitions.

The benchmark measures the cost of the idle partitions, and the time of an acknowledged write
(acks=all) to one of them. With `--catch-up-mb`, it then measures how fast an added, empty replica
copies a partition of that size from its leader, and the acknowledged writes beside it.

With `--compare`, it measures only replicated writes (acks=all) beside those of three nodes of
Apache Kafka. The clusters take turns, and the first two rounds are a warm-up. Loads of librdkafka
show the processor time of all three brokers; a raw client with one record in flight shows the round
trip. The table has the best figure of the other rounds; a budget is met if the worst round meets
it.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from typing import TYPE_CHECKING, NamedTuple

import psutil
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.table import Table

from barnabas import Admin, TopicPartition
from barnabas.testing.cluster_process import ClusterProcess
from bench import loads
from bench.brokers import running_cluster
from bench.cases import add_rounds, new_parser, run_cases
from bench.report import machine

if TYPE_CHECKING:
    from bench.brokers import Broker

BROKERS = 3
PARTITIONS_PER_TOPIC = 500
IDLE_S = 10.0
ROUND_TRIPS = 400
ACKS_ALL = -1
RECORD_BYTES = 10_000
LIMIT_S = 300.0
BUDGET_MB_S, BUDGET_P99_TIMES = 200, 2.0

# Each broker leads one partition.
REPLICAS = ((1, 2, 3), (2, 3, 1), (3, 1, 2))
COMPARED_ROUND_TRIPS = 4_000
COMPARED_MB = 100
# After one round, Java still compiles the code of a node that has a third of the load.
WARM_UPS = 2

Rows = list[tuple[str, str]]


class ReplicatedLoad(NamedTuple):
    """Records of one size from librdkafka, acknowledged by all replicas."""

    size: int

    @property
    def name(self) -> str:
        """The first part of the names of its rows."""
        return f"three replicas, acks=all, {self.size} B"

    def run(self, cluster: Broker, megabytes: int) -> dict[str, float]:
        """Write records of that many MB in total; return the figures by row."""
        count = megabytes * 1_000_000 // self.size
        with loads.temporary_topic(cluster, "replicated", replicas=REPLICAS) as topic:
            figure = loads.produce(cluster, topic, self.size, count * self.size, acks="all")
        return {
            f"{self.name}: CPU s/GB": figure.cpu_seconds_per_gb,
            f"{self.name}: MB/s": figure.mb_per_second,
        }


class ReplicatedRoundTrip:
    """One record in flight, acknowledged by all replicas."""

    name = "three replicas, acks=all, round trip"

    def run(self, cluster: Broker, _megabytes: int) -> dict[str, float]:
        """Send records one after the other; return the figures by row."""
        with loads.temporary_topic(cluster, "round-trip", replicas=REPLICAS[:1]) as topic:
            trip = loads.round_trip(cluster, topic, ACKS_ALL, COMPARED_ROUND_TRIPS)
        return {
            f"{self.name}: p50, µs": trip.p50,
            f"{self.name}: p99, µs": trip.p99,
            f"{self.name}: CPU of the brokers, µs": trip.cpu,
        }


def cpu_seconds(cluster: ClusterProcess) -> list[float]:
    """Return the user and system time of each node so far."""
    times = [psutil.Process(node.pid).cpu_times() for node in cluster.nodes.values()]
    return [each.user + each.system for each in times]


def make_topics(cluster: ClusterProcess, partitions: int) -> None:
    """Create topics with many partitions on all brokers, and one topic with leader 1."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for number in range(partitions // PARTITIONS_PER_TOPIC):
        topic = NewTopic(f"many-{number}", PARTITIONS_PER_TOPIC, BROKERS)
        made = admin.create_topics([topic], operation_timeout=120)[topic.topic]
        try:
            made.result(120)
        except KafkaException as error:
            # The client retries after a lost connection.
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
    admin.create_topics([NewTopic("busy", 1, replica_assignment=[[1, 2, 3]])])["busy"].result(30)


def round_trips(
    cluster: ClusterProcess, count: int, until: threading.Event | None = None
) -> list[float]:
    """Return the sorted times (ms) of acknowledged writes, one at a time.

    Args:
        cluster: the cluster.
        count: the number of writes.
        until: if given, there are writes until it is set.
    """
    host, _, port = cluster.node(1).address.rpartition(":")
    data, times = loads.produce_request("busy", ACKS_ALL), []
    with socket.create_connection((host, int(port))) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while not until.is_set() if until else len(times) < count:
            started = time.perf_counter()
            connection.sendall(data)
            connection.recv(4096)
            times.append((time.perf_counter() - started) * 1000)
    return sorted(times)


def measure(partitions: int, rows: Rows) -> None:
    """Measure one cluster."""
    with ClusterProcess(BROKERS) as cluster:
        started = time.perf_counter()
        make_topics(cluster, partitions)
        rows.append((f"{partitions:,} partitions made", f"{time.perf_counter() - started:.1f} s"))
        time.sleep(IDLE_S)
        before = cpu_seconds(cluster)
        time.sleep(IDLE_S)
        spent = [
            100 * (now - then) / IDLE_S
            for now, then in zip(cpu_seconds(cluster), before, strict=True)
        ]
        rows.append(("processor of each while idle", " ".join(f"{each:.1f} %" for each in spent)))
        round_trips(cluster, ROUND_TRIPS // 5)
        before = cpu_seconds(cluster)
        times = round_trips(cluster, ROUND_TRIPS)
        spent = [
            (now - then) * 1e6 / len(times)
            for now, then in zip(cpu_seconds(cluster), before, strict=True)
        ]
        p50, p99 = times[len(times) // 2], times[len(times) * 99 // 100]
        rows.append(("write with acks=all, p50 / p99", f"{p50:.2f} / {p99:.2f} ms"))
        rows.append(
            ("processor of leader / follower / follower for it",
             " / ".join(f"{each:.0f}" for each in spent) + " µs")
        )  # fmt: skip


def fill(cluster: ClusterProcess, topic: str, megabytes: int) -> None:
    """Write records to the replicas of a topic of one partition."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 0})
    value = os.urandom(RECORD_BYTES)
    for _ in range(megabytes * 1_000_000 // RECORD_BYTES):
        while True:
            try:
                producer.produce(topic, value)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(LIMIT_S):
        raise TimeoutError(f"not all records were acknowledged within {LIMIT_S} s")


def measure_catch_up(megabytes: int, rows: Rows) -> None:
    """Measure a replica that is added to a partition, and writes to another partition meanwhile."""
    with ClusterProcess(BROKERS) as cluster, Admin(cluster.bootstrap) as admin:
        make_topics(cluster, 0)
        topics = AdminClient({"bootstrap.servers": cluster.bootstrap})
        topics.create_topics([NewTopic("large", 1, replica_assignment=[[1, 2]])])["large"].result(
            30
        )
        fill(cluster, "large", megabytes)
        round_trips(cluster, ROUND_TRIPS // 5)
        alone = round_trips(cluster, ROUND_TRIPS * 5)
        is_over = threading.Event()
        beside: list[float] = []
        writer = threading.Thread(target=lambda: beside.extend(round_trips(cluster, 0, is_over)))
        before, started = cpu_seconds(cluster), time.perf_counter()
        writer.start()
        admin.alter_reassignments({TopicPartition("large", 0): [1, 2, 3]})
        while admin.list_reassignments():
            if time.perf_counter() - started > LIMIT_S:
                raise TimeoutError(f"the replica did not catch up within {LIMIT_S} s")
            time.sleep(0.02)
        seconds = time.perf_counter() - started
        spent = [now - then for now, then in zip(cpu_seconds(cluster), before, strict=True)]
        is_over.set()
        writer.join()
    beside.sort()
    then, now = alone[len(alone) * 99 // 100], beside[len(beside) * 99 // 100]
    is_met = megabytes / seconds >= BUDGET_MB_S and now <= BUDGET_P99_TIMES * then
    rows.append(
        (f"empty replica copies {megabytes:,} MB", f"{megabytes / seconds:.0f} MB/s")
    )  # fmt: skip
    medians = [times[len(times) // 2] for times in (alone, beside)]
    rows.append(
        ("p50 of other writes, before and meanwhile", " / ".join(f"{p50:.2f}" for p50 in medians)
         + " ms")
    )  # fmt: skip
    rows.append(("p99 of other writes, before and meanwhile", f"{then:.2f} / {now:.2f} ms"))
    rows.append(("writes meanwhile", f"{len(beside):,}"))
    rows.append(
        ("processor of leader / follower / new follower for it",
         " / ".join(f"{each:.2f}" for each in spent) + " s")
    )  # fmt: skip
    budget = f">= {BUDGET_MB_S} MB/s, p99 <= {BUDGET_P99_TIMES:g}x"
    rows.append(("budget", f"{budget}: {'met' if is_met else 'MISSED'}"))


def main() -> None:
    """Run the benchmark from the command line."""
    parser = new_parser(__doc__)
    add_rounds(parser)
    parser.add_argument("--compare", action="store_true", help="compare with Apache Kafka")
    parser.add_argument(
        "--count", type=int, default=COMPARED_MB, help="MB of a load of the comparison"
    )
    parser.add_argument("--partitions", type=int, nargs="*", default=[0, 3_000])
    parser.add_argument("--catch-up-mb", type=int, default=2_000, help="0 leaves this part out")
    options = parser.parse_args()
    if options.compare:
        cases = (ReplicatedLoad(100), ReplicatedLoad(1000), ReplicatedRoundTrip())
        run_cases(cases, options, running_cluster, WARM_UPS)
        return
    rows: Rows = []
    for partitions in options.partitions:
        measure(partitions, rows)
    if options.catch_up_mb:
        measure_catch_up(options.catch_up_mb, rows)
    table = Table(title=machine(), show_header=False)
    for row in rows:
        table.add_row(*row)
    Console().print(table)


if __name__ == "__main__":
    main()
