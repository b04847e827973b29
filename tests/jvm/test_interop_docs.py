"""The commands of docs/interop.md run as they are written and print what the page says."""

from __future__ import annotations

import os
import random
import re
import shlex
import stat
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from barnabas.server.features import SUPPORTED_FEATURES
from barnabas.testing.free_ports import is_free
from jvm.java import java_command

pytestmark = pytest.mark.conformance

PAGE = Path(__file__).parents[2] / "docs/interop.md"
# What Kafka's scripts run, and of which jars: its tools for 4.4 are not to be had.
SCRIPTS = {
    "kafka-storage.sh": ("kafka", "kafka.tools.StorageTool"),
    "kafka-server-start.sh": ("kafka", "kafka.Kafka"),
    "kafka-features.sh": ("kafka-tools", "org.apache.kafka.tools.FeatureCommand"),
}
TIMEOUT_S = 560


class Recipe(NamedTuple):
    """The commands of a section, one script, and what they print."""

    title: str
    script: str
    printed: str


def recipes() -> list[Recipe]:
    found = []
    for section in PAGE.read_text().split("\n## ")[1:]:
        scripts, printed = (
            "".join(re.findall(rf"^```{kind}\n(.*?)^```$", section, re.DOTALL | re.MULTILINE))
            for kind in ("sh", "text")
        )
        if scripts:
            found.append(Recipe(section.partition("\n")[0], scripts, printed))
    return found


def properties() -> str:
    (found,) = re.findall(r"^```properties\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    text: str = found
    return text


def free_thousands() -> str:
    """What stands for the 9 of the page's ports, 9092, 9192 and so on."""
    offered = list(range(10, 32))
    random.SystemRandom().shuffle(offered)
    for thousands in offered:
        ports = (1000 * thousands + 100 * node + 92 for node in range(4))
        if all(is_free(port) and is_free(port + 1) for port in ports):
            return str(thousands)
    raise AssertionError("no ports are free")


def make_commands(directory: Path) -> None:
    """Kafka's scripts and `barnabas`, as they would be on PATH."""
    directory.mkdir()
    commands = {name: [*java_command(jars), main] for name, (jars, main) in SCRIPTS.items()}
    commands["barnabas"] = [sys.executable, "-m", "barnabas.cli.main"]
    for name, words in commands.items():
        path = directory / name
        path.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.mark.parametrize("recipe", recipes(), ids=lambda recipe: recipe.title)
def test_the_page_is_true(tmp_path: Path, recipe: Recipe) -> None:
    thousands = free_thousands()

    def with_ports(text: str) -> str:
        return re.sub(r"(?<=127\.0\.0\.1:)9(?=[\d$])", thousands, text)

    make_commands(tmp_path / "bin")
    (tmp_path / "server.properties").write_text(with_ports(properties()))
    environment = {
        **os.environ,
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "BARNABAS_BOOTSTRAP": with_ports("127.0.0.1:9092"),
    }
    # What the commands leave running ends with the script.
    script = "set -e\ntrap 'kill -9 $(jobs -p) 2> /dev/null || true' EXIT\n" + with_ports(
        recipe.script
    )
    done = subprocess.run(
        ["timeout", str(TIMEOUT_S), "bash", "-c", script],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == recipe.printed, (done.stderr, done.stdout)
    assert done.returncode == 0, done.stderr


def test_the_page_has_four_recipes_and_the_levels_that_are_supported() -> None:
    assert len(recipes()) == 4
    rows = dict(re.findall(r"^\| `([a-z.]+)` \| ([^|]+) \|", PAGE.read_text(), re.MULTILINE))
    said = {name: [int(each) for each in re.findall(r"\d+", row)] for name, row in rows.items()}
    supported = {name: list(levels) for name, levels in SUPPORTED_FEATURES.items()}
    assert said == supported | {name: [0] for name in said.keys() - supported.keys()}
