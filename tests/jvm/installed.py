"""Installs or compiles programs once, in a folder of `build/clients` with a hash in its name."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

BUILD = Path(__file__).parents[2] / "build" / "clients"
TIMEOUT_S = 240


def installed(name: str, files: list[Path], install: Callable[[Path], None]) -> Path:
    """Return the folder that `install` creates from these files; it depends on their contents."""
    parts = [file.read_bytes() for file in files] + [sys.version.encode()]
    digest = hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]
    folder = BUILD / f"{name}-{digest}"
    # The folder gets its name only after it is complete.
    if folder.exists():
        return folder
    BUILD.mkdir(parents=True, exist_ok=True)
    # One lock per program: other programs may be installed meanwhile, also by this installation.
    with (BUILD / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            new = BUILD / f"{name}-{os.getpid()}.new"
            shutil.rmtree(new, ignore_errors=True)
            install(new)
            new.rename(folder)
    return folder


def run_installer(words: list[str], directory: Path) -> None:
    """Run a command that must succeed."""
    done = subprocess.run(
        words, cwd=directory, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout}\n{done.stderr}"
