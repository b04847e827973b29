"""Each row of the table of troubles: cause, finding, recovery."""

from __future__ import annotations

import http.server
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.client.admin.topics import NewTopic
from barnabas.client.consumer.consumer import Consumer
from barnabas.client.errors import ClientError
from barnabas.client.facade import Client
from barnabas.client.producer.producer import Producer
from barnabas.client.topic_partition import TopicPartition
from barnabas.protocol.messages.groups import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
)
from barnabas.testing.broker_process import BrokerProcess
from barnabas.testing.cluster_process import ClusterProcess
from conformance.hanging_transaction import open_a_transaction_that_hangs
from conformance.raw_client import RawClient
from conformance.tiered_topics import tier_settings
from scenario.doctor import await_finding, await_recovery, barnabas, run, run_doctor, run_remedy
from scenario.trouble_table import TROUBLES
from waiting import eventually

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "auto.leader.rebalance.enable": "false",
    "replica.lag.time.max.ms": "3000",
    "group.initial.rebalance.delay.ms": "0",
    # A throttle applies after the first fetch, which must not return all records.
    "replica.fetch.max.bytes": "40000",
}
# Large enough that a follower at one byte per second lags.
PAYLOAD = bytes(20_000)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcess]:
    with ClusterProcess(3, directory=tmp_path_factory.mktemp("troubles"), settings=SETTINGS) as it:
        yield it


@pytest.fixture
def cluster(shared: ClusterProcess) -> Iterator[ClusterProcess]:
    """The shared cluster; all its nodes are restarted or resumed afterwards."""
    yield shared
    for node in shared.nodes.values():
        if node.is_running:
            node.resume()
        else:
            node.start()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path / "broker")
    yield process
    process.close()


def create(cluster: ClusterProcess, topic: str, brokers: str, **configs: str) -> None:
    """Create a topic with one partition on these brokers, the preferred leader first."""
    with Client(cluster.bootstrap) as client:
        new = NewTopic(topic, configs=configs, assignments={0: [int(b) for b in brokers]})
        client.create_topics([new])


def produce(cluster: ClusterProcess, topic: str, count: int, value: bytes = b"v") -> None:
    with Client(cluster.bootstrap) as client:
        producer = client.producer()
        for _ in range(count):
            producer.send(topic, value)
        producer.flush()


# On the shared cluster


def quorum_leader(cluster: ClusterProcess) -> int:
    with Client(cluster.bootstrap) as client:
        return eventually(lambda: max(client.admin.describe_quorum().leader_id, 0))


def test_dead_broker(cluster: ClusterProcess) -> None:
    # A quorum leader reports the time of a broker's last heartbeat. A new leader has no heartbeats
    # of brokers that died before its election.
    if quorum_leader(cluster) == 3:
        cluster.node(3).kill()
        eventually(lambda: quorum_leader(cluster) != 3)
        cluster.node(3).start()
    cluster.node(3).kill()
    first, *_ = await_finding("dead broker", cluster.bootstrap)
    assert "its last fetch was" in first.what
    # The controller is the quorum's leader, which is not the dead broker.
    found = eventually(
        lambda: [f.what for f in run_doctor(cluster.bootstrap) if "with 3 brokers" in f.what]
    )
    assert quorum_leader(cluster) != 3
    assert "controller" in found[0]
    cluster.node(3).start()
    await_recovery("dead broker", cluster.bootstrap)


@pytest.mark.nightly
def test_dead_quorum(cluster: ClusterProcess) -> None:
    for number in (2, 3):
        cluster.node(number).kill()
    first, *all_found = await_finding("dead quorum", cluster.bootstrap)
    assert all_found[0] == first
    assert "1 of 3 voters answer, 2 are required" in first.what
    why = barnabas("why", "-b", cluster.bootstrap)
    assert why.returncode == 1
    assert "the metadata quorum has no leader" in why.stdout.splitlines()[1]
    top = barnabas("top", "--once", "-b", cluster.bootstrap)
    assert top.returncode == 1
    assert "the metadata quorum has no leader" in top.stderr.splitlines()[-1]
    for number in (2, 3):
        cluster.node(number).launch()
    for number in (2, 3):
        cluster.node(number).await_ready()
    await_recovery("dead quorum", cluster.bootstrap)


