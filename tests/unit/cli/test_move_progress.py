"""The progress of reassignments: moved partitions, copied bytes and the time that is left."""

from __future__ import annotations

import pytest

from barnabas.cli.partitions.move_progress import (
    Progress,
    bytes_to_copy,
    measured,
    partition_sizes,
)
from barnabas.cli.partitions.planning import Move
from barnabas.client.topic_partition import TopicPartition

MIB = 1 << 20
FIRST, SECOND, THIRD = (TopicPartition("t", number) for number in range(3))
SIZES = {FIRST: 10 * MIB, SECOND: 20 * MIB, THIRD: 5 * MIB}
# The last one changes the preferred leader only.
PLANNED = [
    Move(FIRST, (1,), (2,)),
    Move(SECOND, (1, 2), (2, 3)),
    Move(THIRD, (1, 2), (2, 1)),
]


def test_only_new_replicas_are_copied() -> None:
    assert bytes_to_copy(PLANNED, SIZES) == 30 * MIB


def test_the_size_of_a_partition_is_that_of_its_largest_replica() -> None:
    assert partition_sizes({1: {FIRST: 10}, 2: {FIRST: 3, SECOND: 7}}) == {FIRST: 10, SECOND: 7}


def test_bytes_count_when_they_are_on_the_new_broker() -> None:
    nothing = measured(PLANNED, [FIRST, SECOND, THIRD], SIZES, {})
    assert nothing == Progress(0, 3, 0, 30 * MIB)
    # A log that grows meanwhile is not more than completely copied.
    now = {2: {FIRST: 11 * MIB, SECOND: 20 * MIB}, 3: {SECOND: 5 * MIB}}
    assert measured(PLANNED, [FIRST, SECOND], SIZES, now) == Progress(1, 3, 15 * MIB, 30 * MIB)
    assert measured(PLANNED, [], SIZES, {}) == Progress(3, 3, 30 * MIB, 30 * MIB)


@pytest.mark.parametrize(
    ("progress", "text"),
    [
        (Progress(0, 3, 0, 30 * MIB), "moved 0 of 3 partitions, 0 B of 30.0 MiB"),
        (
            Progress(1, 3, 10 * MIB, 30 * MIB),
            "moved 1 of 3 partitions, 10.0 MiB of 30.0 MiB, 1m left",
        ),
        (Progress(3, 3, 30 * MIB, 30 * MIB), "moved 3 of 3 partitions, 30.0 MiB of 30.0 MiB"),
        (Progress(0, 1, 0, 0), "moved 0 of 1 partition"),
    ],
)
def test_progress_in_words_after_thirty_seconds(progress: Progress, text: str) -> None:
    assert progress.text(30.0) == text
