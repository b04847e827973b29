"""`barnabas log` over a partition without records, which has no segment files."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from barnabas.cli.log.commands import log as command
from barnabas.runtime.disk import RealDisk
from barnabas.storage.files.checkpoint import RECOVERY_POINTS, OffsetCheckpoint
from barnabas.storage.files.metadata_files import write_marker, write_topic_id
from barnabas.storage.topic_partition import TopicPartition

PARTITION = TopicPartition("flights", 0)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory with one partition, as a clean stop leaves it."""
    (tmp_path / "flights-0").mkdir()
    write_topic_id(RealDisk(), str(tmp_path / "flights-0"), bytes(range(16)))
    OffsetCheckpoint(RealDisk(), str(tmp_path), RECOVERY_POINTS).write({PARTITION: 0})
    (tmp_path / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=x\n")
    write_marker(RealDisk(), str(tmp_path), 1)
    return tmp_path


def run(*words: object) -> Result:
    return CliRunner().invoke(command, [*map(str, words)])


@pytest.mark.parametrize("words", [["verify"], ["repair"]])
def test_nothing_is_wrong_with_it(words: list[str], data: Path) -> None:
    done = run(*words, data)
    assert done.exit_code == 0, done.output


def test_its_dump_says_that_there_are_no_records(data: Path) -> None:
    directory = data / "flights-0"
    done = run("dump", directory)
    expected = f"{directory}: no record was written to this partition\n"
    assert (done.exit_code, done.output) == (0, expected)
    assert run("dump", directory, "--json").output == ""


def test_a_directory_of_something_else_cannot_be_dumped(tmp_path: Path) -> None:
    done = run("dump", tmp_path)
    assert done.exit_code == 2
    assert "contains no segments" in done.output


def test_lost_segments_are_found_by_the_files_beside_them(data: Path) -> None:
    (data / "flights-0" / "leader-epoch-checkpoint").write_text("0\n1\n3 0\n")
    done = run("verify", data)
    assert done.exit_code == 1
    assert "no segment (*.log) exists" in done.output


def test_lost_segments_are_found_by_the_recovery_point(data: Path) -> None:
    OffsetCheckpoint(RealDisk(), str(data), RECOVERY_POINTS).write({PARTITION: 9})
    done = run("verify", data)
    assert done.exit_code == 1
    assert "flights-0: 9, but its log ends at 0: records were lost" in done.output


@pytest.mark.parametrize("kind", ["delete", "stray", "future"])
def test_a_checkpoint_is_not_compared_with_other_logs_of_the_partition(
    kind: str, data: Path
) -> None:
    OffsetCheckpoint(RealDisk(), str(data), RECOVERY_POINTS).write({PARTITION: 9})
    (data / "flights-0").rename(data / f"flights-0.{'0' * 32}-{kind}")
    done = run("verify", data)
    assert done.exit_code == 0, done.output


def test_a_deleted_log_may_lack_files_that_the_broker_has_removed_already(data: Path) -> None:
    (data / "flights-0" / "leader-epoch-checkpoint").write_text("0\n1\n3 0\n")
    (data / "flights-0").rename(data / f"flights-0.{'0' * 32}-delete")
    done = run("verify", data)
    assert done.exit_code == 0, done.output
