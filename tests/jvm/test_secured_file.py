"""A secured server.properties of Apache Kafka works with both brokers and with common clients.

All listeners have TLS and SASL. `keytool` writes the key stores in Java's format, passwords come
from a file by `config.providers`, `format` creates the first user, and ACLs are enabled.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from barnabas.sasl.jaas import PLAIN_MODULE, SCRAM_MODULE
from barnabas.testing.broker_process import ServerProcess
from barnabas.testing.free_ports import HOST, free_ports
from jvm.kafka_process import CLUSTER_ID, START_TIMEOUT_S, KafkaProcess
from jvm.maven import need
from jvm.tool_host import ToolHost
from selection import nightly_unless
from waiting import PATIENCE_S, eventually

pytestmark = pytest.mark.conformance

STORE_PASSWORD, KEY_PASSWORD, USER_PASSWORD = "store-secret", "key-secret", "user-secret"
FIRST_USER = ("--add-scram", f"SCRAM-SHA-512=[name=admin,password={USER_PASSWORD}]")
CREDENTIALS = f'username="admin" password="{USER_PASSWORD}"'
SCRAM = f"{SCRAM_MODULE} required {CREDENTIALS};"
PLAIN = f'{PLAIN_MODULE} required {CREDENTIALS} user_admin="{USER_PASSWORD}";'


class KeyStores:
    """A key store and a trust store, written by `keytool`."""

    def __init__(self, directory: Path) -> None:
        self.own, self.trust = directory / "broker.jks", directory / "trust.jks"
        self.certificate = directory / "broker.pem"
        self.passwords = directory / "passwords.properties"
        self.passwords.write_text(f"store={STORE_PASSWORD}\nkey={KEY_PASSWORD}\n")
        own = ("-keystore", str(self.own), "-storetype", "JKS", "-storepass", STORE_PASSWORD)
        self._keytool(
            "-genkeypair", "-alias", "broker", "-keyalg", "EC", "-dname", "CN=broker",
            "-ext", f"san=dns:localhost,ip:{HOST}", "-keypass", KEY_PASSWORD, *own,
        )  # fmt: skip
        file = ("-alias", "broker", "-file", str(self.certificate))
        self._keytool("-exportcert", "-rfc", *file, *own)
        trust = ("-keystore", str(self.trust), "-storetype", "JKS", "-storepass", STORE_PASSWORD)
        self._keytool("-importcert", "-noprompt", *file, *trust)

    @staticmethod
    def _keytool(*words: str) -> None:
        need("keytool")
        subprocess.run(["keytool", *words], check=True, capture_output=True, timeout=PATIENCE_S)


class SecuredFile(KafkaProcess):
    """Apache Kafka with the secured file."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        super().__init__(directory)
        self.stores = KeyStores(directory)
        (self._controller_port,) = free_ports(1)

    def settings(self) -> dict[str, str]:
        listeners = f"SASL_SSL://{self.bootstrap}"
        controllers = f"CONTROLLER://{self.host}:{self._controller_port}"
        return {
            **super().settings(),
            "listeners": f"{listeners},{controllers}",
            "advertised.listeners": listeners,
            "controller.quorum.voters": f"1@{self.host}:{self._controller_port}",
            "listener.security.protocol.map": "SASL_SSL:SASL_SSL,CONTROLLER:SASL_SSL",
            "inter.broker.listener.name": "SASL_SSL",
            "config.providers": "file",
            "config.providers.file.class": "org.apache.kafka.common.config.provider."
            "FileConfigProvider",
            "ssl.keystore.location": str(self.stores.own),
            "ssl.keystore.type": "JKS",
            "ssl.keystore.password": f"${{file:{self.stores.passwords}:store}}",
            "ssl.key.password": f"${{file:{self.stores.passwords}:key}}",
            "ssl.truststore.location": str(self.stores.trust),
            "ssl.truststore.password": f"${{file:{self.stores.passwords}:store}}",
            "ssl.client.auth": "none",
            "ssl.protocol": "TLSv1.3",
            "ssl.enabled.protocols": "TLSv1.2,TLSv1.3",
            "ssl.endpoint.identification.algorithm": "https",
            "ssl.keymanager.algorithm": "SunX509",
            "ssl.trustmanager.algorithm": "PKIX",
            "sasl.enabled.mechanisms": "SCRAM-SHA-512,PLAIN",
            "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
            "sasl.mechanism.controller.protocol": "PLAIN",
            "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": SCRAM,
            "listener.name.sasl_ssl.plain.sasl.jaas.config": PLAIN,
            "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.controller.plain.sasl.jaas.config": PLAIN,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found": "false",
            "super.users": "User:admin",
        }

    def format(self) -> None:
        """Write server.properties, and format with the first user."""
        self.write()
        words = ("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, *FIRST_USER)
        command = [*self._java, *words, "-c", str(self._properties)]
        subprocess.run(command, check=True, capture_output=True, timeout=START_TIMEOUT_S)

    def write(self) -> None:
        """Write server.properties."""
        lines = [f"{key}={value}\n" for key, value in self.settings().items()]
        self._properties.write_text("".join(lines))


class BarnabasWithSecuredFile(ServerProcess):
    """Barnabas with the server.properties of `SecuredFile`."""

    start_timeout_s = PATIENCE_S

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, "broker.log")
        self.kafka = SecuredFile(directory)
        self.bootstrap, self.stores = self.kafka.bootstrap, self.kafka.stores
        self.kafka.write()
        self._file = str(directory / "server.properties")
        words = ["format", self._file, "--cluster-id", CLUSTER_ID, *FIRST_USER]
        command = [sys.executable, "-m", "barnabas.cli.main", *words]
        subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE_S)

    def _command(self) -> list[str]:
        words = [sys.executable, "-m", "barnabas.cli.main", "start", self._file]
        return [*words, "--exit-with", str(os.getpid())]

    def close(self) -> None:
        self.kill()


