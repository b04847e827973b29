"""`barnabas doctor` for the state of a cluster: clocks, partitions, disks, logins."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from barnabas.cli.admin import quorum
from barnabas.cli.doctor import address, brokers, commands, probe
from barnabas.cli.doctor.address import examine_cluster
from barnabas.cli.doctor.commands import doctor
from barnabas.cli.doctor.diagnosis import Diagnosis, Finding
from barnabas.cli.doctor.directory import check_space
from barnabas.cli.group import group
from barnabas.client.admin.cluster import (
    ClusterDescription,
    QuorumDescription,
    QuorumReplica,
    Versions,
)
from barnabas.client.admin.configs import ConfigEntry
from barnabas.client.admin.log_dirs import LogDirectory
from barnabas.client.config import ClientConfig
from barnabas.client.connections.metadata_cache import NodeInfo, PartitionInfo, TopicInfo
from barnabas.client.errors import broker_error
from barnabas.client.fetch.offset_lookups import ListedOffset
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.codec import decode_request_header, encode_response
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.connection import ApiVersion, ApiVersionsResponse

CLIENT_CONFIG = ClientConfig.parse({"bootstrap.servers": "127.0.0.1:1"})
GIB = 1 << 30
SERVED = {int(api): (0, 20) for api in (ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.METADATA)}


@pytest.fixture(autouse=True)
def is_patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use long timeouts, so that a busy machine does not look like a silent broker."""
    monkeypatch.setattr(probe, "_TIMEOUT_S", 60.0)


@pytest.fixture(autouse=True)
def looks_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brokers, "_PAUSE_S", 0.0)
    monkeypatch.setattr(brokers, "_CONFIRM_S", 0.0)
    monkeypatch.setattr(quorum, "_ELECTION_S", 0.0)


class ScriptedCluster:
    """A client whose cluster the test describes."""

    def __init__(self, node: NodeInfo) -> None:
        self.brokers: tuple[NodeInfo, ...] = (node,)
        self.fenced: tuple[NodeInfo, ...] = ()
        self.ahead_ms = 0.0
        # Observer -> time since its last fetch (ms) at each request for the quorum state.
        self.fetch_elapsed_ms: dict[int, list[int]] = {}
        self.partitions: dict[int, PartitionInfo] = {}
        # The partitions at the second look, if they differ.
        self.later_partitions: dict[int, PartitionInfo] = {}
        self.apis = {**SERVED, int(ApiKey.LIST_OFFSETS): (1, 5)}
        self.directories = [LogDirectory("/data", None, 100 * GIB, 50 * GIB, {})]
        self.configs: list[ConfigEntry] = []
        self.supported: dict[str, tuple[int, int]] = {}
        # What a broker supports differently.
        self.supported_by: dict[int, dict[str, tuple[int, int]]] = {}
        self.finalized: dict[str, int] = {}
        self.config = CLIENT_CONFIG
        # What ListOffsets returns; by default, all logs are empty.
        self.offsets: Any = lambda _tp, _spec: ListedOffset(0, -1, -1)
        self.admin = SimpleNamespace(
            describe_versions=lambda node: Versions(
                self.apis, self.supported | self.supported_by.get(node, {}), self.finalized
            ),
            describe_quorum=self._quorum,
            list_reassignments=dict,
            list_groups=list,
            # No transaction is open.
            list_offsets=lambda wanted, **_: {
                tp: self.offsets(tp, spec) for tp, spec in wanted.items()
            },
            describe_log_dirs=lambda nodes: dict.fromkeys(nodes, self.directories),
            describe_configs=lambda resources, **_: dict.fromkeys(resources, self.configs),
        )

    def describe_cluster(self) -> ClusterDescription:
        return ClusterDescription("c", 1, self.brokers, self.fenced)

    def describe_topics(self, names: object = None) -> dict[str, TopicInfo]:
        shown = self.later_partitions if names else self.partitions
        return {"t": TopicInfo("t", bytes(16), False, shown or self.partitions)}

    def _quorum(self, *, once: bool = False) -> QuorumDescription:
        now = int(time.time() * 1000 + self.ahead_ms)
        observers = tuple(
            QuorumReplica(node, 5, now - elapsed.pop(0), now - 2_000)
            for node, elapsed in self.fetch_elapsed_ms.items()
        )
        return QuorumDescription(1, 1, 5, (QuorumReplica(1, 5, now, now),), observers)


