"""Gets jars by Maven: each folder of tests/jvm with a pom.xml is a set of pinned versions.

Maven stores the jars in its own repository (`~/.m2`). The resulting class path is stored in
`build/jvm` until the pom changes.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

HERE = Path(__file__).parent
BUILD = HERE.parents[1] / "build" / "jvm"
PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:2.8"
TIMEOUT_S = 280


def need(*commands: str) -> None:
    """Skip the test if a command is missing; in CI (CI=true), fail.

    `make debian-packages` installs the packages that contain the commands.
    """
    missing = [command for command in commands if shutil.which(command) is None]
    if not missing:
        return
    reason = f"{' and '.join(missing)} not found: `make debian-packages` installs what tests need"
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@functools.cache
def class_path(name: str) -> str:
    """Return the class path of tests/jvm/NAME/pom.xml; Maven downloads missing jars."""
    need("java")
    pom = HERE / name / "pom.xml"
    digest = hashlib.sha256(pom.read_bytes()).hexdigest()[:16]
    kept = BUILD / f"{name}-{digest}.classpath"
    with one_maven():
        found = _read(kept)
        if found is None:
            need("mvn")
            _resolve(pom, kept)
            found = _read(kept)
    assert found, f"Maven gave no class path for {pom}"
    return found


def _read(kept: Path) -> str | None:
    """Return a stored class path, or None if one of its jars is missing in Maven's repository."""
    if not kept.exists():
        return None
    found = kept.read_text().strip()
    return found if all(Path(jar).exists() for jar in found.split(os.pathsep)) else None


def _resolve(pom: Path, kept: Path) -> None:
    words = ["mvn", "-q", "-B", "-f", str(pom), f"{PLUGIN}:build-classpath"]
    words += ["-DincludeScope=runtime", f"-Dmdep.outputFile={kept}"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, f"mvn failed on {pom}\n{done.stdout}\n{done.stderr}"


@contextmanager
def one_maven() -> Iterator[None]:
    """Lock Maven, which does not protect its repository against concurrent processes."""
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
