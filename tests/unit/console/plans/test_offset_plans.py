"""Files of offsets, as Kafka's tool exports and imports them."""

from __future__ import annotations

import pytest

from barnabas.client.topic_partition import TopicPartition
from barnabas.console.forms import FormError
from barnabas.console.plans.offset_plans import offsets_csv, read_offsets_csv

OFFSETS = {TopicPartition("b", 1): 7, TopicPartition("a", 10): 0, TopicPartition("a", 9): 2**40}


def test_exported_offsets_are_imported_again() -> None:
    text = offsets_csv(OFFSETS)
    assert text == f"a,9,{2**40}\na,10,0\nb,1,7\n"
    assert read_offsets_csv(text, "g") == OFFSETS


def test_lines_of_other_groups_are_left_out() -> None:
    text = 'g,a,9,1\nother,a,9,2\n\r\n"g","b","1","3"\n'
    assert read_offsets_csv(text, "g") == {("a", 9): 1, ("b", 1): 3}


@pytest.mark.parametrize(
    "text",
    ["", "other,a,1,2", "a,x,1", "a,1", "a,1,-5", "a,1,2\na,1,3", f"a,1,{2**63}", "a,1,2,3,4"],
)
def test_a_wrong_file_is_refused(text: str) -> None:
    with pytest.raises(FormError) as found:
        read_offsets_csv(text, "g")
    assert found.value.field == "csv"
