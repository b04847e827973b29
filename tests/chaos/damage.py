"""A flipped bit in a file of a node, and its repair by an operator."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

METADATA_LOG = "__cluster_metadata-0"
# Timeout of a command.
COMMAND_TIMEOUT_S = 120.0
# Number of bits at the beginning of a file that are chosen more often.
_FIRST_BITS = 500


@dataclass(frozen=True)
class Flip:
    """A bit that was flipped."""

    # Purpose of the file.
    kind: str
    path: Path
    bit: int

    def __str__(self) -> str:
        place = f"{self.path.parent.name}/{self.path.name}"
        return f"{self.kind} {place}, byte {self.bit // 8}, bit {self.bit % 8}"


def flip_any(data_directory: Path, topic: str, rng: random.Random) -> Flip:
    """Flip a bit of a random file, each kind equally likely; no process may have it open."""
    kinds = {name: found for name, found in _files(data_directory, topic).items() if found}
    kind = rng.choice(sorted(kinds))
    path = rng.choice(kinds[kind])
    content = bytearray(path.read_bytes())
    bits = len(content) * 8
    bit = rng.choice((rng.randrange(bits), rng.randrange(min(bits, _FIRST_BITS))))
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)
    return Flip(kind, path, bit)


def _files(data_directory: Path, topic: str) -> dict[str, list[Path]]:
    """Return the non-empty files by kind."""
    partitions = sorted(data_directory.glob(f"{topic}-*"))
    offsets = sorted(data_directory.glob("__consumer_offsets-*"))
    metadata = data_directory / METADATA_LOG
    segments = [sorted(each.glob("*.log")) for each in partitions]
    found = {
        "closed segment": [path for each in segments for path in each[:-1]],
        "active segment": [each[-1] for each in segments if each],
        "segment of group offsets": [path for each in offsets for path in each.glob("*.log")],
        "offset index": [path for each in partitions for path in each.glob("*.index")],
        "time index": [path for each in partitions for path in each.glob("*.timeindex")],
        "leader epochs": [path for each in partitions for path in each.glob("leader-epoch-*")],
        "producer snapshot": [path for each in partitions for path in each.glob("*.snapshot")],
        "partition.metadata": [path for each in partitions for path in each.glob("partition.*")],
        "metadata log": list(metadata.glob("*.log")),
        "vote": list(metadata.glob("quorum-state")),
        "checkpoint": list(data_directory.glob("*-checkpoint")),
    }
    return {
        kind: sorted(path for path in paths if path.stat().st_size) for kind, paths in found.items()
    }


def verify(data_directory: Path) -> str:
    """Return the output of `barnabas log verify`; empty without problems."""
    status, output = _run("verify", str(data_directory))
    assert status in (0, 1), output
    return output if status else ""


def repair(data_directory: Path) -> str:
    """Run `barnabas log repair --apply` for a stopped node, and return its output."""
    status, output = _run("repair", str(data_directory), "--apply")
    assert status == 0, output
    return output


def delete_replica(flip: Flip) -> None:
    """Delete the partition's directory, so that the replica is fetched again from the others."""
    shutil.rmtree(flip.path.parent)


def _run(*words: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "barnabas.cli.main", "log", *words],
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT_S,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr
