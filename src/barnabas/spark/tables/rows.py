"""Rows of tables, for both table sinks: their types, and the files to which a task writes them.

A task writes at least one file per table partition.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from barnabas.spark.errors import OptionError
from barnabas.spark.worker_process import freeze_imports

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyspark.sql.types import DataType, StructType

# The types that tables of both kinds store, by Spark's names.
_STORED = frozenset(
    {
        "boolean", "byte", "short", "integer", "long", "float", "double", "decimal", "string",
        "binary", "date", "timestamp", "timestamp_ntz",
    }
)  # fmt: skip
_NULL = "void"
# A file that reaches this size is closed.
FILE_BYTES = 128 << 20
# Maximum number of open files; a task with more partitions closes all files first.
_OPEN_FILES_MAX = 32
Written = TypeVar("Written")
Written_co = TypeVar("Written_co", covariant=True)


def stored_schema(schema: StructType, sink: str, *, accepts_null: bool = False) -> pa.Schema:
    """Convert the columns of the rows to Arrow, as `arrow_rows` does; refuse unfit types.

    Arrow would turn variants and geometries into structs of binary.

    Args:
        schema: the columns of the rows.
        sink: name of the sink, for the message.
        accepts_null: whether the sink has its own answer to columns of `SELECT NULL`.

    Raises:
        OptionError: a table cannot store a type; names the columns and their types.
    """
    stored = _STORED | {_NULL} if accepts_null else _STORED
    wrong = [
        f"{path} is {name}"
        for field in schema.fields
        for path, name in _unfit(field.dataType, field.name, stored)
    ]
    if wrong:
        raise OptionError(
            f"{sink} cannot store these columns: {'; '.join(wrong)}. Convert them, for instance"
            " with CAST(column AS STRING), or with to_json(column) for variants"
        )
    return arrow_rows(schema)


def _unfit(kind: DataType, path: str, stored: frozenset[str]) -> list[tuple[str, str]]:
    """Return path and name of each type inside a type that no table stores."""
    from pyspark.sql.types import ArrayType, MapType, StructType, UserDefinedType

    match kind:
        case StructType() if kind.fields:
            inner = [(each.dataType, f"{path}.{each.name}") for each in kind.fields]
        case ArrayType():
            inner = [(kind.elementType, f"{path}.element")]
        case MapType():
            inner = [(kind.keyType, f"{path}.key"), (kind.valueType, f"{path}.value")]
        case UserDefinedType():
            inner = [(kind.sqlType(), path)]
        case _:
            return [] if kind.typeName() in stored else [(path, kind.simpleString())]
    return [found for each, where in inner for found in _unfit(each, where, stored)]


def arrow_rows(schema: StructType) -> pa.Schema:
    """Convert the columns of the rows to Arrow: timestamps are UTC, in microseconds.

    Raises:
        OptionError: Arrow has no type for a column, so Spark cannot hand the rows to Python.
    """
    from pyspark.errors import PySparkTypeError
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    wrong = []
    for field in schema.fields:
        try:
            to_arrow_schema(StructType([field]), timezone="UTC")
        except PySparkTypeError:
            wrong.append(f"{field.name} is {field.dataType.simpleString()}")
    if wrong:
        raise OptionError(
            f"Spark cannot hand these columns to a sink in Python: {'; '.join(wrong)}. Convert"
            " them, for instance with CAST(column AS STRING)"
        )
    return to_arrow_schema(schema, timezone="UTC")


def optional_schema(schema: pa.Schema) -> pa.Schema:
    """Return the columns with nulls allowed at all depths, except for keys of maps.

    Spark knows of some columns that their rows have no nulls, such as `count(*)`. A later query may
    have others. Metadata of the columns is left out.
    """
    import pyarrow as pa

    return pa.schema([_optional_field(each) for each in schema])


def _optional_field(field: pa.Field) -> pa.Field:
    import pyarrow as pa

    return pa.field(field.name, _optional_type(field.type))


def _optional_type(kind: pa.DataType) -> pa.DataType:
    import pyarrow as pa

    if pa.types.is_struct(kind):
        return pa.struct([_optional_field(each) for each in kind.fields])
    if pa.types.is_list(kind):
        return pa.list_(_optional_field(kind.value_field))
    if pa.types.is_map(kind):
        return pa.map_(_optional_type(kind.key_type), _optional_field(kind.item_field))
    return kind


class FileStorage(Protocol):
    """The file system of a table, with the names of pyarrow's file systems."""

    def open_output_stream(self, path: str) -> Any:
        """Create a file; return it as pyarrow can write it."""

    def open_input_file(self, path: str) -> Any:
        """Open a file; return it as pyarrow can read it."""

    def delete_file(self, path: str) -> None:
        """Delete a file."""


