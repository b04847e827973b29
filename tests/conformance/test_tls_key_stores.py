"""Key stores are changed by Kafka's tool and ours, while brokers run, without lost connections."""

from __future__ import annotations

import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Self

import confluent_kafka
import pytest

from barnabas.testing.cluster_process import ClusterProcess
from conformance.tls_cluster import TlsFiles, tls_cluster
from jvm.tool_host import ToolHost
from waiting import PATIENCE_S, eventually_equal


@pytest.fixture(scope="module", params=["barnabas", "kafka"])
def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[ClusterProcess, TlsFiles]]:
    cluster, files = tls_cluster(tmp_path_factory.mktemp("stores"), request.param)
    with cluster:
        yield cluster, files


class SteadyProducer:
    """Writes continuously, and records failed deliveries and connection errors."""

    def __init__(self, cluster: ClusterProcess, files: TlsFiles) -> None:
        self.errors: list[str] = []
        self.sent = 0
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                **files.librdkafka(),
                "error_cb": lambda error: self.errors.append(str(error)),
                "linger.ms": 0,
                "log_level": 0,
            }
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(PATIENCE_S) == 0

    def _run(self) -> None:
        def on_delivery(error: object, _message: object) -> None:
            if error is None:
                self.sent += 1
            else:
                self.errors.append(str(error))

        while not self._stop.is_set():
            self._producer.produce("steady", b"x", on_delivery=on_delivery)
            self._producer.poll(0.005)


def served_certificate(cluster: ClusterProcess) -> bytes:
    host, _, port = cluster.bootstrap.rpartition(":")
    return ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate((host, int(port))))


def set_by_kafka(
    tool_host: ToolHost, cluster: ClusterProcess, files: TlsFiles, *changes: str
) -> subprocess.CompletedProcess[str]:
    return tool_host.run(
        "kafka.admin.ConfigCommand",
        "--bootstrap-server", cluster.bootstrap,
        "--command-config", str(files.java_file()),
        "--entity-type", "brokers", "--entity-name", "1",
        "--alter", "--add-config", ",".join(changes),
    )  # fmt: skip


def test_a_new_certificate_at_the_same_path_is_served(
    running: tuple[ClusterProcess, TlsFiles], tool_host: ToolHost
) -> None:
    cluster, files = running
    location = f"ssl.keystore.location={files.key_store}"
    with SteadyProducer(cluster, files) as producer:
        before = served_certificate(cluster)
        for _ in range(2):
            new = files.authority.issue("CN=broker,OU=brokers")
            assert new.der != before
            files.write_store("server.p12", new)
            done = set_by_kafka(tool_host, cluster, files, f"listener.name.plaintext.{location}")
            assert done.returncode == 0, done.stdout + done.stderr
            eventually_equal(lambda: served_certificate(cluster), new.der)
    assert producer.errors == []
    assert producer.sent > 0


def test_a_store_with_another_subject_is_refused(
    running: tuple[ClusterProcess, TlsFiles], tool_host: ToolHost
) -> None:
    cluster, files = running
    before = served_certificate(cluster)
    store = files.write_store("other.p12", files.authority.issue("CN=other"))
    done = set_by_kafka(
        tool_host, cluster, files, f"listener.name.plaintext.ssl.keystore.location={store}"
    )
    assert "InvalidRequestException" in done.stdout + done.stderr
    assert served_certificate(cluster) == before


def test_a_store_that_is_missing_is_refused(
    running: tuple[ClusterProcess, TlsFiles], tool_host: ToolHost
) -> None:
    cluster, files = running
    before = served_certificate(cluster)
    done = set_by_kafka(
        tool_host, cluster, files, "listener.name.plaintext.ssl.keystore.location=/nowhere.p12"
    )
    assert "InvalidRequestException" in done.stdout + done.stderr
    assert served_certificate(cluster) == before


def test_the_command_line_changes_a_key_store(running: tuple[ClusterProcess, TlsFiles]) -> None:
    cluster, files = running
    new = files.authority.issue("CN=broker,OU=brokers")
    store = files.write_store("new.p12", new)
    words = [
        "configs", "set", "broker", "1",
        f"listener.name.plaintext.ssl.keystore.location={store}",
        "-b", cluster.bootstrap, "--command-config", str(files.java_file()),
    ]  # fmt: skip
    subprocess.run([sys.executable, "-m", "barnabas.cli.main", *words], check=True)
    eventually_equal(lambda: served_certificate(cluster), new.der)
