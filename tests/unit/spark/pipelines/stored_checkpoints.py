"""Writes the files of checkpoints as Spark 4.2.1 left them in a run."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from barnabas.spark.pipelines.checkpoints import Notes, write_notes
from barnabas.spark.pipelines.project import Project


@dataclass(frozen=True)
class StoredFlow:
    """The checkpoint of a flow, with `offsets` of the batches from 0 and `commits` of the first."""

    path: str
    # For each planned batch the offset of each source.
    batches: list[list[Any]]
    commits: int
    query_id: str = "f78e6494-283a-4dd8-b066-d641f2d0c2c1"
    watermark_ms: int = 0
    operators: list[str] = field(default_factory=list)

    def write(self, project: Project) -> None:
        root = project.checkpoints / self.path
        (root / "offsets").mkdir(parents=True)
        (root / "commits").mkdir()
        (root / "metadata").write_text(json.dumps({"id": self.query_id}))
        for batch, sources in enumerate(self.batches):
            metadata = {"batchWatermarkMs": 0, "batchTimestampMs": 1795759145251, "conf": {}}
            lines = ["v1", *(json.dumps(each) for each in [metadata, *sources])]
            (root / "offsets" / str(batch)).write_text("\n".join(lines))
            (root / "offsets" / f".{batch}.crc").write_bytes(b"crc")
        for batch in range(self.commits):
            text = json.dumps({"nextBatchWatermarkMs": self.watermark_ms})
            (root / "commits" / str(batch)).write_text(f"v1\n{text}")
        for number, name in enumerate(self.operators):
            directory = root / "state" / str(number) / "_metadata"
            directory.mkdir(parents=True)
            info = {"operatorInfo": {"operatorId": number, "operatorName": name}}
            (directory / "metadata").write_text(f"v1\n{json.dumps(info)}")


def write_run(project: Project, topic: str) -> None:
    """Write what a completed run leaves; its flow `records` has read a record of a topic."""
    flow = StoredFlow(f"{RECORDS}/0", [[{topic: {"0": 1}}]], commits=1)
    flow.write(project)
    progress = {
        "query": flow.query_id,
        "rows_read": 4,
        "rows_written": 1,
        "rows_per_second": 2.5,
        "seconds": 1.62,
        "state_rows": 7,
        "expectations": {"has a key": {"otherwise": "drop", "rows": 4, "failed": 3}},
    }
    key = "spark_catalog.default.records/records"
    write_notes(project.notes, Notes({}, {key: progress}, {"result": "completed"}))


def project_in(directory: Path) -> Project:
    return Project(
        name="flights",
        spec=directory / "spark-pipeline.yml",
        storage=directory / "storage",
        catalog="spark_catalog",
        database="default",
        configuration={},
    )


RECORDS = "spark_catalog/default/records/records"
HOURS = "spark_catalog/default/hours/hours"
OUT = "out/to_topic"
