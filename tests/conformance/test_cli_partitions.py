"""`barnabas partitions` and `barnabas quorum` with three brokers of each kind."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import time
from typing import Any

import pytest

from barnabas.client.facade import Client
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.testing.cluster_process import ClusterProcess
from conformance.cli_shell import Shell
from conformance.raw_client import RawClient
from waiting import PATIENCE_S, eventually, eventually_equal

pytestmark = pytest.mark.conformance

ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@pytest.fixture
def shell(three_brokers: ClusterProcess) -> Shell:
    """A shell whose topic has three partitions of three replicas, with ten records each."""
    made = Shell(three_brokers.bootstrap)
    with Client(three_brokers.bootstrap) as client:
        client.create_topic(made.topic, 3, 3, {"min.insync.replicas": "2"})
        with client.producer() as producer:
            for number in range(3):
                producer.send_batch(made.topic, [(None, b"x", [], None)] * 10, number)
    return made


def ok(shell: Shell, *words: str, stdin: str = "") -> str:
    done = shell.run_in_process(*words, stdin=stdin)
    assert done.returncode == 0, done.stderr
    return done.stdout


def replicas(shell: Shell, number: int = 0) -> list[int]:
    found: list[int] = shell.json("partitions", "show", shell.topic)[number]["replicas"]
    return found


def await_replicas(shell: Shell, expected: list[int]) -> None:
    """Wait until all brokers know the replicas of partition 0; commands may use any broker."""
    for address in shell.environment["BARNABAS_BOOTSTRAP"].split(","):
        raw = RawClient(address)
        eventually_equal(lambda raw=raw: known_replicas(raw, shell.topic), expected)
        raw.close()


def known_replicas(raw: RawClient, topic: str) -> list[int]:
    topics = [MetadataRequestTopic(name=topic)]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    response: Any = raw.ask(request, 12)
    return next(
        (each.replica_nodes for each in response.topics[0].partitions if each.partition_index == 0),
        [],
    )


def await_leader(shell: Shell, leader: int) -> None:
    eventually_equal(lambda: shell.json("partitions", "show", shell.topic)[0]["leader"], leader)


def test_partitions_are_shown_with_every_replica(shell: Shell) -> None:
    def shown() -> list[tuple[object, ...]]:
        return [
            (
                each["partition"],
                sorted(each["isr"]),
                sorted(each["replicas"]),
                each["log_end_offset"],
                each["high_watermark"],
                each["min_insync_replicas"],
                [follower["log_end_offset"] for follower in each["followers"]],
                (each["elr"], each["reassignment"], each["marks"]),
            )
            for each in shell.json("partitions", "show", shell.topic)
        ]

    three = [1, 2, 3]
    eventually_equal(
        shown, [(each, three, three, 10, 10, 2, [10, 10], ([], None, [])) for each in range(3)]
    )
    line = ok(shell, "partitions", shell.topic, "--no-header").splitlines()[0].split("\t")
    assert line[:2] == [shell.topic, "0"]
    assert line[-1] == "well"
    refused = shell.run_in_process("partitions", "show", "not-there")
    assert (refused.returncode, "no such topic" in refused.stderr) == (1, True)


def test_on_a_terminal_the_table_fits_eighty_columns(shell: Shell) -> None:
    def shown() -> list[str]:
        return ANSI.sub("", shell.on_terminal("partitions", shell.topic)).splitlines()

    lines = eventually(lambda: (found := shown())[-1] == "3 partitions, all well" and found, shown)
    assert lines[0].split() == [
        "topic", "#", "leader", "epoch", "end=hw", "replicas", "isr", "lag", "state",
    ]  # fmt: skip
    assert len(lines) == 5
    assert max(map(len, lines)) <= 80
    lines = ANSI.sub("", shell.on_terminal("quorum", "describe")).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[1].split()[:4] == ["node", "role", "end", "lag"]


def test_the_live_table_is_redrawn_until_an_interrupt(shell: Shell) -> None:
    ours, theirs = pty.openpty()
    words = shell.command("partitions", shell.topic, "--live", "--interval", "0.2")
    sizes = {"TERM": "xterm-256color", "COLUMNS": "80", "LINES": "30"}
    process = subprocess.Popen(
        words, stdin=theirs, stdout=theirs, stderr=theirs, env={**shell.environment, **sizes}
    )
    os.close(theirs)
    written = b""
    deadline = time.monotonic() + PATIENCE_S
    try:
        while len(re.findall(b"barnabas partitions", written)) < 3:
            assert time.monotonic() < deadline, written[-2000:]
            written += os.read(ours, 65536)
        process.send_signal(signal.SIGINT)
        # The process can exit only if its output is read.
        with contextlib.suppress(OSError):
            while piece := os.read(ours, 65536):
                written += piece
        assert process.wait(PATIENCE_S) == 130
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert shell.topic.encode() in written
    assert b"rec/s" in written
    assert written.rfind(b"\x1b[?1049l") > written.rfind(b"\x1b[?1049h")
    assert shell.run_in_process("partitions", "--live").returncode == 2, "not on a terminal"


def test_only_unhealthy_partitions_are_shown_with_exit_status_one(shell: Shell) -> None:
    words = ("partitions", "show", shell.topic, "--unwell")
    eventually_equal(lambda: (done := shell.run_in_process(*words)).returncode or done.stdout, "")


def test_a_reassignment_is_planned_executed_and_balanced(shell: Shell) -> None:
    first, second, third = replicas(shell)
    spec = f"{shell.topic}:0={second},{first}"
    shown = shell.run_in_process("partitions", "reassign", "--replicas", spec, "--no-header")
    assert shown.returncode == 0
    assert "nothing was changed" in shown.stderr
    row = [shell.topic, "0", f"{first},{second},{third}", f"{second},{first}", "-", str(third)]
    assert shown.stdout.splitlines() == ["\t".join(row)]
    assert replicas(shell) == [first, second, third]
    ok(shell, "partitions", "reassign", "--replicas", spec, "--execute")
    await_replicas(shell, [second, first])
    plan = json.loads(
        ok(shell, "partitions", "reassign", shell.topic, "--brokers", "1,2,3", "--json")
    )
    assert plan["version"] == 1
    assert len(plan["partitions"]) == 3
    done = ok(shell, "partitions", "reassign", "--file", "-", "--execute", stdin=json.dumps(plan))
    assert done.startswith(("began", "nothing to do"))
    eventually_equal(
        lambda: [each["replicas"] for each in shell.json("partitions", "show", shell.topic)],
        [each["replicas"] for each in plan["partitions"]],
    )


def test_a_throttle_is_set_during_the_reassignment_and_removed(shell: Shell) -> None:
    first, second, third = replicas(shell)
    ok(shell, "partitions", "reassign", "-r", f"{shell.topic}:0={first},{second}", "--execute")
    await_replicas(shell, [first, second])
    words = ["-r", f"{shell.topic}:0={first},{second},{third}", "--throttle", "1000000"]
    ok(shell, "partitions", "reassign", *words, "--execute", "--no-wait")
    followers, leaders = (
        f"{role}.replication.throttled.replicas" for role in ("follower", "leader")
    )
    of_topic = ("topic", shell.topic)
    eventually_equal(lambda: config_of(shell, *of_topic, followers), f"0:{third}")
    eventually_equal(lambda: config_of(shell, *of_topic, leaders), f"0:{first},0:{second}")
    rate = ("broker", str(third), "follower.replication.throttled.rate")
    eventually_equal(lambda: config_of(shell, *rate), "1000000")

    status = ("partitions", "reassign", shell.topic, "--status")
    eventually(lambda: not shell.json(*status))
    assert "`barnabas rebalance stop` removes" in shell.run_in_process(*status).stderr
    assert config_of(shell, *of_topic, followers) == f"0:{third}"
    done = shell.run_in_process("partitions", "reassign", shell.topic, "--cancel")
    assert done.stdout == "nothing moves\n"
    assert done.stderr == f"removed throttles of {shell.topic}\n"
    eventually(lambda: not config_of(shell, *of_topic, followers))
    eventually(lambda: config_of(shell, *rate) != "1000000")


def config_of(shell: Shell, kind: str, name: str, key: str) -> str | None:
    described = shell.json("configs", "describe", kind, name, "--all")["configs"]
    return next((each["value"] for each in described if each["key"] == key), None)


def test_a_reassignment_to_a_paused_broker_is_shown_and_canceled(
    shell: Shell, three_brokers: ClusterProcess
) -> None:
    controller = shell.json("quorum", "describe")["leader"]
    target = next(node for node in (1, 2, 3) if node != controller)
    others = [node for node in (1, 2, 3) if node != target]
    before = f"{shell.topic}:0={others[0]},{others[1]}"
    ok(shell, "partitions", "reassign", "-r", before, "--execute")
    await_replicas(shell, others)
    three_brokers.node(target).pause()
    # The commands connect to the other brokers.
    live = ("-b", ",".join(three_brokers.node(node).address for node in others))
    try:
        words = ["-r", f"{shell.topic}:0={others[0]},{target}", "--execute", "--no-wait", *live]
        ok(shell, "partitions", "reassign", *words)
        (moving,) = shell.json("partitions", "reassign", shell.topic, "--status", *live)
        assert moving["adding"] == [target]
        assert moving["removing"] == [others[1]]
        assert ok(shell, "partitions", "reassign", shell.topic, "--cancel", *live).startswith(
            "cancelled"
        )
        assert ok(shell, "partitions", "reassign", "--cancel", *live) == "nothing moves\n"
        eventually_equal(lambda: replicas(shell), others)
    finally:
        three_brokers.node(target).resume()
    await_three(shell)


def await_three(shell: Shell) -> None:
    """Wait until all replicas are in all ISRs again."""

    def all_in_sync() -> bool:
        shown = shell.json("partitions", "show", "--internal")
        return all(sorted(each["isr"]) == sorted(each["replicas"]) for each in shown)

    eventually(all_in_sync)


def test_an_impossible_reassignment_is_refused(shell: Shell) -> None:
    done = shell.run_in_process(
        "partitions", "reassign", "-r", f"{shell.topic}:0=1,99", "--execute"
    )
    assert done.returncode == 1
    assert "INVALID_REPLICA_ASSIGNMENT" in done.stderr
    done = shell.run_in_process("partitions", "reassign", shell.topic, "--brokers", "1,99")
    assert done.returncode == 1
    assert "there is no broker 99" in done.stderr
    done = shell.run_in_process("partitions", "reassign", shell.topic, "--brokers", "1")
    assert "requires 3 replicas" in done.stderr
    assert shell.run_in_process("partitions", "reassign").returncode == 2
    assert shell.run_in_process("partitions", "reassign", "-r", "t=1").returncode == 2
    assert (
        shell.run_in_process("partitions", "reassign", "-r", f"{shell.topic}:9=1").returncode == 2
    )
    done = shell.run_in_process("partitions", "reassign", "--file", "-", stdin="{}")
    assert (done.returncode, "partitions" in done.stderr) == (2, True)


def test_the_preferred_replica_leads_after_an_election(shell: Shell) -> None:
    first, second, third = replicas(shell)
    spec = f"{shell.topic}:0={second},{third},{first}"
    ok(shell, "partitions", "reassign", "-r", spec, "--execute")

    def leader_and_marks() -> tuple[int, list[str]]:
        shown = shell.json("partitions", "show", shell.topic)[0]
        return shown["leader"], shown["marks"]

    eventually_equal(leader_and_marks, (first, ["not-preferred"]))
    elected = ok(shell, "partitions", "elect", f"{shell.topic}:0")
    assert elected.startswith(f"{shell.topic}-0: ")
    await_leader(shell, second)
    assert "no election needed" in ok(shell, "partitions", "elect", f"{shell.topic}:0")
    assert shell.run_in_process("partitions", "elect", "--unclean").returncode == 2
    words = ["partitions", "elect", f"{shell.topic}:0", "--unclean", "--yes"]
    assert "no election needed" in ok(shell, *words)


def test_the_quorum_is_described(shell: Shell) -> None:
    def all_follow() -> Any:
        found = shell.json("quorum", "describe")
        return (
            found["leader"] in (1, 2, 3) and not any(v["stale"] for v in found["voters"]) and found
        )

    found = eventually(all_follow)
    assert [voter["node"] for voter in found["voters"]] == [1, 2, 3]
    assert all(voter["endpoints"][0].startswith("CONTROLLER://127") for voter in found["voters"])
    assert found["observers"] == []


def test_changing_voters_of_a_static_quorum_is_refused(shell: Shell) -> None:
    for words in (("remove", "3", "--yes"), ("add", "9", "--endpoint", "CONTROLLER://h:1")):
        refused = shell.run_in_process("quorum", *words)
        assert refused.returncode == 1
        assert refused.stderr.startswith("error: the quorum is static")
    assert shell.run_in_process("quorum", "add", "9", "--endpoint", "there").returncode == 2
