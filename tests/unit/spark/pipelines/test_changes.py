"""Definitions that do not fit their checkpoints are found before a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from barnabas.spark.pipelines.changes import Change, Definitions, find_changes
from barnabas.spark.pipelines.checkpoints import Checkpoint
from barnabas.spark.pipelines.definition import FlowDefinition, StatefulOperator, StreamSource
from unit.spark.safe_advice import assert_safe

RECORDS, HOURS, OUT = "spark_catalog.default.records", "spark_catalog.default.hours", "out"
JOINED = "spark_catalog.default.joined"
TOPIC = StreamSource("barnabas", {"subscribe": "t", "startingoffsets": "earliest"})
TABLE = StreamSource("table", {"name": "records"})
WINDOW = StatefulOperator("aggregation", "1111")
SINK = StreamSource("barnabas", {"topic": "t-out"})

RECORDS_FLOW = FlowDefinition(RECORDS, "records", (TOPIC,))
HOURS_FLOW = FlowDefinition(HOURS, "hours", (TOPIC,), (WINDOW,))
OUT_FLOW = FlowDefinition(OUT, "to_topic", (TABLE,), sink=SINK)
OTHER_TOPIC = StreamSource("barnabas", {"subscribe": "u", "startingoffsets": "earliest"})
JOIN = StatefulOperator("join of streams", "3333")
JOINED_FLOW = FlowDefinition(JOINED, "joined", (TOPIC, OTHER_TOPIC), (JOIN,))
ALL = (RECORDS_FLOW, HOURS_FLOW, OUT_FLOW, JOINED_FLOW)
PARTITIONS = "spark.sql.shuffle.partitions"


def checkpoint(flow: FlowDefinition, *ends: object, operators: tuple[str, ...] = ()) -> Checkpoint:
    return Checkpoint(
        target=flow.target,
        flow=flow.flow,
        path=Path("/p/_checkpoints") / flow.target / flow.flow / "0",
        query_id="q",
        planned_batch=3,
        committed_batch=3,
        ends=ends,
        planned_ends=ends,
        settings={PARTITIONS: "2"},
        operators=operators,
    )


CHECKPOINTS = (
    checkpoint(RECORDS_FLOW, {"t": {"0": 5}}),
    checkpoint(HOURS_FLOW, {"t": {"0": 5}}, operators=("stateStoreSave",)),
    checkpoint(OUT_FLOW, {"logOffset": 3}),
    checkpoint(JOINED_FLOW, {"t": {"0": 5}}, {"u": {"0": 5}}, operators=("symmetricHashJoin",)),
)


def changes(
    *flows: FlowDefinition, notes: Sequence[FlowDefinition] = ALL, is_partial: bool = False
) -> list[Change]:
    """The changes if these flows take the places of the noted ones with their keys."""
    given = {flow.key: flow for flow in flows}
    now = [given.pop(flow.key, flow) for flow in ALL] + list(given.values())
    noted = {flow.key: flow for flow in notes}
    found = find_changes(Definitions(now, is_partial), CHECKPOINTS, noted)
    for change in found:
        assert_safe(change.remedy)
    return found


def refused(*flows: FlowDefinition, notes: Sequence[FlowDefinition] = ALL) -> Change:
    (change,) = changes(*flows, notes=notes)
    assert change.is_refused
    return change


def test_equal_definitions_have_no_changes() -> None:
    assert changes() == []


@pytest.mark.parametrize("notes", [ALL, ()], ids=["noted", "without notes"])
def test_another_topic_is_refused(notes: Sequence[FlowDefinition]) -> None:
    other = replace(RECORDS_FLOW, sources=(StreamSource("barnabas", {"subscribe": "u"}),))
    change = next(each for each in changes(other, notes=notes) if each.is_refused)
    assert "no longer reads t, but u" in change.problem
    assert change.remedy == (
        "read t again, or all: subscribe=t,u. Or start anew: barnabas pipeline reset records, "
        "which empties records and fills it from what its sources have today: rows whose records "
        "were deleted are lost; out gets all its rows a second time"
    )


def test_one_more_topic_is_no_change() -> None:
    both = StreamSource("barnabas", {**TOPIC.options, "subscribe": "t, u"})
    assert changes(replace(RECORDS_FLOW, sources=(both,))) == []


def test_the_same_topic_by_assignment_is_no_change() -> None:
    assigned = StreamSource("barnabas", {"assign": '{"t": [0]}', "startingoffsets": "earliest"})
    assert changes(replace(RECORDS_FLOW, sources=(assigned,))) == []


def test_a_pattern_is_not_judged() -> None:
    pattern = StreamSource("barnabas", {"subscribepattern": "u.*", "startingoffsets": "earliest"})
    assert changes(replace(RECORDS_FLOW, sources=(pattern,))) == []


def test_other_starting_offsets_have_no_effect_and_are_only_noted() -> None:
    latest = StreamSource("barnabas", {**TOPIC.options, "startingoffsets": "latest"})
    (change,) = changes(replace(RECORDS_FLOW, sources=(latest,)))
    assert not change.is_refused
    assert "startingoffsets earliest → latest has no effect" in change.problem


def test_other_brokers_are_noted() -> None:
    moved = StreamSource("barnabas", {**TOPIC.options, "kafka.bootstrap.servers": "b:9092"})
    (change,) = changes(replace(RECORDS_FLOW, sources=(moved,)))
    assert not change.is_refused
    assert "another cluster" in change.problem


def test_other_limits_of_a_source_are_no_change() -> None:
    limited = StreamSource("barnabas", {**TOPIC.options, "maxoffsetspertrigger": "10"})
    assert changes(replace(RECORDS_FLOW, sources=(limited,))) == []


@pytest.mark.parametrize("notes", [ALL, ()], ids=["noted", "without notes"])
def test_a_flow_that_no_longer_keeps_state_is_refused(notes: Sequence[FlowDefinition]) -> None:
    change = refused(replace(HOURS_FLOW, operators=()), notes=notes)
    assert "its checkpoint has that of stateStoreSave" in change.problem
    assert "reset hours" in change.remedy


@pytest.mark.parametrize("notes", [ALL, ()], ids=["noted", "without notes"])
def test_a_flow_that_keeps_state_now_is_refused(notes: Sequence[FlowDefinition]) -> None:
    change = refused(replace(RECORDS_FLOW, operators=(WINDOW,)), notes=notes)
    assert "it keeps state now (aggregation)" in change.problem


def test_another_window_is_refused() -> None:
    longer = StatefulOperator("aggregation", "2222")
    assert "keys, windows or functions" in refused(replace(HOURS_FLOW, operators=(longer,))).problem


def test_another_kind_of_state_is_refused() -> None:
    other = StatefulOperator("deduplication", "1111")
    change = refused(replace(HOURS_FLOW, operators=(other,)))
    assert "its state is of deduplication, before of aggregation" in change.problem


def test_another_source_is_refused() -> None:
    change = refused(replace(OUT_FLOW, sources=(StreamSource("table", {"name": "hours"}),)))
    assert "it reads hours, before records" in change.problem


def test_another_number_of_sources_is_refused() -> None:
    change = refused(replace(RECORDS_FLOW, sources=(TOPIC, TABLE)))
    assert "it reads t, records, before t" in change.problem


@pytest.mark.parametrize("notes", [ALL, ()], ids=["noted", "without notes"])
def test_sides_of_a_join_that_changed_places_are_refused(notes: Sequence[FlowDefinition]) -> None:
    change = refused(replace(JOINED_FLOW, sources=(OTHER_TOPIC, TOPIC)), notes=notes)
    assert "it reads u, t, but its checkpoint has the offsets in another order: t, u" in (
        change.problem
    )
    assert change.remedy.startswith("put the sources back in the order of the checkpoint. Or")


def test_a_table_in_the_place_of_a_topic_is_refused_without_notes() -> None:
    both = (TABLE, TOPIC, OTHER_TOPIC)
    flow = replace(JOINED_FLOW, sources=both)
    ends: list[object] = [{"t": {"0": 5}}, {"logOffset": 1}, {"u": {"0": 5}}]
    before = checkpoint(flow, *ends, operators=("symmetricHashJoin",))
    (change,) = find_changes(Definitions([flow]), [before], {})
    assert "another order: t, …, u" in change.problem


def test_topics_of_a_flow_that_reads_what_sql_files_may_define_are_not_judged() -> None:
    view = StreamSource("table", {"name": "view_of_a_file"})
    flow = replace(JOINED_FLOW, sources=(view, TOPIC), is_complete=False)
    before = checkpoint(flow, {"u": {"0": 5}}, {"t": {"0": 5}})
    assert find_changes(Definitions([flow]), [before], {}) == []


def test_another_number_of_shuffle_partitions_is_noted_for_flows_with_state() -> None:
    settings = {flow.key: {PARTITIONS: "8"} for flow in ALL}
    noted = {flow.key: flow for flow in ALL}
    found = find_changes(Definitions(ALL, settings=settings), CHECKPOINTS, noted)
    assert [(each.flow, each.is_refused) for each in found] == [("hours", False), ("joined", False)]
    assert f"{PARTITIONS} is 8, but its state was made with 2" in found[0].problem
    assert_safe(found[0].remedy)


def test_a_flow_that_is_no_stream_any_more_is_refused() -> None:
    assert "is none now" in refused(replace(RECORDS_FLOW, sources=())).problem


def test_another_topic_of_a_sink_is_refused() -> None:
    change = refused(replace(OUT_FLOW, sink=StreamSource("barnabas", {"topic": "elsewhere"})))
    assert "topic t-out → elsewhere" in change.problem
    assert "give the new sink a new name" in change.remedy


def test_another_prefix_of_a_sink_is_no_change() -> None:
    sink = StreamSource("barnabas", {**SINK.options, "transactionalidprefix": "p"})
    assert changes(replace(OUT_FLOW, sink=sink)) == []


def without(flow: FlowDefinition, *more: FlowDefinition, is_partial: bool = False) -> list[Change]:
    now = [each for each in ALL if each is not flow] + list(more)
    noted = {each.key: each for each in ALL}
    found = find_changes(Definitions(now, is_partial), CHECKPOINTS, noted)
    for change in found:
        assert_safe(change.remedy)
    return found


def test_a_renamed_flow_of_a_sink_is_refused() -> None:
    (change,) = without(OUT_FLOW, replace(OUT_FLOW, flow="to_topic2"))
    assert change.is_refused
    assert "out would have these rows twice" in change.problem
    assert "name it to_topic again" in change.remedy


def test_a_removed_table_is_noted() -> None:
    (change,) = without(HOURS_FLOW)
    assert not change.is_refused
    assert "no definition has it any more" in change.problem


def test_flows_that_may_be_defined_in_sql_are_not_reported_as_removed() -> None:
    assert without(HOURS_FLOW, is_partial=True) == []


def test_a_new_flow_into_a_table_with_another_flow_is_no_change() -> None:
    assert changes(FlowDefinition(RECORDS, "backfill", (TOPIC,))) == []


def test_the_state_of_a_flow_that_is_not_complete_is_not_judged() -> None:
    assert changes(replace(HOURS_FLOW, operators=(), is_complete=False)) == []


def test_definitions_survive_their_notes() -> None:
    for flow in ALL:
        assert FlowDefinition.from_json(flow.to_json()) == flow
