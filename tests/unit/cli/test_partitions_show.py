"""The output of `barnabas partitions`, and remarks about unhealthy partitions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from barnabas.cli.partitions.commands import is_unhealthy, rows, snapshot_json
from barnabas.cli.partitions.snapshot import PartitionSnapshot
from barnabas.client.admin.partitions import Reassignment
from barnabas.client.admin.topics import PartitionState
from barnabas.client.errors import ClientError, DisconnectedError, broker_error
from barnabas.client.topic_partition import TopicPartition

TP = TopicPartition("t", 0)
GONE = ClientError("the partition has no leader")
SILENCE = DisconnectedError("h:1", "no answer")


def shown(
    ends: Mapping[int, int | ClientError],
    watermark: int | ClientError = 9,
    *,
    leader: int = 1,
    isr: tuple[int, ...] = (1, 2, 3),
    elr: tuple[int, ...] = (),
    **more: Any,
) -> PartitionSnapshot:
    state = PartitionState(0, leader, 4, (1, 2, 3), isr, elr, (), ())
    return PartitionSnapshot(TP, state, False, 2, watermark, ends, **more)


WELL = shown({1: 9, 2: 9, 3: 9})


@pytest.mark.parametrize(
    ("snapshot", "marks"),
    [
        (WELL, ()),
        (shown({}, GONE, leader=-1, isr=()), ("offline",)),
        (shown({1: SILENCE, 2: 9, 3: 9}, SILENCE), ("leader-silent",)),
        (shown({1: 9, 2: 9, 3: SILENCE}), ("replica-silent",)),
        (shown({1: 9, 2: 9, 3: broker_error(6, "x")}), ()),
        (shown({1: 9}, isr=(1,)), ("under-min-isr", "under-replicated")),
        (shown({1: 9, 2: 9}, isr=(1, 2)), ("at-min-isr", "under-replicated")),
        (shown({1: 9, 2: 9, 3: 9}, reassignment=Reassignment((1, 2, 3), (3,), ())), ("moving",)),
        (shown({1: 9, 2: 9, 3: 9}, leader=2), ("not-preferred",)),
    ],
)
def test_each_problem_has_a_mark(snapshot: PartitionSnapshot, marks: tuple[str, ...]) -> None:
    assert snapshot.marks == marks
    assert is_unhealthy(snapshot) is (bool(marks) and marks != ("not-preferred",))


def cells(*snapshots: PartitionSnapshot, **options: Any) -> list[dict[str, str]]:
    columns, found = rows(snapshots, **options)
    return [dict(zip(columns, map(str, row), strict=True)) for row in found]


def test_a_terminal_omits_columns_without_information() -> None:
    (row,) = cells(WELL)
    assert row == {
        "topic": "t", "#": "0", "leader": "1", "epoch": "4", "end=hw": "9", "replicas": "1,2,3",
        "isr": "1,2,3", "lag": "0", "state": "well",
    }  # fmt: skip
    (row,) = cells(WELL, compact=False)
    assert (row["end"], row["hw"], row["elr"], row["lag"]) == ("9", "9", "None", "2:0 3:0")


def test_lagging_missing_and_silent_replicas_are_listed() -> None:
    lagging = shown({1: 9, 2: 4, 3: SILENCE}, 4)
    away = shown({1: 9, 2: 9}, isr=(1, 2), elr=(3,))
    first, second = cells(lagging, away)
    assert (first["end"], first["hw"], first["lag"]) == ("9", "4", "2:5 3:?")
    assert first["state"] == "replica-silent"
    assert (second["elr"], second["lag"], second["state"]) == ("3", "3:gone", "at-min-isr")


def test_a_partition_without_a_leader_has_no_offsets() -> None:
    (row,) = cells(shown({2: 9}, GONE, leader=-1, isr=(1,)))
    assert (row["leader"], row["end"], row["state"]) == ("none", "None", "offline")


def test_rates_are_shown_where_they_are_known() -> None:
    (row,) = cells(WELL, rates={TP: 1234.0})
    assert row["rec/s"] == "1.2k"


def test_json_output_contains_all_fields() -> None:
    listed = snapshot_json(shown({1: 9, 2: 4, 3: SILENCE}, 4, elr=(3,)))
    assert listed["followers"] == [
        {"replica": 2, "log_end_offset": 4, "lag": 5},
        {"replica": 3, "log_end_offset": None, "lag": None},
    ]
    assert (listed["log_end_offset"], listed["high_watermark"], listed["elr"]) == (9, 4, [3])