Broker = SecuredFile | BarnabasWithSecuredFile


@pytest.fixture(
    scope="module",
    params=nightly_unless(
        lambda kind: kind is BarnabasWithSecuredFile, [SecuredFile, BarnabasWithSecuredFile]
    ),
)
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    made: Broker = request.param(tmp_path_factory.mktemp("secured") / "broker")
    try:
        made.start()
        yield made
    finally:
        made.close()


def librdkafka(broker: Broker, **more: str) -> dict[str, str]:
    return {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(broker.stores.certificate),
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "admin",
        "sasl.password": USER_PASSWORD,
        **more,
    }


def java_file(broker: Broker, tmp_path: Path) -> str:
    path = tmp_path / "java.properties"
    path.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\n"
        f"sasl.jaas.config={SCRAM}\n"
        f"ssl.truststore.location={broker.stores.trust}\n"
        f"ssl.truststore.password={STORE_PASSWORD}\n"
    )
    return str(path)


def test_java_writes_and_librdkafka_reads_and_vice_versa(
    broker: Broker, tmp_path: Path, tool_host: ToolHost
) -> None:
    server = ("--bootstrap-server", broker.bootstrap, "--topic", "secured")
    file = ("--command-config", java_file(broker, tmp_path))
    made = tool_host.run("TopicCommand", *server, *file, "--create", "--partitions", "1")
    assert made.returncode == 0, made.stdout + made.stderr
    sent = tool_host.run("ConsoleProducer", *server, *file, stdin="from java\n")
    assert sent.returncode == 0, sent.stderr
    producer = confluent_kafka.Producer(librdkafka(broker))
    producer.produce("secured", b"from librdkafka")
    assert producer.flush(PATIENCE_S) == 0
    consumer = confluent_kafka.Consumer(
        librdkafka(broker, **{"group.id": "rd", "auto.offset.reset": "earliest"})
    )
    consumer.subscribe(["secured"])
    found = consumer.consume(2, PATIENCE_S)
    consumer.close()
    assert [each.value() for each in found] == [b"from java", b"from librdkafka"]
    limits = ("--from-beginning", "--max-messages", "2", "--timeout-ms", "60000")
    read = tool_host.run("consumer.ConsoleConsumer", *server, *file, *limits)
    assert read.stdout.split("\n")[:2] == ["from java", "from librdkafka"], read.stderr


def test_a_wrong_password_is_refused(broker: Broker) -> None:
    errors: list[int] = []
    admin = AdminClient(
        {
            **librdkafka(broker, **{"sasl.password": "wrong"}),
            "error_cb": lambda error: errors.append(error.code()),
        }
    )

    def is_refused() -> bool:
        with contextlib.suppress(confluent_kafka.KafkaException):
            admin.list_topics(timeout=0.5)
        admin.poll(0.1)
        return confluent_kafka.KafkaError._AUTHENTICATION in errors

    eventually(is_refused)
