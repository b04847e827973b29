"""Results of the server-side assignors compared with those of Apache Kafka's classes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from jvm.java import TIMEOUT_S, java_command
from unit.coordinator.group.consumer.assignors.server_assignor_cases import (
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
def theirs(cases: list[ServerAssignorCase]) -> list[dict[str, str]]:
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
    answers = done.stdout.split("end\n")[:-1]
    assert len(answers) == len(cases)
    return [dict(line.split(" ", 1) for line in answer.splitlines()) for answer in answers]


@pytest.mark.parametrize("assignor", ASSIGNORS)
@pytest.mark.parametrize("is_homogeneous", [True, False])
def test_assignments_of_random_groups_equal_those_of_kafka(
    cases: list[ServerAssignorCase],
    theirs: list[dict[str, str]],
    assignor: str,
    is_homogeneous: bool,
) -> None:
    compared = 0
    for case, their in zip(cases, theirs, strict=True):
        if "failed" in their:
            # Kafka's `simple` assignor fails when members have partitions that may not be assigned.
            assert case.given.assignable is not None
            case.ours()
        elif case.assignor == assignor and case.given.is_homogeneous is is_homogeneous:
            assert case.ours() == their, "\n".join(case.lines())
            compared += 1
    assert compared > GROUPS * ASSIGNMENTS / 4
