"""`python -m bench.failover`: time from the kill of a leader to librdkafka's next acknowledgement.

Three brokers, one topic of one partition with three replicas, a librdkafka producer with acks=all
that sends a record every few milliseconds. Each round kills the leader (kill -9), and measures the
time until the first record sent after the kill is acknowledged. Then it starts the broker again and
waits until all replicas are in sync.

With `--partitions`, it then measures another cluster, in which one broker leads so many partitions.
Each round kills this broker, and measures the time until the other two brokers report another
leader for each partition.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

from confluent_kafka import Consumer, ElectionType, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.table import Table

from barnabas.testing.cluster_process import ClusterProcess
from bench.report import machine

TOPIC = "failover"
SEND_EVERY_S = 0.005
# Load before each kill.
STEADY_S = 1.0
LIMIT_S = 60.0
BUDGET_MEDIAN_S, BUDGET_WORST_S = 0.6, 1.0
BUDGET_MANY_S = 2.0
PARTITIONS_PER_TOPIC = 500


class Load:
    """A producer to one partition, whose acknowledgements are timed."""

    def __init__(self, bootstrap: str, partition: int = 0) -> None:
        self._partition = partition
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "linger.ms": 0,
                "retry.backoff.ms": 50,
                "retry.backoff.max.ms": 100,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "log_level": 0,
                "log.connection.close": False,
            }
        )
        # Send time and acknowledgement time of the last acknowledged record.
        self.last_sent = self.last_acknowledged = 0.0

    def send_until(self, is_over: Callable[[], bool]) -> None:
        """Send records until `is_over()`. Fails after a minute."""
        deadline = time.monotonic() + LIMIT_S
        while not is_over():
            if time.monotonic() > deadline:
                raise TimeoutError(f"no acknowledgement for {LIMIT_S} s")
            sent = time.monotonic()

            def acknowledged(error: object, _message: object, sent: float = sent) -> None:
                if error is None:
                    self.last_sent, self.last_acknowledged = sent, time.monotonic()

            self._producer.produce(
                TOPIC, b"x" * 100, partition=self._partition, on_delivery=acknowledged
            )
            self._producer.poll(SEND_EVERY_S)

    def time_after(self, kill: Callable[[], None], steady_s: float) -> float:
        """Return the seconds from a kill to the first acknowledgement of a later record.

        Args:
            kill: kills processes.
            steady_s: how long records are acknowledged before the kill.
        """
        steady = time.monotonic() + steady_s
        self.send_until(lambda: self.last_sent > steady)
        killed = time.monotonic()
        kill()
        self.send_until(lambda: self.last_sent > killed)
        return self.last_acknowledged - killed

    def close(self) -> None:
        """Wait for the last acknowledgements."""
        self._producer.flush(LIMIT_S)


def leader_and_isr(bootstrap: str) -> tuple[int, int]:
    """Return the leader, and the number of replicas in sync."""
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", "log_level": 0})
    try:
        found = reader.list_topics(TOPIC, timeout=10).topics[TOPIC].partitions
    finally:
        reader.close()
    return (found[0].leader, len(found[0].isrs)) if 0 in found else (-1, 0)


def await_replicas(bootstrap: str) -> int:
    """Return the leader when all three replicas are in sync."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        leader, in_sync = leader_and_isr(bootstrap)
        if in_sync == 3 and leader > 0:
            return leader
        if time.monotonic() > deadline:
            raise TimeoutError(f"{in_sync} of 3 replicas are in sync after {LIMIT_S} s")
        time.sleep(0.1)


def measure(rounds: int) -> list[float]:
    """Return the seconds from each kill to the first acknowledgement of a later record."""
    times = []
    with ClusterProcess(3) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 1, 3)])[TOPIC].result(30)
        load = Load(cluster.bootstrap)
        for _ in range(rounds):
            leader = cluster.node(await_replicas(cluster.bootstrap))
            times.append(load.time_after(leader.kill, STEADY_S))
            leader.start()
        load.close()
    return times


