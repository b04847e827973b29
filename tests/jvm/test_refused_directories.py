"""Data directories that a node refuses are not changed: names, sizes, times, bytes of all files.

Barnabas wrote the directories, and then their identity or that of the node was changed.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, NamedTuple

import pytest

from barnabas.testing.broker_process import BrokerProcess
from jvm.directory_contents import Contents
from jvm.directory_settings import SETTINGS
from jvm.kafka_process import KafkaProcess, KafkaStartError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

pytestmark = pytest.mark.conformance

FIRST, SECOND = "data", "more"
META = "meta.properties"
OTHER_CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
START_S = 60.0


class Refusal(NamedTuple):
    """The change of the directories, the start of the node, and the node's message."""

    change: Callable[[Path], object]
    message: str
    settings: Mapping[str, str] = {}


def meta(which: str, old: str, new: str) -> Callable[[Path], object]:
    """Return a change of the identity of one of the two directories."""

    def change(directory: Path) -> None:
        path = directory / which / META
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    return change


def no_change(_: Path) -> None:
    """Change no directory, because the identity of the node differs."""


def first_is_new(directory: Path) -> None:
    shutil.rmtree(directory / FIRST)


def first_is_new_and_second_another_nodes(directory: Path) -> None:
    first_is_new(directory)
    meta(SECOND, "node.id=1", "node.id=7")(directory)


def second_has_a_metadata_log(directory: Path) -> None:
    shutil.move(directory / FIRST / "__cluster_metadata-0", directory / SECOND)


def second_is_a_copy(directory: Path) -> None:
    shutil.copy2(directory / FIRST / META, directory / SECOND)


REFUSALS = {
    "another node": Refusal(no_change, "belongs to node 1, but this is node 2", {"node.id": "2"}),
    "another cluster": Refusal(no_change, "but this node has", {"cluster.id": OTHER_CLUSTER}),
    "second of another node": Refusal(meta(SECOND, "node.id=1", "node.id=7"), "belongs to node 7"),
    "second of another cluster": Refusal(
        meta(SECOND, "cluster.id=", f"cluster.id={OTHER_CLUSTER}\n#"), "several clusters"
    ),
    "second a copy": Refusal(second_is_a_copy, "have the same directory.id"),
    "no version": Refusal(meta(FIRST, "version=1", ""), "lacks version"),
    "later version": Refusal(meta(SECOND, "version=1", "version=2"), "has version '2'"),
    "no cluster": Refusal(meta(FIRST, "cluster.id", "cluster"), "lacks cluster.id"),
    "no number": Refusal(meta(SECOND, "node.id=1", "node.id=one"), "cannot be read"),
    "no id": Refusal(meta(FIRST, "directory.id=", "directory.id=!"), "cannot be read"),
    "first gone": Refusal(first_is_new, "is its disk mounted?"),
    "first gone, second another's": Refusal(
        first_is_new_and_second_another_nodes, "belongs to node 7"
    ),
    "metadata elsewhere": Refusal(second_has_a_metadata_log, "or name it first in log.dirs"),
}
KAFKA_REFUSES = ("first gone", "metadata elsewhere")


def file_states(directory: Path) -> dict[str, tuple[int, int, int, str]]:
    """Return mode, size, modification time and digest of all files and directories by path."""
    return {
        str(path.relative_to(directory)): (
            (found := path.lstat()).st_mode,
            found.st_size,
            found.st_mtime_ns,
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
        )
        for path in (directory, *directory.rglob("*"))
    }


def check_refusal(directory: Path, message: str, settings: Mapping[str, str]) -> None:
    """Check that a node refuses the directories with a message, and does not change them."""
    before = file_states(directory)
    words = [sys.executable, "-m", "barnabas.cli.main", "start", "--listen", "127.0.0.1:0"]
    words += ["--data-dir", f"{directory / FIRST},{directory / SECOND}"]
    for key, value in settings.items():
        words += ["--set", f"{key}={value}"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=START_S, check=False)
    assert (done.returncode, done.stdout) == (1, ""), done
    assert message in done.stderr
    assert file_states(directory) == before


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two directories that a stopped Barnabas broker has filled."""
    directory = tmp_path_factory.mktemp("written")
    paths = f"{directory / FIRST},{directory / SECOND}"
    with BrokerProcess(directory, SETTINGS, ["--data-dir", paths]) as broker:
        Contents(broker.bootstrap).fill()
        broker.stop()
    return directory


@pytest.fixture
def copied(written: Path, tmp_path: Path) -> Path:
    for name in (FIRST, SECOND):
        shutil.copytree(written / name, tmp_path / name)
    return tmp_path


@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=REFUSALS)
def test_another_identity_is_refused_without_changes(copied: Path, refusal: Refusal) -> None:
    refusal.change(copied)
    check_refusal(copied, refusal.message, refusal.settings)


@pytest.mark.parametrize("name", KAFKA_REFUSES)
def test_kafka_refuses_the_same_directories(
    kafka_jars: Callable[[str], str], copied: Path, tmp_path: Path, name: str
) -> None:
    REFUSALS[name].change(copied)
    found = [each for each in (FIRST, SECOND) if (copied / each).exists()]
    before = [file_states(copied / each) for each in found]
    paths = f"{copied / FIRST},{copied / SECOND}"
    kafka = KafkaProcess(tmp_path / "kafka", {**SETTINGS, "log.dirs": paths})
    kafka.data_directory = copied / SECOND
    try:
        with pytest.raises(KafkaStartError, match="Exiting Kafka due to fatal exception"):
            kafka.start()
    finally:
        kafka.close()
    assert before == [file_states(copied / each) for each in found]
