"""`barnabas bench` against each kind of broker: its sends, reads, counts and output."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from barnabas.client.facade import Client
from conformance.cli_shell import SECONDS, Shell
from conformance.client_brokers import broker
from conformance.troubled_topics import Broker
from selection import nightly_unless
from waiting import eventually

pytestmark = pytest.mark.conformance
__all__ = ["broker"]
LATENCIES = ["mean", "p50", "p95", "p99", "p99_9", "max"]


@pytest.fixture
def shell(broker: Broker) -> Shell:
    return Shell(broker.bootstrap)


def result(shell: Shell, *words: str) -> Any:
    return json.loads(shell.ok("bench", *words, "--json"))


def check(found: Any, records: int) -> None:
    """Check that the figures of a run are consistent."""
    assert (found["records"], found["failed"], found["error"]) == (records, 0, None)
    assert list(found["latency_ms"]) == LATENCIES
    figures = [found["latency_ms"][name] for name in LATENCIES[1:]]
    assert figures == sorted(figures)
    assert figures[-1] > 0
    assert found["intervals"]
    # The seconds are rounded to thousandths.
    rounding = 0.001 / found["seconds"]
    assert found["records_per_s"] == pytest.approx(records / found["seconds"], rel=0.01 + rounding)


def test_produce_sends_the_requested_records_and_consume_reads_them(
    shell: Shell,
) -> None:
    words = ("-t", shell.topic, "-n", "3000", "-s", "50", "--keys", "10", "-p", "3", "-z", "lz4")
    found = result(shell, "produce", *words)
    check(found, 3000)
    assert found["bytes"] == 3000 * (50 + len("key-0"))
    assert (found["bench"], found["topic"], found["rate"]) == ("produce", shell.topic, None)
    with Client(shell.environment["BARNABAS_BOOTSTRAP"]) as client:
        assert client.partitions_for(shell.topic)[shell.topic] == [0, 1, 2]
    lines = shell.ok("consume", shell.topic, "--from", "beginning", "-e", "-f", "%k %S\\n")
    kinds = set(lines.splitlines())
    assert len(lines.splitlines()) == 3000
    assert kinds == {f"key-{n} 50" for n in range(10)}
    read = result(shell, "consume", shell.topic)
    check(read, 3000)
    assert read["bytes"] == found["bytes"]
    check(result(shell, "consume", shell.topic, "-n", "1234"), 1234)
    short = shell.run("bench", "consume", shell.topic, "-n", "3001", "--idle", "0.5", "--json")
    assert (short.returncode, json.loads(short.stdout)["records"]) == (1, 3000)
    assert "only 3000 of 3001 records arrived" in short.stderr


def test_a_rate_is_kept_and_the_temporary_topic_is_deleted(
    shell: Shell,
) -> None:
    found = result(shell, "produce", "--seconds", "1", "--rate", "200", "--acks", "1")
    check(found, 200)
    assert found["rate"] == 200
    # The last record is due after 0.995 s.
    assert found["seconds"] >= 0.99
    assert found["topic"].startswith("barnabas-bench-")
    eventually(lambda: found["topic"] not in shell.ok("topics", "list").split())


@pytest.mark.parametrize(
    "pace",
    nightly_unless(("--one-by-one",).__eq__, [("--rate", "100"), ("--one-by-one",)]),
    ids=["rate", "one-by-one"],
)
def test_latency_is_measured_end_to_end(shell: Shell, pace: tuple[str, ...]) -> None:
    shell.ok("topics", "create", shell.topic, "-p", "2")
    # Records of other producers are not measured.
    shell.ok("produce", shell.topic, stdin="a record of another producer, which is long enough\n")
    found = result(shell, "latency", shell.topic, "-n", "60", *pace, "-s", "20")
    check(found, 60)
    assert found["bytes"] == 60 * 20
    if pace == ("--rate", "100"):
        assert found["seconds"] >= 0.59


@contextmanager
def started(shell: Shell, kind: str, *words: str) -> Iterator[subprocess.Popen[str]]:
    """Run a load of a topic as a process during the block, once some records exist."""
    shell.ok("topics", "create", shell.topic, "-p", "1")
    process = subprocess.Popen(
        shell.command("bench", kind, "-t", shell.topic, *words, "--json"),
        env=shell.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        with Client(shell.environment["BARNABAS_BOOTSTRAP"]) as client:
            tp = (shell.topic, 0)
            eventually(lambda: client.list_offsets({tp: "latest"})[tp].offset > 20)
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_paused_broker_raises_the_latency_of_all_due_records(
    shell: Shell, broker: Broker
) -> None:
    """With coordinated omission, few records would be late; here all due records are late."""
    with started(shell, "produce", "-n", "1000", "--rate", "100") as process:
        os.kill(broker.pid, signal.SIGSTOP)
        try:
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(3)
        finally:
            os.kill(broker.pid, signal.SIGCONT)
        out, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, errors
    found = json.loads(out)
    assert (found["records"], found["failed"]) == (1000, 0)
    # About 300 records were due while the broker was stopped, the first of them 3 s before its end.
    assert found["latency_ms"]["max"] > 1_000
    assert found["latency_ms"]["p95"] > 500


@pytest.mark.parametrize(
    ("kind", "number", "status"),
    [
        ("produce", signal.SIGINT, 130),
        ("produce", signal.SIGTERM, 143),
        ("latency", signal.SIGINT, 130),
    ],
)
def test_an_interrupted_run_prints_its_measurements(
    shell: Shell, kind: str, number: signal.Signals, status: int
) -> None:
    with started(shell, kind, "--seconds", "600", "--rate", "50") as process:
        process.send_signal(number)
        out, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == status, errors
    assert json.loads(out)["records"] > 0
    assert "Traceback" not in errors


def test_refused_records_exit_with_status_one_and_the_reason(shell: Shell) -> None:
    shell.ok("topics", "create", shell.topic, "-p", "1", "-c", "max.message.bytes=200")
    done = shell.run("bench", "produce", shell.topic, "-n", "5", "-s", "5000")
    assert done.returncode == 1
    assert "failed\t5" in done.stdout
    assert "MESSAGE_TOO_LARGE" in done.stdout


@pytest.mark.parametrize("columns", nightly_unless((80).__eq__, [80, 200]))
def test_a_terminal_shows_a_live_plot_within_its_width(shell: Shell, columns: int) -> None:
    words = ("bench", "produce", "--seconds", "2", "--rate", "500")
    shown = shell.on_terminal(*words, columns=columns)
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown).replace("\r", "")
    assert "records/s over time" in plain
    assert "Ctrl-C ends" in plain
    assert "█" in plain
    assert "p99.9 ms" in plain
    assert max(map(len, plain.split("\n"))) <= columns
    assert "\x1b[36m" in shown
    without = shell.on_terminal(*words, columns=columns, NO_COLOR="1")
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]m", without)