def led_elsewhere(admin: AdminClient, broker: int) -> tuple[int, int]:
    """Return how many partitions have another leader than the broker, and how many replicas lag."""
    found = admin.list_topics(timeout=30).topics
    parts = [part for name in found if name.startswith("many") for part in
             found[name].partitions.values()]  # fmt: skip
    elsewhere = sum(part.leader not in (-1, broker) for part in parts)
    return elsewhere, sum(3 - len(part.isrs) for part in parts)


def measure_many(rounds: int, partitions: int) -> list[float]:
    """Return the seconds from each kill of the leader of all partitions to the last new leader."""
    times = []
    with ClusterProcess(3) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        topics = [
            NewTopic(
                f"many-{number}",
                PARTITIONS_PER_TOPIC,
                replica_assignment=[[1, 2, 3]] * PARTITIONS_PER_TOPIC,
            )
            for number in range(partitions // PARTITIONS_PER_TOPIC)
        ]
        for made in admin.create_topics(topics, request_timeout=120).values():
            made.result(120)
        readers = [
            AdminClient({"bootstrap.servers": cluster.node(number).address, "log_level": 0})
            for number in (2, 3)
        ]
        count = len(topics) * PARTITIONS_PER_TOPIC
        for _ in range(rounds):
            # The preferred leader leads again after its start.
            await_condition(lambda: all(led_elsewhere(each, 1) == (0, 0) for each in readers))
            time.sleep(1)
            killed = time.monotonic()
            cluster.node(1).kill()
            await_condition(lambda: all(led_elsewhere(each, 1)[0] == count for each in readers))
            times.append(time.monotonic() - killed)
            cluster.node(1).start()
            elect = [
                TopicPartition(t.topic, n) for t in topics for n in range(PARTITIONS_PER_TOPIC)
            ]
            await_condition(lambda: led_elsewhere(admin, 1)[1] == 0)
            admin.elect_leaders(ElectionType.PREFERRED, elect).result(60)
    return times


def await_condition(is_done: Callable[[], bool]) -> None:
    """Wait until `is_done()`. Fails after a minute."""
    deadline = time.monotonic() + LIMIT_S
    while not is_done():
        if time.monotonic() > deadline:
            raise TimeoutError(f"the partitions did not change within {LIMIT_S} s")
        time.sleep(0.02)


def main() -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--partitions", type=int, default=2_000, help="0 leaves this part out")
    options = parser.parse_args()
    table = Table(title=machine(), show_header=False)
    if options.rounds:
        add_one_partition(table, measure(options.rounds))
    if options.partitions:
        times = measure_many(max(3, options.rounds // 3), options.partitions)
        is_met = max(times) <= BUDGET_MANY_S
        table.add_row(
            f"kill -9 of the leader of {options.partitions:,} partitions, all led again",
            *time_cells(times),
            f"<= {BUDGET_MANY_S} s: {'met' if is_met else 'MISSED'}",
        )
    Console(width=160).print(table)


def time_cells(times: list[float]) -> tuple[str, str, str]:
    """Return the cells of a table with all times, their median and the worst one."""
    every = " ".join(f"{each:.2f}" for each in times)
    return every, f"{statistics.median(times):.2f} s", f"{max(times):.2f} s"


def add_one_partition(table: Table, times: list[float]) -> None:
    """Add the rows of the first measurement."""
    median, worst = statistics.median(times), max(times)
    verdict = "met" if median <= BUDGET_MEDIAN_S and worst <= BUDGET_WORST_S else "MISSED"
    table.add_row(
        "kill -9 of a leader, next acknowledgement", "each, s", "median", "worst", "budget"
    )
    table.add_row(
        f"librdkafka, {len(times)} kills",
        *time_cells(times),
        f"<= {BUDGET_MEDIAN_S} s, <= {BUDGET_WORST_S} s: {verdict}",
    )


if __name__ == "__main__":
    main()
