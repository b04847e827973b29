"""The status of flows from checkpoints, notes and the bounds of topics."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.client.topic_partition import TopicPartition
from barnabas.spark.pipelines.checkpoints import (
    FlowStatus,
    Notes,
    TopicBounds,
    flow_statuses,
    noted_brokers,
    read_checkpoints,
    read_notes,
    write_notes,
)
from barnabas.spark.pipelines.definition import FlowDefinition, StreamSource
from unit.spark.pipelines.stored_checkpoints import RECORDS, StoredFlow, project_in

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)
KEY = "spark_catalog.default.records/records"


@pytest.fixture
def stored(tmp_path: Path) -> StoredFlow:
    flow = StoredFlow(f"{RECORDS}/0", [[{"t": {"0": 5, "1": 7}}], [{"t": {"0": 9, "1": 9}}]], 1)
    flow.write(project_in(tmp_path))
    return flow


def status(tmp_path: Path, bounds: TopicBounds | None, notes: Notes | None = None) -> FlowStatus:
    (found,) = flow_statuses(read_checkpoints(project_in(tmp_path)), notes or Notes(), bounds)
    return found


def test_the_lag_counts_from_the_last_finished_batch(tmp_path: Path, stored: StoredFlow) -> None:
    found = status(tmp_path, TopicBounds({ZERO: 0, ONE: 0}, {ZERO: 9, ONE: 10}))
    assert found.lag == {ZERO: 4, ONE: 3}
    assert found.lag_by_topic == {"t": 7}
    assert found.has_unfinished_batch


def test_without_brokers_the_lag_is_unknown(tmp_path: Path, stored: StoredFlow) -> None:
    assert status(tmp_path, None).lag_by_topic == {"t": None}


def test_the_lag_of_a_deleted_partition_is_unknown(tmp_path: Path, stored: StoredFlow) -> None:
    assert status(tmp_path, TopicBounds({ZERO: 0}, {ZERO: 9})).lag_by_topic == {"t": None}


def test_records_that_were_deleted_before_they_were_read_are_lost(
    tmp_path: Path, stored: StoredFlow
) -> None:
    found = status(tmp_path, TopicBounds({ZERO: 8, ONE: 7}, {ZERO: 9, ONE: 10}))
    assert found.lost == {ZERO: 3}


def test_the_progress_of_an_earlier_checkpoint_does_not_count(
    tmp_path: Path, stored: StoredFlow
) -> None:
    same = Notes(progress={KEY: {"query": stored.query_id, "state_rows": 3}})
    other = Notes(progress={KEY: {"query": "another", "state_rows": 3}})
    assert status(tmp_path, None, same).state_rows == 3
    assert status(tmp_path, None, other).state_rows is None


def test_notes_survive_a_restart(tmp_path: Path) -> None:
    source = StreamSource("barnabas", {"kafka.bootstrap.servers": "b:1"})
    flow = FlowDefinition("t", "f", (source,))
    notes = Notes({flow.key: flow}, {"t/f": {"batch": 1}}, {"result": "completed"})
    write_notes(tmp_path, notes)
    assert read_notes(tmp_path) == notes
    assert noted_brokers(read_notes(tmp_path)) == "b:1"


def test_a_pipeline_that_has_not_run_has_no_notes(tmp_path: Path) -> None:
    assert read_notes(tmp_path / "missing") == Notes()
    assert noted_brokers(Notes()) is None
