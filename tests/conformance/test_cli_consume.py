"""`barnabas consume` compared with kcat on the same records, and its own features."""

from __future__ import annotations

import json
import signal
import subprocess
from datetime import UTC, datetime

import pytest

from barnabas.client.facade import Client
from barnabas.testing.broker_process import BrokerProcess
from conformance.cli_shell import SECONDS, Shell
from conformance.client_brokers import broker
from conformance.kcat_command import kcat
from jvm.kafka_process import KafkaProcess
from jvm.maven import need
from selection import nightly_rows_unless, nightly_unless

pytestmark = pytest.mark.conformance
__all__ = ["broker"]

HOUR_MS = 3_600_000
FIRST_MS = 1_000_000_000_000
LONG = (7).to_bytes(8)


class Records:
    """A topic of two partitions with all kinds of records, an hour apart, written by our client."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.shell = Shell(bootstrap)
        self.topic = self.shell.topic
        with Client(bootstrap) as client:
            # Retention would delete records with these old timestamps.
            client.create_topic(
                self.topic, partitions=2, replication_factor=1, configs={"retention.ms": "-1"}
            )
            with client.producer() as producer:
                for number in range(20):
                    producer.send(
                        self.topic,
                        None if number == 4 else b"value %d" % number,
                        None if number % 3 == 0 else b"key %d" % number,
                        partition=number // 10,
                        headers=[("a", b"1"), ("n", None), ("e", b"")] if number % 2 else [],
                        timestamp_ms=FIRST_MS + number * HOUR_MS,
                    )
                producer.send(self.topic + "-longs", LONG, LONG)

    def ours(self, *words: str) -> str:
        return self.shell.ok("consume", self.topic, *words)

    def theirs(self, *words: str) -> str:
        return kcat(self.bootstrap, "-C", "-t", self.topic, "-q", "-e", *words)


@pytest.fixture(scope="module")
def records(broker: BrokerProcess | KafkaProcess) -> Records:
    need("kcat")
    return Records(broker.bootstrap)


def test_templates_print_the_same_as_kcat(records: Records) -> None:
    template = r"%t|%p|%o|%k|%K|%s|%S|%T|%h|\x41\t\n"
    ours = records.ours("--from", "beginning", "-e", "-f", template)
    theirs = records.theirs("-o", "beginning", "-f", template)
    assert len(ours.splitlines()) == 20
    # The order of the partitions is arbitrary.
    assert sorted(ours.splitlines()) == sorted(theirs.splitlines())


@pytest.mark.parametrize(
    ("ours", "theirs"),
    nightly_rows_unless(
        lambda row: len(row[0]) > 2,
        [
            (("--from", "beginning"), ("-o", "beginning")),
            (("--from", "7"), ("-o", "7")),
            (("--from", "-3"), ("-o", "-3")),
            (
                ("--from", f"@{FIRST_MS + 2 * HOUR_MS + 1}"),
                ("-o", f"s@{FIRST_MS + 2 * HOUR_MS + 1}"),
            ),
            (("--from", "beginning", "-n", "4"), ("-o", "beginning", "-c", "4")),
            (("--from", "beginning", "-D", ";"), ("-o", "beginning", "-D", ";")),
            (("--from", "beginning", "-K", "->"), ("-o", "beginning", "-K", "->")),
            (("--from", "beginning", "-K", ":", "-Z"), ("-o", "beginning", "-K", ":", "-Z")),
            (
                ("--from", f"@{FIRST_MS + HOUR_MS}", "--to", f"@{FIRST_MS + 3 * HOUR_MS}"),
                ("-o", f"s@{FIRST_MS + HOUR_MS}", "-o", f"e@{FIRST_MS + 3 * HOUR_MS}"),
            ),
        ],
    ),
)
def test_positions_counts_and_delimiters_work_as_in_kcat(
    records: Records, ours: tuple[str, ...], theirs: tuple[str, ...]
) -> None:
    printed = records.ours("-p", "0", "-e", *ours)
    assert printed
    assert printed == records.theirs("-p", "0", *theirs)


def test_an_iso_time_and_an_end_offset_bound_the_output(records: Records) -> None:
    moment = datetime.fromtimestamp(FIRST_MS / 1000, UTC).isoformat()
    template = "%o %T %I\\n"
    printed = records.ours("-p", "0", "--from", moment, "--to", "2", "-f", template)
    assert printed == (
        f"0 {FIRST_MS} 2001-09-09T01:46:40.000Z\n1 {FIRST_MS + HOUR_MS} 2001-09-09T02:46:40.000Z\n"
    )


def test_json_lines_equal_those_of_kcat(records: Records) -> None:
    ours = map(json.loads, records.ours("--from", "0", "-e", "--json").splitlines())
    theirs = map(json.loads, records.theirs("-o", "beginning", "-J").splitlines())
    expected = [
        {
            "topic": line["topic"],
            "partition": line["partition"],
            "offset": line["offset"],
            "timestamp": line["ts"],
            "timestamp_type": line["tstype"],
            "key": line["key"],
            "value": line["payload"],
            "headers": list(map(list, zip(*[iter(line.get("headers", []))] * 2, strict=True))),
        }
        for line in theirs
    ]
    assert sorted(ours, key=lambda line: line["timestamp"]) == sorted(
        expected, key=lambda line: line["timestamp"]
    )


@pytest.mark.parametrize(
    "layout", nightly_unless({">ii", "qq"}.__contains__, [">q", ">ii", ">Hb$", "qq", "c"])
)
def test_binary_layouts_are_decoded_as_by_kcat(records: Records, layout: str) -> None:
    topic = f"{records.topic}-longs"
    done = records.shell.run("consume", topic, "--from", "0", "-e", "-s", layout, "-K", ":")
    words = ["kcat", "-b", records.bootstrap, "-C", "-t", topic, "-e", "-q", "-s", layout, "-K:"]
    theirs = subprocess.run(words, capture_output=True, timeout=SECONDS, check=False)
    assert done.returncode == theirs.returncode, done.stderr
    if done.returncode == 0:
        assert done.stdout.encode() == theirs.stdout
    else:
        assert "at offset 0" in done.stderr


def test_expressions_select_topics_and_records(records: Records) -> None:
    words = ("consume", f"^{records.topic}$", "--from", "beginning", "-e")
    assert records.shell.ok(*words, "--grep-key", "key 1$") == "value 1\n"
    assert sorted(records.shell.ok(*words, "--grep", r"1\d", "-n", "4").split("\n")) == [
        "", "value 10", "value 11", "value 12", "value 13",
    ]  # fmt: skip
    missing = records.shell.run("consume", "^no-such-.*")
    assert missing.returncode == 2
    assert "no topic matches" in missing.stderr


def test_progress_is_shown_only_on_a_terminal(records: Records) -> None:
    done = records.shell.run("consume", records.topic, "--from", "beginning", "-e")
    assert done.stderr == ""
    on_terminal = records.shell.on_terminal("consume", records.topic, "--from", "0", "-e")
    assert "records/s" not in on_terminal


@pytest.mark.parametrize(
    "number", nightly_unless(signal.SIGINT.__eq__, [signal.SIGINT, signal.SIGTERM])
)
def test_a_signal_ends_the_command_and_printed_records_are_committed(
    records: Records, number: signal.Signals
) -> None:
    group = f"{records.topic}-{number.name.lower()}"
    words = ("consume", records.topic, "-p", "0", "-g", group, "--from", "beginning")
    process = subprocess.Popen(
        records.shell.command(*words),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=records.shell.environment,
    )
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(10)]
    process.send_signal(number)
    _, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 128 + number, errors.decode()
    assert errors == b""
    assert lines[9] == b"value 9\n"
    described = json.loads(records.shell.ok("groups", "describe", group, "--json"))
    assert '"committed": 10' in json.dumps(described) or '"offset": 10' in json.dumps(described)


def test_members_share_partitions_and_continue_at_committed_offsets(records: Records) -> None:
    words = ("consume", records.topic, "-g", f"{records.topic}-members", "--from", "beginning")
    first = records.shell.ok(*words, "-n", "7", "-f", "%p:%o\\n").splitlines()
    rest = records.shell.ok(*words, "-e", "-f", "%p:%o\\n").splitlines()
    assert len(first) == 7
    assert sorted(first + rest) == sorted(f"{p}:{o}" for p in (0, 1) for o in range(10))
    assert records.shell.ok(*words, "-e") == ""


def test_a_position_applies_to_partitions_without_a_committed_offset(records: Records) -> None:
    words = ("consume", records.topic, "-g", f"{records.topic}-late", "-f", "%p:%o\\n")
    assert sorted(records.shell.ok(*words, "--from", "-1", "-e").split()) == ["0:9", "1:9"]


@pytest.mark.parametrize(
    ("place", "words"),
    nightly_rows_unless(
        ("beginning", ()).__eq__,
        [
            ("beginning", ()),
            ("beginning", ("-p", "0", "-p", "1")),
            ("end", ("-X", "isolation.level=read_committed")),
        ],
    ),
    ids=["member", "partitions", "committed"],
)
def test_a_group_continues_in_partitions_from_which_nothing_was_printed(
    broker: BrokerProcess | KafkaProcess, place: str, words: tuple[str, ...]
) -> None:
    shell = Shell(broker.bootstrap)
    shell.ok("topics", "create", shell.topic, "--partitions", "2")
    shell.ok("produce", shell.topic, "-p", "0", stdin="first\n")
    consume = ("consume", shell.topic, "-g", f"{shell.topic}-group", "-e", *words)
    assert shell.ok(*consume, "--from", place) == ("first\n" if place == "beginning" else "")
    shell.ok("produce", shell.topic, "-p", "0", stdin="second\n")
    shell.ok("produce", shell.topic, "-p", "1", stdin="third\n")
    assert sorted(shell.ok(*consume).split()) == ["second", "third"]
