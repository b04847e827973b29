"""`barnabas top` on a broker under load: once for scripts, live on a terminal."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import termios
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from barnabas.cli.admin.group_lag import end_offsets
from barnabas.cli.load.rates import Sampler
from barnabas.client.facade import Client
from barnabas.client.topic_partition import TopicPartition
from barnabas.spark.metrics import QueryMetrics, QueryMetricsServer
from barnabas.testing.broker_process import BrokerProcess
from barnabas.testing.free_ports import HOST, free_ports
from conformance.cli_shell import Shell
from selection import nightly_rows_unless, nightly_unless
from waiting import PATIENCE_S, eventually

pytestmark = pytest.mark.conformance


@pytest.fixture(scope="module")
def metered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Shell, str]]:
    """A shell with a topic of ten records and a group that read four, and the metrics listener."""
    directory = tmp_path_factory.mktemp("metered")
    (port,) = free_ports(1)
    address = f"{HOST}:{port}"
    with BrokerProcess(directory, arguments=["--metrics", address]) as broker:
        shell = Shell(broker.bootstrap)
        read_four_of_ten(shell)
        yield shell, address


def read_four_of_ten(shell: Shell) -> None:
    """Write ten records to a topic; a group with the same name reads four."""
    shell.ok("topics", "create", shell.topic, "-p", "1")
    shell.ok("produce", shell.topic, stdin="".join(f"{n}\n" for n in range(10)))
    shell.ok("consume", shell.topic, "-g", shell.topic, "--from", "beginning", "-n", "4")


def test_once_as_json_has_rates_lag_and_load(metered: tuple[Shell, str]) -> None:
    shell, metrics = metered
    words = ("top", "--once", "--json", "-i", "2", "--metrics", metrics)

    def output_under_load() -> Any:
        """Return the output; False if no records arrived between the two samples."""
        process = subprocess.Popen(
            shell.command(*words), env=shell.environment, stdout=subprocess.PIPE, text=True
        )
        bootstrap = shell.environment["BARNABAS_BOOTSTRAP"]
        with Client(bootstrap) as client, client.producer() as producer:
            while process.poll() is None:
                producer.send_batch(shell.topic, [(None, b"more", [], None)] * 100)
                producer.flush()
                time.sleep(0.1)
        assert process.stdout is not None
        found = json.loads(process.stdout.read())
        assert process.returncode == 0
        return found["topics"][shell.topic]["records_in_per_s"] > 0 and found

    found = eventually(output_under_load)
    topic = found["topics"][shell.topic]
    assert topic["bytes_in_per_s"] > 0
    assert topic["partitions"] == 1
    group = found["groups"][shell.topic]
    assert (group["state"], group["members"]) == ("Empty", 0)
    assert group["lag"] > 6
    assert group["lag_growth_per_s"] > 0
    load = found["processes"][metrics]
    assert load["requests_per_s"] > 0
    assert load["connections"] >= 1
    assert load["resident_bytes"] > 1 << 20
    assert "Fetch" in load["purgatories"]


def test_a_metrics_listener_that_brokers_name_is_read_without_an_option(
    metered: tuple[Shell, str],
) -> None:
    shell, metrics = metered
    found = shell.json("top", "--once", "-i", "0.2")
    assert list(found["processes"]) == [metrics]
    assert found["apis"]["Metadata"]["p99_ms"] > 0
    (client,) = [each for each in found["clients"] if each["requests_per_s"] > 0]
    assert client["client_id"] == "barnabas-cli"
    assert client["bytes_in_per_s"] > 0


@pytest.mark.parametrize("kind", nightly_unless("broker".__eq__, ["broker", "reference_broker"]))
def test_brokers_without_a_metrics_listener_have_rates_and_lag_in_records_and_seconds(
    request: pytest.FixtureRequest, kind: str
) -> None:
    """The same on Apache Kafka: this comes from the protocol alone."""
    shell = Shell(request.getfixturevalue(kind).bootstrap)
    read_four_of_ten(shell)
    found = shell.json("top", "--once", "-i", "0.2", "--groups", "1000")
    assert (found["processes"], found["apis"], found["clients"]) == ({}, {}, [])
    assert found["topics"][shell.topic]["bytes_out_per_s"] is None
    group = found["groups"][shell.topic]
    assert group["lag"] == 6
    assert 0 < group["lag_s"] < PATIENCE_S
    assert "no metrics listener" in shell.ok("top", "--once", "-i", "0.2")


def test_a_missing_metrics_listener_is_reported(metered: tuple[Shell, str]) -> None:
    done = metered[0].run("top", "--once", "--metrics", "127.0.0.1:1")
    assert done.returncode == 1
    assert "--metrics HOST:PORT" in done.stderr


def test_a_metrics_listener_that_goes_away_leaves_the_rest_of_the_sample(bootstrap: str) -> None:
    with Client(bootstrap) as client:
        with QueryMetricsServer(QueryMetrics(), HOST, 0) as listener:
            address = listener.address
            sampler = Sampler(client, (address,), (), internal=False, groups=0)
            assert (list(sampler.take().metrics), sampler.take().silent) == ([address], ())
        after = sampler.take()
    assert (after.metrics, after.silent) == ({}, (address,))
    assert after.brokers == 1


def interrupt(process: subprocess.Popen[bytes], _terminal: int) -> None:
    process.send_signal(signal.SIGINT)


def press_q(_process: subprocess.Popen[bytes], terminal: int) -> None:
    os.write(terminal, b"q")


@pytest.mark.parametrize(
    ("end", "status"),
    nightly_rows_unless(lambda row: row[0] is press_q, [(interrupt, 130), (press_q, 0)]),
)
def test_the_live_view_is_redrawn_and_sorted_by_a_key_until_its_end(
    metered: tuple[Shell, str],
    end: Callable[[subprocess.Popen[bytes], int], None],
    status: int,
) -> None:
    shell, metrics = metered
    ours, theirs = pty.openpty()
    before = termios.tcgetattr(theirs)
    process = subprocess.Popen(
        shell.command("top", "-i", "0.2", "--metrics", metrics),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**shell.environment, "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "50"},
    )
    written = b""

    def read_until(is_done: Callable[[], bool]) -> None:
        nonlocal written
        deadline = time.monotonic() + PATIENCE_S
        while not is_done():
            assert time.monotonic() < deadline, written[-2000:]
            # The process can exit only if its output is read.
            if select.select([ours], [], [], 0.1)[0]:
                written += os.read(ours, 65536)

    try:
        # Three screens, then the same ones in another order.
        read_until(lambda: written.count(b"barnabas top") >= 3)
        assert b"\x1b[7mb bytes" in written
        os.write(ours, b"l")
        read_until(lambda: b"\x1b[7ml lag, latency" in written)
        end(process, ours)
        read_until(lambda: process.poll() is not None)
        assert process.returncode == status
        assert termios.tcgetattr(theirs) == before
    finally:
        process.kill()
        process.wait()
        os.close(ours)
        os.close(theirs)
    assert shell.topic.encode() in written
    assert b"records/s" in written
    # The command leaves the alternate screen at its end.
    assert written.rfind(b"\x1b[?1049l") > written.rfind(b"\x1b[?1049h")


def test_a_topic_that_is_deleted_after_its_description_has_no_end_offsets(bootstrap: str) -> None:
    with Client(bootstrap) as client:
        kept, gone = (f"{Shell(bootstrap).topic}-{name}" for name in ("kept", "gone"))
        for name in (kept, gone):
            client.create_topic(name, 1)
        partitions = [TopicPartition(name, 0) for name in (kept, gone)]
        assert end_offsets(client, partitions) == dict.fromkeys(partitions, 0)
        client.delete_topics([gone])
        assert end_offsets(client, partitions) == {partitions[0]: 0}
