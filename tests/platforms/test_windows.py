"""Clients and commands without what Windows lacks, and a broker on Linux.

The tests show that these names are not used. They do not show how Windows behaves.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import barnabas
from barnabas.testing.broker_process import BrokerProcess
from platforms.masking import WINDOWS, masked
from platforms.windows_client import ACTIONS
from waiting import eventually

TIMEOUT_S = 120
COMMAND = ("-m", "barnabas")
PROGRAM = Path(__file__).parent / "windows_client.py"
ANSWERS = {
    "transactions": "[b'0', b'2']",
    "administration": "['administered']",
    "share_group": "[b'job']",
}
# Imports each module of the package; some need packages that are not installed.
IMPORTS = """
import importlib, pkgutil, barnabas
for module in pkgutil.walk_packages(barnabas.__path__, "barnabas."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
import pyspark_barnabas, pyspark_barnabas_delta, pyspark_barnabas_iceberg
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as started:
        yield started


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return {**os.environ, **masked(WINDOWS, tmp_path_factory.mktemp("windows"))}


def run(
    environment: dict[str, str], *words: str, given: str = ""
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        env=environment,
        input=given,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


@pytest.mark.parametrize("action", ACTIONS)
def test_a_client_works(action: str, broker: BrokerProcess, environment: dict[str, str]) -> None:
    done = run(environment, str(PROGRAM), action, broker.bootstrap)
    assert (done.stdout.strip(), done.stderr) == (ANSWERS.get(action, "True"), "")


def test_all_modules_are_imported(environment: dict[str, str]) -> None:
    done = run(environment, "-c", IMPORTS)
    assert (done.returncode, done.stderr) == (0, "")


def test_commands_write_and_read_records(
    broker: BrokerProcess, environment: dict[str, str]
) -> None:
    environment = {**environment, "BARNABAS_BOOTSTRAP": broker.bootstrap}

    def command(*words: str, given: str = "") -> str:
        done = run(environment, *COMMAND, *words, given=given)
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout

    command("topics", "create", "delays", "--partitions", "2")
    command("produce", "delays", given="late\nlater\n")
    read = command("consume", "delays", "--group", "g", "--from-beginning", "-n", "2")
    assert sorted(read.split()) == ["late", "later"]
    assert "delays" in command("topics", "list")
    assert "delays" in command("groups", "describe", "g")
    command("transactions", "list")
    command("doctor")
    segment = next(broker.data_directory.glob("delays-*/*.log"))
    assert "2 records" in command("log", "dump", str(segment))


def test_a_broker_refuses_to_start(environment: dict[str, str]) -> None:
    for words in (("start", "--temporary"), ("cluster", "start")):
        done = run(environment, *COMMAND, *words)
        assert done.returncode == 1
        assert "run it in WSL" in done.stderr
        assert "Traceback" not in done.stderr


def test_ctrl_c_ends_an_idle_consumer(broker: BrokerProcess, environment: dict[str, str]) -> None:
    run(environment, *COMMAND, "topics", "create", "-b", broker.bootstrap, "idle")
    words = [
        sys.executable,
        *COMMAND,
        "consume",
        "-b",
        broker.bootstrap,
        "idle",
        "--group",
        "idlers",
    ]
    consumer = subprocess.Popen(words, env=environment, stderr=subprocess.PIPE)
    try:
        with barnabas.Admin(broker.bootstrap) as admin:
            eventually(lambda: "idlers" in {each.group_id for each in admin.list_groups()})
        consumer.send_signal(signal.SIGINT)
        _, errors = consumer.communicate(timeout=TIMEOUT_S)
    finally:
        consumer.kill()
    assert consumer.returncode == 128 + signal.SIGINT
    assert b"Traceback" not in errors