@pytest.mark.nightly
def test_node_that_waits_for_its_quorum(cluster: ClusterProcess) -> None:
    for node in cluster.nodes.values():
        node.kill()
    cluster.node(1).launch()
    await_finding("node that waits for its quorum", cluster.node(1).address)
    for number in (2, 3):
        cluster.node(number).launch()
    for node in cluster.nodes.values():
        node.await_ready()
    await_recovery("node that waits for its quorum", cluster.node(1).address)


def test_paused_broker(cluster: ClusterProcess) -> None:
    cluster.node(2).pause()
    await_finding("paused broker", cluster.bootstrap)
    cluster.node(2).resume()
    await_recovery("paused broker", cluster.bootstrap)


@pytest.mark.nightly
def test_fenced_broker(cluster: ClusterProcess) -> None:
    cluster.node(2).pause()
    with Client(cluster.node(1).address, request_timeout_ms=2000) as client:
        eventually(lambda: [b for b in client.describe_cluster().fenced if b.id == 2])
    await_finding("fenced broker", cluster.bootstrap)
    cluster.node(2).resume()
    await_recovery("fenced broker", cluster.bootstrap)


@pytest.mark.nightly
def test_leaders_are_not_the_preferred_ones(cluster: ClusterProcess) -> None:
    create(cluster, "led", "312")
    cluster.node(3).kill()
    await_finding("dead broker", cluster.bootstrap)
    cluster.node(3).start()
    first, *_ = await_finding("leaders are not the preferred ones", cluster.bootstrap)
    run_remedy(first.remedy, cluster.bootstrap)
    await_recovery("leaders are not the preferred ones", cluster.bootstrap)


def test_too_few_replicas_for_min_insync_replicas(cluster: ClusterProcess) -> None:
    create(cluster, "both", "13", **{"min.insync.replicas": "2"})
    cluster.node(3).kill()
    await_finding("too few replicas for min.insync.replicas", cluster.bootstrap)
    cluster.node(3).start()
    await_recovery("too few replicas for min.insync.replicas", cluster.bootstrap)


def test_min_insync_replicas_above_the_replicas(cluster: ClusterProcess) -> None:
    create(cluster, "single", "1", **{"min.insync.replicas": "2"})
    with Producer(cluster.bootstrap, acks="all") as producer:
        producer.send("single", b"accepted").result(30)
    first, *_ = await_finding("min.insync.replicas above the replicas", cluster.bootstrap)
    run_remedy(first.remedy, cluster.bootstrap)
    await_recovery("min.insync.replicas above the replicas", cluster.bootstrap)


def commit_start(cluster: ClusterProcess, group: str, topic: str) -> None:
    words = ("groups", "reset", group, "--topic", topic, "--to-earliest", "--execute")
    eventually(lambda: barnabas(*words, "-b", cluster.bootstrap).returncode == 0)


@pytest.mark.nightly
def test_consumer_offsets_lacks_replicas(cluster: ClusterProcess) -> None:
    create(cluster, "read", "12")
    commit_start(cluster, "reader", "read")
    cluster.node(3).kill()
    await_finding("__consumer_offsets lacks in-sync replicas", cluster.bootstrap)
    cluster.node(3).start()
    await_recovery("__consumer_offsets lacks in-sync replicas", cluster.bootstrap)
    run("groups", "delete", "reader", "-b", cluster.bootstrap)


def test_unfinished_reassignment(cluster: ClusterProcess) -> None:
    create(cluster, "moving", "12")
    produce(cluster, "moving", 50, PAYLOAD)
    words = ("--replicas", "moving:0=1,3", "--throttle", "1", "--execute", "--no-wait")
    run("partitions", "reassign", *words, "-b", cluster.bootstrap)
    await_finding("unfinished reassignment", cluster.bootstrap)
    run("partitions", "reassign", "--cancel", "-b", cluster.bootstrap)
    await_recovery("unfinished reassignment", cluster.bootstrap)


