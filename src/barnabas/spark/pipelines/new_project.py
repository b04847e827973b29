"""Creates a pipeline project that runs as it is: a topic into a table, a view and a topic."""

from __future__ import annotations

import re
from dataclasses import dataclass
from string import Template
from typing import TYPE_CHECKING

from barnabas.spark.pipelines.errors import ProjectError
from barnabas.spark.pipelines.project import SPEC_NAMES, check_path, file_address

if TYPE_CHECKING:
    from pathlib import Path

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")

_SPEC = Template("""\
# A pipeline of Spark. `barnabas pipeline run` runs it.
name: $name
# Checkpoints, tables and catalog. Without them, all rows are written to the sinks again, and rows
# of the tables are lost if their records were deleted.
storage: $storage
database: default
# Settings of Spark, with text as values.
configuration:
  spark.sql.session.timeZone: UTC
  # State is spread over so many partitions, for ever.
  spark.sql.shuffle.partitions: "2"
libraries:
  - glob:
      include: transformations/**
""")

_DEFINITIONS = Template('''\
"""The datasets of the pipeline $name. `spark` is the session of the run."""

from pyspark import pipelines as dp
from pyspark.sql import functions as f

from barnabas.spark.pipelines.expectations import expect

BROKERS = {"kafka.bootstrap.servers": "$bootstrap"}


@dp.table
def records():
    """Each record of the topic, once; a run adds the new ones."""
    topic = (
        spark.readStream.format("barnabas")
        .options(**BROKERS)
        .option("subscribe", "$topic")
        .option("startingOffsets", "earliest")
        .option("groupIdPrefix", "$name")
        .load()
    )
    rows = topic.selectExpr(
        "CAST(key AS STRING) AS key",
        "CAST(value AS STRING) AS value",
        "topic",
        "partition",
        "offset",
        "timestamp",
    )
    return expect(rows, "has a value", f.col("value").isNotNull(), otherwise="drop")


@dp.materialized_view
def records_per_key():
    """A summary of the table, which each run computes again."""
    return spark.read.table("records").groupBy("key").agg(
        f.count("*").alias("records"), f.max("timestamp").alias("latest")
    )


dp.create_sink("out", "barnabas", BROKERS | {"topic": "$output"})


@dp.append_flow(target="out", name="to_topic")
def to_topic():
    """The table's new rows as records of another topic, exactly once."""
    return spark.readStream.table("records").selectExpr("key", "upper(value) AS value")
''')


@dataclass(frozen=True, slots=True)
class NewProject:
    """What a new project reads and writes."""

    topic: str
    # Comma-separated HOST:PORT of brokers.
    bootstrap: str
    # The topic of the sink.
    output: str


def create_project(directory: Path, wanted: NewProject) -> list[Path]:
    """Write a new project, and return the written files.

    Args:
        directory: the project's directory. Its last part is the pipeline's name. It must not exist,
            or must be empty.
        wanted: the topics and the brokers.

    Raises:
        ProjectError: a name is invalid, or the directory has files.
    """
    directory = directory.resolve()
    if _NAME.fullmatch(directory.name) is None:
        raise ProjectError(
            f"{directory.name!r} is no name for a pipeline: use letters, digits, _ and -"
        )
    check_path(directory)
    for name in (wanted.topic, wanted.output):
        if _TOPIC.fullmatch(name) is None or name in (".", ".."):
            raise ProjectError(f"{name!r} is no name of a topic: use letters, digits, '.', _ and -")
    if wanted.topic == wanted.output:
        raise ProjectError(
            f"the pipeline would read what it writes: both topics are {wanted.topic}"
        )
    if '"' in wanted.bootstrap or "\\" in wanted.bootstrap or not wanted.bootstrap.isprintable():
        raise ProjectError(f"{wanted.bootstrap!r} is no list of HOST:PORT")
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise ProjectError(f"{directory} exists already and is not an empty directory")
    values = {
        "name": directory.name,
        "storage": file_address(directory / "storage"),
        "topic": wanted.topic,
        "bootstrap": wanted.bootstrap,
        "output": wanted.output,
    }
    files = {
        directory / SPEC_NAMES[0]: _SPEC.substitute(values),
        directory / "transformations" / "datasets.py": _DEFINITIONS.substitute(values),
        directory / ".gitignore": "storage/\n__pycache__/\n",
    }
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return list(files)
