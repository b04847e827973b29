"""`format("barnabas")`: the data source that provides Spark with schema, readers and writers.

Spark imports this module in every session while it looks for data sources. The module therefore
imports nothing large; in particular it does not import the client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from pyspark.sql.datasource import DataSource, DataSourceStreamReader

from barnabas.spark.errors import OptionError
from barnabas.spark.worker_process import message_first

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from barnabas.spark.topics.options import SourceOptions
    from barnabas.spark.topics.reader import TopicReader, TopicStreamReader
    from barnabas.spark.topics.writer import TopicStreamWriter, TopicWriter

_COLUMNS = (
    ("key", "binary"),
    ("value", "binary"),
    ("topic", "string"),
    ("partition", "int"),
    ("offset", "bigint"),
    ("timestamp", "timestamp"),
    ("timestampType", "int"),
)
_HEADERS = ("headers", "array<struct<key:string,value:binary>>")


@message_first
class BarnabasSource(DataSource):
    """Topics as tables and streams, with the columns and options of Spark's Kafka connector."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format(...)`."""
        return "barnabas"

    def schema(self) -> str:
        """Return the columns of a read.

        Raises:
            OptionError: the options are valid neither for `spark.read` nor for `spark.readStream`.
                Spark calls this in `load()`, so the user sees the error as early as possible.
        """
        from barnabas.spark.topics.options import parse_source_options

        try:
            options = parse_source_options(self.options, streaming=True)
        except OptionError:
            options = parse_source_options(self.options, streaming=False)
        return ", ".join(f"{name} {kind}" for name, kind in self._columns(_resolved(options)))

    def _columns(self, options: SourceOptions) -> tuple[tuple[str, str], ...]:
        columns = _COLUMNS
        if options.value_format is not None:
            from barnabas.spark.topics.value_format import column_type

            columns = (columns[0], ("value", column_type(options.value_format)), *columns[2:])
        return (*columns, _HEADERS) if options.include_headers else columns

    def reader(self, schema: StructType) -> TopicReader:
        """Return the reader for `spark.read`.

        Raises:
            OptionError: an option is wrong, or the user gave a schema.
        """
        from barnabas.spark.topics.options import parse_source_options
        from barnabas.spark.topics.reader import TopicReader

        options = self._planned(parse_source_options(self.options, streaming=False), schema)
        options.log_warnings()
        return TopicReader(options, schema)

    def streamReader(self, schema: StructType) -> TopicStreamReader | MisconfiguredStreamReader:
        """Return the reader for `spark.readStream`; it raises the error of wrong options later."""
        from barnabas.runtime.clock import SystemClock
        from barnabas.spark.topics.options import parse_source_options
        from barnabas.spark.topics.reader import TopicStreamReader

        try:
            options = self._planned(parse_source_options(self.options, streaming=True), schema)
        except OptionError as error:
            return MisconfiguredStreamReader(error)
        options.log_warnings()
        return TopicStreamReader(options, schema, SystemClock())

    def writer(self, schema: StructType, overwrite: bool) -> TopicWriter:
        """Return the writer for `df.write`.

        Raises:
            OptionError: an option or column is wrong, or the mode is "overwrite".
        """
        from barnabas.runtime.rng import SystemRng
        from barnabas.spark.topics.options import parse_sink_options
        from barnabas.spark.topics.sink_rows import sink_columns
        from barnabas.spark.topics.writer import TopicWriter, is_transactional

        if overwrite:
            raise OptionError("a topic cannot be overwritten: use mode('append')")
        options = parse_sink_options(self.options)
        columns = sink_columns(schema, options)
        in_transactions = is_transactional(options, default=False)
        return TopicWriter(options, columns, SystemRng().uuid().hex() if in_transactions else None)

    def streamWriter(
        self,
        schema: StructType,
        overwrite: bool,
    ) -> TopicStreamWriter:
        """Return the writer for `df.writeStream`; output mode "complete" appends too.

        It writes exactly once if the brokers have transactions and `exactlyOnce` is not false.

        Raises:
            OptionError: an option or column is wrong.
        """
        from barnabas.spark.topics.options import parse_sink_options
        from barnabas.spark.topics.sink_rows import sink_columns
        from barnabas.spark.topics.writer import TopicStreamWriter, is_transactional

        options = parse_sink_options(self.options)
        columns = sink_columns(schema, options)
        in_transactions = is_transactional(options, default=True)
        return TopicStreamWriter(options, columns, "" if in_transactions else None)

    def _planned(self, options: SourceOptions, schema: StructType) -> SourceOptions:
        """Return the options with the schema of the column `value`; check the columns."""
        given = [(column.name, column.dataType.simpleString()) for column in schema.fields]
        if _is_json(options):
            from barnabas.spark.topics.value_reader import check_type

            # Spark has parsed the text of `valueSchema`: its type is the schema.
            expected = [*self._columns(options)]
            expected[1] = given[1]
            check_type(schema.fields[1].dataType)
        else:
            options = _resolved(options)
            expected = [*self._columns(options)]
        if given != expected:
            raise OptionError(
                "the columns of a topic are fixed: leave .schema(...) out, and parse `value` with "
                "from_json, from_csv or a cast"
            )
        return options


def _is_json(options: SourceOptions) -> bool:
    """Return whether the type of the column `value` is the one that Spark gives to a reader."""
    if options.value_format is None:
        return False
    from barnabas.spark.topics.value_format import Format

    return options.value_format.format is Format.JSON


def _resolved(options: SourceOptions) -> SourceOptions:
    """Return the options with the schema of the column `value`.

    This may ask the registry, or read a sample of the topic.
    """
    if options.value_format is None:
        return options
    from dataclasses import replace

    from barnabas.spark.topics.value_format import resolve

    return replace(options, value_format=resolve(options.value_format, options.client))


@message_first
class MisconfiguredStreamReader(DataSourceStreamReader):
    """Raises the error of wrong options in every call with which Spark starts or resumes a query.

    If `DataSource.streamReader` raises, PySpark 4.2 reports an `UnboundLocalError` of its own,
    which hides the error that matters to the user.
    """

    def __init__(self, error: OptionError) -> None:
        self._error = error

    def initialOffset(self) -> NoReturn:
        """Raise the error; this is the first call of a query without a checkpoint."""
        raise self._error

    def latestOffset(self, *_: object) -> NoReturn:
        """Raise the error; this is the first call of a query with a checkpoint."""
        raise self._error

    def partitions(self, *_: object) -> NoReturn:
        """Raise the error; this is the first call of a query that repeats its last batch."""
        raise self._error

    def read(self, *_: object) -> NoReturn:
        """Raise the error."""
        raise self._error