def answer(connection: socket.socket, *, requests: int) -> None:
    """Answer ApiVersions this many times, then close."""
    for _ in range(requests):
        head = connection.recv(4, socket.MSG_WAITALL)
        if len(head) < 4:
            return
        frame = connection.recv(struct.unpack(">i", head)[0], socket.MSG_WAITALL)
        api_key, version, correlation_id, _client, _ = decode_request_header(frame)
        if api_key != ApiKey.API_VERSIONS:
            return
        apis = [
            ApiVersion(api_key=int(api), min_version=0, max_version=3)
            for api in (ApiKey.API_VERSIONS, ApiKey.METADATA, ApiKey.DESCRIBE_CLUSTER)
        ]
        response = ApiVersionsResponse(error_code=0, api_keys=apis)
        chunks = encode_response(correlation_id, response, min(version, 3))
        connection.sendall(b"".join(bytes(chunk) for chunk in chunks))  # type: ignore[arg-type]


@contextlib.contextmanager
def versions_only() -> Iterator[NodeInfo]:
    """A listener that speaks Kafka up to ApiVersions, as one that wants authentication does."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection, contextlib.suppress(OSError):
                    answer(connection, requests=2)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield NodeInfo(1, "127.0.0.1", server.getsockname()[1])
        server.shutdown(socket.SHUT_RDWR)
        thread.join(5)


def diagnosed(change: Any = lambda _cluster: None) -> Diagnosis:
    """The diagnosis of a cluster with these changes."""
    with versions_only() as node:
        cluster: Any = ScriptedCluster(node)
        change(cluster)
        diagnosis = Diagnosis()
        examine_cluster(cluster, node.host, node.port, diagnosis)
    return diagnosis


def examined(change: Any = lambda _cluster: None) -> list[Finding]:
    """Findings in a cluster with these changes."""
    return diagnosed(change).findings


def wrong(change: Any = lambda _cluster: None) -> list[tuple[str, str]]:
    """Problems of a cluster with these changes, and their remedies."""
    return [(f.what, f.remedy) for f in examined(change) if f.verdict == "wrong"]


def test_a_healthy_cluster_has_no_findings() -> None:
    assert wrong() == []


def test_a_clock_that_is_off_is_reported() -> None:
    def change(cluster: ScriptedCluster) -> None:
        cluster.ahead_ms = -90_000

    ((what, remedy),) = wrong(change)
    # A second or two more or less when the answer is slow.
    assert re.fullmatch(r"controller 1's clock is [89]\d s behind ours", what)
    assert "NTP" in remedy


def test_a_fenced_broker_that_answers_cannot_reach_the_controller() -> None:
    def change(cluster: ScriptedCluster) -> None:
        cluster.brokers, cluster.fenced = (), cluster.brokers

    ((what, remedy),) = wrong(change)
    assert "is fenced, although it answers" in what
    assert "cannot reach" in remedy


def test_a_broker_that_is_down_counts_as_one_of_the_cluster() -> None:
    def change(cluster: ScriptedCluster) -> None:
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            cluster.fenced = (NodeInfo(2, "127.0.0.1", closed.getsockname()[1]),)
        factor = "offsets.topic.replication.factor"
        cluster.configs = [ConfigEntry(factor, "2", "static broker", False, True, False)]

    ((what, remedy),) = wrong(change)
    assert what.startswith("broker 2 is down: ")
    assert remedy.startswith("start broker 2 on 127.0.0.1: barnabas start SERVER.PROPERTIES")
    # Two brokers belong to the cluster: its factor of 2 is right.
    assert not [f for f in examined(change) if "replication.factor" in f.what + f.remedy]


def test_a_machine_is_reported_with_its_broker_that_is_down() -> None:
    def change(cluster: ScriptedCluster) -> None:
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            cluster.fenced = (NodeInfo(2, "127.0.0.1", closed.getsockname()[1]),)
        cluster.fetch_elapsed_ms = {2: [600_000] * 3}

    diagnosis = diagnosed(change)
    [found] = [each for each in diagnosis.findings if each.what.startswith("machine ")]
    assert found.verdict == "note"
    assert "1 of 2 brokers serves · broker 2 is down since " in found.what
    assert found.what.endswith(" (10 min)")
    [machine] = diagnosis.machines
    assert machine.as_json()["serving"] == [1]


def test_replicas_that_have_just_come_need_no_other_minimum() -> None:
    def change(cluster: ScriptedCluster) -> None:
        cluster.configs = [ConfigEntry("min.insync.replicas", "2", "topic", False, False, False)]
        cluster.partitions = {0: PartitionInfo(0, 1, 3, (1,), (1,))}
        cluster.later_partitions = {0: PartitionInfo(0, 1, 3, (1, 2), (1, 2))}

    assert not [f for f in examined(change) if "min.insync.replicas" in f.what + f.remedy]


def test_a_minimum_above_the_replicas_is_a_note_because_writes_succeed() -> None:
    def change(cluster: ScriptedCluster) -> None:
        cluster.configs = [ConfigEntry("min.insync.replicas", "2", "topic", False, False, False)]
        cluster.partitions = {0: PartitionInfo(0, 1, 3, (1,), (1,))}

    assert wrong(change) == []
    (found,) = (f for f in examined(change) if "min.insync.replicas" in f.what)
    assert found.verdict == "note"
    assert "rejects writes" not in found.what
    assert "min.insync.replicas=1" in found.remedy


def test_a_throttle_that_a_reassignment_has_just_removed_is_not_reported() -> None:
    rate = ConfigEntry("leader.replication.throttled.rate", "9", "dynamic", False, False, False)
    for answers, count in (([[rate], []], 0), ([[rate], [rate]], 1)):
        admin = SimpleNamespace(
            list_reassignments=dict,
            describe_configs=lambda resources, answers=answers: dict.fromkeys(
                resources, answers.pop(0)
            ),
        )
        client: Any = SimpleNamespace(admin=admin, config=CLIENT_CONFIG)
        diagnosis = Diagnosis()
        brokers.examine_moves(client, [1], diagnosis)
        assert len(diagnosis.findings) == count


def with_refusing_broker(cluster: ScriptedCluster, *fetch_elapsed_ms: int) -> None:
    """Add broker 2, whose port is closed; the quorum leader received its fetches at these times."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        cluster.brokers += (NodeInfo(2, "127.0.0.1", closed.getsockname()[1]),)
    cluster.fetch_elapsed_ms = {2: list(fetch_elapsed_ms)}


