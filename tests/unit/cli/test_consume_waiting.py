"""`consume` says what it waits for, once, and only if it should."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from barnabas.cli.records.formats import Progress
from barnabas.cli.records.printer import Printer, RecordFilter
from barnabas.cli.records.source import Chunk, ErrorPolicy, missing_leaders
from barnabas.cli.records.templates import value_lines
from barnabas.client.connections.metadata_cache import PartitionInfo, TopicInfo
from barnabas.client.fetch.record_set import ConsumerRecord
from barnabas.client.topic_partition import TopicPartition

RECORD = ConsumerRecord("t", 0, 0, 0, 0, None, b"value", [])
WAITING = "waiting for new records of t"


class Silent:
    """A source with a step for each poll: records, an obstacle, or nothing."""

    trouble = None

    def __init__(self, *steps: Sequence[ConsumerRecord] | str | None) -> None:
        self.steps = list(steps)
        self.obstacle: str | None = None

    @property
    def is_finished(self) -> bool:
        return not self.steps

    def poll(self, timeout_ms: float) -> Sequence[Chunk]:
        step = self.steps.pop(0)
        if isinstance(step, str) or step is None:
            self.obstacle = step
            return ()
        return (Chunk(TopicPartition("t", 0), step, 1),)

    def commit(self, printed: object) -> None:
        pass


def told(
    capfd: pytest.CaptureFixture[str], *steps: Sequence[ConsumerRecord] | str | None,
    waiting: str | None = WAITING,
) -> list[str]:  # fmt: skip
    """Return the lines on standard error of a printer that reads these steps."""
    render = value_lines(b"", b"\n")
    Printer(
        Silent(*steps), lambda _tp: render, RecordFilter(), Progress(), ErrorPolicy(), waiting
    ).run()
    return capfd.readouterr().err.splitlines()


def test_the_command_names_what_is_missing_and_then_the_next_reason(
    capfd: pytest.CaptureFixture[str],
) -> None:
    steps = [*["t-0 has no leader"] * 9, *["the group g is rebalancing"] * 9, *[None] * 9]
    assert told(capfd, *steps) == [
        "warning: t-0 has no leader",
        "warning: the group g is rebalancing",
        WAITING,
    ]
    assert told(capfd, *steps, waiting=None) == []


@pytest.mark.parametrize(
    ("leaders", "sentence"),
    [
        ((1, 2), None),
        ((1, -1), "t-1 has no leader; `barnabas why t:1` explains it"),
        ((-1, -1, 1, -1), "t-0 and 2 other partitions have no leader; `barnabas why t:0` explains"),
    ],
)
def test_partitions_without_a_leader_are_named(
    leaders: tuple[int, ...], sentence: str | None
) -> None:
    partitions = {number: PartitionInfo(number, leader, 0) for number, leader in enumerate(leaders)}
    topic = TopicInfo("t", bytes(16), False, partitions)
    wanted = [TopicPartition("t", number) for number in partitions]
    found = missing_leaders({"t": topic}, wanted)
    assert found is None if sentence is None else found is not None and found.startswith(sentence)
