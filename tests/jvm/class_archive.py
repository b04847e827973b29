"""Creates an archive of the classes that Apache Kafka loads, which halves the CPU time of a start.

In Java this is application class-data sharing. Java ignores an archive that does not match the
running Java or the jars, so that no test depends on it.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from jvm.installed import installed

_NAME = "classes.jsa"


def class_archive(jars: str, run_with: Callable[[Path, str], None]) -> str:
    """Return the Java option that uses the archive for the jars of tests/jvm/JARS.

    Args:
        jars: the folder with the pom.xml.
        run_with: starts and stops Kafka in a directory with a Java option that writes the
            archive; called if there is no archive yet.
    """

    def install(target: Path) -> None:
        target.mkdir()
        archive = target / _NAME
        scratch = target / "kafka"
        try:
            run_with(scratch, f"-XX:ArchiveClassesAtExit={archive}")
        except (OSError, RuntimeError, subprocess.SubprocessError) as error:
            # Kafka also starts without an archive, and logs the problem there.
            (target / "error.txt").write_text(f"{error}\n")
        shutil.rmtree(scratch, ignore_errors=True)

    pom = Path(__file__).parent / jars / "pom.xml"
    return f"-XX:SharedArchiveFile={installed(f'classes-{jars}', [pom], install) / _NAME}"
