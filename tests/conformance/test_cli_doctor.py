"""`barnabas doctor` reports each fault with a remedy."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner

from barnabas.cli.doctor.commands import doctor
from barnabas.testing.broker_process import BrokerProcess
from conformance.client_brokers import KafkaProcess, broker
from waiting import eventually

pytestmark = pytest.mark.conformance
__all__ = ["broker"]


def examine(target: object) -> tuple[bool, list[tuple[str, str, str]]]:
    """Return whether nothing is wrong, and (verdict, what, remedy) of each finding."""
    done = CliRunner().invoke(doctor, [str(target), "--json"])
    assert done.exit_code in (0, 1), done.output
    found = json.loads(done.output)
    assert found["well"] == (done.exit_code == 0)
    return found["well"], [(f["verdict"], f["what"], f["remedy"]) for f in found["findings"]]


def wrong(target: object) -> list[tuple[str, str]]:
    """Return each problem with its remedy."""
    return [(what, remedy) for verdict, what, remedy in examine(target)[1] if verdict == "wrong"]


@contextlib.contextmanager
def listener(response: bytes) -> Iterator[str]:
    """Yield HOST:PORT of a server that reads once, writes `response` and closes."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection, contextlib.suppress(OSError):
                    connection.recv(1000)
                    connection.sendall(response)
                    connection.shutdown(socket.SHUT_WR)
                    # Unread bytes would reset the connection and lose the response.
                    while connection.recv(1000):
                        pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        thread.join(5)


# Addresses


def test_a_running_broker_has_no_findings(broker: BrokerProcess | KafkaProcess) -> None:
    # On a slow machine, a late response is reported as a problem.
    findings = eventually(lambda: (found := examine(broker.bootstrap))[0] and found[1])
    text = "\n".join(what for _, what, _ in findings)
    assert "speaks Kafka's protocol" in text
    assert "with 1 broker, controller 1" in text
    assert "the clocks differ by" in text
    assert "all with a leader and in sync" in text
    assert "GiB free" in text


def test_a_port_without_a_listener_is_reported() -> None:
    with socket.socket() as taken:
        # No other process can listen on this port.
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        ((what, remedy),) = wrong(f"127.0.0.1:{port}")
    assert "refuses connections" in what
    assert f"barnabas start --listen 127.0.0.1:{port}" in remedy


def test_a_name_without_an_address_is_reported() -> None:
    ((what, remedy),) = wrong("broker.invalid:9092")
    assert "has no address" in what
    assert "spelling" in remedy


@pytest.mark.parametrize(
    ("response", "what"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "is a web server"),
        (b"\x15\x03\x03\x00\x02\x02\x46", "speaks TLS"),
        (b"", "closes it"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "another protocol"),
    ],
)
def test_a_server_that_is_no_broker_is_reported(response: bytes, what: str) -> None:
    def remedies(address: str) -> list[str]:
        return [remedy for problem, remedy in wrong(address) if what in problem]

    with listener(response) as address:
        # A listener that takes seconds to respond is reported as silent.
        assert all(eventually(lambda: remedies(address)))


def test_an_advertised_address_without_a_listener_is_reported(
    make_broker: Callable[[Mapping[str, str]], BrokerProcess],
) -> None:
    process = make_broker({"advertised.listeners": "PLAINTEXT://127.0.0.1:1"})
    process.start()
    # The broker prints its advertised address. The address of its listener is in /proc.
    port = listening_port(process.pid)
    found = wrong(f"127.0.0.1:{port}")
    assert any("tells clients to connect to 127.0.0.1:1" in what for what, _ in found), found
    assert any("advertised.listeners" in remedy for _, remedy in found)


