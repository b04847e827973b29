"""The plan of a reset names what is lost and what is repeated."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.client.topic_partition import TopicPartition
from barnabas.spark.pipelines.checkpoints import Notes, TopicBounds, read_checkpoints
from barnabas.spark.pipelines.definition import FlowDefinition, StreamSource
from barnabas.spark.pipelines.project import ProjectError
from barnabas.spark.pipelines.reset import PipelineState, plan_reset, remove_sink_checkpoints
from unit.spark.pipelines.stored_checkpoints import HOURS, OUT, RECORDS, StoredFlow, project_in

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)
TABLE = StreamSource("table", {"name": "records"})


def topic(starting: str | None = "earliest") -> StreamSource:
    options = {"subscribe": "t"}
    return StreamSource("barnabas", options | ({"startingoffsets": starting} if starting else {}))


def notes(*flows: FlowDefinition) -> Notes:
    return Notes({flow.key: flow for flow in flows})


def records(source: StreamSource) -> FlowDefinition:
    return FlowDefinition("spark_catalog.default.records", "records", (source,))


@pytest.fixture
def found(tmp_path: Path) -> PipelineState:
    """Records from a topic; hours and a sink that read them."""
    project = project_in(tmp_path)
    StoredFlow(f"{RECORDS}/0", [[{"t": {"0": 5, "1": 6}}]], commits=1).write(project)
    StoredFlow(f"{HOURS}/0", [[{"logOffset": 0}]], commits=1, operators=["stateStoreSave"]).write(
        project
    )
    StoredFlow(f"{OUT}/0", [[{"logOffset": 0}]], commits=1).write(project)
    (project.tables / "records").mkdir(parents=True)
    (project.tables / "records" / "part-0.parquet").write_bytes(b"x" * 100)
    noted = notes(records(topic()), FlowDefinition("out", "to_topic", (TABLE,)))
    bounds = TopicBounds({ZERO: 0, ONE: 0}, {ZERO: 9, ONE: 9})
    return PipelineState(project, read_checkpoints(project), noted, bounds)


def changed(found: PipelineState, noted: Notes, bounds: TopicBounds | None = None) -> PipelineState:
    return PipelineState(found.project, found.checkpoints, noted, bounds or found.bounds)


def test_a_table_that_can_be_read_again_loses_nothing(found: PipelineState) -> None:
    (reset,) = plan_reset(changed(found, notes(records(topic()))), ["records"]).resets
    assert (reset.name, reset.is_sink, reset.size) == ("records", False, 100)
    assert (reset.lost, reset.repeated) == ((), ())


def test_a_sink_that_reads_the_table_gets_its_rows_again(found: PipelineState) -> None:
    (reset,) = plan_reset(found, ["records"]).resets
    assert reset.repeated == ("out gets all rows of records again, from flow to_topic",)


def test_a_table_that_reads_the_table_must_be_reset_too(found: PipelineState) -> None:
    hours = FlowDefinition("spark_catalog.default.hours", "hours", (TABLE,))
    known = changed(found, notes(records(topic()), hours))
    with pytest.raises(ProjectError, match="reset both: barnabas pipeline reset records hours"):
        plan_reset(known, ["records"])
    assert plan_reset(known, ["records", "hours"]).tables == ("records", "hours")


def test_records_that_were_deleted_are_lost(found: PipelineState) -> None:
    bounds = TopicBounds({ZERO: 3, ONE: 0}, {ZERO: 9, ONE: 9})
    (reset,) = plan_reset(changed(found, notes(records(topic())), bounds), ["records"]).resets
    assert reset.lost == (
        "what came from t-0 before offset 3: these records were deleted from the topic",
    )


def test_a_partition_that_is_gone_is_lost(found: PipelineState) -> None:
    bounds = TopicBounds({ZERO: 0}, {ZERO: 9})
    (reset,) = plan_reset(changed(found, notes(records(topic())), bounds), ["records"]).resets
    assert reset.lost == ("what came from t-1: the partition does not exist any more",)


@pytest.mark.parametrize("starting", [None, "latest"])
def test_a_source_that_starts_at_the_end_loses_all_rows(
    found: PipelineState, starting: str | None
) -> None:
    (reset,) = plan_reset(changed(found, notes(records(topic(starting)))), ["records"]).resets
    assert any("all rows so far" in sentence for sentence in reset.lost)


def test_state_is_named_with_its_rows(found: PipelineState) -> None:
    noted = notes()
    noted.progress["spark_catalog.default.hours/hours"] = {"state_rows": 12}
    (reset,) = plan_reset(changed(found, noted), ["hours"]).resets
    assert "the state of stateStoreSave, 12 rows" in reset.lost[0]


def test_an_unknown_dataset_is_refused_with_the_known_ones(found: PipelineState) -> None:
    with pytest.raises(ProjectError, match="There are: hours, out, records"):
        plan_reset(found, ["totals"])


def test_only_the_checkpoints_of_sinks_are_removed(found: PipelineState) -> None:
    plan = plan_reset(found, ["out", "records"])
    assert (plan.tables, [sink.name for sink in plan.sinks]) == (("records",), ["out"])
    remove_sink_checkpoints(plan)
    left = [each.target for each in read_checkpoints(found.project)]
    assert left == ["spark_catalog.default.hours", "spark_catalog.default.records"]
