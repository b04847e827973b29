"""Stalled, forged and costly handshakes affect only their own connections."""

from __future__ import annotations

import contextlib
import socket
import ssl
import subprocess
from collections.abc import Iterator

import confluent_kafka
import psutil
import pytest

from barnabas.testing.cluster_process import ClusterProcess, NodeProcess
from conformance.crowds import LONG_BACKLOG
from conformance.tls_cluster import TlsFiles, tls_cluster
from loop_turns import loop_turns
from selection import nightly_rows_unless
from waiting import PATIENCE_S, eventually

MEGABYTE = 1_000_000


@pytest.fixture(scope="module")
def attacked(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[ClusterProcess, TlsFiles]]:
    from barnabas.testing.free_ports import free_ports

    (port,) = free_ports(1)
    folder = tmp_path_factory.mktemp("attacked")
    settings = {"metrics.listener": f"127.0.0.1:{port}", **LONG_BACKLOG}
    cluster, files = tls_cluster(folder, **settings)
    with cluster:
        use(cluster, files)
        yield cluster, files


def use(cluster: ClusterProcess, files: TlsFiles) -> None:
    """Write and read as a polite client."""
    keys = {"bootstrap.servers": cluster.bootstrap, **files.librdkafka()}
    producer = confluent_kafka.Producer(keys)
    producer.produce("polite", b"x")
    assert producer.flush(PATIENCE_S) == 0
    consumer = confluent_kafka.Consumer({**keys, "group.id": "polite"})
    consumer.assign([confluent_kafka.TopicPartition("polite", 0, 0)])
    assert consumer.poll(PATIENCE_S) is not None
    consumer.close()


def client_hello() -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


def address_of(node: NodeProcess) -> tuple[str, int]:
    host, _, port = node.address.rpartition(":")
    return host, int(port)


def metrics_of(node: NodeProcess) -> str:
    return node.settings["metrics.listener"]


@pytest.mark.slow
def test_ten_thousand_incomplete_handshakes_do_not_stop_the_broker(
    attacked: tuple[ClusterProcess, TlsFiles],
) -> None:
    cluster, files = attacked
    node = cluster.node(1)
    process = psutil.Process(node.pid)
    before, turns = process.memory_info().rss, loop_turns(metrics_of(node))
    hello = client_hello()
    with contextlib.ExitStack() as stack:
        for _ in range(10_000):
            end = stack.enter_context(socket.create_connection(address_of(node), PATIENCE_S))
            end.sendall(hello)
        # Without a limit, OpenSSL takes 430 MB for 10,000 handshakes.
        assert process.memory_info().rss - before < 250 * MEGABYTE
        use(cluster, files)
        assert process.memory_info().rss - before < 250 * MEGABYTE
    assert loop_turns(metrics_of(node)).long_cpu_turns == turns.long_cpu_turns
    use(cluster, files)


def test_silent_connections_and_forged_handshakes_do_not_stop_the_broker(
    attacked: tuple[ClusterProcess, TlsFiles],
) -> None:
    cluster, files = attacked
    node = cluster.node(1)
    with contextlib.ExitStack() as stack:
        silent = [
            stack.enter_context(socket.create_connection(address_of(node), PATIENCE_S))
            for _ in range(500)
        ]
        for data in (b"\x16\x03\x01\xff\xff" + b"\0" * 5000, b"\0" * 5000, b"\x80\x2e\1\0\2"):
            forged = stack.enter_context(socket.create_connection(address_of(node), PATIENCE_S))
            forged.sendall(data)
            with contextlib.suppress(ConnectionResetError):
                while forged.recv(4096):
                    continue
        use(cluster, files)
        # The broker closes silent connections after ten seconds.
        for end in silent:
            assert end.recv(1) == b""


@pytest.mark.parametrize(
    ("group", "is_served"),
    nightly_rows_unless(
        {("ffdhe8192", False), ("P-521", True)}.__contains__,
        [
            ("ffdhe8192", False),
            ("ffdhe2048", False),
            ("P-521", True),
            ("P-384", True),
            ("X448", True),
        ],
    ),
)
def test_costly_key_exchanges_do_not_block_the_event_loop(
    attacked: tuple[ClusterProcess, TlsFiles], group: str, is_served: bool
) -> None:
    cluster, files = attacked
    node = cluster.node(1)
    turns = loop_turns(metrics_of(node))
    words = ["openssl", "s_client", "-tls1_3", "-groups", group, "-connect", node.address]
    for _ in range(5):
        running = [
            subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            for _ in range(4)
        ]
        for each in running:
            assert (each.wait(PATIENCE_S) == 0) == is_served
    use(cluster, files)
    after = loop_turns(metrics_of(node))
    assert after.long_cpu_turns == turns.long_cpu_turns


def test_endless_key_updates_affect_only_their_sender(
    attacked: tuple[ClusterProcess, TlsFiles],
) -> None:
    """For each line "K", `s_client` requests new keys."""
    cluster, files = attacked
    node = cluster.node(1)
    before = psutil.Process(node.pid).memory_info().rss
    words = ["openssl", "s_client", "-tls1_3", "-connect", node.address, "-quiet"]
    done = subprocess.run(
        words, input=b"K\n" * 20_000, capture_output=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode is not None
    assert psutil.Process(node.pid).memory_info().rss - before < 50 * MEGABYTE
    use(cluster, files)


def test_a_client_that_renegotiates_is_refused(
    attacked: tuple[ClusterProcess, TlsFiles],
) -> None:
    cluster, files = attacked
    node = cluster.node(1)
    words = ["openssl", "s_client", "-tls1_2", "-connect", node.address]
    running = subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert running.stdin is not None
    assert running.stdout is not None
    running.stdin.write(b"R\n")
    running.stdin.flush()
    output = running.stdout.read()
    running.wait(PATIENCE_S)
    assert b"no renegotiation" in output
    use(cluster, files)


def test_the_log_has_no_traceback(attacked: tuple[ClusterProcess, TlsFiles]) -> None:
    cluster, _ = attacked
    eventually(lambda: "does not speak TLS" in cluster.node(1).log())
    assert "Traceback" not in cluster.node(1).log()
