"""Content of the packages, and the lock file."""

from __future__ import annotations

import re
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from archives import unpack
from tools import release, runtime_lock

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheel and the source archive."""
    return release.build(tmp_path_factory.mktemp("built"))


@pytest.fixture(scope="module")
def wheel(built: tuple[Path, Path]) -> zipfile.ZipFile:
    return zipfile.ZipFile(built[0])


def test_the_wheel_holds_all_packages_their_types_and_the_licence(wheel: zipfile.ZipFile) -> None:
    names = set(wheel.namelist())
    assert "barnabas/py.typed" in names
    assert "barnabas/server/process/node.py" in names
    assert "pyspark_barnabas/__init__.py" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert any(name.endswith("licenses/NOTICE") for name in names)
    assert {name.split("/")[0].split("-")[0] for name in names} == {
        "barnabas",
        "pyspark_barnabas",
        "pyspark_barnabas_delta",
        "pyspark_barnabas_iceberg",
    }


def test_both_archives_pass_the_release_checks(built: tuple[Path, Path]) -> None:
    wheel, source = built
    release.check_wheel(wheel)
    release.check_source(source)


def test_a_source_archive_with_files_of_a_run_is_refused(
    built: tuple[Path, Path], tmp_path: Path
) -> None:
    with tarfile.open(built[1]) as archive:
        unpack(archive, tmp_path)
    [top] = tmp_path.glob("barnabas-*")
    (top / "src" / "barnabas" / "left.pyc").write_bytes(b"")
    source = tmp_path / built[1].name
    with tarfile.open(source, "w:gz") as archive:
        archive.add(top, top.name)
    with pytest.raises(release.ReleaseError, match=r"does not need src/barnabas/left\.pyc"):
        release.check_source(source)


def test_no_page_and_no_message_says_that_the_package_is_on_an_index() -> None:
    """It is not published yet; README.md describes the installation. A release changes both."""
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "src").rglob("*.py")]
    said = re.compile(r"""pip install [^\n`]*["' ]barnabas(?:\[|["'`\s])""")
    assert not [page.name for page in pages if said.search(page.read_text())]


@pytest.mark.parametrize("launcher", ["java_home/bin/java", "python_home/bin/python3"])
def test_a_launcher_stays_executable_in_the_wheel(wheel: zipfile.ZipFile, launcher: str) -> None:
    mode = wheel.getinfo(f"barnabas/spark/{launcher}").external_attr >> 16
    assert mode & 0o111 == 0o111


def test_pytest_finds_the_plugin_of_the_wheel(wheel: zipfile.ZipFile) -> None:
    [name] = [name for name in wheel.namelist() if name.endswith("/entry_points.txt")]
    text = wheel.read(name).decode()
    assert "[pytest11]\nbarnabas = barnabas.testing.pytest_plugin\n" in text
    assert "barnabas/testing/pytest_plugin.py" in wheel.namelist()


@pytest.mark.parametrize(
    ("lock", "fewest"), [("requirements.lock", 31), ("requirements-runtime.lock", 12)]
)
def test_every_locked_package_has_hashes_and_no_address(lock: str, fewest: int) -> None:
    text = (ROOT / lock).read_text()
    assert "://" not in text
    entries = re.split(r"\n(?=[a-z])", text.strip())
    assert len(entries) >= fewest
    for entry in entries:
        assert re.match(r"[a-z0-9.-]+==\S+", entry), entry
        assert "--hash=sha256:" in entry, entry


def test_the_lock_for_users_is_the_part_that_runs_barnabas() -> None:
    written = runtime_lock.FILE.read_text()
    assert written == runtime_lock.runtime_lock(), "run python -m tools.runtime_lock"


def test_the_lock_names_every_dependency_of_the_project() -> None:
    locked = {
        line.split("==")[0]
        for line in (ROOT / "requirements.lock").read_text().splitlines()
        if "==" in line
    }
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = list(project["dependencies"])
    for extra in project["optional-dependencies"].values():
        wanted += extra
    names = {re.split(r"[\[<>=]", each)[0] for each in wanted} - {"barnabas"}
    assert names <= locked
