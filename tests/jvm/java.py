"""Runs Java in tests: with little memory, a quick start, and logs on standard error."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from jvm.installed import installed, run_installer
from jvm.maven import class_path, need

HEAP = "512m"
# Timeout for a process that hangs.
TIMEOUT_S = 240
_LOGGING = Path(__file__).parent / "log4j2.properties"


# Only the quick compiler: a test's process ends before the optimizing compiler pays off.
QUICK = (f"-Xmx{HEAP}", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


def java_command(
    jars: str,
    log_level: str = "WARN",
    machine: Sequence[str] = QUICK,
    source: Path | None = None,
) -> list[str]:
    """Return a command up to the class name: `java` with the jars of tests/jvm/JARS.

    Args:
        jars: the folder with the pom.xml.
        log_level: the level of the root logger.
        machine: Java options for memory, compiler and collector.
        source: a Java file of the tests, whose classes are added.
    """
    path = class_path(jars)
    if source is not None:
        # After the jars, which an archive of classes (`class_archive`) expects first.
        path = os.pathsep.join([path, str(java_classes(jars, source))])
    return [
        "java",
        *machine,
        f"-Dlog4j2.configurationFile={_LOGGING}",
        f"-Dbarnabas.log.level={log_level}",
        "-cp",
        path,
    ]


def java_classes(jars: str, source: Path) -> Path:
    """Compile a Java file with the jars of tests/jvm/JARS, and return the folder of its classes."""
    need("javac")

    def compile_into(target: Path) -> None:
        words = ["javac", "-cp", class_path(jars), "-d", str(target), str(source)]
        run_installer(words, target.parent)

    pom = Path(__file__).parent / jars / "pom.xml"
    return installed(source.stem, [source, pom], compile_into)


def run_java(
    jars: str, main_class: str, *arguments: str, stdin: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a class to its end; the caller checks the output and the status."""
    return subprocess.run(
        [*java_command(jars), main_class, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
