"""`python -m bench.failover`: time from the kill of a leader to librdkafka's next acknowledgement.

Three brokers, one topic of one partition with three replicas, a librdkafka producer with acks=all
that sends a record every few milliseconds. Each round kills the leader (kill -9), and measures the
time until the first record sent after the kill is acknowledged. Then it starts the broker again and
waits until all replicas are in sync.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.table import Table

from barnabas.testing.cluster_process import ClusterProcess
from bench.report import machine

TOPIC = "failover"
SEND_EVERY_S = 0.005
LIMIT_S = 60.0
BUDGET_MEDIAN_S, BUDGET_WORST_S = 0.6, 1.0


class Load:
    """A producer whose acknowledgements are timed."""

    def __init__(self, bootstrap: str) -> None:
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

            self._producer.produce(TOPIC, b"x" * 100, on_delivery=acknowledged)
            self._producer.poll(SEND_EVERY_S)

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
            steady = time.monotonic() + 1.0
            load.send_until(lambda steady=steady: load.last_sent > steady)
            killed = time.monotonic()
            leader.kill()
            load.send_until(lambda killed=killed: load.last_sent > killed)
            times.append(load.last_acknowledged - killed)
            leader.start()
        load.close()
    return times


def main() -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    times = measure(parser.parse_args().rounds)
    median, worst = statistics.median(times), max(times)
    verdict = "met" if median <= BUDGET_MEDIAN_S and worst <= BUDGET_WORST_S else "MISSED"
    table = Table(title=machine(), show_header=False)
    table.add_row(
        "kill -9 of a leader, next acknowledgement", "each, s", "median", "worst", "budget"
    )
    table.add_row(
        f"librdkafka, {len(times)} kills",
        " ".join(f"{each:.2f}" for each in times),
        f"{median:.2f} s",
        f"{worst:.2f} s",
        f"<= {BUDGET_MEDIAN_S} s, <= {BUDGET_WORST_S} s: {verdict}",
    )
    Console(width=160).print(table)


if __name__ == "__main__":
    main()
