"""Fits rows to an Iceberg table: creates the table, adds columns, or refuses the rows.

This happens on the driver before the first task, because the tasks write the table's field ids
into their files.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.spark.errors import OptionError
from barnabas.spark.iceberg.catalog import open_catalog
from barnabas.spark.iceberg.errors import IcebergTableError
from barnabas.spark.iceberg.partitions import IDENTITY, VOID, partition_terms
from barnabas.spark.row_types import optional_schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from pyiceberg.catalog import Catalog
    from pyiceberg.io import FileIO
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table, Transaction
    from pyiceberg.types import IcebergType

    from barnabas.spark.iceberg.partitions import PartitionTerm
    from barnabas.spark.iceberg.sink_options import SinkOptions

# Of new tables: each commit adds a manifest and a metadata file, and both stay bounded.
_TABLE_PROPERTIES = {
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
}
# How often a change of the schema is tried while others change the table.
_ATTEMPTS = 10


@dataclass(frozen=True, slots=True)
class FilePlan:
    """What a task must know of the table to write its files; travels to the executors as text."""

    # Schema and partition spec, as JSON of Iceberg's specification.
    schema: str
    spec: str
    # Directory of the table.
    location: str
    table_properties: dict[str, str]
    # Settings of the file system or object store; may hold credentials of the catalog.
    io_properties: dict[str, str]

    @classmethod
    def of(cls, table: Table) -> FilePlan:
        """Return the plan for the current layout of a table."""
        return cls(
            table.schema().model_dump_json(),
            table.spec().model_dump_json(),
            table.location(),
            dict(table.properties),
            dict(table.io.properties),
        )

    def parsed(self) -> tuple[Schema, PartitionSpec]:
        """Return the schema and the partition spec."""
        from pyiceberg.partitioning import PartitionSpec
        from pyiceberg.schema import Schema

        return Schema.model_validate_json(self.schema), PartitionSpec.model_validate_json(self.spec)

    def open_files(self) -> FileIO:
        """Connect to the file system of the table."""
        from pyiceberg.io import load_file_io

        return load_file_io(dict(self.io_properties), self.location)


def prepare_table(options: SinkOptions, rows: pa.Schema) -> FilePlan:
    """Create the table or fit it to the rows, and return what tasks need.

    Raises:
        OptionError: a type of the rows cannot be stored, or the catalog's properties are wrong.
        IcebergTableError: the rows do not fit the table.
    """
    from pyiceberg.exceptions import NoSuchTableError

    try:
        catalog = open_catalog(options.name)
    except ValueError as error:
        raise OptionError(f"the properties of the catalog are wrong: {error}") from error
    wanted = iceberg_schema(rows)
    try:
        table = catalog.load_table(options.name.table)
    except NoSuchTableError:
        table = _create(catalog, options, rows)
    check_layout(table, options)
    wrong = differences(wanted, table.schema(), may_miss=options.merge_schema)
    if wrong and options.merge_schema:
        table = _widen(catalog, table, rows)
        wrong = differences(wanted, table.schema(), may_miss=True)
    if wrong:
        raise IcebergTableError(
            f"the rows do not fit {options.name.table}: {'; '.join(wrong)}. Select and cast the"
            " columns that the table has, or set mergeSchema to true to add new columns"
        )
    return FilePlan.of(table)


def _widen(catalog: Catalog, table: Table, rows: pa.Schema) -> Table:
    """Add the new columns of the rows to the table, and widen types; retry after conflicts."""
    from pyiceberg.exceptions import CommitFailedException, ValidationError

    for _ in range(_ATTEMPTS):
        try:
            with table.update_schema() as update:
                update.union_by_name(optional_schema(rows))
            break
        except CommitFailedException:
            pass
        except (ValueError, ValidationError):
            # Types that cannot be widened; the caller names them.
            break
        finally:
            table = catalog.load_table(table.name())
    return table


def _create(catalog: Catalog, options: SinkOptions, rows: pa.Schema) -> Table:
    """Create the table without rows; another writer may do the same at the same time."""
    from pyiceberg.exceptions import TableAlreadyExistsError

    namespace = catalog.namespace_from(options.name.table)
    catalog.create_namespace_if_not_exists(namespace)
    try:
        with catalog.create_table_transaction(
            options.name.table, optional_schema(rows), properties=_TABLE_PROPERTIES
        ) as creation:
            if options.partition_by:
                _partition(creation, options.partition_by)
    except TableAlreadyExistsError:
        pass
    return catalog.load_table(options.name.table)


def _partition(creation: Transaction, terms: Sequence[PartitionTerm]) -> None:
    try:
        with creation.update_spec() as spec:
            for term in terms:
                name = term.column if term.transform == IDENTITY else None
                spec.add_field(term.column, term.transform, name)
    except ValueError as error:
        raise OptionError(
            f"partitionColumns is {', '.join(map(str, terms))}, which a table cannot be"
            f" partitioned by: {error}"
        ) from error


def iceberg_schema(rows: pa.Schema) -> Schema:
    """Convert the rows' types; the ids of the fields have no meaning.

    Raises:
        OptionError: an Iceberg table cannot store one of the types.
    """
    from pyiceberg.io.pyarrow import (
        UnsupportedPyArrowTypeException,
        _pyarrow_to_schema_without_ids,
    )

    try:
        return _pyarrow_to_schema_without_ids(rows)
    except (TypeError, UnsupportedPyArrowTypeException) as error:
        raise OptionError(f"the rows cannot be stored in an Iceberg table: {error}") from error


def check_layout(table: Table, options: SinkOptions) -> None:
    """Refuse a table whose partitions the sink cannot write, or are not those of the option.

    Raises:
        IcebergTableError: the partitions differ, or use a transform that the sink does not know.
    """
    found = partition_terms(table.schema(), table.spec())
    terms = tuple(each for each in found if each.transform != VOID)
    described = ", ".join(map(str, terms))
    unknown = [str(each) for each in terms if not each.is_known]
    if unknown:
        raise IcebergTableError(
            f"{options.name.table} is partitioned by {described}: the sink cannot place rows by"
            f" {', '.join(unknown)}"
        )
    if options.partition_by is not None and options.partition_by != terms:
        raise IcebergTableError(
            f"{options.name.table} is partitioned by ({described}): leave out the option"
            " partitionColumns, or set it to that, not to"
            f" ({', '.join(map(str, options.partition_by))})"
        )


def differences(rows: Schema, table: Schema, *, may_miss: bool) -> list[str]:
    """Return what does not fit, as sentences; types that the table widens to fit.

    Args:
        rows: the columns of the rows.
        table: the columns of the table.
        may_miss: whether rows may lack columns that may be null.
    """
    row_types = {each.name: each.field_type for each in rows.fields}
    wrong = []
    for field in table.fields:
        found = row_types.pop(field.name, None)
        if found is None:
            if field.required or not may_miss:
                wrong.append(
                    f"{field.name} is missing in the rows and {type_text(field.field_type)} in"
                    " the table"
                )
        elif not _fits(found, field.field_type):
            wrong.append(
                f"{field.name} is {type_text(found)} in the rows and"
                f" {type_text(field.field_type)} in the table"
            )
    wrong += [
        f"{name} is {type_text(kind)} in the rows and missing in the table"
        for name, kind in row_types.items()
    ]
    return wrong


def _fits(rows: IcebergType, table: IcebergType) -> bool:
    from pyiceberg.exceptions import ResolveError
    from pyiceberg.schema import promote

    if type_text(rows) == type_text(table):
        return True
    try:
        promote(rows, table)
    except ResolveError:
        return False
    return True


def type_text(kind: IcebergType) -> str:
    """Return a type as Iceberg writes it, without ids and nullability of its fields."""
    return re.sub(r"-?\b\d+: (\S+): (?:optional|required) ", r"\1: ", str(kind))
