"""Asks Spark's catalog and the tables of sinks what earlier runs left, and Spark for types."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pyspark.errors import AnalysisException, PySparkException

from barnabas.spark.option_values import absolute_address
from barnabas.spark.pipelines.definition import relations
from barnabas.spark.pipelines.table_changes import StoredTable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.pipelines.output import Sink
    from pyspark.sql import SparkSession

    from barnabas.spark.pipelines.project import Project


def stored_table(session: SparkSession, project: Project, target: str) -> StoredTable:
    """Return what is there of a table of the pipeline."""
    try:
        columns = {field.name: field.dataType for field in session.table(target).schema.fields}
    except AnalysisException as error:
        if not (error.getCondition() or "").startswith("TABLE_OR_VIEW_NOT_FOUND"):
            raise
        return StoredTable(f"Spark's catalog has no table {target}")
    if not project.table_directory(target).is_dir():
        directory = _directory(session, target)
        if directory is not None and not directory.is_dir():
            return StoredTable(f"the files of {target} in {directory} are gone")
    return StoredTable(columns=columns)


def stored_sink(sink: Sink) -> StoredTable:
    """Return what is there of a sink that is a table of Delta or Iceberg."""
    options = {name.lower(): value for name, value in sink.options.items()}
    if sink.format == "barnabas_delta" and "path" in options:
        from deltalake import DeltaTable

        address = absolute_address(options["path"])
        if not DeltaTable.is_deltatable(address, _with_prefix(options, "storage.")):
            return StoredTable(f"there is no Delta table in {address}")
    table = options.get("table") or options.get("path")
    if sink.format == "barnabas_iceberg" and table:
        from pyiceberg.exceptions import NoSuchTableError

        from barnabas.spark.iceberg.catalog import DEFAULT_CATALOG, TableName, open_table

        catalog = options.get("catalog", DEFAULT_CATALOG)
        try:
            open_table(TableName(table, catalog, _with_prefix(options, "catalog.")))
        except NoSuchTableError:
            return StoredTable(f"the catalog has no Iceberg table {table}")
    return StoredTable()


def row_types(
    session: SparkSession, project: Project, plan: Any, views: Mapping[str, Any]
) -> dict[str, Any]:
    """Return Spark's types of the rows of a flow by column; none if Spark does not know them.

    Spark is asked outside of the pipeline, so tables that no run has made are unknown to it.

    Args:
        session: the session.
        project: the project, which has the tables.
        plan: the plan of the flow.
        views: the plans of the temporary views by name.
    """
    whole = type(plan)()
    whole.CopyFrom(plan)
    _name_tables(whole.root, project, views)
    connect: Any = session
    try:
        schema = connect.client.schema(whole)
    except PySparkException:
        return {}
    return {field.name: field.dataType for field in schema.fields}


def _name_tables(root: Any, project: Project, views: Mapping[str, Any]) -> None:
    """Replace temporary views by their plans, and give tables their whole names."""
    for relation in list(relations(root)):
        if relation.WhichOneof("rel_type") != "read":
            continue
        if relation.read.WhichOneof("read_type") != "named_table":
            continue
        table = relation.read.named_table
        name = table.unparsed_identifier.replace("`", "")
        if name in views:
            others = {key: view for key, view in views.items() if key != name}
            relation.CopyFrom(views[name].root)
            _name_tables(relation, project, others)
        else:
            table.unparsed_identifier = project.qualified(name)


def _with_prefix(options: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {
        name.removeprefix(prefix): value
        for name, value in options.items()
        if name.startswith(prefix)
    }


def _directory(session: SparkSession, target: str) -> Path | None:
    """Return the local directory of a table's files; None if they are elsewhere."""
    for row in session.sql(f"DESCRIBE TABLE EXTENDED {target}").collect():
        if row["col_name"] == "Location" and row["data_type"].startswith("file:"):
            return Path(urlsplit(row["data_type"]).path)
    return None
