"""Apache Kafka's tools for quorum, replicas, features and the cluster itself, 4.3.1.

The same assertions hold for Barnabas and for Apache Kafka 4.4.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from conformance.java_tools import Tools

REASSIGN = "reassign.ReassignPartitionsCommand"


def in_file(directory: Path, content: object) -> str:
    path = directory / "request.json"
    path.write_text(json.dumps(content))
    return str(path)


def cluster_tool(tools: Tools, command: str, *words: str) -> tuple[int, str]:
    """Return the exit status and output of ClusterTool, which requires its command first."""
    done = tools.host.run("ClusterTool", command, "--bootstrap-server", tools.bootstrap, *words)
    return done.returncode, done.stdout + done.stderr


def test_metadata_quorum_describes_its_one_voter(tools: Tools) -> None:
    command = "MetadataQuorumCommand"
    status = dict(
        re.findall(r"^(\w+):\s+(.*)$", tools.run(command, "describe", "--status"), re.MULTILINE)
    )
    assert status["ClusterId"] == cluster_tool(tools, "cluster-id")[1].split()[-1]
    assert (status["LeaderId"], status["MaxFollowerLag"]) == ("1", "0")
    assert [voter["id"] for voter in json.loads(status["CurrentVoters"])] == [1]
    assert status["CurrentObservers"] == "[]"
    (row,) = tools.table(command, "describe", "--replication")
    assert (row[0], row[3], row[-1]) == ("1", "0", "Leader")
    assert int(row[2]) >= int(status["HighWatermark"]) > 0
    (human,) = tools.table(command, "describe", "--replication", "--human-readable")
    assert human[5:7] == ["ms", "ago"]


def test_log_dirs_are_described_with_sizes(tools: Tools) -> None:
    topic = tools.new_topic(2)
    tools.fill(topic, ["first", "second", "third"])
    printed = tools.run("LogDirsCommand", "--describe", "--topic-list", f"{topic},no-{topic}")
    found = json.loads(next(line for line in printed.splitlines() if line.startswith("{")))
    (broker,) = found["brokers"]
    (directory,) = broker["logDirs"]
    assert directory["error"] is None
    sizes = {each["partition"]: each["size"] for each in directory["partitions"]}
    assert set(sizes) == {f"{topic}-0", f"{topic}-1"}
    # Three batches have more bytes than their headers.
    assert sizes[f"{topic}-1"] == 0
    assert sizes[f"{topic}-0"] > 3 * 61
    refused = tools.refused("LogDirsCommand", "--describe", "--broker-list", "1,9")
    assert "The given brokers do not exist from --broker-list: 9" in refused


def test_leader_election_is_not_needed_for_a_preferred_leader(tools: Tools, tmp_path: Path) -> None:
    command, topic = "LeaderElectionCommand", tools.new_topic(2)
    elections = {"partitions": [{"topic": topic, "partition": each} for each in range(2)]}
    preferred = ("--election-type", "PREFERRED")
    words = ("--path-to-json-file", in_file(tmp_path, elections))
    printed = tools.run(command, *preferred, *words)
    assert re.search(rf"Valid replica already elected for partitions {topic}-\d, ", printed)
    one = ("--topic", topic, "--partition", "1")
    printed = tools.run(command, "--election-type", "UNCLEAN", *one)
    assert f"Valid replica already elected for partitions {topic}-1" in printed
    tools.run(command, *preferred, "--all-topic-partitions")
    printed = tools.refused(command, *preferred, "--topic", f"no-{topic}", "--partition", "1")
    assert f"for partition: no-{topic}-1: " in printed
    assert "UnknownTopicOrPartitionException" in printed


def test_partitions_are_reassigned_under_a_throttle_and_verified(
    tools: Tools, tmp_path: Path
) -> None:
    topic = tools.new_topic(2)
    generated = tools.run(
        REASSIGN, "--generate", "--broker-list", "1", "--topics-to-move-json-file",
        in_file(tmp_path, {"topics": [{"topic": topic}], "version": 1}),
    )  # fmt: skip
    before, proposed = (json.loads(line) for line in generated.splitlines() if line[:1] == "{")
    assert [each["replicas"] for each in before["partitions"]] == [[1], [1]]
    assert [each["replicas"] for each in proposed["partitions"]] == [[1], [1]]
    plan = ("--reassignment-json-file", in_file(tmp_path, proposed))
    printed = tools.run(REASSIGN, "--execute", *plan, "--throttle", "1000000")
    assert "The inter-broker throttle limit was set to 1000000 B/s" in printed
    assert f"Successfully started partition reassignments for {topic}-0,{topic}-1" in printed
    throttled = "follower.replication.throttled.rate=1000000"
    broker = ("--entity-type", "brokers", "--entity-name", "1", "--describe")
    tools.await_output(throttled, "kafka.admin.ConfigCommand", *broker)
    assert "No partition reassignments found." in tools.run(REASSIGN, "--list")
    printed = tools.run(REASSIGN, "--verify", *plan)
    for partition in range(2):
        assert f"Reassignment of partition {topic}-{partition} is completed." in printed
    assert "Clearing broker-level throttles on broker 1" in printed
    assert f"Clearing topic-level throttles on topic {topic}" in printed
    tools.await_output(r"^((?!throttled)[\s\S])*$", "kafka.admin.ConfigCommand", *broker)
    printed = tools.run(REASSIGN, "--cancel", *plan)
    assert "None of the specified partition reassignments are active." in printed
    unknown = {"topic": topic, "partition": 0, "replicas": [1, 7]}
    plan = in_file(tmp_path, {"partitions": [unknown], "version": 1})
    refused = tools.refused(REASSIGN, "--execute", "--reassignment-json-file", plan)
    assert "Unknown broker id 7" in refused


def test_features_are_described_and_checked(tools: Tools) -> None:
    levels = {row[1]: (row[3], row[5], row[7]) for row in tools.rows("FeatureCommand", "describe")}
    assert levels["kraft.version"] == ("0", "1", "0")
    assert levels["eligible.leader.replicas.version"] == ("0", "1", "1")
    # The tool is older than the broker, and has no name for this level.
    metadata = r"metadata.version\s+SupportedMinVersion: 3.3-IV3 .*: UNKNOWN 33\s+Epoch: \d+"
    assert re.search(metadata, tools.run("FeatureCommand", "describe"))
    level = ("--feature", "eligible.leader.replicas.version=0", "--dry-run")
    printed = tools.run("FeatureCommand", "downgrade", *level)
    assert "eligible.leader.replicas.version can be downgraded to 0." in printed
    unknown = ("--feature", "nonsense.version=3", "--dry-run")
    printed = tools.refused("FeatureCommand", "upgrade", *unknown)
    assert "Can not upgrade nonsense.version to 3." in printed
    assert "1 out of 1 operation(s) failed." in printed


def test_the_cluster_tool_shows_the_cluster(tools: Tools) -> None:
    status, printed = cluster_tool(tools, "cluster-id")
    assert status == 0
    assert re.fullmatch(r"Cluster ID: [\w-]{22}\n", printed)
    status, printed = cluster_tool(tools, "list-endpoints")
    host, _, port = tools.bootstrap.partition(":")
    assert status == 0
    assert printed.splitlines()[1].split() == ["1", host, port, "null", "unfenced", "broker"]
    status, printed = cluster_tool(tools, "unregister", "--id", "77")
    assert (status, "BrokerIdNotRegisteredException" in printed) == (1, True)


def test_the_transactions_tool_describes_producers_and_finds_no_open_transaction(
    tools: Tools,
) -> None:
    command, topic = "TransactionsCommand", tools.new_topic()
    tools.run("ConsoleProducer", "--topic", topic, stdin="by an idempotent producer\n")
    words = ("describe-producers", "--topic", topic, "--partition", "0")
    (row,) = tools.table(command, *words)
    # The producer's epoch and last sequence, its coordinator's epoch, and no open transaction.
    assert (row[1], row[2], row[3], row[5]) == ("0", "-1", "0", "None")
    assert tools.table(command, "find-hanging", "--broker-id", "1") == []
    words = ("abort", "--topic", topic, "--partition", "0", "--start-offset", "0")
    assert "Could not find any open transactions" in tools.refused(command, *words)
    printed = tools.refused(command, "describe", "--transactional-id", "no-such")
    assert "the ID could not be found" in printed
    assert "no-such" not in [row[0] for row in tools.table(command, "list")]
