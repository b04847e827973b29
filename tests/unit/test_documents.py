"""Documents name existing files, tests and commands; each capability names its test."""

from __future__ import annotations

import re
import subprocess
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
FILES = subprocess.run(
    ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
    cwd=ROOT,
    capture_output=True,
    text=True,
    check=True,
).stdout.splitlines()
DOCUMENTS = [name for name in FILES if name.endswith(".md")]
# A file or a folder in backquotes, or the target of a link.
NAMED = re.compile(r"`([\w./-]+(?:\.(?:py|md|toml|lock|java)|/))`|\]\(([^)#:]+)\)")
# Files of users, not of this repository.
ELSEWHERE = {"conftest.py", "pipeline.py"}
TEST = re.compile(r"`(?:tests/[\w./]+/)?test_\w+\.py`|`tests/\w+(?:/\w+)*`")
COMMAND = re.compile(r"`make ([a-z-]+)")


def is_there(name: str, document: str) -> bool:
    if (ROOT / document).parent.joinpath(name).exists():
        return True
    return any(
        each == name or each.endswith(f"/{name}") or f"/{name}" in f"/{each}" for each in FILES
    )


@pytest.mark.parametrize("document", DOCUMENTS)
def test_files_and_commands_named_in_documents_exist(document: str) -> None:
    text = (ROOT / document).read_text()
    named = {plain or link for plain, link in NAMED.findall(text)} - ELSEWHERE
    assert not sorted(name for name in named if not is_there(name, document))
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    assert set(COMMAND.findall(text)) <= targets


def test_the_readme_links_every_page() -> None:
    pages = {name for name in DOCUMENTS if name.startswith("docs/")}
    assert pages
    assert (
        sorted(pages - set(re.findall(r"\]\(([^)#]+)\)", (ROOT / "README.md").read_text()))) == []
    )


def test_ci_runs_the_tests_of_the_readme_and_then_the_rest_of_the_check() -> None:
    assert "\n$ make test " in (ROOT / "README.md").read_text()
    ci = re.findall(r"^make ([a-z-]+)", (ROOT / ".ci/run").read_text(), re.MULTILINE)
    assert ci == ["debian-packages", "test", "rest"]
    makefile = (ROOT / "Makefile").read_text()
    targets = dict(re.findall(r"^(test|check|rest):.*\n\t(.*)", makefile, re.MULTILINE))
    assert "--short" in targets["test"]
    assert "--rest" in targets["rest"]
    flaky = {name: int(line.split("--flaky-max ")[1].split()[0]) for name, line in targets.items()}
    assert flaky["test"] + flaky["rest"] == flaky["check"] == 3


def capabilities() -> list[str]:
    """The changelog's entries: what stands behind `- *Name.*` or `**Name**`, up to the next one."""
    text = (ROOT / "CHANGELOG.md").read_text()
    parts = [part.strip() for part in re.split(r"\n(?=- \*|\*\*)", text)[1:]]
    # What stands over a list names no tests itself.
    heads = {one for one, other in pairwise(parts) if one[0] == "*" and other[0] == "-"}
    return [part for part in parts if part not in heads]


@pytest.mark.parametrize(
    "entry", capabilities(), ids=lambda entry: entry.split("*")[1] or entry[2:20]
)
def test_a_capability_in_the_changelog_names_a_test(entry: str) -> None:
    assert TEST.search(entry), entry


class Row(NamedTuple):
    """A line of the table of KIPs."""

    numbers: list[int]
    state: str
    files: list[str]


def kips() -> list[Row]:
    table = (ROOT / "docs" / "kips.md").read_text()
    rows = re.findall(r"^\| ([0-9, ]+) \|[^|]*\|([^|]*)\|([^|]*)\|$", table, re.MULTILINE)
    return [
        Row([int(each) for each in numbers.split(",")], state.strip(), re.findall("`(.+?)`", where))
        for numbers, state, where in rows
    ]


def test_every_kip_has_one_row_with_state_and_files() -> None:
    rows = kips()
    numbers = [number for row in rows for number in row.numbers]
    assert sorted(numbers) == sorted(set(numbers))
    for row in rows:
        state = re.match("done|partly: |not", row.state)
        assert state is not None, row
        assert row.numbers == sorted(row.numbers), row
        # A missing file has no place.
        assert bool(row.files) is (state.group() != "not"), row
        assert not [name for name in row.files if not (ROOT / "src/barnabas" / name).exists()]


def test_every_kip_that_the_code_names_has_its_row() -> None:
    listed = {number for row in kips() for number in row.numbers}
    named: dict[int, str] = {}
    for path in sorted((ROOT / "src").rglob("*.py")):
        for number in re.findall(r"KIP-([0-9]+)", path.read_text()):
            named.setdefault(int(number), path.relative_to(ROOT).as_posix())
    assert named
    assert not {number: where for number, where in named.items() if number not in listed}


def test_every_planned_kip_has_its_row() -> None:
    """The KIPs that the project intends to implement, done or not."""
    wanted = {101, 227, 279, 320, 345, 392, 394, 405, 800, 814, 848, 853, 890, 932, 966, 1071}
    assert wanted <= {number for row in kips() for number in row.numbers}


def test_every_dependency_has_its_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *extras["spark"], *extras["delta"], *extras["iceberg"]]
    names = {re.split(r"[\[<>=]", each)[0] for each in wanted} - {"barnabas"}
    reasons = (ROOT / "ARCHITECTURE.md").read_text().partition("**Dependencies**")[2]
    assert not sorted(name for name in names if f"`{name}" not in reasons)
