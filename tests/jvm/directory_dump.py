"""Runs Kafka's DumpLogSegments on the files of data directories; it must not report an error."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

METADATA = "__cluster_metadata-0"
# Output for each segment that does not begin with offset 0, and for compacted segments.
IS_GAP = re.compile("^Non-consecutive offsets in |^  -?[0-9]+ is followed by [0-9]+$")
# Kafka's recovery adds the time of a batch to the index even if compaction removed all its records.
EMPTY_BATCH = re.compile(
    "^Found timestamp mismatch in :.*\n(  Index timestamp: [0-9]+, log timestamp: -1\n)+\n?",
    re.MULTILINE,
)
ERROR_TEXTS = ("is invalid", "isvalid: false", "corrupt", "Could not")


class Dump:
    """The tool; a call runs it on files.

    Args:
        kafka_tools: runs one of Kafka's tools.
        has_kafka_written: whether Kafka has written some of the files.
    """

    def __init__(
        self,
        kafka_tools: Callable[..., subprocess.CompletedProcess[str]],
        *,
        has_kafka_written: bool = False,
    ) -> None:
        self._kafka_tools = kafka_tools
        self._has_kafka_written = has_kafka_written

    def __call__(self, paths: Iterable[Path], *words: str) -> str:
        """Return the output of the tool for the files that are not empty; there must be one."""
        files = ",".join(str(path) for path in paths if path.stat().st_size)
        assert files, words
        done = self._kafka_tools("DumpLogSegments", "--files", files, *words)
        assert done.returncode == 0, done.stderr
        # The tool reports mismatches on standard error, with status 0.
        errors = EMPTY_BATCH.sub("", done.stderr) if self._has_kafka_written else done.stderr
        unexpected = [line for line in errors.splitlines() if not IS_GAP.search(line)]
        assert not unexpected, "\n".join(unexpected[:20])
        for error_text in ERROR_TEXTS:
            assert error_text not in done.stdout, done.stdout[-2000:]
        return done.stdout

    def check_logs(self, partitions: Sequence[Path], *words: str) -> str:
        """Check all segments and indexes of partitions, and return the output for the logs."""
        logs = [path for directory in partitions for path in sorted(directory.glob("*.log"))]
        text = self(logs, "--deep-iteration", *words)
        for suffix in ("index", "timeindex"):
            indexes = [path.with_suffix(f".{suffix}") for path in logs]
            for word in ("--index-sanity-check", "--verify-index-only"):
                self(indexes, word)
        return text

    def producers(self, partitions: Iterable[Path]) -> str:
        """Return the output for the snapshots of producers."""
        return self(path for directory in partitions for path in directory.glob("*.snapshot"))

    def metadata(self, directory: Path) -> tuple[str, str]:
        """Return the output for the metadata log of a directory and for its newest snapshot."""
        log = self((directory / METADATA).glob("*.log"), "--cluster-metadata-decoder")
        snapshot = ""
        for path in sorted((directory / METADATA).glob("*.checkpoint")):
            snapshot = self([path], "--cluster-metadata-decoder")
            assert "SnapshotHeader" in snapshot
            assert "SnapshotFooter" in snapshot
        return log, snapshot
