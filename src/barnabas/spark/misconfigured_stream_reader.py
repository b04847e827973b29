"""A stream reader that only raises the error of its options.

If `DataSource.streamReader` raises, PySpark 4.2 reports an `UnboundLocalError` of its own, which
hides the error that matters to the user.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader

from barnabas.spark.shown_errors import message_first

if TYPE_CHECKING:
    from barnabas.spark.errors import OptionError


@message_first
class MisconfiguredStreamReader(DataSourceStreamReader):
    """Raises the error in every call with which Spark can start or resume a query."""

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
