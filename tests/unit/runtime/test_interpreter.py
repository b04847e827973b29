"""Which Pythons suit Barnabas, and the one that setup takes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from barnabas.runtime.interpreter import has_packages, is_optimized

ROOT = Path(__file__).parents[3]


def test_a_python_is_optimized_by_its_option_or_its_distribution() -> None:
    assert is_optimized("'--prefix=/opt/python' '--enable-optimizations' '--with-lto'", "/opt")
    assert is_optimized("'--enable-shared' '--prefix=/usr'", "/usr")
    assert not is_optimized("'--prefix=/opt/python' '--enable-shared'", "/opt/python")


def test_the_locked_packages_exist_for_some_versions() -> None:
    assert [minor for minor in range(8, 18) if has_packages((3, minor), "")] == [11, 12, 13, 14]
    assert not has_packages((3, 14), "t")


def chosen(path: str) -> tuple[str, str]:
    """Return the name that `tools/choose_python` prints with this PATH, and its stderr."""
    done = subprocess.run(
        [ROOT / "tools/choose_python"],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip(), done.stderr


def python(directory: Path, name: str, status: int) -> None:
    """Make a Python whose examination ends with this status."""
    directory.mkdir(exist_ok=True)
    program = directory / name
    program.write_text(f"#!/bin/sh\nexit {status}\n")
    program.chmod(0o755)


def test_setup_takes_the_first_python_that_is_optimized(tmp_path: Path) -> None:
    first, system = tmp_path / "first", "/usr/bin:/bin"
    python(first, "python3", 0)
    assert chosen(f"{first}:{system}") == ("python3", "")
    python(first, "python3", 1)
    python(first, "python3.13", 0)
    name, _ = chosen(f"{first}:{system}")
    assert name in {"/usr/bin/python3", "python3.11", "python3.12", "python3.13"}
