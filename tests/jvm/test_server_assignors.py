"""Results of the server-side assignors compared with those of Apache Kafka's classes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from jvm.java import TIMEOUT_S, java_command
from unit.coordinator.group.assignors.server_assignor_cases import (
    ASSIGNORS,
    ServerAssignorCase,
    ServerGroupHistory,
)

SOURCE = Path(__file__).parent / "ServerAssignors.java"
GROUPS = 200
ASSIGNMENTS = 8


@pytest.fixture(scope="module")
def cases() -> list[ServerAssignorCase]:
    return [
        case
        for assignor in ASSIGNORS
        for seed in range(GROUPS)
        for case in ServerGroupHistory(assignor, seed).cases(ASSIGNMENTS)
    ]


@pytest.fixture(scope="module")
def java_results(cases: list[ServerAssignorCase]) -> list[dict[str, str]]:
    """Return the results of Java for each case, from one process."""
    done = subprocess.run(
        [*java_command("kafka", "OFF", source=SOURCE), "ServerAssignors"],
        input="".join(f"{line}\n" for case in cases for line in case.lines()),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    outputs = done.stdout.split("end\n")[:-1]
    assert len(outputs) == len(cases)
    return [dict(line.split(" ", 1) for line in output.splitlines()) for output in outputs]


@pytest.mark.parametrize("assignor", ASSIGNORS)
@pytest.mark.parametrize("is_homogeneous", [True, False])
def test_assignments_of_random_groups_equal_those_of_kafka(
    cases: list[ServerAssignorCase],
    java_results: list[dict[str, str]],
    assignor: str,
    is_homogeneous: bool,
) -> None:
    compared = 0
    for case, expected in zip(cases, java_results, strict=True):
        if "failed" in expected:
            # Kafka's `simple` assignor fails if members have partitions that are not assignable.
            assert case.given.assignable is not None
            case.ours()
        elif case.assignor == assignor and case.given.is_homogeneous is is_homogeneous:
            assert case.ours() == expected, "\n".join(case.lines())
            compared += 1
    assert compared > GROUPS * ASSIGNMENTS / 4
