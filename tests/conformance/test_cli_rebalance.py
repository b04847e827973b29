"""`barnabas rebalance` with three brokers of each kind."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator

import pytest

from barnabas.client.admin.topics import NewTopic
from barnabas.client.facade import Client
from barnabas.testing.cluster_process import ClusterProcess
from conformance.cli_shell import Shell
from waiting import PATIENCE_S, eventually, eventually_equal

pytestmark = pytest.mark.conformance

PARTITIONS = 6
BATCH = [(None, b"x" * 1000, [], None)] * 500
RUN = ("rebalance", "--measure", "0", "--no-header")


@pytest.fixture
def shell(three_brokers: ClusterProcess) -> Iterator[Shell]:
    """A shell whose topic has all its partitions, with records, on broker 1."""
    made = Shell(three_brokers.bootstrap)
    with Client(three_brokers.bootstrap) as client:
        assigned = {number: [1] for number in range(PARTITIONS)}
        client.create_topics([NewTopic(made.topic, assignments=assigned)])
        with client.producer() as producer:
            for number in range(PARTITIONS):
                producer.send_batch(made.topic, BATCH, number)
        await_known(made, made.topic)
        yield made
        client.delete_topics([made.topic])


def await_known(shell: Shell, topic: str) -> None:
    """Wait until each broker knows the topic; commands may use any broker."""
    for address in shell.environment["BARNABAS_BOOTSTRAP"].split(","):
        words = ("partitions", "show", topic, "-b", address)
        eventually(lambda words=words: shell.run_in_process(*words).returncode == 0)


def replicas(shell: Shell) -> list[list[int]]:
    return [each["replicas"] for each in shell.json("partitions", "show", shell.topic)]


def is_throttled(shell: Shell) -> bool:
    described = shell.json("configs", "describe", "topic", shell.topic)["configs"]
    return any(each["key"].endswith("replication.throttled.replicas") for each in described)


def test_a_plan_is_shown_executed_and_then_there_is_nothing_to_do(shell: Shell) -> None:
    shown = shell.run_in_process(*RUN, shell.topic, "--dry-run")
    assert shown.returncode == 0, shown.stderr
    assert "nothing was changed" in shown.stderr
    assert f"{shell.topic}\t" in shown.stdout
    assert replicas(shell) == [[1]] * PARTITIONS
    plan = shell.json("rebalance", "--measure", "0.2", shell.topic)
    assert plan["bytes_to_copy"] > 0
    before, after = (
        [each[when]["bytes"] for each in plan["brokers"]] for when in ("before", "after")
    )
    assert sum(before) == sum(after)
    assert max(after) < max(before)
    done = shell.run_in_process(*RUN, shell.topic, "--yes", "--throttle", "100MB")
    assert done.returncode == 0, done.stderr
    assert f"moved {len(plan['partitions'])} of {len(plan['partitions'])} partitions" in done.stderr
    eventually(lambda: not is_throttled(shell))
    eventually_equal(lambda: {node for nodes in replicas(shell) for node in nodes}, {1, 2, 3})
    again = ("--dry-run", shell.topic)
    eventually_equal(lambda: shell.ok(*RUN, *again), "nothing to do: the brokers are balanced\n")


def test_a_broker_is_emptied(shell: Shell) -> None:
    done = shell.run_in_process(*RUN, shell.topic, "--exclude-broker", "1", "--yes")
    assert done.returncode == 0, done.stderr
    eventually_equal(lambda: {node for nodes in replicas(shell) for node in nodes}, {2, 3})


def test_leaders_are_spread_and_elected(shell: Shell, three_brokers: ClusterProcess) -> None:
    topic = f"{shell.topic}-led"
    with Client(three_brokers.bootstrap) as client:
        assigned = {number: [1, 2, 3] for number in range(9)}
        client.create_topics([NewTopic(topic, assignments=assigned)])
        await_known(shell, topic)
        done = shell.run_in_process(*RUN, topic, "--yes")
        assert done.returncode == 0, done.stderr

        def leaders() -> set[int]:
            return {each["leader"] for each in shell.json("partitions", "show", topic)}

        # Broker 1 leads the partitions of the other topic.
        eventually(lambda: leaders() >= {2, 3}, leaders)
        client.delete_topics([topic])


def test_a_plan_is_a_file_of_reassignments(shell: Shell) -> None:
    plan = shell.json("rebalance", "--measure", "0", shell.topic, "--brokers", "2,3")
    words = ("partitions", "reassign", "--file", "-", "--execute")
    shell.ok(*words, stdin=json.dumps(plan))
    wanted = {each["partition"]: each["replicas"] for each in plan["partitions"]}
    eventually_equal(lambda: dict(enumerate(replicas(shell))), wanted)


def test_ctrl_c_leaves_the_moves_running_and_stop_cancels_them(
    shell: Shell, three_brokers: ClusterProcess
) -> None:
    # More than a follower fetches at once: a throttled partition gets no second fetch.
    with Client(three_brokers.bootstrap) as client, client.producer() as producer:
        for _ in range(8):
            producer.send_batch(shell.topic, BATCH, 0)
    words = (*RUN, shell.topic, "--exclude-broker", "1", "--yes", "--throttle", "1kB")
    process = subprocess.Popen(
        shell.command(*words), env=shell.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        assert any(line.startswith(b"began") for line in process.stdout)
        (moving,) = eventually(lambda: shell.json("rebalance", "status", shell.topic)[:1])
        assert moving["removing"] == [1]
        process.send_signal(signal.SIGINT)
        _, output = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130
    assert b"`barnabas rebalance stop` cancels" in output
    assert b"Traceback" not in output
    busy = shell.run_in_process(*RUN)
    assert busy.returncode == 1
    assert "are already moving" in busy.stderr
    assert is_throttled(shell)
    stopped = shell.ok("rebalance", "stop", shell.topic)
    assert stopped.startswith("cancelled")
    eventually_equal(lambda: replicas(shell)[0], [1])
    eventually(lambda: not is_throttled(shell))
    assert shell.ok("rebalance", "status") == "nothing moves\n"


def test_throttles_of_others_stay(shell: Shell) -> None:
    key = "follower.replication.throttled.replicas"
    other = f"{shell.topic}-other"
    shell.ok("topics", "create", other, "--config", f"{key}=0:1")
    await_known(shell, other)
    shell.ok("configs", "set", "topic", shell.topic, f"{key}=*")
    eventually(lambda: is_throttled(shell))
    assert (
        f"{other}: replication is throttled" in shell.run_in_process("rebalance", "status").stderr
    )
    assert shell.run_in_process("rebalance", "stop", shell.topic).stderr == ""
    assert is_throttled(shell)
    stopped = shell.run_in_process("rebalance", "stop")
    assert stopped.stderr == f"removed throttles of {other}\n"
    assert is_throttled(shell)
    shell.ok("topics", "delete", other, "--yes")


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (("--brokers", "9"), 1, "there is no broker 9"),
        (("--brokers", "1,2", "--exclude-broker", "2"), 2, "is in --brokers and is also excluded"),
        (("--exclude-broker", "1,2,3"), 1, "no broker is left"),
        (("--dry-run", "--yes"), 2, "either --dry-run or --yes"),
        (("--throttle", "fast"), 2, "is not a size"),
        (("absent-topic",), 1, "no such topic"),
    ],
)
def test_an_impossible_rebalance_is_refused(
    three_brokers: ClusterProcess, words: tuple[str, ...], status: int, message: str
) -> None:
    done = Shell(three_brokers.bootstrap).run_in_process(*RUN, *words)
    assert (done.returncode, message in done.stderr) == (status, True), done.stderr
