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

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from barnabas.spark.pipelines.errors import MissingExtraError, ProjectError

if TYPE_CHECKING:
    from collections.abc import Mapping

SPEC_NAMES = ("spark-pipeline.yml", "spark-pipeline.yaml")
_DEFAULT_CATALOG = "spark_catalog"
_DEFAULT_DATABASE = "default"


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
