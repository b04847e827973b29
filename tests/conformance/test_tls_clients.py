"""Clients of all kinds write and read over TLS with a client certificate."""

from __future__ import annotations

import asyncio
import os
import re
import ssl
import subprocess
import sys
from collections.abc import Iterator

import aiokafka
import aiokafka.helpers
import confluent_kafka
import confluent_kafka.admin
import kafka
import pytest

import barnabas
from barnabas import aio
from barnabas.protocol.messages.connection import ApiVersionsRequest, ApiVersionsResponse
from barnabas.runtime.web import verifying_context
from barnabas.testing.cluster_process import ClusterProcess
from conformance.kafkajs import run_kafkajs
from conformance.raw_client import RawClient
from conformance.tls_cluster import TlsFiles, tls_cluster
from jvm.tool_host import ToolHost
from waiting import PATIENCE_S

VALUES = [f"value {number}".encode() for number in range(100)]
# More than one slice of encryption.
LARGE = os.urandom(3_000_000)
LARGE_KEYS = {"message.max.bytes": "8000000", "replica.fetch.max.bytes": "8000000"}


@pytest.fixture(scope="module", params=["barnabas", "kafka"])
def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[ClusterProcess, TlsFiles]]:
    """A broker that requires certificates; the same settings work with Apache Kafka."""
    folder = tmp_path_factory.mktemp(f"tls-{request.param}")
    cluster, files = tls_cluster(
        folder, request.param, **{"ssl.client.auth": "required", **LARGE_KEYS}
    )
    with cluster:
        yield cluster, files


@pytest.fixture
def topic(running: tuple[ClusterProcess, TlsFiles], request: pytest.FixtureRequest) -> str:
    cluster, files = running
    name = re.sub("[^a-z]+", "-", request.node.name)
    admin = confluent_kafka.admin.AdminClient(
        {"bootstrap.servers": cluster.bootstrap, **files.librdkafka()}
    )
    configs = {"max.message.bytes": "8000000"}
    new = confluent_kafka.admin.NewTopic(name, 1, 1, config=configs)
    admin.create_topics([new])[name].result(PATIENCE_S)
    return name


