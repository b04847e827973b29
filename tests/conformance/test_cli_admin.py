"""`barnabas brokers`, `features` and `log-dirs`, against each kind of broker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from barnabas.client.errors import ClientError
from barnabas.client.facade import Client
from barnabas.testing.broker_process import BrokerProcess
from barnabas.testing.cluster_process import ClusterProcess
from conformance.cli_shell import Shell
from conformance.client_brokers import KafkaProcess, broker
from conformance.troubled_topics import Broker
from waiting import eventually, eventually_equal

pytestmark = pytest.mark.conformance
__all__ = ["broker"]
ELR = "eligible.leader.replicas.version"


@pytest.fixture
def shell(broker: Broker) -> Shell:
    return Shell(broker.bootstrap)


def test_brokers_are_listed_with_address_and_state(shell: Shell, broker: Broker) -> None:
    heads, row = shell.ok("brokers", "list").splitlines()
    assert heads.split("\t") == ["broker", "address", "rack", "state"]
    assert row == f"1\t{broker.bootstrap}\t-\tserves"
    assert shell.ok("brokers", "list", "--no-header") == f"{row}\n"
    found = shell.json("brokers", "list")
    assert len(found["cluster_id"]) == 22
    (listed,) = found["brokers"]
    host, _, port = broker.bootstrap.partition(":")
    expected = {"broker": 1, "host": host, "port": int(port), "rack": None, "state": "serves"}
    assert listed == expected


def test_only_a_registered_dead_broker_is_unregistered(shell: Shell) -> None:
    serving = shell.run("brokers", "unregister", "1")
    assert serving.returncode == 1
    assert "broker 1 still serves clients: stop it first" in serving.stderr
    unknown = shell.run("brokers", "unregister", "77")
    assert unknown.returncode == 1
    assert "BROKER_ID_NOT_REGISTERED" in unknown.stderr


def test_a_dead_broker_is_fenced_and_then_unregistered(tmp_path: Path) -> None:
    settings = {"broker.session.timeout.ms": "2000"}
    with ClusterProcess(2, 1, directory=tmp_path, settings=settings) as cluster:
        shell = Shell(cluster.bootstrap.split(",")[0])

        def states() -> list[tuple[int, str]]:
            return [(b["broker"], b["state"]) for b in shell.json("brokers", "list")["brokers"]]

        eventually_equal(states, [(1, "serves"), (2, "serves")])
        cluster.nodes[2].kill()
        eventually_equal(states, [(1, "serves"), (2, "fenced")])
        assert shell.ok("brokers", "unregister", "2") == "unregistered broker 2\n"
        eventually_equal(states, [(1, "serves")])


def test_features_are_listed_with_their_levels(shell: Shell) -> None:
    rows = [line.split("\t") for line in shell.ok("features", "list").splitlines()]
    by_name = {row[0]: row[1:] for row in rows}
    assert by_name[ELR] == ["1", "0", "1"]
    assert by_name["metadata.version"][2] == "33"
    (listed,) = [each for each in shell.json("features", "list") if each["feature"] == ELR]
    assert listed == {"feature": ELR, "finalized": 1, "supported_min": 0, "supported_max": 1}


def level(shell: Shell) -> int:
    (found,) = [each for each in shell.json("features", "list") if each["feature"] == ELR]
    value: int = found["finalized"]
    return value


def test_features_are_downgraded_upgraded_or_validated(shell: Shell) -> None:
    downgrade = ("features", "downgrade", f"{ELR}=0")
    assert shell.ok(*downgrade, "--dry-run") == f"would change {ELR} from 1 to 0\n"
    assert level(shell) == 1
    assert shell.ok(*downgrade) == f"changed {ELR} from 1 to 0\n"
    eventually_equal(lambda: level(shell), 0)
    done = json.loads(shell.ok("features", "upgrade", f"{ELR}=1", "--json"))
    expected = {"features": {ELR: {"from": 0, "to": 1}}, "executed": True, "error": None}
    assert done == expected
    eventually_equal(lambda: level(shell), 1)


def test_an_impossible_level_is_refused_without_changes(shell: Shell) -> None:
    refused = shell.run("features", "upgrade", "nonsense.version=3", "--dry-run")
    assert refused.returncode == 1
    assert "nonsense.version" in refused.stderr
    assert "No feature was changed" in refused.stderr
    lower = shell.run("features", "upgrade", f"{ELR}=0")
    assert lower.returncode == 1
    assert level(shell) == 1
    wrong = shell.run("features", "upgrade", ELR)
    assert (wrong.returncode, "write FEATURE=LEVEL" in wrong.stderr) == (2, True)


def test_directories_are_shown_with_sizes_and_replicas(shell: Shell) -> None:
    shell.ok("topics", "create", shell.topic, "--partitions", "2")
    shell.ok("produce", shell.topic, "-p", "1", stdin="first\nsecond\n")
    (row,) = shell.ok("log-dirs", shell.topic, "--no-header").splitlines()
    number, path, size, replicas, lag, future, free, state = row.split("\t")
    assert (number, replicas, lag, future, state) == ("1", "2", "0", "0", "ok")
    assert size.endswith(" B")
    assert "%" in free
    assert Path(path).is_dir()
    lines = shell.ok("log-dirs", "-t", shell.topic, "--replicas", "--no-header").splitlines()
    assert [line.split("\t")[2] for line in lines] == [f"{shell.topic}-0", f"{shell.topic}-1"]
    assert lines[0].split("\t")[3:] == ["0 B", "0", "current"]
    (shown,) = shell.json("log-dirs", shell.topic, "--broker", "1")
    (directory,) = shown["directories"]
    assert directory["error"] is None
    assert directory["total_bytes"] > directory["usable_bytes"] > 0
    by_partition = {each["partition"]: each for each in directory["replicas"]}
    assert by_partition[0]["size_bytes"] == 0
    assert directory["size_bytes"] == by_partition[1]["size_bytes"] > 2 * len("first")
    assert by_partition[1]["future"] is False


def test_directories_of_missing_brokers_or_topics_are_an_error(shell: Shell) -> None:
    unknown = shell.run("log-dirs", "--broker", "9")
    assert unknown.returncode == 2
    assert "--broker 9: no such active broker; active brokers: 1" in unknown.stderr
    unknown = shell.run("log-dirs", f"no-{shell.topic}")
    assert unknown.returncode == 1
    assert "UNKNOWN_TOPIC_OR_PARTITION" in unknown.stderr


@pytest.mark.parametrize("is_kafka", [False, True], ids=["barnabas", "kafka"])
def test_a_move_between_directories_shows_a_future_replica_with_its_lag(
    tmp_path: Path, is_kafka: bool
) -> None:
    paths = [tmp_path / "a", tmp_path / "b"]
    process: Broker
    if is_kafka:
        process = KafkaProcess(tmp_path, {"log.dirs": ",".join(map(str, paths))})
    else:
        process = BrokerProcess(tmp_path, arguments=["--data-dir", ",".join(map(str, paths))])
    try:
        shell = Shell(process.start().bootstrap)
        # The copy must still be running when the directories are described.
        slow = "replica.alter.log.dirs.io.max.bytes.per.second=1024"
        shell.ok("configs", "set", "broker", "1", slow)
        shell.ok("topics", "create", shell.topic, "--partitions", "1")
        shell.ok("produce", shell.topic, stdin="".join(f"{n:01000d}\n" for n in range(3000)))
        replica = (shell.topic, 0)

        def directories() -> list[tuple[str, int]]:
            (shown,) = shell.json("log-dirs", shell.topic)
            return [(each["path"], each["future_replicas"]) for each in shown["directories"]]

        with Client(process.bootstrap) as client:
            place = client.admin.describe_replica_log_dirs([(1, replica)])[1, replica]
            assert not isinstance(place, ClientError)
            (other,) = [str(path) for path in paths if str(path) != place.path]
            client.admin.alter_replica_log_dirs({(1, replica): other})
        eventually(lambda: (other, 1) in directories(), directories)
        lines = [row.split("\t") for row in shell.ok("log-dirs", shell.topic, "-r").splitlines()]
        (future,) = [row for row in lines if row[5] == "future"]
        assert future[1] == other
        assert int(future[4]) > 0
    finally:
        process.close()
