"""Spark against a broker with TLS and SCRAM, by `format("barnabas")` and by Spark's connector."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import barnabas
from barnabas.client.admin.credentials import ScramMechanism, ScramUpsertion
from barnabas.client.admin.topics import NewTopic
from barnabas.client.facade import Client
from conformance.sasl_brokers import SaslBarnabas
from conformance.tls_cluster import PASSWORD, TlsFiles
from documents.blocks import sections_of
from spark.queries import to_the_end

pytestmark = pytest.mark.spark
USER, SECRET = "spark", "do-not-show-me"
PROTOCOLS = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_SSL,SHORT:SASL_SSL"
Options = dict[str, str]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return TlsFiles(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def broker(files: TlsFiles, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslBarnabas]:
    settings = {
        "listener.security.protocol.map": PROTOCOLS,
        "ssl.keystore.location": str(files.key_store),
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.password": PASSWORD,
        "ssl.key.password": PASSWORD,
    }
    with SaslBarnabas(tmp_path_factory.mktemp("secured"), settings) as process:
        with barnabas.Admin(process.bootstrap) as admin:
            user = ScramUpsertion(USER, ScramMechanism.SCRAM_SHA_512, SECRET, 4096)
            admin.alter_scram_credentials([user])
        yield process


@pytest.fixture(scope="module")
def client(broker: SaslBarnabas) -> Iterator[Client]:
    """A client of the open listener."""
    with Client(broker.bootstrap) as made:
        yield made


@pytest.fixture
def topics(client: Client) -> tuple[str, str]:
    """An empty topic of two partitions, and another one."""
    names = f"in-{uuid.uuid4().hex[:8]}", f"out-{uuid.uuid4().hex[:8]}"
    made = client.create_topics([NewTopic(name, 2, 1) for name in names])
    assert set(made.values()) == {None}
    return names


@pytest.fixture
def options(spark: SparkSession, broker: SaslBarnabas, files: TlsFiles) -> Options:
    """The options of docs/spark.md, with the addresses of the test."""
    [program] = [
        block.text
        for section in sections_of("docs/spark.md")
        for block in section.blocks
        if block.checked_by == "tests/spark/test_security.py"
    ]
    names: dict[str, Any] = {"spark": spark, "password": SECRET}
    exec(program, names)
    assert names["events"].isStreaming
    return {
        **names["secured"],
        "kafka.bootstrap.servers": broker.sasl_bootstrap,
        "kafka.ssl.truststore.location": str(files.ca),
    }


@pytest.fixture(params=["barnabas", "kafka"])
def source(request: pytest.FixtureRequest) -> str:
    """The name of a connector."""
    if request.param == "kafka":
        request.getfixturevalue("connector")
    return str(request.param)


def numbers(spark: SparkSession, count: int = 40) -> DataFrame:
    return spark.range(count).selectExpr("CAST(id AS STRING) AS key", "CAST(id AS STRING) AS value")


def values(frame: DataFrame) -> list[int]:
    return sorted(int(row.value) for row in frame.selectExpr("CAST(value AS STRING)").collect())


def test_rows_are_written_and_read(
    spark: SparkSession, source: str, options: Options, topics: tuple[str, str]
) -> None:
    write = numbers(spark).write.format(source).options(**options).option("topic", topics[0])
    write.mode("append").save()
    read = spark.read.format(source).options(**options).option("subscribe", topics[0])
    assert values(read.load()) == list(range(40))


@pytest.mark.nightly
def test_a_stream_copies_each_row_once(
    spark: SparkSession, source: str, options: Options, topics: tuple[str, str], tmp_path: Path
) -> None:
    numbers(spark).write.format("barnabas").options(**options).option("topic", topics[0]).mode(
        "append"
    ).save()

    def copy() -> StreamingQuery:
        read = spark.readStream.format(source).options(**options).option("subscribe", topics[0])
        return (
            read.option("startingOffsets", "earliest")
            .load()
            .select("key", "value")
            .writeStream.format(source)
            .options(**options)
            .options(**({"exactlyOnce": "true"} if source == "barnabas" else {}))
            .option("topic", topics[1])
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )

    for _ in range(2):
        to_the_end(copy)
    read = spark.read.format(source).options(**options).option("subscribe", topics[1])
    assert values(read.option("kafka.isolation.level", "read_committed").load()) == list(range(40))


@pytest.mark.nightly
def test_certificates_and_keys_may_be_given_as_text(
    spark: SparkSession, options: Options, topics: tuple[str, str], files: TlsFiles
) -> None:
    without_files = {key: text for key, text in options.items() if "location" not in key}
    pem = {
        "kafka.ssl.truststore.certificates": files.ca.read_text(),
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.keystore.certificate.chain": files.client_certificate.read_text(),
        "kafka.ssl.keystore.key": files.client_key.read_text(),
    }
    read = spark.read.format("barnabas").options(**without_files, **pem)
    assert values(read.option("subscribe", topics[0]).load()) == []


def shown_by_spark(spark: SparkSession, frame: DataFrame) -> Iterator[str]:
    """Plans of a query, and what the UI has of all queries."""
    execution = frame._jdf.queryExecution()
    yield execution.toString()
    yield execution.stringWithStats()
    assert spark._jsparkSession is not None
    executions = spark._jsparkSession.sharedState().statusStore().executionsList()
    for number in range(executions.size()):
        yield executions.apply(number).details()
        yield executions.apply(number).physicalPlanDescription()


def test_plans_and_the_ui_show_no_secrets(
    spark: SparkSession, source: str, options: Options, topics: tuple[str, str], files: TlsFiles
) -> None:
    key = files.client_key.read_text()
    secret_options = {
        **options,
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.keystore.certificate.chain": files.client_certificate.read_text(),
        "kafka.ssl.keystore.key": key,
    }
    write = numbers(spark).write.format(source).options(**secret_options)
    write.option("topic", topics[0]).mode("append").save()
    read = spark.read.format(source).options(**secret_options).option("subscribe", topics[0])
    frame = read.load()
    assert frame.count() == 40
    secret_line = key.splitlines()[2]
    texts = list(shown_by_spark(spark, frame))
    assert len(texts) > 2
    for text in texts:
        assert SECRET not in text
        assert secret_line not in text


def test_a_wrong_password_ends_the_query_without_showing_it(
    spark: SparkSession, options: Options, topics: tuple[str, str]
) -> None:
    wrong = {key: text.replace(SECRET, SECRET + "-wrong") for key, text in options.items()}
    frame = (
        spark.read.format("barnabas")
        .options(**wrong)
        .option("subscribe", topics[0])
        .option("kafka.default.api.timeout.ms", "5000")
        .load()
    )
    with pytest.raises(PySparkException, match=r"(?i)authenticat") as caught:
        frame.collect()
    text = f"{caught.value}{caught.value!r}{caught.value.__cause__}"
    assert SECRET not in text