@pytest.mark.nightly
def test_lagging_replica(cluster: ClusterProcess) -> None:
    rate = "follower.replication.throttled.rate"
    run("configs", "set", "broker", "3", f"{rate}=1", "-b", cluster.bootstrap)
    create(cluster, "slow", "13", **{"follower.replication.throttled.replicas": "*"})
    # Only a follower outside of the ISR is throttled.
    cluster.node(3).kill()
    await_finding("dead broker", cluster.bootstrap)
    produce(cluster, "slow", 50, PAYLOAD)
    cluster.node(3).start()
    _, *found = await_finding("lagging replica", cluster.bootstrap)
    (throttled,) = {f for f in found if "broker 3 is throttled" in f.what}
    run_remedy(throttled.remedy, cluster.bootstrap)
    await_recovery("lagging replica", cluster.bootstrap)


def test_group_without_members_with_lag(cluster: ClusterProcess) -> None:
    create(cluster, "unread", "12")
    produce(cluster, "unread", 10)
    commit_start(cluster, "idle", "unread")
    first, *_ = await_finding("group without members, with lag", cluster.bootstrap)
    run_remedy(first.remedy.partition(": ")[2], cluster.bootstrap)
    await_recovery("group without members, with lag", cluster.bootstrap)


@pytest.mark.nightly
def test_open_transaction_delays_readers(cluster: ClusterProcess) -> None:
    create(cluster, "held", "12")
    with Client(cluster.bootstrap) as client:
        producer = client.producer(transactional_id="forgotten", transaction_timeout_ms=600_000)
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("held", b"v")
        producer.flush()
        first, *_ = await_finding("open transaction delays readers", cluster.bootstrap)
        assert "transactional id forgotten (Ongoing at its coordinator, broker" in first.what
        run_remedy(first.remedy, cluster.bootstrap)
        await_recovery("open transaction delays readers", cluster.bootstrap)
        with pytest.raises(ClientError):
            producer.commit_transaction()


def test_group_stuck_in_a_rebalance(cluster: ClusterProcess) -> None:
    with Client(cluster.bootstrap) as client:
        coordinator = eventually(lambda: client.admin.coordinators(["stuck"])["stuck"])
    assert isinstance(coordinator, int), coordinator
    raw = RawClient(cluster.node(coordinator).address)
    request = JoinGroupRequest(
        group_id="stuck",
        session_timeout_ms=60_000,
        rebalance_timeout_ms=300_000,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\0\0\0\0\0")],
    )
    joined = raw.ask(request, 3)
    assert joined.error_code == 0
    await_finding("group stuck in a rebalance", cluster.bootstrap)
    raw.ask(LeaveGroupRequest(group_id="stuck", member_id=joined.member_id), 2)
    raw.close()
    await_recovery("group stuck in a rebalance", cluster.bootstrap)


def test_consumer_that_does_not_advance(cluster: ClusterProcess) -> None:
    create(cluster, "hung", "12")
    produce(cluster, "hung", 10)
    with Consumer(
        "hung", bootstrap_servers=cluster.bootstrap, group_id="hangs", auto_offset_reset="earliest"
    ) as consumer:
        eventually(lambda: consumer.poll(0.1))
        consumer.commit({TopicPartition("hung", 0): 3})
        await_finding("consumer that does not advance", cluster.bootstrap)
        consumer.commit({TopicPartition("hung", 0): 10})
        await_recovery("consumer that does not advance", cluster.bootstrap)
    run("groups", "delete", "hangs", "-b", cluster.bootstrap)