def test_librdkafka_writes_and_reads_over_tls(
    running: tuple[ClusterProcess, TlsFiles], topic: str
) -> None:
    cluster, files = running
    keys = {"bootstrap.servers": cluster.bootstrap, **files.librdkafka()}
    producer = confluent_kafka.Producer({**keys, "message.max.bytes": 8_000_000})
    for value in [*VALUES, LARGE]:
        producer.produce(topic, value)
    assert producer.flush(PATIENCE_S) == 0
    consumer = confluent_kafka.Consumer(
        {**keys, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    found = consumer.consume(101, PATIENCE_S)
    consumer.close()
    assert [each.value() for each in found] == [*VALUES, LARGE]


@pytest.mark.parametrize("names", ["librdkafka", "java"])
def test_barnabas_writes_and_reads_over_tls(
    running: tuple[ClusterProcess, TlsFiles], topic: str, names: str
) -> None:
    cluster, files = running
    properties = files.librdkafka() if names == "librdkafka" else files.java()
    keys = {key.replace(".", "_"): value for key, value in properties.items()}
    with barnabas.Producer(cluster.bootstrap, max_request_size=8_000_000, **keys) as producer:
        for value in [*VALUES, LARGE]:
            producer.send(topic, value)
        producer.flush()
    found: list[bytes] = []
    with barnabas.Consumer(
        topic,
        bootstrap_servers=cluster.bootstrap,
        group_id=topic,
        auto_offset_reset="earliest",
        **keys,
    ) as consumer:
        while len(found) < 101:
            found += [record.value for record in consumer.poll(PATIENCE_S)]
    assert found == [*VALUES, LARGE]
    with barnabas.Admin(cluster.bootstrap, **keys) as admin:
        assert topic in admin.list_topics()


def test_the_asyncio_client_writes_and_reads_over_tls(
    running: tuple[ClusterProcess, TlsFiles], topic: str
) -> None:
    cluster, files = running
    keys = {key.replace(".", "_"): value for key, value in files.librdkafka().items()}

    async def run() -> list[bytes]:
        async with aio.Producer(cluster.bootstrap, **keys) as producer:
            for value in VALUES:
                await producer.send(topic, value)
            await producer.flush()
        found: list[bytes] = []
        async with aio.Consumer(
            topic,
            bootstrap_servers=cluster.bootstrap,
            group_id=topic,
            auto_offset_reset="earliest",
            **keys,
        ) as consumer:
            while len(found) < len(VALUES):
                found += [record.value for record in await consumer.poll(PATIENCE_S)]
        return found

    assert asyncio.run(run()) == VALUES


def test_aiokafka_writes_and_reads_over_tls(
    running: tuple[ClusterProcess, TlsFiles], topic: str
) -> None:
    cluster, files = running
    context = aiokafka.helpers.create_ssl_context(
        cafile=str(files.ca), certfile=str(files.client_certificate), keyfile=str(files.client_key)
    )
    keys = {
        "bootstrap_servers": cluster.bootstrap,
        "security_protocol": "SSL",
        "ssl_context": context,
    }

    async def run() -> list[bytes]:
        producer = aiokafka.AIOKafkaProducer(max_request_size=8_000_000, **keys)
        await producer.start()
        for value in [*VALUES, LARGE]:
            await producer.send(topic, value)
        await producer.stop()
        consumer = aiokafka.AIOKafkaConsumer(topic, auto_offset_reset="earliest", **keys)
        await consumer.start()
        found = [(await consumer.getone()).value for _ in range(101)]
        await consumer.stop()
        return found

    assert asyncio.run(asyncio.wait_for(run(), PATIENCE_S)) == [*VALUES, LARGE]


def test_kafka_python_writes_and_reads_over_tls(
    running: tuple[ClusterProcess, TlsFiles], topic: str
) -> None:
    cluster, files = running
    keys = {
        "bootstrap_servers": cluster.bootstrap,
        "security_protocol": "SSL",
        "ssl_cafile": str(files.ca),
        "ssl_certfile": str(files.client_certificate),
        "ssl_keyfile": str(files.client_key),
    }
    producer = kafka.KafkaProducer(**keys)
    for value in VALUES:
        producer.send(topic, value)
    producer.close()
    consumer = kafka.KafkaConsumer(
        topic, auto_offset_reset="earliest", consumer_timeout_ms=int(PATIENCE_S * 1000), **keys
    )
    found = [next(consumer).value for _ in VALUES]
    consumer.close()
    assert found == VALUES


def test_kafkajs_writes_and_reads_over_tls(
    running: tuple[ClusterProcess, TlsFiles], topic: str
) -> None:
    cluster, files = running
    paths = {"ca": files.ca, "cert": files.client_certificate, "key": files.client_key}
    ssl_paths = {name: str(path) for name, path in paths.items()}
    done = run_kafkajs(bootstrap=cluster.bootstrap, topic=topic, ssl=ssl_paths)
    assert done == {"value": "kafkajs"}


def test_kcat_writes_and_reads_over_tls(
    running: tuple[ClusterProcess, TlsFiles], topic: str
) -> None:
    cluster, files = running
    words = ["kcat", "-b", cluster.bootstrap, "-t", topic]
    for key, value in files.librdkafka().items():
        words += ["-X", f"{key}={value}"]
    text = "".join(f"{value.decode()}\n" for value in VALUES)
    subprocess.run([*words, "-P"], input=text, text=True, check=True, timeout=PATIENCE_S)
    done = subprocess.run(
        [*words, "-C", "-e", "-q", "-o", "beginning"],
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_S,
    )
    assert done.stdout == text


def test_java_writes_and_reads_over_tls(
    running: tuple[ClusterProcess, TlsFiles], topic: str, tool_host: ToolHost
) -> None:
    cluster, files = running
    file = str(files.java_file())
    text = "".join(f"{value.decode()}\n" for value in VALUES)
    done = tool_host.run(
        "ConsoleProducer", "--bootstrap-server", cluster.bootstrap, "--topic", topic,
        "--command-config", file, stdin=text,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    done = tool_host.run(
        "consumer.ConsoleConsumer", "--bootstrap-server", cluster.bootstrap, "--topic", topic,
        "--command-config", file, "--from-beginning", "--max-messages", "100",
    )  # fmt: skip
    assert done.stdout == text, done.stderr
    done = tool_host.run(
        "TopicCommand", "--bootstrap-server", cluster.bootstrap, "--command-config", file,
        "--list",
    )  # fmt: skip
    assert topic in done.stdout


def test_the_command_line_works_over_tls(
    running: tuple[ClusterProcess, TlsFiles], topic: str
) -> None:
    cluster, files = running
    words = ["--bootstrap-server", cluster.bootstrap, "--command-config", str(files.java_file())]
    done = _barnabas("produce", topic, *words, stdin="one\ntwo\n")
    assert done.returncode == 0, done.stderr
    done = _barnabas("consume", topic, *words, "--from", "beginning", "-n", "2")
    assert done.stdout == "one\ntwo\n", done.stderr


def _barnabas(*words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "barnabas.cli.main", *words],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_the_ssl_module_of_python_connects(
    running: tuple[ClusterProcess, TlsFiles], version: ssl.TLSVersion
) -> None:
    cluster, files = running
    context = verifying_context(str(files.ca))
    context.load_cert_chain(files.client_certificate, files.client_key)
    context.minimum_version = context.maximum_version = version
    client = RawClient(cluster.bootstrap, context)
    assert client.tls_version == version.name.replace("_", ".")
    request = ApiVersionsRequest(client_software_name="raw", client_software_version="1")
    response = client.ask(request, 3)
    assert isinstance(response, ApiVersionsResponse)
    assert response.error_code == 0
    client.close()
