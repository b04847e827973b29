"""Both brokers for the cases, and how much was compared, at the end of the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.testing.broker_process import BrokerProcess
from differential.scene import Pair
from differential.side import Side
from differential.warm_up import warm_up
from jvm.kafka_process import KafkaProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Both get these; the rest are Kafka's defaults, which are ours.
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    # What a broker does from time to time, often enough to wait for.
    "log.initial.task.delay.ms": "100",
    "log.retention.check.interval.ms": "100",
    "log.cleaner.backoff.ms": "100",
    "producer.id.expiration.check.interval.ms": "100",
}
_PAIR = pytest.StashKey[Pair]()


@pytest.fixture(scope="session")
def pair(
    kafka_jars: Callable[[str], str],
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Iterator[Pair]:
    """Apache Kafka and Barnabas, both empty, started side by side."""
    kafka = KafkaProcess(tmp_path_factory.mktemp("kafka"), SETTINGS)
    barnabas = BrokerProcess(tmp_path_factory.mktemp("barnabas"), SETTINGS)
    try:
        kafka.launch()
        barnabas.start()
        kafka.await_ready()
        made = Pair(Side("kafka", kafka.bootstrap), Side("barnabas", barnabas.bootstrap))
        warm_up(made)
        request.config.stash[_PAIR] = made
        yield made
        made.close()
    finally:
        kafka.close()
        barnabas.close()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    pair = terminalreporter.config.stash.get(_PAIR, None)
    if pair is None:
        return
    compared, played = sum(pair.compared.values()), sum(pair.played.values())
    apis = len(pair.played)
    terminalreporter.write_line(
        f"differential: {played} cases x versions of {apis} APIs, {compared} answers compared "
        "with Apache Kafka 4.4.0"
    )
