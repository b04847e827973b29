"""The pytest plugin in an environment with pytest and old pins, without Barnabas's packages."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from conformance.client_packages import python_package
from waiting import PATIENCE_S

ROOT = Path(__file__).parents[2]
PROJECT = ROOT / "pytest-barnabas"
SUITE = Path(__file__).parent / "programs" / "isolated_suite.py"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("wheel")
    words = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)]
    subprocess.run(words, cwd=PROJECT, check=True, capture_output=True)
    [built] = directory.glob("*.whl")
    return built


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """An interpreter of an environment without packages."""
    words = [sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")]
    subprocess.run(words, check=True)
    return tmp_path / "venv" / "bin" / "python"


def test_the_wheel_imports_nothing_but_pytest_and_the_standard_library(wheel: Path) -> None:
    known = sys.stdlib_module_names | {"pytest"}
    archive = zipfile.ZipFile(wheel)
    modules = [name for name in archive.namelist() if name.endswith(".py")]
    assert "pytest_barnabas/pytest_plugin.py" in modules
    for name in modules:
        for node in ast.walk(ast.parse(archive.read(name))):
            if isinstance(node, ast.Import):
                assert {each.name.split(".")[0] for each in node.names} <= known, name
            elif isinstance(node, ast.ImportFrom) and not node.level:
                # `relays` uses a faster loop if Barnabas is installed too.
                is_faster_loop = node.module == "barnabas.runtime.loop"
                assert is_faster_loop or (node.module or "").split(".")[0] in known, name
            elif isinstance(node, ast.ImportFrom) and node.module != "broker_on_loop":
                assert f"pytest_barnabas/{node.module}.py" in modules, name


@pytest.mark.slow
def test_a_suite_with_old_pins_runs_on_a_barnabas_of_another_environment(
    wheel: Path, python: Path, tmp_path: Path
) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "plugin")
    suite = tmp_path / "suite"
    suite.mkdir()
    (suite / "test_suite.py").write_text(SUITE.read_text())
    (suite / "pytest.ini").write_text(
        "[pytest]\n"
        f"kafka_barnabas = {Path(sys.executable).parent / 'barnabas'}\n"
        "kafka_users =\n    ann: produce orders\n    bob: produce other\n"
    )
    packages = [str(python_package("old_pins")), str(tmp_path / "plugin")]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    done = subprocess.run(
        [str(python), "-m", "pytest", "-p", "no:cacheprovider", "-rA"],
        cwd=suite,
        env={**kept, "PYTHONPATH": os.pathsep.join(packages)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S * 4,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 passed" in done.stdout


def test_both_projects_have_one_version_and_one_name_of_the_plugin() -> None:
    """pytest loads only one of two plugins with the same name."""
    own = tomllib.loads((PROJECT / "pyproject.toml").read_text())
    main = tomllib.loads((ROOT / "pyproject.toml").read_text())
    names = [list(each["project"]["entry-points"]["pytest11"]) for each in (own, main)]
    assert names == [["barnabas"], ["barnabas"]]
    paths = [each["tool"]["hatch"]["version"]["path"] for each in (own, main)]
    assert (PROJECT / paths[0]).resolve() == (ROOT / paths[1]).resolve()