class ParquetFile(Generic[Written_co]):
    """One file that is being written.

    Args:
        storage: the file system.
        path: the path of the file.
        schema: the columns of the file.
        describe: returns the description of the complete file, from its size (bytes) and metadata.
        options: for pyarrow's writer of Parquet.
    """

    __slots__ = ("_describe", "_output", "_path", "_schema", "_storage", "_writer")

    def __init__(
        self,
        storage: FileStorage,
        path: str,
        schema: pa.Schema,
        describe: Callable[[int, pq.FileMetaData], Written_co],
        **options: Any,
    ) -> None:
        import pyarrow.parquet as pq

        self._storage = storage
        self._path = path
        self._schema = schema
        self._describe = describe
        self._output = storage.open_output_stream(path)
        self._writer = pq.ParquetWriter(self._output, schema, **options)

    def write(self, batch: pa.RecordBatch) -> int:
        """Append the columns of the file; return the bytes written to it so far."""
        self._writer.write_batch(batch.select(self._schema.names))
        return int(self._output.tell())

    def close(self) -> Written_co:
        """Complete the file, and return its description."""
        self._writer.close()
        size = int(self._output.tell())
        self._output.close()
        return self._describe(size, self._writer.writer.metadata)

    def delete(self) -> None:
        """Close the file if it is open, and delete it."""
        if not self._output.closed:
            self._writer.close()
            self._output.close()
        self._storage.delete_file(self._path)


class TaskFiles(Protocol[Written]):
    """The files of one task for one table."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows to the files."""

    def close(self) -> list[Written]:
        """Close all files and return their descriptions."""

    def discard(self) -> None:
        """Delete all written files."""


def write_all(files: TaskFiles[Written], batches: Iterable[pa.RecordBatch]) -> list[Written]:
    """Write rows, close the files and return their descriptions; delete them after an error."""
    freeze_imports()
    try:
        for batch in batches:
            if batch.num_rows:
                files.write(batch)
        return files.close()
    except BaseException:
        files.discard()
        raise


class PartitionedFiles(Generic[Written_co]):
    """Writes batches of rows to files; `close` returns the descriptions of the files.

    Args:
        fit: returns the rows with the columns and types of the table; raises an error if they do
            not fit.
        partition_keys: returns what the rows are partitioned by, as columns; none for a table
            without partitions.
        open_file: opens a new file for the partition with these keys.
        file_bytes: size at which a file is closed.
    """

    def __init__(
        self,
        fit: Callable[[pa.RecordBatch], pa.RecordBatch],
        partition_keys: Callable[[pa.RecordBatch], Sequence[pa.Array]],
        open_file: Callable[[tuple[Any, ...]], ParquetFile[Written_co]],
        file_bytes: int = FILE_BYTES,
    ) -> None:
        self._fit = fit
        self._partition_keys = partition_keys
        self._open_file = open_file
        self._file_bytes = file_bytes
        # Open files by partition.
        self._open: dict[tuple[Any, ...], ParquetFile[Written_co]] = {}
        # Closed files, and their descriptions in the same order.
        self._closed: list[ParquetFile[Written_co]] = []
        self._written: list[Written_co] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows to the files of their partitions."""
        batch = self._fit(batch)
        for values, rows in _split(batch, self._partition_keys(batch)):
            file = self._open.get(values)
            if file is None:
                if len(self._open) >= _OPEN_FILES_MAX:
                    self._close_open()
                file = self._open_file(values)
                self._open[values] = file
            if file.write(rows) >= self._file_bytes:
                self._close(self._open.pop(values))

    def close(self) -> list[Written_co]:
        """Close all files and return their descriptions."""
        self._close_open()
        return self._written

    def discard(self) -> None:
        """Delete all files after a failed task."""
        for file in [*self._closed, *self._open.values()]:
            file.delete()

    def _close_open(self) -> None:
        while self._open:
            _, file = self._open.popitem()
            self._close(file)

    def _close(self, file: ParquetFile[Written_co]) -> None:
        self._closed.append(file)
        self._written.append(file.close())


def _split(
    batch: pa.RecordBatch, keys: Sequence[pa.Array]
) -> Iterator[tuple[tuple[Any, ...], pa.RecordBatch]]:
    """Yield the rows of each partition of the table, in their order."""
    import pyarrow as pa

    if not keys:
        yield (), batch
        return
    names = [str(index) for index in range(len(keys))]
    rows = pa.table([*keys, pa.array(range(batch.num_rows))], [*names, "row"])
    groups = rows.group_by(names, use_threads=False).aggregate([("row", "list")])
    columns = [[_comparable(each) for each in groups[name].to_pylist()] for name in names]
    for values, indexes in zip(zip(*columns, strict=True), groups["row_list"], strict=True):
        yield values, batch if groups.num_rows == 1 else batch.take(indexes.values)


def _comparable(value: Any) -> Any:
    """Return the value; of NaN, which is not equal to itself, return always the same object."""
    return math.nan if isinstance(value, float) and math.isnan(value) else value