def test_a_broker_that_has_just_died_is_down_and_keeps_its_configuration() -> None:
    # Its last request arrived a moment before the first look, and none after that.
    ((what, remedy),) = wrong(lambda cluster: with_refusing_broker(cluster, 200, 100_000))
    assert what.startswith("broker 2 is down")
    assert remedy.startswith("start broker 2")
    assert "advertised.listeners" not in remedy


def test_a_broker_that_fetches_but_refuses_connections_has_a_wrong_address() -> None:
    ((what, remedy),) = wrong(lambda cluster: with_refusing_broker(cluster, 200, 0))
    assert "the controller receives its requests" in what
    assert remedy.startswith("set advertised.listeners of broker 2")


def test_an_examination_with_an_unanswered_request_is_incomplete() -> None:
    def change(cluster: ScriptedCluster) -> None:
        def refuse() -> Any:
            raise broker_error(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "reassignments")

        cluster.admin.list_reassignments = refuse

    diagnosis = diagnosed(change)
    assert (diagnosis.is_healthy, diagnosis.is_complete) == (True, False)
    (finding,) = [each for each in diagnosis.findings if each.is_unexamined]
    assert "CLUSTER_AUTHORIZATION_FAILED" in finding.what


def test_groups_beside_a_broker_that_is_down_are_not_examined() -> None:
    assert not diagnosed(lambda cluster: with_refusing_broker(cluster, 200, 100_000)).is_complete


def test_a_healthy_cluster_is_examined_completely() -> None:
    assert diagnosed().is_complete


