"""`barnabas top` on a broker under load: once for scripts, live on a terminal."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.client.facade import Client
from barnabas.testing.broker_process import BrokerProcess
from conformance.cli_shell import Shell
from waiting import PATIENCE_S, eventually

pytestmark = pytest.mark.conformance


@pytest.fixture(scope="module")
def metered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Shell, str]]:
    """A shell with a topic of ten records and a group that read four, and the metrics listener."""
    directory = tmp_path_factory.mktemp("metered")
    with BrokerProcess(directory, arguments=["--metrics", "127.0.0.1:0"]) as broker:
        shell = Shell(broker.bootstrap)
        shell.ok("topics", "create", shell.topic, "-p", "1")
        shell.ok("produce", shell.topic, stdin="".join(f"{n}\n" for n in range(10)))
        shell.ok("consume", shell.topic, "-g", shell.topic, "--from", "beginning", "-n", "4")
        yield shell, metrics_address(broker.pid, broker.port)


def metrics_address(pid: int, port: int) -> str:
    import psutil

    ports = {
        connection.laddr.port
        for connection in psutil.Process(pid).net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    }
    (other,) = ports - {port}
    return f"127.0.0.1:{other}"


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


def test_without_a_metrics_listener_top_uses_the_protocol(
    metered: tuple[Shell, str],
) -> None:
    shell, _ = metered
    found = shell.json("top", "--once", "-i", "0.2")
    assert found["processes"] == {}
    assert found["topics"][shell.topic]["bytes_out_per_s"] is None
    assert shell.topic in found["groups"]


def test_a_missing_metrics_listener_is_reported(metered: tuple[Shell, str]) -> None:
    done = metered[0].run("top", "--once", "--metrics", "127.0.0.1:1")
    assert done.returncode == 1
    assert "--metrics HOST:PORT" in done.stderr


def test_the_live_view_is_redrawn_until_an_interrupt(
    metered: tuple[Shell, str], tmp_path: Path
) -> None:
    shell, metrics = metered
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        shell.command("top", "-i", "0.2", "--metrics", metrics),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**shell.environment, "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "30"},
    )
    os.close(theirs)
    written = b""
    deadline = time.monotonic() + PATIENCE_S
    try:
        # Three screens, each with the topic on it.
        while len(re.findall(b"barnabas top", written)) < 3:
            assert time.monotonic() < deadline, written[-2000:]
            written += os.read(ours, 65536)
        process.send_signal(2)
        # The process can exit only if its output is read.
        while True:
            try:
                written += os.read(ours, 65536)
            except OSError:
                break
        assert process.wait(PATIENCE_S) == 130
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert shell.topic.encode() in written
    assert b"records/s" in written
    # The command leaves the alternate screen at its end.
    assert written.rfind(b"\x1b[?1049l") > written.rfind(b"\x1b[?1049h")
