"""How `pytest -n` shares the tests out, and what `pytest --short` leaves out."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import schedule
import selection
from schedule import DurationRecorder, early_first, longest_first, read_durations, unit_of


def items(*node_ids: str) -> list[Any]:
    return [SimpleNamespace(nodeid=node_id) for node_id in node_ids]


def test_long_files_come_first_and_keep_the_order_of_their_tests() -> None:
    tests = items("tests/a.py::one", "tests/b.py::two", "tests/c.py::three", "tests/b.py::first")
    longest_first(tests, {"tests/b.py": 5.0, "tests/c.py": 9.0})
    assert [test.nodeid[-5:].lstrip(":") for test in tests] == ["three", "two", "first", "one"]


def test_mutated_requests_come_before_other_comparisons() -> None:
    (early,) = schedule._EARLY
    assert (selection.TESTS.parent / early).exists()
    tests = items("tests/differential/test_differential.py::one", f"{early}::two")
    early_first(tests)
    longest_first(tests, {})
    assert [test.nodeid[-3:] for test in tests] == ["two", "one"]


def test_files_with_a_common_broker_are_one_unit_of_work() -> None:
    assert unit_of("tests/spark/test_read.py::a") == unit_of("tests/spark/test_write.py::b")
    assert unit_of("tests/spark/test_java.py::a") == "tests/spark/test_java.py"
    assert unit_of("tests/conformance/test_cli_why.py::a[x::y]") == "three brokers"
    assert unit_of("tests/unit/test_tidy.py::a[x::y]") == "tests/unit/test_tidy.py"


@pytest.mark.parametrize("file", sorted(schedule._ALONE))
def test_files_with_brokers_of_their_own_exist(file: str) -> None:
    assert (selection.TESTS.parent / file).exists()


@pytest.fixture
def durations(tmp_path: Path) -> Path:
    """The path of the table, in a project with three test files."""
    (tmp_path / "tests").mkdir()
    for name in ("a.py", "b.py", "c.py"):
        (tmp_path / name).touch()
    return tmp_path / "tests" / "durations.txt"


def test_stored_durations_are_read_back(durations: Path) -> None:
    recorder = DurationRecorder(durations)
    for node_id, seconds in (("a.py::x", 3.0), ("b.py::x", 20.0), ("a.py::y", 2.1), ("c.py", 1.0)):
        report: Any = SimpleNamespace(nodeid=node_id, duration=seconds)
        recorder.pytest_runtest_logreport(report)
    recorder.pytest_sessionfinish()
    assert durations.read_text() == "20 b.py\n5 a.py\n"
    assert read_durations(durations) == {"a.py": 5.0, "b.py": 20.0}


def test_files_that_were_not_run_keep_their_durations_while_they_exist(durations: Path) -> None:
    durations.write_text("9 a.py\n7 b.py\n3 removed.py\n")
    recorder = DurationRecorder(durations)
    report: Any = SimpleNamespace(nodeid="b.py::x", duration=12.0)
    recorder.pytest_runtest_logreport(report)
    recorder.pytest_sessionfinish()
    assert durations.read_text() == "12 b.py\n9 a.py\n"


@pytest.mark.parametrize("name", [*selection.SHORT_FOLDERS, *selection.SHORT_FILES])
def test_the_short_selection_names_what_exists(name: str) -> None:
    assert (selection.TESTS / name).exists()
    assert selection.is_short(selection.TESTS / name)


def test_the_rest_does_not_collect_the_folders_of_the_short_selection() -> None:
    rest = SimpleNamespace(short=False, rest=True)
    for folder in selection.SHORT_FOLDERS:
        assert not selection.is_collected(rest, selection.TESTS / folder)
    # Some tests of these files use Apache Kafka.
    for file in selection.SHORT_FILES:
        assert selection.is_collected(rest, selection.TESTS / file)
    assert selection.is_collected(rest, selection.TESTS)


@pytest.mark.parametrize("folder", ["unit", "conformance", "jvm"])
@pytest.mark.parametrize("broker", ["barnabas", "kafka-3.9"])
def test_the_short_selection_and_the_rest_are_all_tests(folder: str, broker: str) -> None:
    item = item_with(broker, folder)
    all_tests, short, rest = (
        selection.is_chosen(SimpleNamespace(short=short, rest=rest, nightly=False), item)
        for short, rest in ((False, False), (True, False), (False, True))
    )
    assert all_tests
    assert short is not rest


def test_the_short_selection_says_what_it_leaves_out() -> None:
    assert any("tests/differential: all" in line for line in selection.left_out())
    assert not selection.is_short(selection.TESTS / "jvm" / "test_connect.py")
    assert not any("tests/unit" in line for line in selection.left_out())


def item_with(parameter: object, folder: str = "conformance") -> Any:
    return SimpleNamespace(
        path=selection.TESTS / folder / "test_any.py",
        callspec=SimpleNamespace(params={"any": parameter}),
        get_closest_marker=lambda _: None,
    )


@pytest.mark.parametrize(
    "parameter", ["kafka", "kafka-3.9", "kafka-classic", "kafka consumer", ("kafka", 2)]
)
def test_tests_with_apache_kafka_as_their_broker_are_recognized(parameter: object) -> None:
    assert selection.needs_kafka(item_with(parameter))


class Incomparable:
    """A parameter that may only be compared with others of its kind."""

    __hash__ = None

    def __eq__(self, other: object) -> bool:
        pytest.fail(f"compared with {other}")


@pytest.mark.parametrize(
    "parameter", ["barnabas-classic", "kafka-features", "librdkafka", (), 1, Incomparable()]
)
def test_other_parameters_are_not_apache_kafka(parameter: object) -> None:
    assert not selection.needs_kafka(item_with(parameter))
    assert not selection.is_nightly(item_with(parameter))


def test_only_the_plain_kafka_half_of_tests_is_left_to_the_nightly_run() -> None:
    assert selection.is_nightly(item_with("kafka"))
    assert not selection.is_nightly(item_with("kafka-3.9"))
    assert not selection.is_nightly(item_with(("kafka", 2)))


def test_a_parameter_of_other_folders_is_not_a_broker() -> None:
    assert not selection.needs_kafka(item_with("kafka", "unit"))


def test_the_table_of_durations_names_files_that_exist() -> None:
    missing = [name for name in read_durations() if not (selection.TESTS.parent / name).is_file()]
    assert not missing


@pytest.mark.parametrize(
    ("text", "is_nightly"),
    [
        ("pytestmark = [pytest.mark.nightly, pytest.mark.slow]\ndef test_a(): ...", True),
        ("@pytest.mark.nightly\ndef test_a(): ...", True),
        ("@pytest.mark.nightly\ndef test_a(): ...\ndef test_b(): ...", False),
        ("pytestmark = pytest.mark.slow\ndef test_a(): ...", False),
        ("TestMachine = Machine.TestCase", False),
    ],
)
def test_files_of_which_only_the_nightly_run_has_tests_are_recognized(
    text: str, is_nightly: bool, tmp_path: Path
) -> None:
    path = tmp_path / "test_it.py"
    path.write_text(text)
    assert selection.is_only_nightly(path) is is_nightly


def test_the_tests_of_make_check_take_no_longer_than_their_limit() -> None:
    seconds = {
        file: taken
        for file, taken in read_durations().items()
        if not selection.is_only_nightly(selection.TESTS.parent / file)
    }
    longest = sorted(seconds, key=lambda file: -seconds[file])[:10]
    total = sum(seconds.values())
    assert total <= selection.CHECK_S_MAX, (
        f"the files of make check take {total:.0f} s, more than {selection.CHECK_S_MAX}: leave "
        "variants to the nightly run (nightly_unless and the mark nightly in tests/selection.py) "
        "or make tests cheaper; then measure the changed files (pytest -n 3 --store-durations). "
        f"The longest: {', '.join(f'{file} {seconds[file]:.0f} s' for file in longest)}"
    )