def listening_port(pid: int) -> int:
    import psutil

    ports = [
        connection.laddr.port
        for connection in psutil.Process(pid).net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert len(ports) == 1, ports
    return int(ports[0])


# Directories


def test_a_directory_in_use_and_an_unclean_shutdown_are_reported(
    broker_process: BrokerProcess,
) -> None:
    directory = broker_process.data_directory
    broker_process.create_topic("recovered", 1)
    _, findings = examine(directory)
    assert any(what.endswith("is used by a broker") for _, what, _ in findings)
    broker_process.kill()
    _, findings = examine(directory)
    assert any("was not closed cleanly" in what for _, what, _ in findings)
    broker_process.start()
    broker_process.stop()
    is_healthy, findings = examine(directory)
    assert is_healthy
    assert any("was closed cleanly" in what for _, what, _ in findings)


def test_an_unformatted_and_a_zookeeper_directory_are_reported(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    assert any("no meta.properties" in what for what, _ in wrong(tmp_path))
    (tmp_path / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=x\n")
    assert any("ZooKeeper" in remedy for _, remedy in wrong(tmp_path))


# Properties


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        path = tmp_path / "server.properties"
        path.write_text(f"log.dirs={tmp_path / 'data'}\nlisteners=PLAINTEXT://127.0.0.1:0\n{text}")
        return path

    return write


@pytest.mark.parametrize(
    ("line", "what", "remedy"),
    [
        ("num.partitons=3", "num.partitons is an unknown key", "did you mean num.partitions?"),
        ("retention.ms=5", "retention.ms is a key of topics", "log.retention.ms"),
        ("num.partitions=0", "num.partitions: '0' is not allowed", "correct num.partitions"),
        ("listeners=SSL://127.0.0.1:0", "ssl.keystore.location: missing", "ssl.keystore.location"),
        ("listeners=PLAINTEXT://192.0.2.1:9", "the broker cannot listen on", "does not have"),
        ("authorizer.class.name=x.Y", "'x.Y' is not allowed", "correct authorizer"),
    ],
)
def test_an_invalid_line_is_reported(
    written: Callable[[str], Path], line: str, what: str, remedy: str
) -> None:
    found = wrong(written(line))
    assert len(found) == 1, found
    assert what in found[0][0]
    assert remedy in found[0][1]


@pytest.mark.parametrize(
    "line",
    [
        "unclean.leader.election.enable=true",
        "log.retention.ms=-1",
        "offsets.retention.minutes=5",
        "offsets.topic.replication.factor=3",
        "num.partitions=1\nnum.partitions=2",
        "zookeeper.connect=localhost:2181",
    ],
)
def test_a_valid_but_questionable_line_is_a_note(written: Callable[[str], Path], line: str) -> None:
    is_healthy, findings = examine(written(line))
    key = line.partition("=")[0]
    assert is_healthy
    assert any(verdict == "note" and key in what for verdict, what, _ in findings), findings


def test_keys_are_reported_even_if_their_values_contradict_each_other(
    written: Callable[[str], Path],
) -> None:
    found = wrong(written("log.retntion.hours=1\nlisteners=PLAINTEXT://:9092"))
    assert ["log.retntion.hours" in what for what, _ in found] == [True, False]
    assert "set advertised.listeners" in found[1][0]


def test_only_listeners_that_are_opened_are_judged(written: Callable[[str], Path]) -> None:
    open_to_all = "connections on every interface"
    for port, is_noted in (("CONTROLLER://:0", False), ("OTHER://0.0.0.0:0", True)):
        listeners = f"listeners=PLAINTEXT://127.0.0.1:0,{port}"
        _, findings = examine(written(f"{listeners}\nadvertised.listeners=OTHER://h:1"))
        assert any(open_to_all in what for _, what, _ in findings) == is_noted


def test_directories_of_other_clusters_and_nodes_are_reported(
    written: Callable[[str], Path], tmp_path: Path
) -> None:
    for name, cluster, node in (("a", "one", 1), ("b", "two", 2)):
        (tmp_path / name).mkdir()
        meta = f"version=1\ncluster.id={cluster}\nnode.id={node}\n"
        (tmp_path / name / "meta.properties").write_text(meta)
    found = wrong(written(f"log.dirs={tmp_path / 'a'},{tmp_path / 'b'}"))
    assert any("belongs to node 2, but this is node 1" in what for what, _ in found)
    assert any("several clusters" in what for what, _ in found)


def test_the_file_of_a_running_broker_has_no_problem(
    written: Callable[[str], Path], tmp_path: Path
) -> None:
    with BrokerProcess(tmp_path / "running") as broker:
        path = written(
            f"listeners=PLAINTEXT://{broker.bootstrap}\nlog.dirs={broker.data_directory}\n"
        )
        found = examine(path)[1]
    assert [what for verdict, what, _ in found if verdict == "wrong"] == []
    (remedy,) = [remedy for _, what, remedy in found if "this broker runs already" in what]
    assert remedy.endswith(f"barnabas doctor {broker.bootstrap}")


def test_a_port_in_use_is_reported(written: Callable[[str], Path]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        ((what, remedy),) = wrong(written(f"listeners=PLAINTEXT://{address}"))
    assert "the broker cannot listen on" in what
    assert "another port" in remedy
