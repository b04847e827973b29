"""The Spark job: topics of change events in, Delta tables with the current rows out.

    topics ── format("barnabas") ── events of each table folded by a task ── MERGE per table
    topic of flights ── format("barnabas") ── format("barnabas_delta") with mergeKeys

`python examples/change-data-capture/job.py --bootstrap HOST:PORT --output DIRECTORY`. Kill it
whenever you like and start it again: no change is lost, and none is applied twice.
"""

from __future__ import annotations

import argparse
import signal
from pathlib import Path

import msgspec
from pyspark.sql import DataFrame, SparkSession

import changes
import upserts
from airline import TABLES
from barnabas.spark.session import spark_session
from connect import topic_of
from delta_tables import Batch, apply_changes

# Bounds the memory of a batch: each record has its schema and takes about 5 kB.
EVENTS_PER_TRIGGER = 20_000
SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.log.level": "ERROR",
    # The check at the end wants to know in which batch each change was.
    "spark.sql.streaming.minBatchesToRetain": "100000",
}


class DeltaWriter:
    """Writes micro-batches to one Delta table per topic."""

    def __init__(self, tables: Path) -> None:
        self._paths = {topic_of(name): tables / name for name in TABLES}

    def __call__(self, batch: DataFrame, number: int) -> None:
        """Apply a micro-batch; Spark calls it again with the same batch after a crash."""
        context = batch.sparkSession.sparkContext
        query_id = context.getLocalProperty("sql.streaming.queryId")
        assert query_id is not None
        folded = batch.groupBy("topic").applyInArrow(changes.fold, changes.RESULT).toArrow()
        for topic, encoded in zip(*folded.to_pydict().values(), strict=True):
            found = msgspec.json.decode(encoded, type=changes.TableChanges)
            if found.events:
                is_new = apply_changes(self._paths[topic], found, Batch(query_id, number))
                note = "" if is_new else ", which the table has already"
                print(f"batch {number}: {found.events} changes of {topic}{note}", flush=True)


def read(spark: SparkSession, bootstrap: str, topics: str) -> DataFrame:
    """Return the change events of topics, as a stream."""
    return (
        spark.readStream.format("barnabas")
        .option("kafka.bootstrap.servers", bootstrap)
        # Events of a transaction that Connect did not commit must not be seen.
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", topics)
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        .option("maxOffsetsPerTrigger", EVENTS_PER_TRIGGER)
        .load()
    )


def run(bootstrap: str, output: Path) -> None:
    """Run both queries until one fails or the process is told to stop."""
    spark = spark_session("change-data-capture", "local[2]", SETTINGS)
    spark.sparkContext.addPyFile(changes.__file__)
    tables = output / "tables"
    events = read(spark, bootstrap, ",".join(map(topic_of, TABLES)))
    (
        events.select("topic", "offset", "key", "value", "headers")
        .writeStream.foreachBatch(DeltaWriter(tables))
        .option("checkpointLocation", str(output / "checkpoint"))
        .start()
    )
    flights = read(spark, bootstrap, topic_of(upserts.SOURCE))
    upserts.start(flights, tables, output / "checkpoint-upserts")
    spark.streams.awaitAnyTermination()


def main() -> None:
    """Command line: the address of a broker and the directory of tables and checkpoint."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--bootstrap", default="127.0.0.1:9092", help="HOST:PORT of a broker")
    parser.add_argument("--output", type=Path, default=Path("cdc-output"))
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    run(options.bootstrap, options.output.resolve())


if __name__ == "__main__":
    main()
