"""Commands that users of kcat, Kafka's scripts and rpk type from habit do what was meant.

`tests/unit/cli/test_habits.py` has those that end in an error with the right command.
"""

from __future__ import annotations

import json
import shlex
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from conformance.cli_shell import Shell, Terminal
from conformance.client_brokers import broker
from conformance.kcat_command import kcat
from conformance.troubled_topics import Broker
from jvm.maven import need
from waiting import eventually

pytestmark = pytest.mark.conformance
__all__ = ["broker"]


@pytest.fixture(scope="module")
def shell(broker: Broker) -> Shell:
    """A shell whose broker has the topic `flights` with three records, and the group `report`."""
    made = Shell(broker.bootstrap)
    made.ok("topics", "create", "flights", "-p", "1")
    made.ok("produce", "-t", "flights", "-K", ":", "-H", "a=b", stdin="JFK:42\nLGA:7\nEWR:19\n")
    made.ok("consume", "flights", "-g", "report", "-o", "beginning", "-e")
    made.ok("topics", "create", "trash", "waste", "rubbish", "-p", "1")
    return made


READ = "consume -t flights -o beginning -e"


@pytest.mark.parametrize(
    ("words", "output"),
    [
        # kcat
        (
            "-L",
            '  topic "flights" with 1 partitions:\n    partition 0, leader 1, replicas: 1, isrs: 1',
        ),
        ("-b {bootstrap} -L -t flights", "Metadata for flights (from cluster"),
        ("-L -t flights -J", '"topics": [{"topic": "flights", "partitions": [{"partition": 0'),
        (f"{READ}", "42\n7\n19\n"),
        (f"{READ} -q -c 2", "42\n7\n"),
        (f"{READ} -K :", "JFK:42\nLGA:7\nEWR:19\n"),
        (f"{READ} -D ''", "42719"),
        (f"{READ} -D '\\n'", "42\n7\n19\n"),
        (f"{READ} -D '\\x00'", "42\0007\00019\000"),
        (f"{READ} -D ';' -O -K ,", "0,JFK,42;1,LGA,7;2,EWR,19;"),
        (f"{READ} -f '%t [%p] %o: %k -> %s (%h)\\n'", "flights [0] 1: LGA -> 7 (a=b)\n"),
        (f"{READ} -J", '"headers":["a","b"],"key":"EWR","payload":"19"}\n'),
        ("consume -t flights -o -1 -e", "19\n"),
        ("consume -t flights -p 0 -o 1 -e", "7\n19\n"),
        ("consume -b {bootstrap} -t flights -o s@0 -e -X enable.auto.commit=false", "42\n"),
        # Apache Kafka's scripts
        ("topics --list", "flights\n"),
        ("topics --bootstrap-server {bootstrap} --list", "flights\n"),
        ("topics --describe --topic flights", "flights: 1 partition"),
        ("topics --create --topic made --partitions 2 --replication-factor 1", "created made\n"),
        ("topics --create --topic flights --if-not-exists", ""),
        ("topics --alter --topic trash --partitions 2", "altered trash\n"),
        ("topics --delete --topic trash", "deleted trash\n"),
        ("consume --topic flights --from-beginning -e", "42\n7\n19\n"),
        ("groups --list", "report\t"),
        ("groups --describe --group report", "flights\t0\t3\t3\t0\t"),
        (
            "groups --reset-offsets --group report --topic flights --to-earliest --dry-run",
            "flights\t0\t3\t0\t-3\n",
        ),
        (
            "groups --reset-offsets --group report --topic flights --to-earliest --execute",
            "flights\t0\t3\t0\t-3\n",
        ),
        ("groups --delete-offsets --group report --topic flights", "deleted offset of flights-0\n"),
        ("configs --list", "topic\tflights\n"),
        ("configs --describe topic flights", "key\tvalue\tsource\n"),
        ("configs --alter topic flights retention.ms=7d", "retention.ms=604800000"),
        ("features --list", "metadata.version\t"),
        ("quorum --describe", "node\trole\t"),
        ("brokers --list", "broker\taddress\track\tstate\n"),
        ("log-dirs --broker 1", "broker\tdirectory\tsize\t"),
        ("partitions elect flights:0", "no election needed"),
        # rpk and kaf
        ("-b {bootstrap} topics list", "flights\n"),
        ("topics -b {bootstrap} list", "flights\n"),
        ("-X request.timeout.ms=5000 groups list", "report\t"),
        ("topics create units -c retention.ms=2w -c segment.bytes=1.5MiB", "created units\n"),
        ("topics delete waste -y", "deleted waste\n"),
        ("topics list --timeout 20s", "flights\n"),
        ("groups describe report --json", '"group": "report"'),
        ("brokers list --no-header", "1\t{bootstrap}\t-\tserves\n"),
        ("metadata", " 1 brokers:\n"),
        ("rebalance --measure 0", "nothing to do: the brokers are balanced\n"),
        ("help consume", "consume [OPTIONS] [TOPIC...]"),
        ("version", "barnabas"),
    ],
)
def test_a_habit_does_what_was_meant(shell: Shell, words: str, output: str) -> None:
    bootstrap = shell.environment["BARNABAS_BOOTSTRAP"]
    split = shlex.split(words.replace("{bootstrap}", bootstrap))
    run = shell.run if split[0] == "consume" else shell.run_in_process
    done = run(*split)
    assert done.returncode == 0, (words, done.stderr)
    assert output.replace("{bootstrap}", bootstrap) in done.stdout


