"""Commands work when a standard stream is closed, and no file of theirs gets its number."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from barnabas import Admin
from barnabas.testing.broker_process import BrokerProcess
from waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.conformance

COMMAND = [sys.executable, "-m", "barnabas"]
CLOSED = {"stdin": "<&-", "stdout": ">&-", "stderr": "2>&-", "all": "<&- >&- 2>&-"}
NUMBERS = {"stdin": [0], "stdout": [1], "stderr": [2], "all": [0, 1, 2]}
WAIT_S = 90.0
# Uses the client in a program of its own: the loop opens and closes descriptors.
PROGRAM = """
import sys
from barnabas import Producer
with Producer(bootstrap_servers=sys.argv[1]) as producer:
    producer.send("t", b"value").result()
"""


def without(closed: str, command: list[str], **options: object) -> subprocess.Popen[bytes]:
    """Start a command by a shell that closes standard streams."""
    words = ["sh", "-c", f'exec "$@" {CLOSED[closed]}', "sh", *command]
    return subprocess.Popen(words, stdin=subprocess.DEVNULL, **options)  # type: ignore[call-overload,no-any-return]  # options


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(
        tmp_path_factory.mktemp("broker"), {"auto.create.topics.enable": "true"}
    ) as made:
        yield made


@pytest.mark.parametrize("closed", CLOSED)
def test_a_broker_starts_and_stops_without_a_standard_stream(closed: str, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    data = tmp_path / "data"
    options = ["--port", "0", "--data-dir", str(data), "--ready-file", str(ready)]
    process = without(closed, [*COMMAND, "start", *options])
    try:
        eventually(lambda: ready.exists() or process.poll() is not None)
        streams = [os.readlink(f"/proc/{process.pid}/fd/{each}") for each in NUMBERS[closed]]
        assert streams == [os.devnull] * len(streams)
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == 0
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("output", ["a full device", "a pipe without a reader"])
def test_a_broker_runs_on_when_its_output_cannot_be_written(output: str, tmp_path: Path) -> None:
    ready, data, log = (tmp_path / name for name in ("ready", "data", "log"))
    options = ["--port", "0", "--data-dir", str(data), "--ready-file", str(ready)]
    reader, writer = os.pipe()
    os.close(reader)
    with open("/dev/full", "wb") as full, log.open("wb") as errors:
        stdout = full if output == "a full device" else writer
        process = subprocess.Popen([*COMMAND, "start", *options], stdout=stdout, stderr=errors)
    os.close(writer)
    try:
        eventually(lambda: b"Standard output cannot be written" in log.read_bytes())
        with Admin(ready.read_text().strip()) as admin:
            assert admin.list_topics() == {}
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == 0
        assert b"failed" not in log.read_bytes()
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("closed", CLOSED)
def test_a_command_of_a_client_works_without_a_standard_stream(
    closed: str, broker: BrokerProcess
) -> None:
    process = without(closed, [*COMMAND, "topics", "list", "-b", broker.bootstrap])
    assert process.wait(WAIT_S) == 0


@pytest.mark.parametrize("words", [["topics", "list", "--json"], ["doctor"], ["--help"]])
def test_a_command_reports_output_that_it_cannot_write(
    words: list[str], broker: BrokerProcess
) -> None:
    variables = os.environ | {"BARNABAS_BOOTSTRAP": broker.bootstrap}
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*COMMAND, *words],
            check=False,
            stdout=full,
            stderr=subprocess.PIPE,
            env=variables,
            timeout=WAIT_S,
        )
    assert done.returncode == 1
    assert done.stderr == b"error: cannot write the output: No space left on device\n"


@pytest.mark.parametrize("closed", CLOSED)
def test_a_program_with_a_client_works_without_a_standard_stream(
    closed: str, broker: BrokerProcess
) -> None:
    process = without(closed, [sys.executable, "-c", PROGRAM, broker.bootstrap])
    assert process.wait(WAIT_S) == 0
