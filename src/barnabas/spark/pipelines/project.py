"""A pipeline project: the folder of a `spark-pipeline.yml`, and where a run keeps its files.

Spark defines the keys of the specification. Facts of PySpark 4.2.1 that decide the layout:

- Checkpoints of a table's flow are in
  `<storage>/_checkpoints/<catalog>/<database>/<table>/<flow>/<n>`, those of a sink's flow in
  `<storage>/_checkpoints/<sink>/<flow>/<n>`. A full refresh counts n up.
- The default catalog is in memory, so a second run would find the directories of the tables and
  fail with LOCATION_ALREADY_EXISTS. The catalog must be Hive's, which is embedded Derby here.
- The catalog's type, its directory and the directory of the tables are static settings. In the
  specification's `configuration` they fail each flow with CANNOT_MODIFY_STATIC_CONFIG, and
  `spark-pipelines --conf` does not pass all of them on. Therefore a run starts Spark with them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping

SPEC_NAMES = ("spark-pipeline.yml", "spark-pipeline.yaml")
_DEFAULT_CATALOG = "spark_catalog"
_DEFAULT_DATABASE = "default"
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


class ProjectError(ValueError):
    """A project cannot be created, read or run; the message says what to do."""


class MissingExtraError(ProjectError):
    """A package of the extra `spark` is not installed."""

    def __init__(self, error: ModuleNotFoundError) -> None:
        super().__init__(f"{error}: install Barnabas with its extra `spark`")


@dataclass(frozen=True, slots=True)
class Project:
    """A project whose specification is valid and whose storage is a local directory."""

    name: str
    # The specification's path; its directory is the project's.
    spec: Path
    storage: Path
    catalog: str
    database: str
    # Spark settings of the specification. All of them can be changed in a running session.
    configuration: Mapping[str, str]

    @property
    def directory(self) -> Path:
        """The project's directory."""
        return self.spec.parent

    @property
    def checkpoints(self) -> Path:
        """The directory in which Spark keeps the checkpoints of all flows."""
        return self.storage / "_checkpoints"

    @property
    def tables(self) -> Path:
        """The directory of the tables' files: Spark's warehouse."""
        return self.storage / "tables"

    def table_directory(self, target: str) -> Path:
        """Return where Spark keeps the files of a table, given its name with all parts."""
        _catalog, database, table = target.rsplit(".", 2)
        parent = self.tables if database == "default" else self.tables / f"{database}.db"
        return parent / table

    @property
    def metastore(self) -> Path:
        """The directory of the embedded catalog."""
        return self.storage / "catalog"

    @property
    def notes(self) -> Path:
        """The directory of what the runs of this project record for the next one."""
        return self.storage / "_barnabas"

    def qualified(self, name: str) -> str:
        """Return the name of a dataset with catalog and database."""
        parts = name.replace("`", "").split(".")
        return ".".join([self.catalog, self.database][: max(0, 3 - len(parts))] + parts)


def file_address(path: Path) -> str:
    """Return a path as an address of Spark."""
    return f"file://{path}"


def check_path(path: Path) -> None:
    """Refuse paths that Spark 4.2.1 escapes: it writes checkpoints of `my files` to `my%20files`.

    Raises:
        ProjectError: the path has a character that addresses escape.
    """
    if quote(str(path)) != str(path):
        raise ProjectError(
            f"{path} has a space or another character that Spark would replace: use a path of "
            "letters, digits, '-', '_', '.' and '~'"
        )


def load_project(start: Path) -> Project:
    """Read the project of a directory or of one of its parents, or of a specification file.

    Raises:
        ProjectError: there is no specification, it is wrong, or its storage is not local.
    """
    spec = _find_spec(start)
    try:
        import yaml
    except ModuleNotFoundError as error:
        raise MissingExtraError(error) from None
    try:
        given = yaml.safe_load(spec.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ProjectError(f"{spec} cannot be read: {error}") from None
    if not isinstance(given, dict):
        raise ProjectError(f"{spec} has no keys; it needs at least name and storage")
    for key in ("name", "storage"):
        if not isinstance(given.get(key), str) or not given[key]:
            raise ProjectError(f"{spec} lacks the key {key}, or its value is not text")
    return Project(
        name=given["name"],
        spec=spec,
        storage=_local_path(spec, given["storage"]),
        catalog=given.get("catalog") or _DEFAULT_CATALOG,
        database=given.get("database") or given.get("schema") or _DEFAULT_DATABASE,
        configuration=_settings(spec, given.get("configuration") or {}),
    )


def _find_spec(start: Path) -> Path:
    start = start.resolve()
    if start.is_file():
        return start
    for directory in (start, *start.parents):
        found = [directory / name for name in SPEC_NAMES if (directory / name).is_file()]
        if len(found) > 1:
            raise ProjectError(f"{directory} has {' and '.join(SPEC_NAMES)}: remove one of them")
        if found:
            return found[0]
    raise ProjectError(
        f"there is no {SPEC_NAMES[0]} in {start} or above it: go to the project's directory, name "
        "it with --project, or create a project with `barnabas pipeline init`"
    )


def _local_path(spec: Path, storage: str) -> Path:
    address = urlsplit(storage)
    if address.scheme not in ("", "file") or address.netloc:
        raise ProjectError(
            f"{spec} has storage: {storage}. Use a local directory such as file:///data/pipeline; "
            "status and reset read the checkpoints there. `spark-pipelines run` takes other storage"
        )
    path = Path(storage.removeprefix("file:"))
    # Three slashes, or one: Hadoop takes both.
    path = Path("/", *path.parts[1:]) if path.is_absolute() else path
    if not path.is_absolute():
        raise ProjectError(
            f"{spec} has storage: {storage}, which is not absolute. Spark would resolve it in the "
            f"directory of each run: write {file_address(spec.parent / path)}"
        )
    check_path(path)
    return path


def _settings(spec: Path, given: Any) -> dict[str, str]:
    if not isinstance(given, dict):
        raise ProjectError(f"{spec}: configuration is not a mapping of settings to values")
    for key, value in given.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise ProjectError(
                f'{spec}: the value of {key} must be text: write {key}: "{value}" with quotes'
            )
    return dict(given)


@dataclass(frozen=True, slots=True)
class NewProject:
    """The topics that a new project reads and writes."""

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
