"""Many earlier versions are compared in parts."""

from __future__ import annotations

import pytest

from barnabas.registry.operations import in_parts
from barnabas.registry.records import Content, StoredSchema


@pytest.mark.parametrize(
    ("lengths", "parts"),
    [
        ([], []),
        ([1], [[1]]),
        ([10], [[10]]),
        ([1, 2, 3], [[1, 2, 3]]),
        ([1, 2, 3, 4, 5, 6], [[5, 6], [1, 2, 3, 4]]),
        ([1, 50, 2, 60], [[60], [50, 2], [1]]),
    ],
)
def test_parts_have_all_versions_the_newest_first(
    lengths: list[int], parts: list[list[int]]
) -> None:
    versions = [
        StoredSchema("a", number, number, Content("AVRO", "x" * length))
        for number, length in enumerate(lengths, 1)
    ]
    found = [[len(each.content.text) for each in part] for part in in_parts(versions, 10)]
    assert found == parts
