"""Fits rows to an Iceberg table: creates the table, adds columns, or refuses the rows.

This happens on the driver before the first task, because the tasks write the table's field ids
into their files.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.spark.errors import IcebergTableError, OptionError
from barnabas.spark.iceberg.catalog import created_once, open_catalog
from barnabas.spark.iceberg.partitions import IDENTITY, VOID, partition_terms
from barnabas.spark.option_table import other_partitions
from barnabas.spark.tables.rows import optional_schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from pyiceberg.catalog import Catalog
    from pyiceberg.io import FileIO
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table, Transaction
    from pyiceberg.types import IcebergType, StructType

    from barnabas.spark.iceberg.catalog import IcebergOptions
    from barnabas.spark.iceberg.partitions import PartitionTerm

# Of new tables: each commit adds a manifest and a metadata file, and both stay bounded.
_TABLE_PROPERTIES = {
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
}
# How often a change of the schema is tried while others change the table.
_ATTEMPTS = 10


@dataclass(frozen=True, slots=True)
class FilePlan:
    """The layout of a table for the tasks that write its files; travels to executors as text."""

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


def prepare_table(options: IcebergOptions, rows: pa.Schema) -> FilePlan:
    """Create the table or fit it to the rows, and return what tasks need.

    Raises:
        OptionError: the catalog's properties are wrong.
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
    if options.merge_schema:
        table = _widen(catalog, table, rows, wanted)
    _refuse(wanted, table.schema(), options)
    return FilePlan.of(table)


def _refuse(rows: Schema, table: Schema, options: IcebergOptions) -> None:
    wrong = differences(rows, table, may_miss=options.merge_schema)
    if wrong:
        more = "" if options.merge_schema else ", or set mergeSchema to true to add new columns"
        raise IcebergTableError(
            f"the rows do not fit {options.name.table}: {'; '.join(wrong)}. Select and cast the"
            f" columns that the table has{more}"
        )


def _widen(catalog: Catalog, table: Table, rows: pa.Schema, wanted: Schema) -> Table:
    """Add the new columns of the rows to the table, and widen types; retry after conflicts.

    The table stays as it is if the rows would not fit it then; the caller names what does not fit.
    """
    from pyiceberg.exceptions import CommitFailedException, ValidationError

    for _ in range(_ATTEMPTS):
        if not differences(wanted, table.schema(), may_miss=True):
            break
        transaction = table.transaction()
        try:
            with transaction.update_schema() as update:
                update.union_by_name(optional_schema(rows))
        except (ValueError, ValidationError):
            break
        if differences(wanted, transaction.table_metadata.schema(), may_miss=True):
            break
        try:
            transaction.commit_transaction()
        except CommitFailedException:
            table = catalog.load_table(table.name())
        else:
            return catalog.load_table(table.name())
    return table


def _create(catalog: Catalog, options: IcebergOptions, rows: pa.Schema) -> Table:
    """Create the table without rows; another writer may do the same at the same time."""
    from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError

    namespace = catalog.namespace_from(options.name.table)
    created_once(lambda: catalog.create_namespace_if_not_exists(namespace))
    try:
        with catalog.create_table_transaction(
            options.name.table, optional_schema(rows), properties=_TABLE_PROPERTIES
        ) as creation:
            if options.partition_by:
                _partition(creation, options.partition_by)
    except (TableAlreadyExistsError, CommitFailedException):
        # The requirement of a commit that creates a table is that there is none.
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
    """Convert the rows' types; the ids of the fields have no meaning."""
    from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids

    return _pyarrow_to_schema_without_ids(rows)


def check_layout(table: Table, options: IcebergOptions) -> None:
    """Refuse a table whose partitions the sink cannot write, or are not those of the option.

    Raises:
        IcebergTableError: the partitions differ, or use a transform that the sink does not know.
    """
    found = partition_terms(table.schema(), table.spec())
    terms = tuple(each for each in found if each.transform != VOID)
    unknown = [str(each) for each in terms if not each.is_known]
    if unknown:
        described = ", ".join(map(str, terms))
        raise IcebergTableError(
            f"{options.name.table} is partitioned by {described}: the sink cannot place rows by"
            f" {', '.join(unknown)}"
        )
    if options.partition_by is not None and options.partition_by != terms:
        wanted = [str(each) for each in options.partition_by]
        raise IcebergTableError(
            other_partitions(options.name.table, [str(each) for each in terms], wanted)
        )


def differences(
    rows: Schema | StructType, table: Schema | StructType, *, may_miss: bool, prefix: str = ""
) -> list[str]:
    """Return what does not fit, as sentences; types that the table widens to fit.

    Args:
        rows: the columns of the rows, or the fields of a struct.
        table: the columns of the table, or the fields of a struct.
        may_miss: whether rows may lack columns and fields that may be null.
        prefix: path of the struct whose fields are compared.
    """
    row_types = {each.name: each.field_type for each in rows.fields}
    wrong = []
    for field in table.fields:
        path = prefix + field.name
        found = row_types.pop(field.name, None)
        if found is not None:
            wrong += _type_differences(found, field.field_type, path, may_miss=may_miss)
        elif field.required or not may_miss:
            kind = type_text(field.field_type)
            wrong.append(f"{path} is missing in the rows and {kind} in the table")
    wrong += [
        f"{prefix}{name} is {type_text(kind)} in the rows and missing in the table"
        for name, kind in row_types.items()
    ]
    return wrong


def _type_differences(
    rows: IcebergType, table: IcebergType, path: str, *, may_miss: bool
) -> list[str]:
    from pyiceberg.types import ListType, MapType, StructType

    match rows, table:
        case StructType(), StructType():
            return differences(rows, table, may_miss=may_miss, prefix=f"{path}.")
        case ListType(), ListType():
            inner = [(rows.element_type, table.element_type, f"{path}.element")]
        case MapType(), MapType():
            inner = [
                (rows.key_type, table.key_type, f"{path}.key"),
                (rows.value_type, table.value_type, f"{path}.value"),
            ]
        case _ if _fits(rows, table):
            return []
        case _:
            return [f"{path} is {type_text(rows)} in the rows and {type_text(table)} in the table"]
    return [text for pair in inner for text in _type_differences(*pair, may_miss=may_miss)]


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
