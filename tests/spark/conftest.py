"""A broker, a Spark session and topics for the tests of `format("barnabas")`.

With KAFKA_BOOTSTRAP set the same tests run against that cluster: what fails on Apache Kafka is a
wrong test. Start it with the settings of `SETTINGS`, or the tests of lost records wait for minutes.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

from barnabas.client.admin.topics import NewTopic
from barnabas.client.facade import Client
from barnabas.spark.session import spark_session
from barnabas.testing.broker_process import BrokerProcess
from examples.flights.connector import fetch_jars
from jvm.kafka_process import QUICK_FENCING, KafkaProcess
from jvm.maven import need, one_maven
from spark import stopping_sink
from spark.class_archive import VARIABLE, quick_java
from spark.copies import committed_values
from spark.stopping_sink import StoppingSink

if TYPE_CHECKING:
    from barnabas.testing.registry_process import RegistryProcess
    from spark.tables import SinkTable

Row = tuple[bytes | None, bytes | None]
NUMBERS = itertools.count()
# Retention at work while a test waits for it.
SETTINGS = {"log.retention.check.interval.ms": "500", "log.initial.task.delay.ms": "100"}


@pytest.fixture(scope="session")
def bootstrap() -> Iterator[str]:
    given = os.environ.get("KAFKA_BOOTSTRAP")
    if given:
        yield given
        return
    with BrokerProcess(settings=SETTINGS) as process:
        yield process.bootstrap


@pytest.fixture(scope="session")
def registry_url(schema_registry: RegistryProcess) -> str:
    """The URL of a running schema registry; tests use subjects of their own."""
    return schema_registry.url


@pytest.fixture(scope="module", params=["barnabas", "kafka"])
def either_broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess | KafkaProcess]:
    """A broker of each kind, which tests may kill and start again."""
    directory = tmp_path_factory.mktemp(request.param)
    process: BrokerProcess | KafkaProcess
    if request.param == "kafka":
        request.getfixturevalue("kafka_jars")
        process = KafkaProcess(directory, QUICK_FENCING)
    else:
        process = BrokerProcess(directory)
    try:
        process.start()
        yield process
    finally:
        process.close()


@pytest.fixture(params=["delta", "iceberg"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> SinkTable:
    """A table of each kind in a directory of the test; the first writer creates it."""
    # Most tests have no need of the libraries of tables.
    from spark.tables import KINDS

    return KINDS[request.param](tmp_path)


@pytest.fixture(scope="session")
def client(bootstrap: str) -> Iterator[Client]:
    with Client(bootstrap) as made:
        yield made


@pytest.fixture(scope="session")
def connector_jars() -> str:
    """Spark's own Kafka connector, as the example brings it; empty where Maven is missing."""
    if shutil.which("mvn") is None:
        return ""
    with one_maven():
        return fetch_jars()


@pytest.fixture
def connector(connector_jars: str) -> None:
    """Skips a test, or fails it in CI, where Maven is missing: the session has no connector."""
    if not connector_jars:
        need("mvn")


@pytest.fixture(scope="session", autouse=True)
def quick_starts() -> Iterator[None]:
    """Sessions of this process and of its children start quickly."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, quick_java())
        yield


@pytest.fixture(scope="session")
def spark(quick_starts: None, connector_jars: str) -> Iterator[SparkSession]:
    session = spark_session(
        "tests",
        "local[2]",
        {
            "spark.sql.shuffle.partitions": "2",
            "spark.jars": connector_jars,
        },
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def stopping(spark: SparkSession) -> str:
    """The name of a sink that stops where a test wants; workers cannot import test modules."""
    cloudpickle.register_pickle_by_value(stopping_sink)
    spark.dataSource.register(StoppingSink)
    return StoppingSink.name()


@pytest.fixture
def topic(client: Client) -> str:
    """A new topic of three partitions, which keeps records however old `fill` makes them."""
    name = f"spark-{os.getpid()}-{next(NUMBERS)}"
    forever = {"retention.ms": "-1"}
    assert client.create_topics([NewTopic(name, 3, 1, forever)])[name] is None
    return name


@pytest.fixture
def fill(client: Client) -> Callable[[str, int, list[Row]], None]:
    """Writes rows of (key, value) to a partition."""

    def write(topic: str, partition: int, rows: list[Row]) -> None:
        with client.producer() as producer:
            stamped = [(key, value, [], 1000 + i) for i, (key, value) in enumerate(rows)]
            producer.send_batch(topic, stamped, partition)

    return write


@pytest.fixture
def read(spark: SparkSession, bootstrap: str) -> Callable[..., DataFrame]:
    """`spark.read` with options."""

    def load(**options: object) -> DataFrame:
        return (
            spark.read.format("barnabas")
            .option("kafka.bootstrap.servers", bootstrap)
            .options(**options)
            .load()
        )

    return load


@pytest.fixture
def copied(
    client: Client, read: Callable[..., DataFrame], topic: str
) -> Callable[[], Counter[bytes]]:
    """Returns the committed values of the copy of a topic, once no transaction is open."""
    return lambda: committed_values(client, read, f"{topic}-out")
