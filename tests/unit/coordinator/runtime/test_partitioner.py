"""Kafka's formula for the partition of a group."""

from __future__ import annotations

import pytest

from barnabas.coordinator.runtime.coordinator_runtime import java_hash, partition_for


@pytest.mark.parametrize(
    ("text", "value"),
    [("", 0), ("a", 97), ("g1", 3242), ("é😀", None)],
)
def test_strings_hash_as_in_java(text: str, value: int | None) -> None:
    if value is None:
        # é is one code unit, the emoji two: 0xE9, 0xD83D, 0xDE00.
        value = (0xE9 * 31 + 0xD83D) * 31 + 0xDE00
    assert java_hash(text) == value


def test_the_absolute_value_of_a_negative_hash_selects_the_partition() -> None:
    assert [java_hash(f"group-1-{number}") for number in (1, 3)] == [-1484205753, -1484205751]
    # Where Apache Kafka's coordinator looks for them; without the sign bit it would be 3 and 1.
    assert [partition_for(f"group-1-{number}", 4) for number in (1, 3)] == [1, 3]


def test_the_smallest_hash_selects_partition_zero() -> None:
    text = "polygenelubricants"  # hashes to -2**31, whose absolute value is negative in Java
    assert java_hash(text) == -(1 << 31)
    assert partition_for(text, 50) == 0


def test_groups_have_the_same_partitions_as_in_kafka() -> None:
    assert [partition_for(group, 3) for group in ("g1", "new2", "new3", "")] == [2, 2, 0, 0]
