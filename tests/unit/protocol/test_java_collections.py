"""The order of Java's collections."""

from __future__ import annotations

import pytest

from barnabas.protocol.java_collections import JavaTable, string_hash, topic_partition_hash


def test_names_have_the_order_of_javas_hash_maps() -> None:
    # As a HashSet of these prints on a JVM.
    table = JavaTable(string_hash, ["zebra", "aa", "b", "consumer-1", "ü"])
    assert list(table) == ["zebra", "aa", "b", "ü", "consumer-1"]


@pytest.mark.parametrize("is_computed", [False, True])
def test_the_first_key_is_the_first_of_the_iteration(is_computed: bool) -> None:
    table = JavaTable(topic_partition_hash, is_computed=is_computed)
    for partition in range(40):
        table.add(("topic", partition * 16))
    while table:
        assert table.first() == next(iter(table))
        table.remove(table.first())
