"""Clients that cannot be in the project's environment; they are installed in separate folders.

Each client has a folder in `build/clients`, named after its lock file; a changed lock file gives
another folder. Only locked files are installed, after a check of their checksums.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from jvm.installed import installed, run_installer
from jvm.maven import need

HERE = Path(__file__).parent / "packages"


def python_package(lock: str) -> Path:
    """Return a folder for PYTHONPATH with the packages of `packages/LOCK.lock`."""
    file = HERE / f"{lock}.lock"

    def install(target: Path) -> None:
        words = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        words += ["--no-deps", "--only-binary", ":all:", "--require-hashes"]
        run_installer([*words, "--target", str(target), "-r", str(file)], target.parent)

    return installed(lock, [file], install)


def node_package(name: str) -> Path:
    """Return a folder with the `node_modules` of `packages/NAME/package-lock.json`."""
    need("node", "npm")
    files = [HERE / name / "package.json", HERE / name / "package-lock.json"]

    def install(target: Path) -> None:
        target.mkdir()
        for file in files:
            shutil.copy(file, target)
        run_installer(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], target)

    return installed(name, files, install)