def test_the_json_of_records_is_that_of_kcat(shell: Shell) -> None:
    need("kcat")
    theirs = kcat(shell.environment["BARNABAS_BOOTSTRAP"], *READ.split()[1:], "-C", "-q", "-J")
    expected = [json.loads(line) for line in theirs.splitlines()]
    for each in expected:
        # Our client does not tell which broker sent a record.
        del each["broker"]
    ours = shell.ok(*READ.split(), "-J")
    assert [json.loads(line) for line in ours.splitlines()] == expected
    shell.ok("topics", "create", "copies", "-p", "1")
    shell.ok("produce", "copies", "--from-json", stdin=theirs)
    copied = shell.ok("consume", "copies", "-o", "beginning", "-e", "-J")
    assert [{**json.loads(line), "topic": "flights"} for line in copied.splitlines()] == expected


def test_the_metadata_are_those_of_kcat(shell: Shell) -> None:
    need("kcat")

    def known(listed: dict[str, Any]) -> dict[str, Any]:
        del listed["originating_broker"]
        listed["topics"].sort(key=lambda topic: topic["topic"])
        return listed

    bootstrap = shell.environment["BARNABAS_BOOTSTRAP"]
    theirs, ours = kcat(bootstrap, "-L", "-J"), shell.ok("-L", "-J")
    assert known(json.loads(ours)) == known(json.loads(theirs))
    text, expected = shell.ok("-L"), kcat(bootstrap, "-L")
    assert sorted(text.splitlines()[1:]) == sorted(expected.splitlines()[1:])


@pytest.mark.parametrize("kind", ["bootstrap", "profile"])
def test_doctor_and_other_commands_find_the_broker_alike(
    shell: Shell, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(shell.environment, "XDG_CONFIG_HOME", str(tmp_path))
    bootstrap = shell.environment["BARNABAS_BOOTSTRAP"]
    shell.ok("profile", "create", "mine", "-b", bootstrap)
    # No broker listens at this address.
    monkeypatch.setitem(shell.environment, "BARNABAS_BOOTSTRAP", "127.0.0.1:1")
    words = ("-b", bootstrap) if kind == "bootstrap" else ("--profile", "mine")
    assert shell.run_in_process("topics", "list", *words).returncode == 0
    examined = json.loads(shell.run_in_process("doctor", *words, "--json").stdout)
    assert examined["target"] == bootstrap


def test_a_misspelled_config_of_a_topic_gets_a_suggestion(shell: Shell) -> None:
    for words in (
        ("topics", "create", "typo", "-c", "retenton.ms=7d"),
        ("topics", "alter", "flights", "-c", "retenton.ms=7d"),
        ("configs", "set", "topic", "flights", "retenton.ms=7d"),
    ):
        done = shell.run_in_process(*words)
        assert done.returncode == 1
        assert "INVALID_CONFIG" in done.stderr
        assert done.stderr.endswith("; did you mean retention.ms?\n")


def test_configs_are_shown_with_units_on_a_terminal_only(shell: Shell) -> None:
    words = ("configs", "describe", "topic", "flights", "segment.bytes")
    shell.ok("configs", "set", "topic", "flights", "segment.bytes=512MiB")
    eventually(lambda: "\t536870912\t" in shell.ok(*words))
    assert "536870912 (512 MiB)" in shell.on_terminal(*words)


def test_a_member_without_partitions_is_told_why_it_waits(shell: Shell) -> None:
    words = ("consume", "flights", "-g", "crowd")
    with closing(Terminal(shell, *words)) as first, closing(Terminal(shell, *words)) as second:

        def told() -> bool:
            return any(
                "has no partition for this member" in each.output() for each in (first, second)
            )

        eventually(told)


def test_a_topic_that_does_not_exist_is_named_while_consume_looks_for_it(shell: Shell) -> None:
    done = shell.run("consume", "absent-topic")
    assert done.returncode == 1
    assert "absent-topic: UNKNOWN_TOPIC_OR_PARTITION (no such topic" in done.stderr
