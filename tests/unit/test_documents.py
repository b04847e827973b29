"""Documents name existing files, tests and commands; each capability names its test."""

from __future__ import annotations

import re
import subprocess
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from documents.blocks import sections_of
from page_anchors import anchors

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
LAB = "docs/lab/README.md"
RESULT_LINES_MAX = 220
CELL_LENGTH_MAX = 100
COMMAND = re.compile(r"`make ([a-z-]+)")
# Pages that a newcomer reads one after the other, with the same broker at 127.0.0.1:9092.
PAGES_WITH_ONE_BROKER = ["README.md"] + [
    f"docs/{name}.md"
    for name in [
        "start",
        "migrate-client",
        "schemas",
        "share-consumer",
        "spark",
        "tables",
        "pipelines",
    ]
]
# Where a program or a command of a page writes or reads a topic.
TOPIC_USE = re.compile(
    r"barnabas (?:produce|consume|topics create) ([a-z][\w.-]*)|--topic ([a-z][\w.-]*)"
    r'|(?:\.send|NewTopic|Consumer)\(\s*"([\w.-]+)"|option\("(?:topic|subscribe)", "([\w.-]+)"\)'
)


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


@pytest.mark.parametrize(
    ("index", "pages"), [("README.md", r"docs/([\w-]+|lab/README)\.md"), (LAB, r"docs/lab/.+\.md")]
)
def test_an_index_links_every_page(index: str, pages: str) -> None:
    wanted = {name for name in DOCUMENTS if re.fullmatch(pages, name) and name != index}
    links = re.findall(r"\]\(([^)#]+)\)", (ROOT / index).read_text())
    assert wanted
    assert not sorted(wanted - {(Path(index).parent / link).as_posix() for link in links})


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_into_pages_name_existing_headings(document: str) -> None:
    path = ROOT / document
    for page, anchor in re.findall(r"\]\(((?:[\w./-]+\.md)?)#([^)]+)\)", path.read_text()):
        target = path.parent / page if page else path
        assert anchor in anchors(target.read_text()), f"{page}#{anchor}"


def test_pages_that_are_read_with_one_broker_share_no_topic() -> None:
    pages: dict[str, set[str]] = {}
    for page in PAGES_WITH_ONE_BROKER:
        blocks = [block for section in sections_of(page) for block in section.blocks]
        for match in TOPIC_USE.finditer(
            "\n".join(each.text for each in blocks if not each.not_run)
        ):
            pages.setdefault(match[match.lastindex or 0], set()).add(page)
    assert {"greetings", "orders", "avro-flights", "numbers", "checks", "departures"} <= set(pages)
    assert {topic: each for topic, each in pages.items() if len(each) > 1} == {}


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


def test_the_architecture_names_every_package() -> None:
    text = re.sub(
        r"^```.*?^```$", "", (ROOT / "ARCHITECTURE.md").read_text(), flags=re.MULTILINE | re.DOTALL
    )
    tree = text.partition("## The tree")[2].partition("## How a request flows")[0]
    named = {span.strip("/") for span in re.findall("`([^`]+)`", tree)}
    source = ROOT / "src" / "barnabas"
    packages = {path.parent.relative_to(source).as_posix() for path in source.rglob("*.py")} - {"."}
    assert packages
    # `checks/` names each package whose path ends with it.
    unnamed = {path for path in packages if not endings(path) & named}
    assert not sorted(unnamed)


def endings(path: str) -> set[str]:
    """Return the ends of a path that begin with a folder."""
    parts = path.split("/")
    return {"/".join(parts[index:]) for index in range(len(parts))}


def test_the_architecture_has_less_than_600_lines() -> None:
    assert len((ROOT / "ARCHITECTURE.md").read_text().splitlines()) < 600


@pytest.mark.parametrize("page", ["docs/performance.md", "docs/reliability.md"])
def test_a_page_of_current_results_is_short(page: str) -> None:
    """Older results and methods belong to docs/lab."""
    lines = (ROOT / page).read_text().splitlines()
    assert len(lines) <= RESULT_LINES_MAX
    cells = [cell.strip() for line in lines if line[:1] == "|" for cell in line.split("|")]
    assert cells
    assert not [cell for cell in cells if len(cell) > CELL_LENGTH_MAX]
