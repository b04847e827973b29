"""Values that users may give as a partition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from barnabas.client.topic_partition import TopicPartition, as_partition, flat_partitions

TP = TopicPartition("ab", 1)


@pytest.mark.parametrize("given", [TP, ("ab", 1), ("ab", True), ("ab", np.int64(1))])
def test_a_topic_and_a_number_are_a_partition(given: object) -> None:
    made = as_partition(given)
    assert made == TP
    assert type(made.partition) is int


@pytest.mark.parametrize("given", ["ab", ("ab", "1"), ("a", "b"), ["ab", 1], ("ab",), (1, "ab"), 5])
def test_other_values_are_refused_with_a_message(given: object) -> None:
    with pytest.raises(TypeError, match="is not a partition: give a TopicPartition or"):
        as_partition(given)


def test_partitions_are_given_singly_or_in_a_list() -> None:
    other = TopicPartition("c", 2)
    assert flat_partitions([TP, ("c", 2)]) == [TP, other]
    assert sorted(flat_partitions([{TP, other}])) == [TP, other]
    assert flat_partitions([iter([TP]), (other, TP), ()]) == [TP, other, TP]
    topics: Any = ["ab"]
    with pytest.raises(TypeError, match="'ab' is not a partition"):
        flat_partitions(topics)
