"""The short form: the current rows of one table by the option `mergeKeys`, without own code.

It is enough if the columns of the source table stay as they are, no value is so large that
PostgreSQL leaves it out of its log, and nobody uses TRUNCATE. `flights` is such a table.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery

from airline import FLIGHT, TABLES

NAME, SOURCE = "flights_by_merge_keys", "flights"
KEY = TABLES[SOURCE]
# Columns that the source table has from the beginning.
COLUMNS = [column.split()[0] for column in FLIGHT.split(", ")]
KEY_TYPE = "time_hour STRING, origin STRING, carrier STRING, flight INT"
ROW_TYPE = f"{KEY_TYPE}, tailnum STRING, dest STRING, distance INT, dep_delay DOUBLE"


def start(events: DataFrame, tables: Path, checkpoint: Path) -> StreamingQuery:
    """Start the query.

    Args:
        events: records of the topic.
        tables: the directory of the Delta tables.
        checkpoint: the directory of the checkpoint.
    """
    event_type = f"payload STRUCT<op: STRING, after: STRUCT<{ROW_TYPE}>>"
    values = [f"event.payload.after.{name}" for name in COLUMNS if name not in KEY]
    rows = (
        # A tombstone follows each deletion, and says nothing new.
        events.where("key IS NOT NULL AND value IS NOT NULL")
        .selectExpr(
            f"from_json(CAST(key AS STRING), '{KEY_TYPE}') AS key",
            f"from_json(CAST(value AS STRING), '{event_type}') AS event",
            "offset",
        )
        .selectExpr(
            "to_timestamp(key.time_hour) AS time_hour",
            *(f"key.{name}" for name in KEY if name != "time_hour"),
            *values,
            "event.payload.op",
            # The topic has one partition, so a later change has a higher offset.
            "offset AS _offset",
        )
    )
    return (
        rows.writeStream.format("barnabas_delta")
        .option("mergeKeys", ",".join(KEY))
        .option("sequenceColumn", "_offset")
        .option("deleteWhen", "op = 'd'")
        .option("exceptColumns", "op")
        .option("checkpointLocation", str(checkpoint))
        .start(str(tables / NAME))
    )
