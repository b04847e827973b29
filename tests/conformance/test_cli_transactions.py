"""`barnabas transactions`, and hanging transactions in Kafka's tool, on both brokers."""

from __future__ import annotations

import json
import shlex
import uuid
from collections.abc import Iterator
from contextlib import suppress

import pytest

import barnabas
from barnabas.client.admin.cluster import UpgradeType
from barnabas.client.errors import ClientError
from barnabas.client.facade import Client
from barnabas.testing.broker_process import BrokerProcess
from conformance.cli_shell import Shell
from conformance.hanging_transaction import UNASSIGNED_PRODUCER_ID, open_a_transaction_that_hangs
from jvm.kafka_process import QUICK_FENCING, KafkaProcess
from jvm.tool_host import ToolHost
from waiting import eventually, eventually_equal

pytestmark = pytest.mark.conformance


Broker = BrokerProcess | KafkaProcess


@pytest.fixture(scope="module", params=["barnabas", "kafka"])
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    """A broker that accepts transactional batches without verification by the coordinator."""
    settings = {
        **QUICK_FENCING,
        "transaction.state.log.num.partitions": "1",
        "transaction.partition.verification.enable": "false",
    }
    features = {"transaction.version": 0}
    directory = tmp_path_factory.mktemp(request.param)
    made: Broker
    if request.param == "kafka":
        made = KafkaProcess(directory, settings, features=features)
    else:
        made = BrokerProcess(directory, settings)
    made.start()
    try:
        if request.param == "barnabas":
            with Client(made.bootstrap) as client:
                client.admin.update_features(features, kind=UpgradeType.SAFE_DOWNGRADE)
        yield made
    finally:
        made.kill()


def made_shell(bootstrap: str) -> Shell:
    shell = Shell(bootstrap)
    shell.ok("topics", "create", shell.topic, "--partitions", "2")
    return shell


@pytest.fixture
def shell(broker: Broker) -> Shell:
    return made_shell(broker.bootstrap)


def test_an_open_transaction_is_listed_described_and_terminated(
    shell: Shell, broker: Broker
) -> None:
    name = f"id-{uuid.uuid4().hex[:8]}"
    words = ("transactions", "list", f"{name}.*", "--json")
    # The transaction outlasts all commands, even on a slow machine.
    producer = barnabas.Producer(
        broker.bootstrap, transactional_id=name, transaction_timeout_ms=600_000
    )
    try:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(shell.topic, b"open", partition=1).result()
        (listed,) = json.loads(shell.ok(*words))
        assert (listed["transactional_id"], listed["state"]) == (name, "Ongoing")
        empty = json.loads(shell.ok(*words, "--state", "Empty"))
        assert empty == []
        (shown,) = json.loads(shell.ok("transactions", "describe", name, "--json"))
        assert (shown["state"], shown["coordinator"], shown["timeout_ms"]) == (
            "Ongoing",
            1,
            600_000,
        )
        assert shown["partitions"] == [{"topic": shell.topic, "partition": 1}]
        assert shown["producer_id"] == listed["producer_id"]
        _, row = shell.ok("transactions", "producers", f"{shell.topic}:1").splitlines()
        cells = row.split("\t")
        assert (cells[0], cells[1], cells[5]) == (
            f"{shell.topic}-1", str(listed["producer_id"]), "0",
        )  # fmt: skip
        # The transaction is open, and its coordinator has it.
        found = shell.run("transactions", "find-hanging", shell.topic, "--longer-than", "0ms")
        assert (found.returncode, found.stdout) == (0, "")
        assert "no transaction hangs (1 open, " in found.stderr
        assert shell.ok("transactions", "terminate", name) == f"terminated {name}\n"
        eventually_equal(lambda: json.loads(shell.ok(*words))[0]["state"], "Empty")
        with pytest.raises(ClientError):
            producer.commit_transaction()
    finally:
        with suppress(ClientError):
            producer.close(0, flush=False)


def test_a_hanging_transaction_is_found_and_aborted(shell: Shell, broker: Broker) -> None:
    open_a_transaction_that_hangs(broker.bootstrap, shell.topic)
    committed = ("consume", shell.topic, "--from", "beginning", "-e", "-q")
    isolated = (*committed, "-X", "isolation.level=read_committed")
    found = shell.run("transactions", "find-hanging", "-t", shell.topic, "--json")
    assert found.returncode == 1
    (hanging,) = json.loads(found.stdout)
    assert (hanging["partition"], hanging["transaction_start_offset"]) == (0, 0)
    assert (hanging["producer_id"], hanging["transactional_id"]) == (UNASSIGNED_PRODUCER_ID, None)
    wrong = shell.run("transactions", "abort", f"{shell.topic}:0", "--start-offset", "5")
    assert wrong.returncode == 1
    assert "open transactions begin at 0" in wrong.stderr
    done = shell.ok("transactions", "abort", f"{shell.topic}:0", "--start-offset", "0")
    assert (
        done == f"aborted the transaction of producer {UNASSIGNED_PRODUCER_ID} in {shell.topic}-0\n"
    )

    def is_gone() -> bool:
        return shell.run("transactions", "find-hanging", shell.topic).returncode == 0

    eventually(is_gone)
    assert shell.ok(*isolated) == ""
    assert shell.ok(*committed) == "never ended\n"