def test_records_that_no_consumer_can_read(cluster: ClusterProcess) -> None:
    create(cluster, "poisoned", "1")
    for _ in range(4):
        produce(cluster, "poisoned", 1)
    words = ("groups", "reset", "readers", "--topic", "poisoned", "--to-offset", "2", "--execute")
    eventually(lambda: barnabas(*words, "-b", cluster.bootstrap).returncode == 0)
    (log,) = (cluster.node(1).data_directory / "poisoned-0").glob("*.log")
    damaged = bytearray(log.read_bytes())
    # The four batches have equal sizes, and a batch ends with its record.
    damaged[3 * len(damaged) // 4 - 2] ^= 0x55
    log.write_bytes(damaged)
    first, *_ = await_finding("records that no consumer can read", cluster.bootstrap)
    command = first.remedy.partition("to skip them instead: `")[2].partition("`")[0]
    run_remedy(command, cluster.bootstrap, "--execute")
    await_recovery("records that no consumer can read", cluster.bootstrap)
    run("topics", "delete", "poisoned", "--yes", "-b", cluster.bootstrap)


def test_hot_partition(cluster: ClusterProcess) -> None:
    words = ["bench", "produce", "spread", "-p", "3", "-r", "1", "--keys", "1", "--rate", "500"]
    command = [sys.executable, "-m", "barnabas.cli.main", *words, "--seconds", "600"]
    with subprocess.Popen(
        [*command, "-b", cluster.bootstrap], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as bench:
        try:
            await_finding("hot partition", cluster.bootstrap)
        finally:
            bench.kill()
    await_recovery("hot partition", cluster.bootstrap)


def test_record_from_a_wrong_clock(cluster: ClusterProcess) -> None:
    create(cluster, "early", "1")
    with Producer(cluster.bootstrap) as producer:
        ahead = int(time.time() * 1000) + 50 * 60_000
        producer.send("early", b"v", timestamp_ms=ahead).result(30)
    await_finding("record from a wrong clock", cluster.bootstrap)
    run("topics", "delete", "early", "--yes", "-b", cluster.bootstrap)
    await_recovery("record from a wrong clock", cluster.bootstrap)


# Addresses


def test_wrong_bootstrap_port() -> None:
    with socket.socket() as taken:
        # While the port is bound, no other program can listen there.
        taken.bind(("127.0.0.1", 0))
        await_finding("wrong bootstrap port", f"127.0.0.1:{taken.getsockname()[1]}")


def test_no_broker_at_the_port() -> None:
    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), http.server.BaseHTTPRequestHandler
    ) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        await_finding("no broker at the port", f"127.0.0.1:{server.server_address[1]}")
        server.shutdown()
        thread.join()


@pytest.mark.nightly
def test_brokers_of_two_clusters(broker: BrokerProcess, tmp_path: Path) -> None:
    broker.start()
    with BrokerProcess(tmp_path / "other") as other:
        both = f"{broker.bootstrap},{other.bootstrap}"
        await_finding("brokers of two clusters in bootstrap.servers", both)
        await_recovery("brokers of two clusters in bootstrap.servers", broker.bootstrap)


# One broker


def test_wrong_advertised_address(broker: BrokerProcess) -> None:
    address = broker.bootstrap
    broker.settings["advertised.listeners"] = "PLAINTEXT://127.0.0.1:1"
    broker.start()
    await_finding("wrong advertised address", address)
    broker.stop()
    broker.settings.clear()
    host, _, port = address.rpartition(":")
    broker.host, broker.port = host, int(port)
    broker.start()
    await_recovery("wrong advertised address", address)


def test_wrong_cluster_id(broker: BrokerProcess, tmp_path: Path) -> None:
    broker.start()
    broker.stop()
    meta = (broker.data_directory / "meta.properties").read_text()
    (cluster_id,) = [line[11:] for line in meta.splitlines() if line.startswith("cluster.id=")]
    file = tmp_path / "server.properties"
    fixed = f"node.id=1\nlisteners=PLAINTEXT://127.0.0.1:0\nlog.dirs={broker.data_directory}\n"
    file.write_text(f"{fixed}cluster.id=xtzWWN4bTjitpL3kfd9s5g\n")
    first, *_ = await_finding("wrong cluster id", file)
    assert f"set cluster.id={cluster_id};" in first.remedy
    file.write_text(f"{fixed}cluster.id={cluster_id}\n")
    # The file has the right cluster id, so that the finding disappears.
    assert not any(f.verdict == "wrong" for f in run_doctor(file))


