"""Clients that cannot be in the project's own environment: installed beside it, from locked files.

Each goes into a folder of `build/clients` that is named after its lock; a changed lock is another
folder. Nothing but the locked files is installed, by the package's own checksum.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from jvm.installed import installed, run_installer
from jvm.maven import need

HERE = Path(__file__).parent / "packages"


def python_package(lock: str) -> Path:
    """A folder for PYTHONPATH with what `packages/LOCK.lock` names."""
    file = HERE / f"{lock}.lock"

    def install(target: Path) -> None:
        words = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        words += ["--no-deps", "--only-binary", ":all:", "--require-hashes"]
        run_installer([*words, "--target", str(target), "-r", str(file)], target.parent)

    return installed(lock, [file], install)


def node_package(name: str) -> Path:
    """A folder with `node_modules` of `packages/NAME/package-lock.json`."""
    need("node", "npm")
    files = [HERE / name / "package.json", HERE / name / "package-lock.json"]

    def install(target: Path) -> None:
        target.mkdir()
        for file in files:
            shutil.copy(file, target)
        run_installer(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], target)

    return installed(name, files, install)