@pytest.mark.parametrize(
    ("is_complete", "status", "last"),
    [(True, 0, "no problems found"), (False, 3, "no problems found, but not everything was")],
)
def test_an_incomplete_examination_has_its_own_exit_status(
    monkeypatch: pytest.MonkeyPatch, is_complete: bool, status: int, last: str
) -> None:
    def examine(_target: str, _settings: Any, diagnosis: Diagnosis, _timeout_s: float) -> None:
        if not is_complete:
            diagnosis.unexamined("the rest", "look again")

    monkeypatch.setattr(commands, "examine_addresses", examine)
    done = CliRunner().invoke(doctor, ["h:1"])
    assert (done.exit_code, done.stdout.splitlines()[-1][: len(last)]) == (status, last)
    found = json.loads(CliRunner().invoke(doctor, ["h:1", "--json"]).stdout)
    assert (found["well"], found["complete"]) == (is_complete, is_complete)
    # What was not examined is no detail that --quiet may hide.
    assert ("not examined: the rest" in CliRunner().invoke(doctor, ["h:1", "-q"]).stdout) is (
        not is_complete
    )


def test_an_answer_that_comes_late_is_no_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "_TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            first, _ = server.accept()
            # The probe has given up its first wait, and asks by TLS and HTTP.
            second, _ = server.accept()
            with first:
                answer(first, requests=1)
                second.close()
                server.accept()[0].close()
                first.recv(1)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        reply = probe.probe_address("127.0.0.1", server.getsockname()[1])
        thread.join(60)
    assert reply.peer is probe.Peer.KAFKA


@pytest.mark.parametrize("count", [1, 3])
def test_probes_of_silent_addresses_end_at_the_time_limit(count: int) -> None:
    """The probes alone would take 60 s here (`is_patient`)."""
    diagnosis = Diagnosis()
    with contextlib.ExitStack() as stack:
        servers = [
            stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)
        ]
        target = ",".join(f"127.0.0.1:{server.getsockname()[1]}" for server in servers)
        commands.examine_addresses(target, {}, diagnosis, timeout_s=1.0)
    (finding,) = diagnosis.findings
    assert finding.is_unexamined
    assert "within 1.0 s" in finding.what
    assert not diagnosis.is_complete


def test_a_broker_at_a_usual_port_may_belong_to_another_cluster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with versions_only() as node, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        monkeypatch.setattr(address, "_USUAL_PORTS", (node.port,))
        diagnosis = Diagnosis()
        commands.examine_addresses(f"127.0.0.1:{closed.getsockname()[1]}", {}, diagnosis)
    ((what, remedy),) = [(f.what, f.remedy) for f in diagnosis.findings if f.verdict == "wrong"]
    assert "refuses connections" in what
    assert "use that address" not in remedy
    assert remedy.endswith(f"answers at 127.0.0.1:{node.port}: is it the one that you mean?")


def test_partitions_without_a_leader_or_a_replica_are_reported() -> None:
    def change(cluster: ScriptedCluster) -> None:
        cluster.partitions = {
            0: PartitionInfo(0, -1, 3, (1, 2), ()),
            1: PartitionInfo(1, 1, 3, (1, 2), (1,)),
            2: PartitionInfo(2, 1, 3, (1, 2), (1, 2)),
        }

    (offline, _), (under, _) = wrong(change)
    assert offline == "1 partition(s) have no leader: t-0"
    assert under == "1 partition(s) have replicas that are not in sync: t-1"


def test_a_leaderless_partition_whose_brokers_run_needs_no_start() -> None:
    def change(cluster: ScriptedCluster) -> None:
        cluster.partitions = {0: PartitionInfo(0, -1, 3, (1,), ())}

    ((_, remedy),) = wrong(change)
    assert remedy.startswith("their brokers run, so they get a leader when")
    assert remedy.endswith("barnabas why t:0")


def test_a_lost_directory_and_a_full_disk_are_reported() -> None:
    def change(cluster: ScriptedCluster) -> None:
        lost = broker_error(ErrorCode.KAFKA_STORAGE_ERROR, "log directory /b")
        cluster.directories = [
            LogDirectory("/a", None, 100 * GIB, 2 * GIB, {}),
            LogDirectory("/b", lost, -1, -1, {}),
        ]

    (full, remedy), (lost, _) = wrong(change)
    assert full == "broker 1, /a: 2.0 GiB of 100 GiB free"
    assert "topics purge" in remedy
    assert "has lost /b" in lost


