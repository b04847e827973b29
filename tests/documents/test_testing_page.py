"""The recipes of docs/testing.md run as they are written, in each of their languages."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest
import yaml

from conformance.client_packages import HERE as PACKAGES, node_package
from documents.blocks import sections_of
from jvm.maven import need, one_maven

PAGE = sections_of("docs/testing.md")
# A limit for what hangs; Maven and Go fetch their dependencies the first time.
TIMEOUT_S = 500
PLUGIN = "barnabas.testing.pytest_plugin"


def blocks(kind: str, heading: str | None = None) -> list[str]:
    """The blocks of a kind that another test has to check, of the page or below this heading."""
    return [
        each.text
        for section in PAGE
        for each in section.blocks
        if each.checked_by and each.kind == kind and heading in (None, each.heading)
    ]


def block(kind: str, heading: str | None = None) -> str:
    [found] = blocks(kind, heading)
    return found


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """With `barnabas` on the path, and a directory for temporary files that has to be empty."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    programs = Path(sys.executable).parent
    assert (programs / "barnabas").exists()
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    return {**own, "PATH": f"{programs}:{own['PATH']}", "TMPDIR": str(temporary)}


@pytest.fixture
def run(tmp_path: Path, environment: dict[str, str]):
    """Runs a command in a directory; it must succeed and leave nothing in TMPDIR."""

    def run_command(directory: Path, *words: str) -> str:
        done = subprocess.run(
            words, cwd=directory, env=environment, capture_output=True, text=True,
            timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
        said = done.stdout + done.stderr
        assert done.returncode == 0, said
        left = Path(environment["TMPDIR"]).glob("barnabas-*")
        assert not list(left)
        return said

    return run_command


@pytest.fixture
def project(tmp_path: Path) -> Path:
    directory = tmp_path / "project"
    directory.mkdir()
    return directory


def run_pytest(run, directory: Path, *words: str) -> str:
    options = ["-p", "no:cacheprovider", "-p", "no:hypothesispytest"]
    # A checkout that was installed before the plugin was there has no entry point for it.
    if not [each for each in entry_points(group="pytest11") if each.value == PLUGIN]:
        options += ["-p", PLUGIN]
    return run(directory, "pytest", "-v", *options, *words)


@pytest.mark.parametrize(
    ("title", "passed"),
    [("pytest", 1), ("A schema registry", 1), ("Faults", 3), ("asyncio", 1)],
    ids=str,
)
def test_python(run, project: Path, title: str, passed: int) -> None:
    (project / "test_page.py").write_text(blocks("python", title)[0])
    assert f"{passed} passed" in run_pytest(run, project)


@pytest.mark.nightly
def test_options_and_overrides(run, project: Path) -> None:
    (project / "pytest.ini").write_text(block("ini", "pytest"))
    (project / "test_page.py").write_text(
        blocks("python", "pytest")[0]
        + "\n\ndef test_settings(kafka_settings, kafka_broker):\n"
        + '    print("settings", kafka_broker.settings)\n'
    )
    said = run_pytest(run, project, "-s")
    assert "'num.partitions': '3', 'message.max.bytes': '2000000'" in said
    (project / "conftest.py").write_text(blocks("python", "pytest")[1])
    said = run_pytest(run, project, "-s")
    assert "'auto.create.topics.enable': 'false'" in said
    assert "num.partitions" not in said


def test_shell(run, project: Path) -> None:
    # The broker ends soon after the shell, with which it was told to end.
    script = block("sh") + "kill $!\nwait $!\n"
    assert run(project, "bash", "-e", "-c", script).endswith("one order\n")


def test_node(run, project: Path) -> None:
    modules = node_package("kafkajs") / "node_modules"
    (project / "node_modules").symlink_to(modules)
    (project / "orders.test.mjs").write_text(block("js"))
    assert re.search(r"pass 1\b", run(project, "node", "--test"))


def test_java(run, project: Path) -> None:
    need("java", "mvn")
    (project / "pom.xml").write_text(block("xml"))
    source = project / "src" / "test" / "java" / "OrdersTest.java"
    source.parent.mkdir(parents=True)
    source.write_text(block("java"))
    with one_maven():
        said = run(project, "mvn", "-B", "test")
    assert "Tests run: 1, Failures: 0, Errors: 0, Skipped: 0" in said


def test_go(run, project: Path) -> None:
    if shutil.which("go") is None:
        pytest.skip("go not found: the recipe needs Go 1.24 or later")
    for name in ("go.mod", "go.sum"):
        shutil.copy(PACKAGES / "franz-go" / name, project)
    (project / "orders_test.go").write_text(block("go"))
    assert re.search(r"^ok ", run(project, "go", "test", "-count=1", "./..."), re.MULTILINE)


@pytest.mark.nightly
def test_users_and_rights(run, project: Path) -> None:
    (project / "pytest.ini").write_text(block("ini", "TLS, users and rights"))
    (project / "test_page.py").write_text(block("python", "TLS, users and rights"))
    assert "4 passed" in run_pytest(run, project)


def test_the_command_of_another_environment(run, project: Path) -> None:
    command = Path(sys.executable).parent / "barnabas"
    text = block("ini", "Pins of your own").replace("/opt/barnabas/bin/barnabas", str(command))
    (project / "pytest.ini").write_text(text)
    (project / "test_page.py").write_text(blocks("python", "pytest")[0])
    assert "1 passed" in run_pytest(run, project)


def test_github_actions(run, project: Path) -> None:
    """The workflow can be read, and the script of its last step runs."""
    workflow = yaml.safe_load(block("yaml", "GitHub Actions"))
    [job] = workflow["jobs"].values()
    assert {"uses", "run"} == {
        key for step in job["steps"] for key in ("uses", "run") if key in step
    }
    script = job["steps"][-1]["run"]
    others = project / "run-other-tests.sh"
    others.write_text('#!/bin/sh\nbarnabas topics list -b "$KAFKA_BOOTSTRAP"\n')
    others.chmod(0o755)
    # As the runner of such workflows calls it.
    assert "orders" in run(project, "bash", "-e", "-c", script + "\nwait $!")


def test_gitlab(run, project: Path) -> None:
    job = yaml.safe_load(block("yaml", "GitLab CI"))["tests"]
    (project / "test_page.py").write_text(blocks("python", "pytest")[0])
    [script] = job["script"]
    run(project, "bash", "-e", "-c", script)
    report = project / job["artifacts"]["reports"]["junit"]
    assert 'tests="1"' in report.read_text()


def test_pre_commit(run, project: Path) -> None:
    [repository] = yaml.safe_load(block("yaml", "pre-commit"))["repos"]
    [hook] = repository["hooks"]
    assert {"id", "name", "entry", "language"} <= set(hook)
    (project / "pytest.ini").write_text("[pytest]\nmarkers = kafka: needs a broker\n")
    (project / "test_page.py").write_text(
        "import pytest\n\npytestmark = pytest.mark.kafka\n" + blocks("python", "pytest")[0]
    )
    assert "1 passed" in run(project, "bash", "-e", "-c", hook["entry"])
