"""Reading checkpoints without Spark."""

from __future__ import annotations

from pathlib import Path

from barnabas.client.topic_partition import TopicPartition
from barnabas.spark.pipelines.checkpoints import read_checkpoints
from unit.spark.pipelines.stored_checkpoints import HOURS, OUT, RECORDS, StoredFlow, project_in


def test_the_offsets_are_those_of_the_last_finished_batch(tmp_path: Path) -> None:
    project = project_in(tmp_path)
    batches = [[{"t": {"0": n, "1": 2 * n}}] for n in (5, 9, 12)]
    StoredFlow(f"{RECORDS}/0", batches, commits=2).write(project)
    (found,) = read_checkpoints(project)
    assert (found.target, found.flow) == ("spark_catalog.default.records", "records")
    assert (found.planned_batch, found.committed_batch) == (2, 1)
    assert found.topic_offsets == {TopicPartition("t", 0): 9, TopicPartition("t", 1): 18}


def test_batches_are_compared_as_numbers(tmp_path: Path) -> None:
    project = project_in(tmp_path)
    StoredFlow(f"{RECORDS}/0", [[{"t": {"0": n}}] for n in range(12)], commits=12).write(project)
    (found,) = read_checkpoints(project)
    assert found.committed_batch == 11
    assert found.topic_offsets == {TopicPartition("t", 0): 11}


def test_the_newest_checkpoint_of_a_flow_counts_after_a_full_refresh(tmp_path: Path) -> None:
    project = project_in(tmp_path)
    for version, offset in ((9, 100), (10, 3)):
        StoredFlow(f"{RECORDS}/{version}", [[{"t": {"0": offset}}]], commits=1).write(project)
    (found,) = read_checkpoints(project)
    assert found.topic_offsets == {TopicPartition("t", 0): 3}


def test_sinks_and_tables_are_told_apart_by_their_names(tmp_path: Path) -> None:
    project = project_in(tmp_path)
    StoredFlow(f"{RECORDS}/0", [[{"t": {"0": 1}}]], commits=1).write(project)
    StoredFlow(f"{OUT}/0", [[{"logOffset": 4}]], commits=1).write(project)
    sink, table = read_checkpoints(project)
    assert (sink.target, sink.flow, sink.topic_offsets) == ("out", "to_topic", {})
    assert sink.ends == ({"logOffset": 4},)
    assert table.key == "spark_catalog.default.records/records"


def test_watermark_and_operators_are_read(tmp_path: Path) -> None:
    project = project_in(tmp_path)
    operators = ["stateStoreSave", "dedupe"]
    StoredFlow(
        f"{HOURS}/0", [[{"t": {"0": 1}}]], commits=1, watermark_ms=1234, operators=operators
    ).write(project)
    (found,) = read_checkpoints(project)
    assert (found.watermark_ms, found.operators) == (1234, ("stateStoreSave", "dedupe"))


def test_operators_in_the_second_version_of_their_file_are_read(tmp_path: Path) -> None:
    project = project_in(tmp_path)
    StoredFlow(f"{HOURS}/0", [[{"t": {"0": 1}}]], commits=1).write(project)
    versions = project.checkpoints / HOURS / "0" / "state" / "0" / "_metadata" / "v2"
    versions.mkdir(parents=True)
    (versions / "0").write_text('v2\n{"operatorInfo":{"operatorName":"old"}}')
    (versions / "10").write_text('v2\n{"operatorInfo":{"operatorName":"transformWithStateExec"}}')
    (found,) = read_checkpoints(project)
    assert found.operators == ("transformWithStateExec",)


def test_a_flow_that_was_killed_before_its_first_batch_has_no_offsets(tmp_path: Path) -> None:
    project = project_in(tmp_path)
    StoredFlow(f"{RECORDS}/0", [], commits=0).write(project)
    (found,) = read_checkpoints(project)
    assert (found.planned_batch, found.committed_batch, found.ends) == (-1, -1, ())


def test_a_commit_that_a_kill_left_empty_has_no_watermark(tmp_path: Path) -> None:
    project = project_in(tmp_path)
    StoredFlow(f"{RECORDS}/0", [[{"t": {"0": 7}}]], commits=1).write(project)
    (project.checkpoints / RECORDS / "0" / "commits" / "0").write_text("")
    (found,) = read_checkpoints(project)
    assert (found.committed_batch, found.watermark_ms) == (0, 0)
    assert found.topic_offsets == {TopicPartition("t", 0): 7}


def test_a_pipeline_that_has_not_run_has_no_checkpoints(tmp_path: Path) -> None:
    assert read_checkpoints(project_in(tmp_path)) == []