def test_kafkas_tool_finds_and_aborts_a_hanging_transaction_after_a_kill(
    shell: Shell, broker: Broker, tool_host: ToolHost
) -> None:
    open_a_transaction_that_hangs(broker.bootstrap, shell.topic)
    broker.kill()
    broker.start()
    topic = ("--topic", shell.topic)

    def tool(*words: str) -> list[list[str]]:
        """Return the rows that the tool prints, without the names of the columns."""
        command = ("TransactionsCommand", "--bootstrap-server", broker.bootstrap, *words)
        done = tool_host.run(*command)
        assert done.returncode == 0, done.stderr
        return [line.split() for line in done.stdout.splitlines()[1:]]

    (hanging,) = tool("find-hanging", *topic)
    assert hanging[:3] == [shell.topic, "0", str(UNASSIGNED_PRODUCER_ID)]
    tool("abort", *topic, "--partition", "0", "--start-offset", "0")
    eventually_equal(lambda: tool("find-hanging", *topic), [])
    committed = ("consume", shell.topic, "--from", "beginning", "-e", "-q")
    assert shell.ok(*committed, "-X", "isolation.level=read_committed") == ""
    assert shell.ok(*committed) == "never ended\n"


def words_of(command: str) -> list[str]:
    return shlex.split(command[command.index("barnabas ") :])[1:]


def test_why_shows_the_command_that_aborts_a_hanging_transaction(
    shell: Shell, broker: Broker
) -> None:
    shell.ok("produce", shell.topic, "-p", "0", stdin="one\ntwo\n")
    open_a_transaction_that_hangs(broker.bootstrap, shell.topic)
    subject = f"{shell.topic}-0"

    def reasons(target: str) -> list[dict[str, str]]:
        done = json.loads(shell.run("why", target, "--json").stdout)
        return [reason for subject in done["answers"] for reason in subject["reasons"]]

    (reason,) = reasons(f"{shell.topic}:0")
    assert (reason["kind"], reason["verdict"]) == ("transaction-hangs", "wrong")
    assert "read_committed consumers receive no records from 2 on" in reason["what"]
    assert f"producer id {UNASSIGNED_PRODUCER_ID} epoch 0" in reason["what"]
    assert "no coordinator knows it" in reason["what"]
    findings = json.loads(shell.run("doctor", broker.bootstrap, "--json").stdout)["findings"]
    assert [f["verdict"] for f in findings if f["what"].startswith(f"{subject}: ")] == ["wrong"]
    shell.ok(*words_of(reason["remedy"]))
    eventually_equal(lambda: [each["kind"] for each in reasons(f"{shell.topic}:0")], ["well"])


def test_why_names_the_transaction_that_a_group_waits_for(shell: Shell, broker: Broker) -> None:
    name = f"id-{uuid.uuid4().hex[:8]}"
    group = f"group-{uuid.uuid4().hex[:8]}"
    with Client(broker.bootstrap) as client:
        producer = client.producer(transactional_id=name)
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(shell.topic, b"open", partition=1).result()
        client.commit_offsets(group, {(shell.topic, 1): 0})

        def found() -> list[dict[str, str]]:
            done = json.loads(shell.run("why", "--group", group, "--json").stdout)
            reasons = done["answers"][-1]["reasons"]
            return [each for each in reasons if "transaction" in each["kind"]]

        head, reason = found()
        assert head["kind"] == "open-transaction"
        assert f"transactional id {name} (Ongoing at its coordinator, broker 1" in reason["what"]
        shell.ok(*words_of(reason["remedy"]))
        eventually_equal(found, [])
        with pytest.raises(ClientError):
            producer.commit_transaction()


def test_an_unknown_id_is_reported_and_not_created(shell: Shell) -> None:
    for command in ("describe", "terminate"):
        refused = shell.run("transactions", command, "no-such")
        assert refused.returncode == 1
        assert "TRANSACTIONAL_ID_NOT_FOUND" in refused.stderr
    assert shell.json("transactions", "list", "no-such") == []


def test_idempotent_producers_are_shown_and_nothing_hangs_without_transactions(
    shell: Shell,
) -> None:
    shell.ok("produce", shell.topic, "-p", "0", stdin="one\ntwo\n")
    (shown,) = shell.json("transactions", "producers", shell.topic)
    assert (shown["partition"], shown["last_sequence"]) == (0, 1)
    assert shown["transaction_start_offset"] is None
    found = shell.run("transactions", "find-hanging", shell.topic)
    assert (found.returncode, found.stdout) == (0, "")
    assert "no transaction hangs (0 open, 0 for longer than 15m, in 2 partitions)" in found.stderr
    refused = shell.run("transactions", "abort", f"{shell.topic}:0", "--start-offset", "0")
    assert refused.returncode == 1
    assert (
        "no open transaction that begins at offset 0: there is no open transaction"
        in refused.stderr
    )