@pytest.mark.nightly
def test_damaged_metadata_log(broker: BrokerProcess) -> None:
    broker.start()
    for number in range(20):
        run("topics", "create", f"t{number}", "-b", broker.bootstrap)
    broker.stop()
    (log,) = (broker.data_directory / "__cluster_metadata-0").glob("*.log")
    damaged = bytearray(log.read_bytes())
    for place in range(len(damaged) // 2, len(damaged) // 2 + 200):
        damaged[place] ^= 0x55
    log.write_bytes(damaged)
    first, *_ = await_finding("damaged metadata log", broker.data_directory)
    words = first.remedy.partition(";")[0].split()
    assert words == ["barnabas", "log", "repair", str(broker.data_directory), "--apply"]
    run(*words[1:])
    await_recovery("damaged metadata log", broker.data_directory)
    broker.start()
    await_recovery("damaged metadata log", broker.bootstrap)


def test_clock_off_by_hours(
    broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = (
        "import time",
        "now, now_ns = time.time, time.time_ns",
        "time.time = lambda: now() + 7200",
        "time.time_ns = lambda: now_ns() + 7200 * 10**9",
    )
    (tmp_path / "sitecustomize.py").write_text("\n".join(lines))
    with monkeypatch.context() as context:
        context.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
        broker.start()
    await_finding("clock off by hours", broker.bootstrap)
    broker.stop()
    broker.start()
    await_recovery("clock off by hours", broker.bootstrap)


@pytest.mark.nightly
def test_disabled_feature_and_transaction_that_no_coordinator_knows(broker: BrokerProcess) -> None:
    broker.settings["transaction.partition.verification.enable"] = "false"
    broker.start()
    lowered = ("share.version=0", "transaction.version=0")
    run("features", "downgrade", *lowered, "-b", broker.bootstrap)
    first, *_ = await_finding("disabled feature", broker.bootstrap)
    run_remedy(first.remedy, broker.bootstrap)
    await_recovery("disabled feature", broker.bootstrap)
    run("topics", "create", "left", "-b", broker.bootstrap)
    open_a_transaction_that_hangs(broker.bootstrap, "left")
    first, *_ = await_finding("transaction that no coordinator knows", broker.bootstrap)
    run_remedy(first.remedy, broker.bootstrap)
    await_recovery("transaction that no coordinator knows", broker.bootstrap)


def test_full_disk(broker: BrokerProcess) -> None:
    broker.directory.mkdir(parents=True)
    broker.data_directory.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(broker.data_directory)]
    if subprocess.run(words, capture_output=True, check=False).returncode:
        pytest.skip("mounting a file system is not allowed here")
    try:
        broker.start()
        filler = broker.data_directory / "filler"
        filler.write_bytes(bytes(60 << 20))
        await_finding("full disk", broker.bootstrap)
        filler.unlink()
        await_recovery("full disk", broker.bootstrap)
    finally:
        broker.close()
        subprocess.run(["umount", str(broker.data_directory)], check=True)


@pytest.mark.nightly
def test_offline_directory(tmp_path: Path) -> None:
    second = tmp_path / "second"
    alone = ClusterProcess(1, directory=tmp_path / "cluster")
    node = alone.node(1)
    node.settings["log.dirs"] = f"{node.data_directory},{second}"
    with alone:
        second.rename(tmp_path / "lost")
        second.write_text("")
        for number in range(4):
            barnabas("topics", "create", f"t{number}", "-b", node.address, "--timeout", "2")
        await_finding("offline directory", node.address)
        node.kill()
        second.unlink()
        (tmp_path / "lost").rename(second)
        node.start()
        await_recovery("offline directory", node.address)


def test_file_descriptors_near_the_limit(broker: BrokerProcess) -> None:
    broker.start()
    limited = ("sh", "-c", 'ulimit -n 900 && exec "$@"', "sh")
    await_finding("file descriptors near the limit", broker.data_directory, limited)
    await_recovery("file descriptors near the limit", broker.data_directory)


def test_remote_store_that_is_not_mounted(broker: BrokerProcess, tmp_path: Path) -> None:
    broker.settings |= tier_settings(tmp_path / "tier")
    broker.start()
    broker.stop()
    lines = [f"{key}={value}" for key, value in tier_settings(tmp_path / "tier").items()]
    lines += ["node.id=1", "listeners=PLAINTEXT://127.0.0.1:0", f"log.dirs={broker.data_directory}"]
    file = tmp_path / "server.properties"
    file.write_text("\n".join(lines))
    [mark] = (tmp_path / "tier").rglob("store.json")
    content = mark.read_bytes()
    mark.unlink()
    await_finding("remote store that is not mounted", file)
    mark.write_bytes(content)
    await_recovery("remote store that is not mounted", file)
    assert any("can be written, read and deleted" in each.what for each in run_doctor(file))


def test_every_row_of_the_table_has_a_test() -> None:
    files = ("test_troubles.py", "test_security_troubles.py")
    tested = "".join(Path(__file__).with_name(name).read_text() for name in files)
    assert [t.name for t in TROUBLES if f'await_finding("{t.name}"' not in tested] == []
