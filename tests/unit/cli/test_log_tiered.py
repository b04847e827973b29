"""`barnabas log` over a partition whose first segments are only in the remote tier (KIP-405)."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from barnabas.cli.log.commands import log as command
from barnabas.runtime.disk import RealDisk
from barnabas.storage.config import LogConfig
from barnabas.storage.files.checkpoint import (
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    OffsetCheckpoint,
)
from barnabas.storage.files.metadata_files import write_marker, write_topic_id
from unit.storage.storage_fixtures import DIRECTORY, NOW_MS, PARTITION, Bench

RECORDS = 9


def write(bench: Bench, top: Path) -> Path:
    """Write the closed log to a data directory, as a clean stop leaves it."""
    log = bench.log
    log.close()
    path = top / PARTITION.directory_name
    path.mkdir()
    for name in bench.names():
        if not name.endswith(".deleted"):
            (path / name).write_bytes(bench.disk.read(f"{DIRECTORY}/{name}"))
    disk = RealDisk()
    write_topic_id(disk, str(path), bytes(range(16)))
    for name, offset in (
        (RECOVERY_POINTS, log.recovery_point),
        (HIGH_WATERMARKS, log.high_watermark),
        (LOG_START_OFFSETS, log.log_start_offset),
    ):
        OffsetCheckpoint(disk, str(top), name).write({PARTITION: offset})
    (top / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=x\n")
    write_marker(disk, str(top), 1)
    return path


@pytest.fixture
def bench() -> Bench:
    """A log that has deleted its first segments after they were copied."""
    config = LogConfig(segment_bytes=400, is_remote=True, local_retention_bytes=400)
    bench = Bench(config)
    for index in range(RECORDS):
        bench.append_many(1)
        bench.log.update_high_watermark(index + 1)
    bench.log.raise_highest_remote_offset(RECORDS - 1)
    bench.log.raise_verified_remote_offset(RECORDS - 1)
    assert bench.log.delete_old_segments(NOW_MS)
    return bench


def run(*words: object) -> Result:
    return CliRunner().invoke(command, [*map(str, words)])


@pytest.mark.parametrize("words", [["verify", "--deep"], ["repair"]])
def test_segments_in_the_tier_are_not_missing(
    words: list[str], bench: Bench, tmp_path: Path
) -> None:
    write(bench, tmp_path)
    done = run(*words, tmp_path)
    assert done.exit_code == 0, done.output
    assert "missing" not in done.output


def test_a_log_that_continues_after_the_tier_is_whole(bench: Bench, tmp_path: Path) -> None:
    epochs = bench.log.leader_epochs.entries
    bench.log.adopt_auxiliary_state(RECORDS, 0, epochs, b"")
    write(bench, tmp_path)
    done = run("verify", tmp_path)
    assert done.exit_code == 0, done.output


def test_a_segment_missing_in_between_is_still_found(bench: Bench, tmp_path: Path) -> None:
    bench.log.roll()
    bench.append_many(1)
    bench.log.roll()
    bench.append_many(1)
    segments = sorted(write(bench, tmp_path).glob("*.log"))
    segments[1].unlink()
    done = run("verify", tmp_path)
    assert done.exit_code == 1
    assert "a segment is missing" in done.output
