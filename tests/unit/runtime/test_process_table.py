"""Facts about processes, from /proc and from the command `ps`."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.runtime import process_table
from barnabas.runtime.process_table import command_line, is_paused, process_identity
from waiting import eventually

PROGRAM = "import sys; print('ready', flush=True); sys.stdin.read()"


@pytest.fixture(params=["proc", "ps"])
def source(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "ps":
        if shutil.which("ps") is None:
            pytest.skip("needs the command ps")
        monkeypatch.setattr(process_table, "_PROC", Path("/no/such/directory"))


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    words = [sys.executable, "-c", PROGRAM, "an-argument"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as started:
        assert started.stdout is not None
        started.stdout.readline()
        yield started
        started.kill()


def test_the_identity_lasts_as_long_as_the_process(
    source: None, process: subprocess.Popen[bytes]
) -> None:
    identity = process_identity(process.pid)
    assert identity
    assert process_identity(process.pid) == identity
    process.kill()
    process.wait()
    assert process_identity(process.pid) is None


def test_a_stopped_process_is_paused(source: None, process: subprocess.Popen[bytes]) -> None:
    assert not is_paused(process.pid)
    os.kill(process.pid, signal.SIGSTOP)
    eventually(lambda: is_paused(process.pid))
    os.kill(process.pid, signal.SIGCONT)
    eventually(lambda: not is_paused(process.pid))


def test_the_command_line_has_the_arguments(source: None, process: subprocess.Popen[bytes]) -> None:
    assert command_line(process.pid).endswith("an-argument")
    process.kill()
    process.wait()
    assert command_line(process.pid) == ""
