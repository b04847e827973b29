"""The command that starts Barnabas, of this environment or of another one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.testing.barnabas_command import (
    VARIABLE,
    BarnabasNotFoundError,
    barnabas_command,
)


def executable(path: Path, script: str) -> Path:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def printed(*words: str) -> str:
    done = subprocess.run([*words, "--version"], capture_output=True, text=True, check=True)
    return done.stdout


def test_this_environment_is_used_without_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert barnabas_command() == [sys.executable, "-m", "barnabas.cli.main"]


def test_a_launcher_is_replaced_by_the_interpreter_that_it_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = Path(sys.executable).parent / "barnabas"
    # As uvx does, the launcher stays the parent of what it starts.
    launcher = executable(tmp_path / "launcher", f'"{script}" "$2"; exit $?')
    monkeypatch.setenv(VARIABLE, f"'{launcher}' barnabas")
    command = barnabas_command()
    # The first line of the script may name the interpreter as python, python3 or python3.11.
    assert Path(command[0]).resolve() == Path(sys.executable).resolve()
    assert command[1:] == [str(script)]
    assert printed(*command).startswith("barnabas ")


def test_a_module_is_started_as_a_module_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, f"{sys.executable} -X utf8 -m barnabas")
    assert barnabas_command() == [sys.executable, "-X", "utf8", "-m", "barnabas"]


@pytest.mark.parametrize(
    ("script", "complaint"),
    [
        ("echo no such option >&2; exit 2", "status 2 and wrote: no such option"),
        ("echo '[]'", r"is not a command of Barnabas .* wrote: \[\]"),
    ],
)
def test_a_command_that_is_not_barnabas_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, complaint: str
) -> None:
    monkeypatch.setenv(VARIABLE, str(executable(tmp_path / "other", script)))
    with pytest.raises(BarnabasNotFoundError, match=complaint):
        barnabas_command()


@pytest.mark.parametrize("named", ["/nowhere/barnabas", "'"])
def test_a_command_that_cannot_run_is_refused(monkeypatch: pytest.MonkeyPatch, named: str) -> None:
    monkeypatch.setenv(VARIABLE, named)
    with pytest.raises(BarnabasNotFoundError, match=VARIABLE):
        barnabas_command()