def test_a_broker_that_is_too_old_is_reported() -> None:
    def change(cluster: ScriptedCluster) -> None:
        cluster.apis[int(ApiKey.FETCH)] = (0, 3)

    ((what, _),) = wrong(change)
    assert what == "broker 1 and this client have no version in common for FETCH 0-3"


def test_a_disabled_feature_that_all_brokers_support_is_noted() -> None:
    def change(cluster: ScriptedCluster) -> None:
        cluster.supported = {"share.version": (0, 1), "group.version": (0, 1)}
        cluster.finalized = {"group.version": 1}

    noted = [(f.what, f.remedy) for f in examined(change) if "feature" in f.what]
    assert noted == [
        (
            "the feature share.version has level 0: share consumers cannot join groups",
            "to enable it: barnabas features upgrade share.version=1",
        )
    ]


def test_brokers_of_different_versions_are_noted() -> None:
    def change(cluster: ScriptedCluster) -> None:
        first = cluster.brokers[0]
        cluster.brokers = tuple(replace(first, id=number) for number in (1, 2, 3))
        cluster.supported = {"metadata.version": (7, 33)}
        cluster.supported_by = {2: {"metadata.version": (7, 29)}}
        cluster.finalized = {"metadata.version": 29}

    noted = [(f.what, f.remedy) for f in examined(change) if "metadata.version up" in f.what]
    what = (
        "the brokers run 2 different versions: brokers 1, 3 (metadata.version up to 33); "
        "broker 2 (metadata.version up to 29)"
    )
    remedy = (
        "complete the upgrade: restart the older brokers with the newer version, one after the "
        "other"
    )
    assert noted == [(what, remedy)]


@pytest.mark.parametrize(("level", "is_noted"), [(29, True), (33, False), (0, False)])
def test_a_metadata_version_that_was_not_raised_is_noted(level: int, is_noted: bool) -> None:
    def change(cluster: ScriptedCluster) -> None:
        cluster.supported = {"metadata.version": (7, 33)}
        cluster.finalized = {"metadata.version": level} if level else {}

    noted = [f.remedy for f in examined(change) if "an upgrade is not complete" in f.what]
    remedy = (
        "if no broker has to go back to its old version: "
        "barnabas features upgrade metadata.version=33"
    )
    assert noted == ([remedy] if is_noted else [])


def test_little_free_space_is_reported_by_bytes_and_by_percentage() -> None:
    small = GIB // 16
    for total, free, is_healthy in (
        (8 * GIB, GIB // 2, False),
        (8 * GIB, 2 * GIB, True),
        (100 * GIB, 4 * GIB, False),
        (small, small // 2, True),
        (small, small // 20, False),
    ):
        diagnosis = Diagnosis()
        check_space("/data", total, free, diagnosis)
        assert diagnosis.is_healthy is is_healthy


def test_a_listener_that_requires_authentication_is_reported() -> None:
    with versions_only() as node:
        words = [node.address, "--json", "-X", "default.api.timeout.ms=300"]
        done = CliRunner().invoke(doctor, words)
    assert done.exit_code == 1, done.output
    last = json.loads(done.output)["findings"][-1]
    assert last["verdict"] == "wrong"
    assert "SASL" in last["remedy"]


def test_the_broker_is_a_target_an_option_or_in_a_profile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    runner = CliRunner()
    assert runner.invoke(group, ["profile", "create", "p", "-b", "127.0.0.1:2"]).exit_code == 0
    for words, target in (
        (["127.0.0.1:1"], "127.0.0.1:1"),
        (["-b", "127.0.0.1:1"], "127.0.0.1:1"),
        (["--profile", "p"], "127.0.0.1:2"),
    ):
        done = runner.invoke(group, ["doctor", "-J", *words])
        assert json.loads(done.output)["target"] == target
    both = runner.invoke(group, ["doctor", "127.0.0.1:1", "-b", "127.0.0.1:2"])
    assert both.exit_code == 2
    assert "give either a target or --bootstrap" in both.output
