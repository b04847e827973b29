"""The job that `test_table_kills` kills: a topic to a Delta or Iceberg table."""

from __future__ import annotations

import json
import sys

from late_workers import run_job

from barnabas.spark.session import spark_session


def main(bootstrap: str, topic: str, directory: str, trigger: str, table: str) -> None:
    sink, target, options, *columns = json.loads(table)
    spark = spark_session("job", "local[2]", {"spark.driver.memory": "1g"})
    spark.sparkContext.setLogLevel("OFF")
    writer = (
        spark.readStream.format("barnabas")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 5000)
        .load()
        .selectExpr(*(columns or "*"))
        .writeStream.format(sink)
        .option("checkpointLocation", f"{directory}/checkpoint")
        .option("partitionColumns", "partition")
        .options(**options)
        .trigger(**json.loads(trigger))
    )
    run_job(lambda: writer.start(target))


if __name__ == "__main__":
    main(*sys.argv[1:])
