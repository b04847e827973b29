"""`python -m bench.links`: the speed of a link, and its processor time, beside MirrorMaker 2.

A topic of the source is filled. Then a link mirrors it to a broker of Barnabas, or MirrorMaker 2 to
Apache Kafka. The source is the same broker of Barnabas for both, and they take turns. The first
round is a warm-up. The measurement begins when the first records have arrived, so that the search
for new topics does not count.

The processor time of a link is that of the broker with the mirrors. That of MirrorMaker 2 is its
Connect worker and the broker that it writes to. A further row has that of the worker alone.
MirrorMaker 2 has its own defaults, with a task for each partition, and a heap of 4 GB: that of its
start script, 2 GB, is not enough for all partitions at full speed. In the warm-up it mirrors the
whole topic of the larger records: Java compiles its code during the first GB, and a cold one takes
several times as long. Otherwise it is measured for a fifth of the topic.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import psutil
from confluent_kafka import Consumer, KafkaException, TopicPartition

from barnabas import Client
from barnabas.cli.links.mirrors import change, delete_link, read_table
from barnabas.replication.links.link_table import STATE, TOPICS, setting_name
from bench import loads
from bench.brokers import KAFKA_JAVA, find_tests, running
from bench.cases import add_rounds, new_parser
from bench.figures import Figures, show
from bench.report import installed, new_console, write_figures

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.brokers import Broker

LINK, WORKER = "bench", "mirror maker"
WORKER_JAVA = ("-Xmx4g", *KAFKA_JAVA[1:])
SIZES = (1000, 100)
# MirrorMaker 2 is slower by an order of magnitude, and all figures are relative to the bytes.
WORKER_PART = 0.2
LIMIT_S = 1_200.0
POLL_S = 0.05


class Mirroring(NamedTuple):
    """One way to mirror a topic."""

    name: str
    # The broker that gets the records, and all processes whose time counts.
    target: Broker
    processes: tuple[psutil.Process, ...]
    # Begin to mirror a topic, and end it.
    begin: Callable[[str], None]
    end: Callable[[str], None]
    # What the target calls the topic.
    prefix: str = ""
    # The measurement ends when this part of the topic is mirrored.
    part: float = 1.0


class Progress:
    """The number of records in the mirror of a topic."""

    def __init__(self, broker: Broker, topic: str) -> None:
        self._consumer = Consumer({**broker.client_settings, "group.id": "bench", "log_level": 0})
        self._partitions = [TopicPartition(topic, each) for each in range(loads.PARTITIONS)]

    def count(self) -> int:
        """Return the number of records; 0 while the topic does not exist."""
        try:
            return sum(self._consumer.get_watermark_offsets(tp, 10)[1] for tp in self._partitions)
        except KafkaException:
            return 0

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close()


def cpu_seconds(processes: tuple[psutil.Process, ...]) -> list[float]:
    """Return the user and system time of each process so far."""
    times = [each.cpu_times() for each in processes]
    return [each.user + each.system for each in times]


def measure(
    mirroring: Mirroring, topic: str, size: int, count: int, *, is_warm_up: bool
) -> dict[str, float]:
    """Mirror a filled topic; return the figures by row. A warm-up mirrors the whole topic."""
    progress = Progress(mirroring.target, mirroring.prefix + topic)
    wanted = count * (1.0 if is_warm_up else mirroring.part)
    deadline = time.monotonic() + LIMIT_S
    mirroring.begin(topic)
    try:
        while not (first := progress.count()):
            _check(deadline, mirroring.name)
        started, before = time.perf_counter(), cpu_seconds(mirroring.processes)
        while (last := progress.count()) < wanted:
            _check(deadline, mirroring.name)
        elapsed, after = time.perf_counter() - started, cpu_seconds(mirroring.processes)
    finally:
        progress.close()
        mirroring.end(topic)
    total = (last - first) * size
    spent = [now - then for now, then in zip(after, before, strict=True)]
    row = f"link, {size} B"
    return {
        f"{row}: CPU s/GB": sum(spent) * 1e9 / total,
        f"{row}: CPU of the mirroring process alone, s/GB": spent[0] * 1e9 / total,
        f"{row}: MB/s": total / 1e6 / elapsed,
    }


def _check(deadline: float, name: str) -> None:
    if time.monotonic() > deadline:
        raise SystemExit(f"{name} did not mirror the topic within {LIMIT_S:.0f} s")
    time.sleep(POLL_S)


@contextlib.contextmanager
def link(source: Broker) -> Iterator[Mirroring]:
    """Run a broker of Barnabas, which mirrors by a link."""
    with running("barnabas") as target, Client(target.address) as client:

        def begin(topic: str) -> None:
            settings = {"bootstrap.servers": source.address, TOPICS: topic, STATE: "active"}
            change(client, {setting_name(LINK, key): value for key, value in settings.items()})

        def end(topic: str) -> None:
            table = read_table(client)
            delete_link(client, table.links[LINK], table.mirrors_of(LINK))
            client.delete_topics([topic])

        yield Mirroring("barnabas", target, (target.process,), begin, end)


@contextlib.contextmanager
def mirror_maker(source: Broker) -> Iterator[Mirroring]:
    """Run a broker of Apache Kafka, and a Connect worker with MirrorMaker 2."""
    find_tests()
    from jvm.connect_worker import Worker

    settings = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1"}
    with running("kafka", settings) as target, tempfile.TemporaryDirectory() as directory:
        worker = Worker(
            "worker", target.address, Path(directory), WORKER_JAVA, offset_flush_interval_ms="10000"
        )
        with worker.process, Client(target.address) as client:
            worker.await_started()

            def begin(topic: str) -> None:
                worker.call_rest(f"/connectors/{topic}/config", connector(source, target, topic))

            def end(topic: str) -> None:
                worker.call_rest(f"/connectors/{topic}", method="DELETE")
                client.delete_topics([f"source.{topic}"])

            processes = psutil.Process(worker.process.pid), target.process
            yield Mirroring(WORKER, target, processes, begin, end, "source.", WORKER_PART)


def connector(source: Broker, target: Broker, topic: str) -> dict[str, str]:
    """Return the config of a connector of MirrorMaker 2."""
    converter = "org.apache.kafka.connect.converters.ByteArrayConverter"
    return {
        "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
        "source.cluster.alias": "source",
        "target.cluster.alias": "target",
        "source.cluster.bootstrap.servers": source.address,
        "target.cluster.bootstrap.servers": target.address,
        "topics": topic,
        "tasks.max": str(loads.PARTITIONS),
        "key.converter": converter,
        "value.converter": converter,
        "replication.factor": "1",
        "offset-syncs.topic.replication.factor": "1",
        "sync.topic.acls.enabled": "false",
    }


def fill(source: Broker, megabytes: int, size: int, topic: str) -> int:
    """Create and fill a topic of the source. Return the number of records."""
    loads.create_topic(source, topic)
    loads.produce(source, topic, size, megabytes * 1_000_000)
    return megabytes * 1_000_000 // size


def main() -> None:
    """Run the rounds, and print the table of the best figures."""
    parser = new_parser(__doc__)
    add_rounds(parser)
    parser.add_argument("--megabytes", type=int, default=1_000, help="MB of records in a round")
    options = parser.parse_args()
    console, figures = new_console(), Figures()
    ways: dict[str, Any] = {"barnabas": link, "kafka": mirror_maker}
    with contextlib.ExitStack() as stack:
        source = stack.enter_context(running("barnabas"))
        names = installed(options.brokers, console)
        started = [stack.enter_context(ways[name](source)) for name in names]
        for number in range(options.rounds + 1):
            counted = figures if number else Figures()
            for size in SIZES:
                topic = f"load-{size}-{number}"
                count = fill(source, options.megabytes, size, topic)
                for each in started:
                    console.print(f"  round {number}: {each.name}, {size} B")
                    is_warm_up = not number and size == max(SIZES)
                    found = measure(each, topic, size, count, is_warm_up=is_warm_up)
                    counted.note(each.name, found)
                with Client(source.address) as client:
                    client.delete_topics([topic])
    show(figures, [each.name for each in started], console)
    write_figures(options.json, figures.rows)


if __name__ == "__main__":
    main()
