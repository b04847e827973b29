"""A node whose listeners have TLS, SCRAM users and ACLs, as docs/node.md sets it up."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.settings.properties import parse_properties
from barnabas.testing.barnabas_command import barnabas_command
from barnabas.testing.free_ports import free_ports
from conformance.node_of_brokers import NodeOfBrokers
from conformance.tls_cluster import TlsFiles
from waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

WAIT_S = 300.0
PAGE = Path(__file__).parents[2] / "docs" / "node.md"
MECHANISM = "SCRAM-SHA-512"
USERS = ("node", "admin", "reporter")
PARTITIONS = 4


def block_of_page(language: str) -> str:
    """Return the block of the page's section in this language."""
    section = PAGE.read_text().split("## A node with TLS, users and ACLs\n")[1]
    return section.split(f"```{language}\n")[1].split("```")[0]


def settings(files: TlsFiles, directory: Path) -> dict[str, str]:
    """Return the keys of the page, with addresses and files of this machine."""
    key_store = files.server.write_pem(directory / "broker.pem")
    return {
        **parse_properties(block_of_page("properties")),
        "barnabas.node.brokers": "2",
        "log.dirs": str(directory / "data"),
        "listeners": f"SASL_SSL://127.0.0.1:{free_ports(1)[0]}",
        "ssl.keystore.location": str(key_store),
        "ssl.truststore.location": str(files.ca),
        "barnabas.log.level": "info",
        "metrics.listener": "127.0.0.1:0",
    }


class SecuredNode(NodeOfBrokers):
    """A node from a file, whose folders `barnabas format` has formatted with the first users."""

    def __init__(self, directory: Path) -> None:
        self.files = TlsFiles(directory / "certificates")
        # The file of the operator, as for one process.
        self.file = directory / "server.properties"
        keys = settings(self.files, directory)
        self.file.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
        super().__init__(directory, 2)

    def format(self) -> str:
        """Format the folders of all processes as on the page; return what is printed."""
        users = [f"{MECHANISM}=[name={each},password={each}-secret]\n" for each in USERS]
        (self.directory / "users").write_text("".join(users))
        words = block_of_page("console").splitlines()[0].split()[2:]
        return subprocess.run(
            [*barnabas_command(), *words],
            cwd=self.directory,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=True,
        ).stdout

    def client(self, user: str, password: str | None = None) -> dict[str, str]:
        """Return the properties of librdkafka for a user."""
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.files.ca),
            "sasl.mechanism": MECHANISM,
            "sasl.username": user,
            "sasl.password": f"{user}-secret" if password is None else password,
            "log_level": "0",
        }

    def _command(self) -> list[str]:
        return [*barnabas_command(), "start", str(self.file)]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredNode]:
    made = SecuredNode(tmp_path_factory.mktemp("node"))
    printed = made.format()
    assert [line.split(" formatted")[0].rpartition("/")[2] for line in printed.splitlines()] == [
        "controller.1",
        "broker.101",
        "broker.102",
    ]
    with made:
        admin = AdminClient(made.client("admin"))
        for future in admin.create_topics([NewTopic("orders", PARTITIONS, 1)]).values():
            future.result(WAIT_S)
        eventually(lambda: "orders" in admin.list_topics(timeout=WAIT_S).topics)
        yield made


def produced(keys: dict[str, str]) -> list[KafkaError | None]:
    """Write one record to each partition; return the results."""
    found: list[KafkaError | None] = []
    producer = Producer(keys)
    for partition in range(PARTITIONS):
        producer.produce(
            "orders",
            b"in %d" % partition,
            partition=partition,
            on_delivery=lambda error, _: found.append(error),
        )
    assert producer.flush(WAIT_S) == 0
    return found


def test_users_of_the_format_write_and_read_through_both_brokers(node: SecuredNode) -> None:
    keys = node.client("admin")
    assert len(node.bootstrap.split(",")) == 2
    found = AdminClient(keys).list_topics("orders", timeout=WAIT_S).topics["orders"].partitions
    assert {partition.leader for partition in found.values()} == {101, 102}
    assert produced(keys) == [None] * PARTITIONS
    consumer = Consumer({**keys, "group.id": "readers", "enable.auto.commit": "false"})
    consumer.assign([TopicPartition("orders", each, 0) for each in range(PARTITIONS)])
    values: set[bytes] = set()

    def has_read_all() -> bool:
        messages = consumer.consume(100, 0.5)
        values.update(message.value() for message in messages if message.error() is None)
        return len(values) >= PARTITIONS

    eventually(has_read_all, lambda: f"{values}")
    consumer.close()


def test_a_user_without_acls_may_not_write(node: SecuredNode) -> None:
    refused = {error.code() if error else None for error in produced(node.client("reporter"))}
    assert refused == {KafkaError.TOPIC_AUTHORIZATION_FAILED}


def await_refusal(keys: dict[str, str]) -> None:
    """Connect until librdkafka reports that the login failed."""
    failed: list[int] = []
    producer = Producer({**keys, "error_cb": lambda error: failed.append(error.code())})

    def is_refused() -> bool:
        producer.poll(0.2)
        return KafkaError._AUTHENTICATION in failed

    eventually(is_refused, lambda: f"{failed}")


def test_a_wrong_password_is_refused_by_each_broker(node: SecuredNode) -> None:
    for address in node.bootstrap.split(","):
        await_refusal({**node.client("admin", "wrong"), "bootstrap.servers": address})


def test_a_killed_broker_logs_in_again(node: SecuredNode) -> None:
    before = node.process_ids[102]
    os.kill(before, signal.SIGKILL)
    eventually(lambda: node.process_ids[102] != before, node.log, WAIT_S)
    eventually(lambda: node.get("/readyz") == (200, "ok\n"), lambda: node.get("/readyz"), WAIT_S)
    assert produced(node.client("admin")) == [None] * PARTITIONS
