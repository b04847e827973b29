"""The task assignor and configured topologies compared with those of Apache Kafka's classes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from jvm.java import TIMEOUT_S, java_command
from unit.coordinator.group.assignors.task_assignor_cases import (
    StreamsGroupHistory,
    TaskAssignorCase,
)
from unit.coordinator.group.streams.topology_cases import (
    TopologyCase,
    facts,
    topology_case,
)

SOURCE = Path(__file__).parent / "StreamsGroups.java"
GROUPS = 150
ASSIGNMENTS = 10
TOPOLOGIES = 1_500


@pytest.fixture(scope="module")
def assignments() -> list[TaskAssignorCase]:
    return [case for seed in range(GROUPS) for case in StreamsGroupHistory(seed).cases(ASSIGNMENTS)]


@pytest.fixture(scope="module")
def topologies() -> list[TopologyCase]:
    return [topology_case(seed) for seed in range(TOPOLOGIES)]


@pytest.fixture(scope="module")
def java_results(
    assignments: list[TaskAssignorCase], topologies: list[TopologyCase]
) -> list[list[str]]:
    """Return the lines of Java for each case, from one process."""
    cases: list[TaskAssignorCase | TopologyCase] = [*assignments, *topologies]
    done = subprocess.run(
        [*java_command("kafka", "OFF", source=SOURCE), "StreamsGroups"],
        input="".join(f"{line}\n" for case in cases for line in case.lines()),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = [java_result.splitlines() for java_result in done.stdout.split("end\n")[:-1]]
    assert len(found) == len(cases)
    return found


def test_tasks_of_random_groups_equal_those_of_kafka(
    assignments: list[TaskAssignorCase], java_results: list[list[str]]
) -> None:
    for case, java_result in zip(assignments, java_results, strict=False):
        their = dict(line.split(" ", 1) for line in java_result)
        assert case.ours() == their, "\n".join(case.lines())


def test_random_topologies_are_configured_as_by_kafka(
    topologies: list[TopologyCase], java_results: list[list[str]]
) -> None:
    seen: dict[str, int] = {}
    for case, java_result in zip(topologies, java_results[-len(topologies) :], strict=True):
        assert facts(case.ours()) == facts(java_result), "\n".join(case.lines())
        kinds = {" ".join(each.split()[:2]) for each in java_result if each.startswith("problem")}
        kind = "failed" if java_result[0].startswith("failed") else "".join(kinds) or "ready"
        seen[kind] = seen.get(kind, 0) + 1
    assert len(seen) == 5, seen
    assert all(count > TOPOLOGIES / 100 for count in seen.values()), seen
