"""`barnabas produce` and Debian's kcat make the same records of the same input."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from barnabas.testing.broker_process import BrokerProcess
from conformance.cli_shell import SECONDS, Shell
from conformance.client_brokers import broker
from conformance.kcat_command import kcat
from jvm.kafka_process import KafkaProcess
from jvm.maven import need
from selection import nightly_rows_unless

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.conformance
__all__ = ["broker"]

SHOWN = r"%k|%K|%s|%S|%h\n"


class Both:
    """A topic that `barnabas produce` writes, and one that kcat writes."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.shell = Shell(bootstrap)
        self.ours = self.shell.topic
        self.theirs = f"{self.ours}-kcat"
        for name in (self.ours, self.theirs):
            self.shell.json("topics", "create", name, "--partitions", "2")

    def shown(self, topic: str, *words: str) -> str:
        return kcat(self.bootstrap, "-C", "-t", topic, "-e", "-q", *(words or ("-f", SHOWN)))


@pytest.fixture
def both(broker: BrokerProcess | KafkaProcess) -> Both:
    need("kcat")
    return Both(broker.bootstrap)


@pytest.mark.parametrize(
    ("text", "ours", "theirs"),
    nightly_rows_unless(
        # The longest options of each sort.
        lambda row: len(row[1]) > 2,
        [
            ("a\nb\nc", (), ()),
            ("k:v\nplain\nk2:v:w\n", ("-K", ":"), ("-K", ":")),
            ("k=>v\n", ("-K", "=>"), ("-K", "=>")),
            ("a;b;c", ("-D", ";"), ("-D", ";")),
            ("a\\nb\n", ("--key", "fixed"), ("-k", "fixed")),
            ("k:v\nw\n", ("-K", ":", "--key", "fixed"), ("-K", ":", "-k", "fixed")),
            ("k:\n:v\n", ("-K", ":", "-Z"), ("-K", ":", "-Z")),
            ("a\nb\n", ("-H", "h=1", "-H", "n", "-H", "e="), ("-H", "h=1", "-H", "n", "-H", "e=")),
            ("a\nb\nc\n", ("-n", "2"), ("-c", "2")),
            ("a\x1fb\n", ("-K", "\\x1f", "-z", "zstd"), ("-K", "\\x1f", "-z", "zstd")),
        ],
    ),
)
def test_the_same_options_make_the_same_records(
    both: Both, text: str, ours: tuple[str, ...], theirs: tuple[str, ...]
) -> None:
    both.shell.ok("produce", both.ours, "-p", "0", *ours, stdin=text)
    kcat(both.bootstrap, "-P", "-t", both.theirs, "-p", "0", *theirs, text=text)
    written = both.shown(both.ours)
    assert written
    assert written == both.shown(both.theirs)


def test_files_are_sent_as_records_and_deliveries_are_printed(both: Both, tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in ("one", "two")]
    for path in paths:
        with open(path, "w") as file:
            file.write(f"line 1 of {path}\nline 2\n")
    tee = both.shell.ok("produce", both.ours, "-p", "0", "--whole-files", "--tee", *paths)
    kcat(both.bootstrap, "-P", "-t", both.theirs, "-p", "0", *paths)
    assert both.shown(both.ours) == both.shown(both.theirs)
    assert tee == "".join(f"line 1 of {path}\nline 2\n\n" for path in paths)


def test_numbers_are_encoded_as_kcat_decodes_them(both: Both) -> None:
    both.shell.ok("produce", both.ours, "-K", " ", "-s", "key=integer", "-s", "value=long",
                  stdin="1 -7\n")  # fmt: skip
    words = ("-s", "key=>i$", "-s", "value=>q$", "-f", r"%k %s\n")
    assert both.shown(both.ours, *words) == "1 -7\n"


def test_json_output_of_kcat_can_be_produced_again(both: Both) -> None:
    both.shell.ok("produce", both.ours, "-K", ":", "--timestamp", "1000", stdin="k:v\n")
    line = json.loads(both.shown(both.ours, "-J"))
    assert (line["ts"], line["key"], line["payload"]) == (1000, "k", "v")
    again = json.dumps({**line, "value": line["payload"], "timestamp": line["ts"]})
    both.shell.ok("produce", both.theirs, "--from-json", stdin=again)
    copied = json.loads(both.shown(both.theirs, "-J"))
    assert {**copied, "topic": line["topic"]} == line


def test_a_rate_is_kept(both: Both) -> None:
    started = time.monotonic()
    both.shell.ok("produce", both.ours, "-p", "0", "--rate", "100", stdin="x\n" * 100)
    assert time.monotonic() - started >= 0.9
    assert both.shown(both.ours, "-f", "%s") == "x" * 100


def test_an_interrupt_waits_for_sent_records(both: Both) -> None:
    process = subprocess.Popen(
        both.shell.command("produce", both.ours, "-p", "0", "-X", "linger.ms=60000", "--tee"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=both.shell.environment,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"a\nb\n")
    process.stdin.flush()
    assert [process.stdout.readline() for _ in range(2)] == [b"a\n", b"b\n"]
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 130, errors
    assert both.shown(both.ours, "-f", "%s ") == "a b "


def test_a_wrong_line_is_reported_and_the_lines_before_it_are_written(both: Both) -> None:
    done = both.shell.run("produce", both.ours, "-p", "0", "-s", "value=long", stdin="1\n2\nx\n3\n")
    assert done.returncode == 1
    assert done.stderr.startswith("error: line 3: ")
    assert done.stderr.endswith(": x\n")
    assert both.shown(both.ours, "-s", "value=>q", "-f", "%s ") == "1 2 "
