"""Repetitions of tests: `--flaky-max` after a run, and `make flaky` under load."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from repeating.alone import kind_of, run_alone
from repeating.failed_again import REPEATED_MAX
from repeating.under_load import busy_processes, main, repeat
from selection import nightly_unless

pytest_plugins = ["pytester"]

TESTS = Path(__file__).parents[1]
CONFTEST = """
from pathlib import Path
import pytest
from repeating import failed_again
from schedule import LongestFirst

def pytest_addoption(parser):
    failed_again.add_option(parser)

def pytest_configure(config):
    config.addinivalue_line("markers", "seeded: see pyproject.toml")
    failed_again.register(config)

@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    return LongestFirst(config, log)
"""
HEAD = """
import os, signal, threading
from pathlib import Path
import pytest

def is_first(name):
    path = Path(name)
    found = path.exists()
    path.touch()
    return not found
"""
UNLUCKY = """
def test_unlucky():
    assert not is_first("unlucky"), "lost a race"
"""
GOOD = """
def test_good():
    pass
"""

Run = Callable[..., pytest.RunResult]


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs pytest over the source of a test file: run(source, option, ...)."""
    for name in ("PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT", "CI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    pytester.makeconftest(CONFTEST)

    def run_source(source: str, *options: str) -> pytest.RunResult:
        pytester.makepyfile(test_it=HEAD + source)
        return pytester.runpytest_subprocess("-q", "--flaky-max=3", *options, timeout=300)

    return run_source


def last_lines(result: pytest.RunResult) -> list[str]:
    """Return the lines about repeated tests, and the counts of the last line."""
    marks = ("FLAKY", "FAILED", "ERROR", "too many", "no test was")
    lines = [line for line in result.outlines if line.startswith(marks)]
    return [*lines, re.sub(r" in [0-9.]+s.*", "", result.outlines[-1])]


@pytest.mark.parametrize("options", [(), ("-n", "2")], ids=["one process", "two workers"])
def test_a_test_that_passes_alone_is_flaky_and_named_at_the_end(
    run: Run, options: tuple[str, ...]
) -> None:
    result = run(GOOD + UNLUCKY, *options)
    assert last_lines(result) == [
        "FLAKY test_it.py::test_unlucky - AssertionError: lost a race",
        "1 passed, 1 flaky",
    ]
    assert result.ret == 0
    assert "    assert not is_first(" in result.stdout.str().replace(">   ", "    ")


def test_a_test_that_fails_again_fails_the_run(run: Run) -> None:
    result = run(UNLUCKY + "def test_bad():\n    assert Path('unlucky') == 1, 'wrong'")
    assert [line.split(" - ")[0] for line in last_lines(result)] == [
        "FAILED test_it.py::test_bad",
        "FAILED AGAIN test_it.py::test_bad",
        "FLAKY test_it.py::test_unlucky",
        "1 failed, 1 flaky",
    ]
    assert result.ret == 1


SKIPPED_LATER = """
def test_it():
    assert not is_first("a")
    pytest.skip("no")
"""
SKIPPED_BESIDE_ANOTHER = """
@pytest.fixture(scope="module")
def server():
    assert not is_first("a")

def test_it(server):
    pass

def test_other(server):
    pytest.skip("no")
"""
SKIPPED_BEFORE_ITS_TEARDOWN = """
@pytest.fixture
def left_open():
    yield
    assert not is_first("a")

def test_it(left_open):
    if Path("a").exists():
        pytest.skip("no")

def test_other():
    pass
"""


@pytest.mark.parametrize(
    ("source", "error"),
    [
        (SKIPPED_LATER, " - all tests were skipped"),
        (SKIPPED_BESIDE_ANOTHER, " and 1 more - 1 of 2 tests passed"),
        (SKIPPED_BEFORE_ITS_TEARDOWN, " - 1 of 2 tests passed"),
    ],
)
def test_a_test_that_does_not_run_the_second_time_has_failed(
    run: Run, source: str, error: str
) -> None:
    result = run(source)
    again = [line for line in last_lines(result) if line.startswith("FAILED AGAIN")]
    assert again == [f"FAILED AGAIN test_it.py::test_it{error}"]
    assert result.ret == 1


@pytest.mark.parametrize(("count", "status"), [(3, 0), (4, 1)])
def test_a_run_with_too_many_flaky_tests_fails(run: Run, count: int, status: int) -> None:
    result = run(
        f"@pytest.mark.parametrize('number', range({count}))\n"
        "def test_unlucky(number):\n    assert not is_first(f'{number}')"
    )
    assert result.outlines[-1].startswith(f"{count} flaky")
    assert ("too many flaky tests: 4, at most 3 may be" in result.outlines) is bool(status)
    assert result.ret == status


def test_no_test_is_repeated_after_many_failures(run: Run) -> None:
    count = REPEATED_MAX + 1
    result = run(
        f"@pytest.mark.parametrize('number', range({count}))\n"
        "def test_unlucky(number):\n    assert not is_first(f'{number}')"
    )
    assert last_lines(result)[count:] == [
        f"no test was repeated: more than {REPEATED_MAX} failures",
        f"{count} failed",
    ]
    assert result.ret == 1


SEEDED = """
@pytest.mark.seeded
def test_seeded():
    assert not is_first("seeded")
"""
PROPERTY = """
from hypothesis import given, settings, strategies

@settings(database=None)
@given(strategies.none())
def test_property(nothing):
    assert Path("never").exists()
"""


def test_tests_of_seeds_are_not_repeated(run: Run) -> None:
    result = run(SEEDED + PROPERTY)
    assert [line.split(" - ")[0] for line in last_lines(result)] == [
        "FAILED test_it.py::test_seeded",
        "FAILED test_it.py::test_property",
        "2 failed",
    ]
    assert result.ret == 1


CRASH = "    os.kill(os.getpid(), signal.SIGKILL)\n"


def test_a_crash_in_a_test_of_a_seed_is_not_repeated(run: Run) -> None:
    crash = f"@pytest.mark.seeded\ndef test_crash():\n  if is_first('a'):\n{CRASH}"
    result = run(GOOD + crash, "-n", "2")
    assert last_lines(result)[-1] == "1 failed, 1 passed"
    assert result.ret == 1


@pytest.mark.parametrize(
    ("condition", "counts", "status"),
    [("is_first('a')", "2 passed, 1 flaky", 0), ("True", "1 failed, 2 passed", 1)],
    ids=["once", "always"],
)
def test_a_test_that_ends_its_worker_is_repeated_and_the_others_run(
    run: Run, condition: str, counts: str, status: int
) -> None:
    crash = f"\ndef test_crash():\n  if {condition}:\n{CRASH}"
    result = run(GOOD + crash + "\ndef test_after():\n    pass", "-n", "2")
    assert last_lines(result)[-1] == counts
    assert result.ret == status
    assert "test_crash - worker 'gw" in result.stdout.str()
    assert ("pytest ended with status -9" in result.stdout.str()) is bool(status)


@pytest.mark.parametrize("method", nightly_unless("signal".__eq__, ["signal", "thread"]))
def test_a_test_that_exceeds_its_time_is_repeated(run: Run, method: str) -> None:
    result = run(
        "def test_slow():\n    if is_first('a'):\n        threading.Event().wait()",
        *("-n", "1", "--timeout=2", f"--timeout-method={method}"),
    )
    assert last_lines(result)[-1] == "1 flaky"
    assert result.ret == 0


MODULE_FIXTURE = """
@pytest.fixture(scope="module")
def server():
    assert not is_first("server"), "did not start"

@pytest.mark.parametrize("number", range(12))
def test_it(server, number):
    pass
"""


@pytest.mark.parametrize(
    "options", nightly_unless(bool, [(), ("-n", "2")]), ids=["one process", "two workers"]
)
def test_a_fixture_of_a_module_that_fails_is_one_failure(
    run: Run, options: tuple[str, ...]
) -> None:
    result = run(MODULE_FIXTURE, *options)
    assert last_lines(result) == [
        "FLAKY test_it.py::test_it[0] and 11 more - AssertionError: did not start",
        "11 passed, 1 flaky",
    ]
    assert result.ret == 0


LEFT_OPEN = """
@pytest.fixture(scope="module")
def left_open():
    names = []
    yield names
    assert not names

def test_bad(left_open):
    left_open.append("a")

def test_good(left_open):
    pass
"""


def test_all_tests_of_the_file_are_repeated_after_a_failed_teardown(
    run: Run, pytester: pytest.Pytester
) -> None:
    pytester.makepyfile(test_later=GOOD)
    result = run(LEFT_OPEN)
    assert [line.split(" - ")[0] for line in last_lines(result)] == [
        "ERROR test_it.py::test_good",
        "FAILED AGAIN test_it.py::test_good",
        "3 passed, 1 error",
    ]
    assert result.ret == 1


@pytest.mark.parametrize(
    "options", nightly_unless(bool, [(), ("-n", "1")]), ids=["one process", "one worker"]
)
def test_a_failed_teardown_of_the_session_is_not_repeated(
    run: Run, pytester: pytest.Pytester, options: tuple[str, ...]
) -> None:
    pytester.makeconftest(
        f"{CONFTEST}{LEFT_OPEN.replace('module', 'session').split('def test')[0]}"
    )
    pytester.makepyfile(test_before="def test_bad(left_open):\n    left_open.append('a')")
    result = run("def test_good(left_open):\n    pass", *options)
    assert [line.split(" - ")[0] for line in last_lines(result)] == [
        "ERROR test_it.py::test_good",
        "2 passed, 1 error",
    ]
    assert result.ret == 1


@pytest.mark.parametrize(
    "options", nightly_unless(bool, [(), ("-n", "2")]), ids=["one process", "two workers"]
)
def test_an_error_of_collection_fails_the_run(
    run: Run, pytester: pytest.Pytester, options: tuple[str, ...]
) -> None:
    pytester.makepyfile(test_broken="import nothing_of_this_name")
    result = run(UNLUCKY, "--continue-on-collection-errors", *options)
    assert "FLAKY" not in result.stdout.str()
    assert result.ret != 0
    assert "no test was repeated: not all tests were run" in result.outlines
    assert run(UNLUCKY, *options).ret != 0


def test_a_run_that_ends_at_its_first_failure_fails(run: Run) -> None:
    result = run(UNLUCKY + GOOD, "-x")
    assert last_lines(result)[1:] == ["no test was repeated: not all tests were run", "1 failed"]
    assert result.ret == 1


@pytest.mark.parametrize(
    ("end", "status"), [("raise KeyboardInterrupt", 2), ("pytest.exit('full', returncode=1)", 1)]
)
def test_an_interrupted_run_fails(run: Run, end: str, status: int) -> None:
    result = run(f"{UNLUCKY}def test_end():\n    {end}")
    assert "FLAKY" not in result.stdout.str()
    assert result.ret == status


def test_errors_that_differ_in_numbers_are_of_one_kind() -> None:
    assert kind_of("no answer from 127.0.0.1:41234 in 2.5 s") == kind_of(
        "no answer from 127.0.0.1:50001 in 31.75 s"
    )
    assert kind_of("lost 3 records") != kind_of("lost 3 offsets")


def test_repeated_runs_under_load_show_the_first_error_of_each_kind(
    pytester: pytest.Pytester, capsys: pytest.CaptureFixture[str]
) -> None:
    pytester.makepyfile(
        test_it=HEAD
        + """
def test_it():
    if not is_first("a") and is_first("b"):
        pytest.fail("no leader after 3 s")
    if not is_first("c"):
        pytest.fail("lost 1 record" if is_first("d") else "lost 2 record")
"""
    )
    assert repeat(["test_it.py"], 4, busy=1, directory=pytester.path) == 3
    assert capsys.readouterr().out.splitlines() == [
        "run 2: test_it::test_it: Failed: no leader after 3 s",
        "run 3: test_it::test_it: Failed: lost 1 record",
        "3 of 4 runs failed",
        "2 of 4: test_it::test_it: Failed: lost 1 record",
        "1 of 4: test_it::test_it: Failed: no leader after 3 s",
    ]


def test_runs_under_load_need_a_number_of_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["under_load", "--times", "0", "test_it.py"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "--times must be at least 1" in capsys.readouterr().err


def test_a_test_alone_has_no_options_of_the_environment(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_ADDOPTS", "--no-such-option")
    pytester.makepyfile(test_it=GOOD)
    assert not run_alone(["test_it.py"], pytester.path).errors


def test_busy_processes_end_with_the_runs() -> None:
    with busy_processes(2) as pids:
        assert all(psutil.pid_exists(pid) for pid in pids)
    assert not any(psutil.pid_exists(pid) for pid in pids)


@pytest.mark.parametrize("source", ["def nothing", "import os\nos.abort()"])
def test_a_run_without_a_test_has_an_error(pytester: pytest.Pytester, source: str) -> None:
    pytester.makepyfile(test_it=source)
    assert run_alone(["test_it.py"], pytester.path).errors


def test_a_run_that_does_not_end_has_an_error(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it="import threading\nthreading.Event().wait()")
    outcome = run_alone(["test_it.py"], pytester.path, timeout_s=3)
    assert outcome.errors == {"pytest": "pytest did not end within 3 s"}
