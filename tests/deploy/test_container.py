"""The instructions of the Containerfile, and the image's health check against real brokers."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.cli.nodes.start_options import StartOptions
from barnabas.testing.broker_process import BrokerProcess
from barnabas.testing.cluster_process import ClusterProcess
from barnabas.testing.free_ports import HOST, free_ports
from deploy.pods import stateful_set
from waiting import eventually

ROOT = Path(__file__).parents[2]
READY = ROOT / "deploy/container/ready.py"
TEXT = (ROOT / "deploy/container/Containerfile").read_text().replace("\\\n", " ")
# The last stage is the image.
IMAGE = TEXT.split("\nFROM ")[-1]


def instruction(name: str) -> str:
    [found] = re.findall(rf"^{name} +(.*)$", IMAGE, re.MULTILINE)
    assert isinstance(found, str)
    return found.strip()


def ask(address: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(READY), address], check=False, capture_output=True, text=True,
        timeout=60,
    )  # fmt: skip


def test_the_image_runs_without_root_as_the_user_of_the_manifest() -> None:
    user = stateful_set()["spec"]["template"]["spec"]["securityContext"]
    assert instruction("USER") == f"{user['runAsUser']}:{user['runAsGroup']}"
    assert f"--uid {user['runAsUser']} " in IMAGE


def test_data_is_in_the_volume_and_the_start_command_is_valid() -> None:
    words = json.loads(instruction("CMD"))
    assert json.loads(instruction("ENTRYPOINT")) == ["/opt/barnabas/bin/barnabas", "start"]
    options = StartOptions.parse(words)
    assert options is not None
    assert options.data_dir is not None
    assert options.data_dir.startswith(instruction("VOLUME") + "/")
    ports = [each.rpartition(":")[2] for each in (options.listen, options.metrics) if each]
    assert instruction("EXPOSE").split() == ports


def test_files_copied_into_the_image_exist() -> None:
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", TEXT, re.MULTILINE)
    assert copied
    assert not [name for line in copied for name in line.split() if not (ROOT / name).exists()]
    assert instruction("HEALTHCHECK").endswith('"/opt/barnabas/ready.py"]')
    assert instruction("STOPSIGNAL") == "SIGTERM"


@pytest.mark.conformance
def test_a_broker_is_healthy_while_it_serves() -> None:
    with BrokerProcess(settings={"metrics.listener": f"{HOST}:0"}) as broker:
        assert ask(broker.metrics_address).returncode == 0
        address = broker.metrics_address
        broker.stop()
        gone = ask(address)
    assert gone.returncode == 1
    assert "does not answer" in gone.stderr


@pytest.mark.conformance
def test_a_node_that_waits_for_its_cluster_is_not_healthy(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    cluster = ClusterProcess(3, directory=tmp_path)
    node = cluster.brokers[0]
    node.settings["metrics.listener"] = f"{HOST}:{port}"
    node.launch()
    try:
        eventually(lambda: "starting" in ask(f"{HOST}:{port}").stderr)
        assert ask(f"{HOST}:{port}").returncode == 1
    finally:
        cluster.close()
