"""An earlier version of Barnabas from the history of this repository, as nodes of a cluster."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from archives import unpack
from barnabas.testing.cluster_process import NodeProcess

ROOT = Path(__file__).parents[2]
# A commit of 2026-11-21, before dynamic voters and consumer protocol state.
COMMIT = "db85ee8"


def earliest_commit() -> str:
    """Return `COMMIT`, or the current commit in a shallow clone, which lacks it."""
    words = ["git", "cat-file", "-e", f"{COMMIT}^{{commit}}"]
    has_it = subprocess.run(words, check=False, cwd=ROOT, capture_output=True).returncode == 0
    return COMMIT if has_it else "HEAD"


def release_commit(release: str) -> str:
    """Return the commit that kept the data directory of a release first; skip without history."""
    kept = f"tests/conformance/kept/{release}.zip"
    commits = _git("log", "--diff-filter=A", "--format=%H", "--", kept).split()
    # The oldest commit of a shallow clone seems to add all files.
    if not commits or _git("rev-parse", "--is-shallow-repository").strip() != "false":
        pytest.skip(f"the history of this clone does not have the commit of release {release}")
    return commits[-1]


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], check=False, cwd=ROOT, capture_output=True, text=True)
    return done.stdout


def extract(directory: Path, commit: str) -> Path:
    """Write that version's sources below `directory`; return the value for PYTHONPATH."""
    words = ["git", "archive", commit, "src"]
    packed = subprocess.run(words, check=True, cwd=ROOT, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        unpack(archive, directory)
    return directory / "src"


class UpgradedNode(NodeProcess):
    """A node that runs the sources in `sources`; None: the current version."""

    sources: Path | None = None

    def running_from(self) -> str:
        """The directory of the package that the running process has loaded."""
        mapped = Path(f"/proc/{self.pid}/environ").read_bytes().decode().split("\0")
        found = [each.removeprefix("PYTHONPATH=") for each in mapped if "PYTHONPATH=" in each]
        return found[0] if found else ""

    def _command(self) -> list[str]:
        # Options that an earlier version does not know are left out.
        words = [sys.executable, "-m", "barnabas.cli.main", "start", str(self.properties_file)]
        words += ["--set", f"cluster.id={self.options.cluster_id}"]
        place = ["-u", "PYTHONPATH"] if self.sources is None else [f"PYTHONPATH={self.sources}"]
        return ["env", *place, *words]
