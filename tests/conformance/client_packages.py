"""Clients that cannot be in the project's own environment: installed beside it, from locked files.

Each goes into a folder of `build/clients` that is named after its lock; a changed lock is another
folder. Nothing but the locked files is installed, by the package's own checksum.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from jvm.maven import class_path, need

HERE = Path(__file__).parent / "packages"
BUILD = HERE.parents[2] / "build" / "clients"
TIMEOUT_S = 240


def python_package(lock: str) -> Path:
    """A folder for PYTHONPATH with what `packages/LOCK.lock` names."""
    file = HERE / f"{lock}.lock"

    def install(target: Path) -> None:
        words = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        words += ["--no-deps", "--only-binary", ":all:", "--require-hashes"]
        _run([*words, "--target", str(target), "-r", str(file)], target.parent)

    return _installed(lock, [file], install)


def node_package(name: str) -> Path:
    """A folder with `node_modules` of `packages/NAME/package-lock.json`."""
    need("node", "npm")
    files = [HERE / name / "package.json", HERE / name / "package-lock.json"]

    def install(target: Path) -> None:
        target.mkdir()
        for file in files:
            shutil.copy(file, target)
        _run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], target)

    return _installed(name, files, install)


def java_classes(jars: str, source: Path) -> Path:
    """A folder with the classes of one Java file, compiled against the jars of tests/jvm/JARS."""
    need("javac")

    def compile_into(target: Path) -> None:
        words = ["javac", "-cp", class_path(jars), "-d", str(target), str(source)]
        _run(words, target.parent)

    pom = source.parents[2] / "jvm" / jars / "pom.xml"
    return _installed(source.stem, [source, pom], compile_into)


def _installed(name: str, files: list[Path], install: Callable[[Path], None]) -> Path:
    parts = [file.read_bytes() for file in files] + [sys.version.encode()]
    digest = hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]
    folder = BUILD / f"{name}-{digest}"
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            # Under another name until it is whole.
            new = BUILD / f"{name}-{os.getpid()}.new"
            shutil.rmtree(new, ignore_errors=True)
            install(new)
            new.rename(folder)
    return folder


def _run(words: list[str], directory: Path) -> None:
    done = subprocess.run(
        words, cwd=directory, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout}\n{done.stderr}"
