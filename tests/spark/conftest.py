"""A broker, a Spark session and topics for the tests of `format("barnabas")`.

With KAFKA_BOOTSTRAP set the same tests run against that cluster: what fails on Apache Kafka is a
wrong test.
"""

from __future__ import annotations

import itertools
import os
import socket
import struct
from collections.abc import Callable, Iterator

import pytest
from pyspark.sql import DataFrame, SparkSession

from barnabas.client.admin import NewTopic
from barnabas.client.facade import Client
from barnabas.protocol.headers import decode_response, encode_request
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.spark.session import spark_session
from barnabas.testing.broker_process import BrokerProcess

Row = tuple[bytes | None, bytes | None]
NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def bootstrap() -> Iterator[str]:
    given = os.environ.get("KAFKA_BOOTSTRAP")
    if given:
        yield given
        return
    with BrokerProcess() as process:
        yield process.bootstrap


@pytest.fixture(scope="session")
def served(bootstrap: str) -> frozenset[int]:
    """The keys of the APIs that the broker has, to leave out what no source could show on it."""
    host, _, port = bootstrap.rpartition(":")
    with socket.create_connection((host, int(port)), 20) as connection:
        chunks = encode_request(1, "tests", ApiVersionsRequest(), 0)
        connection.sendall(b"".join(map(bytes, chunks)))
        with connection.makefile("rb") as answer:
            (length,) = struct.unpack(">i", answer.read(4))
            _, response = decode_response(ApiVersionsRequest, 0, answer.read(length))
    assert isinstance(response, ApiVersionsResponse)
    return frozenset(api.api_key for api in response.api_keys)


@pytest.fixture(scope="session")
def client(bootstrap: str) -> Iterator[Client]:
    with Client(bootstrap) as made:
        yield made


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = spark_session(
        "tests",
        "local[2]",
        {
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
            "spark.sql.shuffle.partitions": "2",
        },
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture
def topic(client: Client) -> str:
    """A new topic of three partitions."""
    name = f"spark-{os.getpid()}-{next(NUMBERS)}"
    assert client.create_topics([NewTopic(name, 3, 1)])[name] is None
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
