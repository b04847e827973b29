"""Installations: with the oldest packages that pyproject.toml allows, and from a clone by git.

Each test makes new environments, and takes packages from the package index.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import pytest

from tools import release, runtime_lock

ROOT = Path(__file__).parents[2]
OLDEST = Path(__file__).parent / "oldest"
PROGRAM = Path(__file__).parent / "installed_program.py"
VERSIONS = ("3.11", "3.12", "3.13")


def bounds() -> dict[str, str]:
    """The lower bounds of the required packages, by name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return dict(each.partition(";")[0].split(">=") for each in project["dependencies"])


def locked(version: str) -> dict[str, str]:
    text = (OLDEST / f"python-{version}.lock").read_text()
    return dict(re.findall(r"^([a-z0-9-]+)==([\w.]+)", text, re.MULTILINE))


def number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


def test_the_oldest_allowed_versions_are_those_that_are_tested() -> None:
    found = locked(VERSIONS[0])
    for name, bound in bounds().items():
        parts = number(bound)
        assert number(found[name])[: len(parts)] == parts, name
        assert not any(number(found[name])[len(parts) :]), f"{name}: {found[name]} is newer"


@pytest.mark.parametrize("version", VERSIONS[1:])
def test_newer_pythons_have_the_same_packages_or_newer_ones(version: str) -> None:
    oldest, found = locked(VERSIONS[0]), locked(version)
    for name in bounds():
        assert number(found[name]) >= number(oldest[name]), name


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return release.build(tmp_path_factory.mktemp("built"))[0]


def environment(python: str, directory: Path) -> Path:
    """Create an environment and return its folder of programs."""
    release.run([python, "-m", "venv", str(directory)], directory.parent)
    return directory / "bin"


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_each_required_package_works_in_its_oldest_version(
    wheel: Path, tmp_path: Path, version: str
) -> None:
    try:
        python = release.find_pythons([version])[version]
    except release.ReleaseError as error:
        pytest.skip(str(error))
    programs = environment(python, tmp_path / "venv")
    pip = [str(programs / "pip"), "install", "-q", "--only-binary", ":all:"]
    lock = OLDEST / f"python-{version}.lock"
    release.run([*pip, "--require-hashes", "-r", str(lock)], tmp_path)
    release.run([*pip, str(wheel)], tmp_path)
    listed = release.run([str(programs / "pip"), "list", "--format", "freeze"], tmp_path)
    installed = dict(line.split("==") for line in listed.splitlines())
    for name, oldest in locked(version).items():
        assert installed.get(name, oldest) == oldest
    said = release.run([str(programs / "python"), str(PROGRAM)], tmp_path)
    assert str(tmp_path) in said


@pytest.mark.nightly
@pytest.mark.slow
def test_the_lock_for_users_is_complete(wheel: Path, tmp_path: Path) -> None:
    programs = environment(sys.executable, tmp_path / "venv")
    pip = [str(programs / "pip"), "install", "-q"]
    release.run([*pip, "--require-hashes", "-r", str(runtime_lock.FILE)], tmp_path)
    release.run([*pip, "--no-deps", str(wheel)], tmp_path)
    assert "No broken requirements" in release.run([str(programs / "pip"), "check"], tmp_path)
    release.run([str(programs / "python"), str(PROGRAM)], tmp_path)


@pytest.mark.nightly
@pytest.mark.slow
def test_a_clone_is_installed_by_its_git_address(tmp_path: Path) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("the sources are not in a git repository")
    clone = tmp_path / "clone"
    # pip makes a partial clone, which git cannot make of a shallow one.
    release.run(["git", "clone", "-q", f"file://{ROOT}", str(clone)], tmp_path)
    programs = environment(sys.executable, tmp_path / "venv")
    pip = [str(programs / "pip"), "install", "-q"]
    release.run([*pip, f"git+file://{clone}"], tmp_path)
    assert str(tmp_path) in release.run([str(programs / "python"), str(PROGRAM)], tmp_path)

    isolated = environment(sys.executable, tmp_path / "isolated")
    pip = [str(isolated / "pip"), "install", "-q"]
    release.run([*pip, f"git+file://{clone}#subdirectory=pytest-barnabas"], tmp_path)
    (tmp_path / "test_topic.py").write_text("def test_topic(kafka_topic): assert kafka_topic\n")
    (tmp_path / "pytest.ini").write_text(f"[pytest]\nkafka_barnabas = {programs}/barnabas\n")
    assert "1 passed" in release.run([str(isolated / "pytest"), "test_topic.py"], tmp_path)
