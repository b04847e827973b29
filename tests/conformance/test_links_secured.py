"""Links between two clusters with TLS, by passwords and by certificates: there, and back again."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from barnabas import Client
from barnabas.cli.common.profiles import CONFIG_VARIABLE
from conformance.cli_shell import Shell
from conformance.linked_clusters import batch_bytes
from conformance.secured_broker import SecuredBroker
from waiting import eventually, eventually_equal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.conformance

LINK, TOPIC, GROUP = "prod", "orders", "readers"
# The kinds of properties files of clients: a login by SCRAM, and a certificate.
PASSWORD, CERTIFICATE = "barnabas", "certificate"


class Cluster:
    """A secured cluster of one broker, and a client of one kind."""

    def __init__(self, broker: SecuredBroker, kind: str) -> None:
        self.broker = broker
        self.file = broker.file(kind)
        self.client = Client(**broker.keys(kind))
        self.shell = Shell("")
        del self.shell.environment["BARNABAS_BOOTSTRAP"]
        self.shell.environment[CONFIG_VARIABLE] = self.file

    def produce(self, prefix: str, count: int) -> None:
        with self.client.producer() as producer:
            for number in range(count):
                producer.send(TOPIC, f"{prefix}-{number}".encode())

    @property
    def end(self) -> int:
        """The end of the topic; -1 before it exists."""
        found = self.client.admin.list_offsets({(TOPIC, 0): "latest"})[TOPIC, 0]
        return -1 if isinstance(found, Exception) else found.offset

    @property
    def batches(self) -> list[bytes]:
        return batch_bytes(self.broker.files / "data", TOPIC, 0)

    def committed(self) -> int:
        found = self.client.committed(GROUP, [(TOPIC, 0)])
        return found[TOPIC, 0].offset if found else -1


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SecuredBroker, ...]]:
    made = [SecuredBroker(tmp_path_factory.mktemp(name)) for name in ("source", "target")]
    for broker in made:
        assert broker.init_result.returncode == 0, broker.init_result.stderr
    with made[0], made[1]:
        yield tuple(made)


@pytest.fixture
def clusters(
    brokers: tuple[SecuredBroker, ...], request: pytest.FixtureRequest
) -> Iterator[tuple[Cluster, Cluster]]:
    """The source with the topic, and the cluster of the link."""
    source, target = (Cluster(broker, request.param) for broker in brokers)
    with source.client, target.client:
        source.client.create_topic(TOPIC)
        yield source, target
        for cluster in (source, target):
            cluster.shell.run_in_process("links", "delete", LINK, "--force", "--yes")
            cluster.client.delete_topics([TOPIC])


def create_link(source: Cluster, target: Cluster, *options: str) -> None:
    words = ["--topics", TOPIC, "--groups", GROUP, "--group-interval", "200", *options]
    target.shell.ok("links", "create", LINK, "--config", source.file, *words)


@pytest.mark.parametrize("clusters", [PASSWORD, CERTIFICATE], indirect=True)
def test_a_topic_moves_there_and_back(
    clusters: tuple[Cluster, Cluster], request: pytest.FixtureRequest
) -> None:
    source, target = clusters
    has_secrets = source.file == source.broker.file(PASSWORD)
    source.produce("first", 20)
    source.client.commit_offsets(GROUP, {(TOPIC, 0): 7})
    create_link(source, target)
    eventually_equal(lambda: target.end, 20)
    target.shell.ok("links", "promote", LINK)
    assert target.committed() == 7
    target.produce("second", 20)
    words = ["links", "reverse", LINK, "--config", target.file]
    if has_secrets:
        # The password is not shown to the command.
        refused = target.shell.run_in_process(*words)
        assert refused.returncode == 2
        assert "the value of sasl.password is not known here: give --source" in refused.stderr
    from_file = ["--source", source.file] if has_secrets else []
    target.shell.ok(*words, *from_file)
    eventually_equal(lambda: source.end, 40)
    target.client.commit_offsets(GROUP, {(TOPIC, 0): 31})
    target.shell.ok("links", "failback", LINK, *from_file)

    assert source.committed() == 31
    source.produce("third", 20)
    eventually_equal(lambda: target.end, 60)
    assert target.batches == source.batches


@pytest.mark.parametrize("clusters", [CERTIFICATE], indirect=True)
def test_a_link_works_as_soon_as_its_files_exist(
    clusters: tuple[Cluster, Cluster], tmp_path: Path
) -> None:
    source, target = clusters
    source.produce("first", 20)
    keys = source.broker.keys(CERTIFICATE)
    later = tmp_path / "ca.pem"
    file = tmp_path / "source.properties"
    changed = {**keys, "ssl.ca.location": str(later)}
    file.write_text("".join(f"{key}={value}\n" for key, value in changed.items()))
    words = ["--config", str(file), "--topics", TOPIC, "--no-check"]
    target.shell.ok("links", "create", LINK, *words)
    eventually(lambda: "Link cannot be used, retrying" in target.broker.log())
    assert target.end == -1
    shutil.copy(keys["ssl.ca.location"], later)
    eventually_equal(lambda: target.end, 20)
