"""Lost offsets: they keep position and topic, and differ from all offsets of records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

import pytest

from barnabas.client.topic_partition import TopicPartition
from barnabas.spark.errors import DataLossError
from barnabas.spark.topics.planner import lost_offset, without_lost_ends, without_lost_starts

TP = TopicPartition("t", 0)
OLD, NEW = b"the id of topic ", b"another id of it"


def now(topic_id: bytes | None) -> Mapping[str, bytes]:
    return {} if topic_id is None else {"t": topic_id}


@pytest.mark.parametrize("position", [0, 1, 10, (1 << 44) - 1])
@pytest.mark.parametrize(("topic_id", "is_back"), [(OLD, True), (NEW, False), (None, False)])
def test_a_lost_offset_keeps_the_position_and_the_topic(
    position: int, topic_id: bytes | None, is_back: bool
) -> None:
    offset = lost_offset(position, OLD)
    assert offset is not None
    assert 1 << 62 <= offset < 1 << 63
    found = without_lost_starts({TP: offset}, lambda _: now(topic_id))
    assert found == {TP: position if is_back else 0}
    ends = partial(without_lost_ends, {TP: offset}, lambda _: now(topic_id))
    assert ends(fail_on_data_loss=False) == {}
    if is_back:
        assert ends(fail_on_data_loss=True) == {}
        return
    with pytest.raises(DataLossError, match=f"up to offset {position}\\."):
        ends(fail_on_data_loss=True)


def test_offsets_of_records_stay_and_ask_no_broker() -> None:
    def fail(_topics: Iterable[str]) -> Mapping[str, bytes]:
        raise AssertionError("no topic is lost")

    offsets = {TP: (1 << 62) - 1}
    assert without_lost_starts(offsets, fail) == offsets
    assert without_lost_ends(offsets, fail, fail_on_data_loss=True) == offsets


@pytest.mark.parametrize(("position", "topic_id"), [(1 << 44, OLD), (3, None)])
def test_what_a_lost_offset_cannot_hold_is_none(position: int, topic_id: bytes | None) -> None:
    assert lost_offset(position, topic_id) is None
