"""Results of each assignor compared with those of Apache Kafka's class."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from jvm.java import TIMEOUT_S, java_command
from unit.client.group.assignor_cases import AssignorCase, GroupHistory

SOURCE = Path(__file__).parent / "Assignors.java"
ASSIGNORS = ("range", "roundrobin", "sticky", "cooperative-sticky")
GROUPS = 150
REBALANCES = 8


@pytest.fixture(scope="module")
def cases() -> list[AssignorCase]:
    return [
        case
        for assignor in ASSIGNORS
        for seed in range(GROUPS)
        for case in GroupHistory(assignor, seed).cases(REBALANCES)
    ]


@pytest.fixture(scope="module")
def java_results(cases: list[AssignorCase]) -> list[dict[str, str]]:
    """Return the results of Java for each case, from one process."""
    given = "".join(f"{line}\n" for case in cases for line in case.lines())
    done = subprocess.run(
        [*java_command("kafka", "OFF"), str(SOURCE)],
        input=given,
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
def test_assignments_of_random_groups_equal_those_of_java(
    cases: list[AssignorCase], java_results: list[dict[str, str]], assignor: str
) -> None:
    compared = 0
    for case, expected in zip(cases, java_results, strict=True):
        if case.assignor == assignor and java_assigns_only_subscribed_topics(case, expected):
            ours = {
                name: ",".join(sorted(f"{tp.topic}:{tp.partition}" for tp in partitions))
                for name, partitions in case.ours().items()
            }
            assert ours == expected, "\n".join(case.lines())
            compared += 1
    assert compared > 0.99 * GROUPS * REBALANCES


def java_assigns_only_subscribed_topics(case: AssignorCase, java_results: dict[str, str]) -> bool:
    """Return whether Java assigns only topics that members subscribe to.

    Java's sticky assignors sometimes return a partition to a member of an older generation, even if
    it no longer subscribes to the topic. The assignors of Barnabas do not; other tests show that.
    """
    return all(
        each.split(":")[0] in case.members[name].topics
        for name, partitions in java_results.items()
        for each in partitions.split(",")
        if each
    )
