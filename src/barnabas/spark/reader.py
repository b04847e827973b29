"""`spark.read.format("barnabas")`: a bounded read of topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from barnabas.spark.errors import OptionError
from barnabas.spark.ranges import OffsetRange, ranges_between, split_ranges
from barnabas.spark.shown_errors import message_first

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyarrow import RecordBatch
    from pyspark.sql.types import StructType

    from barnabas.client.topic_partition import TopicPartition
    from barnabas.spark.offsets import Offsets
    from barnabas.spark.options import SourceOptions


@message_first
class TopicReader(DataSourceReader):
    """Plans the read on the driver; Spark pickles it for its workers, so it has plain values."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """Return one range per task; this call fixes the offsets at which the read ends.

        Raises:
            OptionError: the offset options do not fit the partitions.
            NoBrokersError: no broker responded in time.
        """
        from barnabas.spark.clients import planning_client
        from barnabas.spark.planner import Planner

        options = self._options
        planner = Planner(planning_client(options.client), options)
        selected = planner.partitions()
        start = planner.starting(selected)
        end = planner.ending(selected)
        _check_order(start, end)
        ranges = split_ranges(
            ranges_between(start, end), options.min_partitions, options.max_records_per_partition
        )
        return [InputPartition(one) for one in ranges]

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        """Yield the records of one range; if the read has no ranges, Spark passes None."""
        from barnabas.spark.task import read_range

        if isinstance(partition.value, OffsetRange):
            yield from read_range(self._options, partition.value, self._schema)


def _check_order(start: dict[TopicPartition, int], end: Offsets) -> None:
    for tp, offset in end.items():
        if start[tp] > offset:
            raise OptionError(f"{tp}: reading starts at {start[tp]}, after its end {offset}")
